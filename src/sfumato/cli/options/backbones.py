"""Options that say which backbone is trained, and how a run's backbone is built again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.cli.console import say
from sfumato.cli.options.adapters import AdapterOptions, adapted
from sfumato.cli.options.untrained import refuse_untrained
from sfumato.cli.own_model import is_own, own_model

_DIMENSIONS = 128  # of an embedding, where nobody says


@dataclass(frozen=True, kw_only=True)
class ModelOptions(AdapterOptions):
    """The backbone.

    Attributes:
        model: lenet, mobilenet_v2, resnet18, resnet20, resnet50, squeezenet or mobilefacenet for pictures, lstm or
            transformer for texts, matrix_factorization or neural for ratings, linear_head for features (fedrecon); or
            package.module:factory, an importable class or function without arguments that gives a torch module; the
            folder that you are in is searched too.
        embedding_dim: dimensions of the embedding: 128 unless given, lstm has its own for each token; a model of your
            own decides them itself.
        model_options: for lstm, transformer and models of ratings: their own settings as name=value, for example
            hidden=256 layers=2, or factors=50 offset=3.5.
        weights: pretrained weights to start from: torchvision's or timm's, MobileFaceNet's, or the model.safetensors of
            another run. They must come from public data, for the guarantee does not cover what they were trained on.
        batch_norm: what becomes of the batch norm in published weights: group norm takes its place (replace), or it is
            folded into the convolutions (fold).
    """

    model: str = "lenet"
    embedding_dim: int | None = None
    model_options: tuple[str, ...] = ()
    weights: Path | None = None
    batch_norm: Literal["replace", "fold"] = "replace"


def build(
    options: ModelOptions,
    input_shape: Sequence[int],
    seed: int | None,
    *,
    load: bool,
    quiet: bool,
    trainable: str = "all",
) -> nn.Module:
    """The backbone at the start of a run.

    Args:
        options: which.
        input_shape: (height, width, channels) of the data.
        seed: of the run; None initialises at random.
        load: read the pretrained weights; not needed where a checkpoint replaces them.
        quiet: do not print what was loaded.
        trainable: which of its parameters are trained.

    Raises:
        InputError: an unknown name, data that are no pictures, weights that do not fit, or a layer that would stay at
            random values beside them.
    """
    if options.model_options:
        raise InputError(f"--model-options is for models of texts and of ratings; leave it out for {options.model}")
    source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
    generator = first_weights(source)
    if is_own(options.model):
        if load:  # a run that goes on is told its plan.json
            refuse_dimensions(options)
        model = own_model(options.model, source)
    else:
        model = models.backbone(
            options.model,
            embedding_dim=embedding_dim_of(options),
            input_shape=input_shape,
            normalisation=_normalisation(options.weights, options.batch_norm),
            generator=generator,
        )
    if options.weights is None or not load:
        return adapted(model, vars(options), input_shape, generator)
    fresh = _load(model, options, options.weights, input_shape, quiet=quiet)
    whole = adapted(model, vars(options), input_shape, generator)
    if whole is not model:  # behind a projection
        fresh = [f"backbone.{name}" for name in fresh]
        fresh += [name for name, _ in whole.named_parameters() if name.startswith("projection.")]
    refuse_untrained(whole, fresh, trainable, options.weights, input_shape=input_shape)
    return whole


def _load(
    model: nn.Module, options: ModelOptions, weights: Path, input_shape: Sequence[int], *, quiet: bool
) -> list[str]:
    """Fill a backbone with the weights to start from; gives the names of what they do not have."""
    if weights.suffix == ".safetensors" and models.read_metadata(weights):
        models.load_weights(model, weights)
        if not quiet:
            say(f"weights: all tensors of {weights}")
        return []
    channels = "sum" if input_shape[-1] == 1 else "same"
    report = models.load_pretrained(model, weights, batch_norm=options.batch_norm, channels=channels)
    if not quiet:
        say(report.text())
    return [*report.names("missing")]


def first_weights(source: RandomSource) -> torch.Generator:
    """What the first weights of a run's model are drawn from."""
    return torch.Generator().manual_seed(source.seed64("initial model"))


def refuse_dimensions(options: ModelOptions) -> None:
    """Refuse dimensions for a model of one's own, which decides them itself."""
    if options.embedding_dim is not None:
        raise InputError(
            f"--embedding-dim is for the models of this package; {options.model} decides it itself: leave it out"
        )


def embedding_dim_of(options: ModelOptions) -> int:
    """Dimensions of the embedding of a backbone of this package."""
    return _DIMENSIONS if options.embedding_dim is None else options.embedding_dim


def rebuild(about: Mapping[str, Any], weights: Path) -> nn.Module:
    """The trained backbone of a run.

    Args:
        about: what the run's plan.json says about its model.
        weights: its model.safetensors.

    Raises:
        InputError: plan.json does not tell the model, or the weights are not of this model.
    """
    wanted = ("model", "embedding_dim", "input_shape")
    missing = [name for name in wanted if name not in about]
    if "outputs" in about:
        raise InputError(
            f"{weights.parent} is a run of sfumato dpsgd, whose model gives classes or numbers and no embeddings; load "
            f"{weights.name} in Python with sfumato.models.load_weights"
        )
    if "item_count" in about or "class_count" in about:
        raise InputError(
            f"{weights.parent} is a run whose model gives values or classes and no embeddings; sfumato personalise "
            "serves people with it"
        )
    if "vocabulary_size" in about:
        raise InputError(
            f"{weights.parent} is a run on texts, whose model tells the next token and gives no embeddings; load "
            f"{weights.name} in Python with sfumato.models.load_weights"
        )
    if missing:
        raise InputError(
            f"{weights.parent}/plan.json does not tell the run's {missing[0]}: it was trained from Python; load "
            f"{weights.name} there, with sfumato.models.load_weights"
        )
    if is_own(about["model"]):
        model = own_model(about["model"], RandomSource.from_os())
    else:
        model = models.backbone(
            about["model"],
            embedding_dim=about["embedding_dim"],
            input_shape=about["input_shape"],
            normalisation=_normalisation(about.get("weights"), about.get("batch_norm", "replace")),
        )
    model = adapted(model, about, about["input_shape"], None)
    models.load_weights(model, weights)
    return model.eval()


def _normalisation(weights: object, batch_norm: str) -> Literal["group", "none"]:
    """A network whose batch norm was folded away has no norm layers."""
    return "none" if weights is not None and batch_norm == "fold" else "group"


def check_device(name: str) -> None:
    """Refuse a device that is not there.

    Raises:
        InputError: torch does not know or find it.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device must be cpu, cuda or cuda:<number>, got {name}") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device must be cpu, cuda or cuda:<number>, got {name}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name} is not there: torch finds {torch.cuda.device_count()} GPUs; use --device cpu")
