"""Which language model is trained on texts, and how it is built at the start of a run."""

from pathlib import Path

from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.cli.console import say
from sfumato.cli.options.backbones import ModelOptions, first_weights
from sfumato.cli.options.named_values import named_values
from sfumato.cli.own_model import is_own, own_model
from sfumato.data import UserDataset


def build_language_model(
    options: ModelOptions, data: UserDataset, seed: int | None, *, load: bool, quiet: bool, oov_buckets: int = 0
) -> nn.Module:
    """The language model at the start of a run.

    Args:
        options: which.
        data: for the length of its sequences and the size of its vocabulary, both public.
        seed: of the run; None initialises at random.
        load: read the weights to start from; not needed where a checkpoint replaces them.
        quiet: do not print what was loaded.
        oov_buckets: ids that the data have behind those of the vocabulary.

    Raises:
        InputError: an unknown name or setting, or weights that do not fit.
    """
    source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
    if is_own(options.model):
        if options.model_options:
            raise InputError(
                f"--model-options is for the models of this package; {options.model} decides its settings itself"
            )
        model = own_model(options.model, source)
    else:
        chosen = named_values(options.model_options)
        if options.embedding_dim is not None:
            chosen["embedding_dim"] = options.embedding_dim
        if oov_buckets:
            chosen["oov_buckets"] = oov_buckets
        model = models.language_model(
            options.model,
            data.num_classes,
            data.input_shape[0],
            generator=first_weights(source),
            **chosen,
        )
    if options.weights is not None and load:
        _load(model, options.weights)
        if not quiet:
            say(f"weights: all tensors of {options.weights}")
    return model


def _load(model: nn.Module, weights: Path) -> None:
    if weights.suffix != ".safetensors":
        raise InputError(
            f"texts start from the model.safetensors of another run, got {weights}; or leave --weights out"
        )
    models.load_weights(model, weights)
