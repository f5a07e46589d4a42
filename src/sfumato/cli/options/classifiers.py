"""Options that say which model of examples is trained, and how a run's model is built again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.cli.console import say
from sfumato.cli.options.examples import LabelledDataOptions, read_examples
from sfumato.cli.options.named_values import named_values
from sfumato.cli.options.untrained import refuse_untrained
from sfumato.cli.own_model import is_own, own_model
from sfumato.data import ExampleDataset, to_tensor
from sfumato.models.catalogue import NETWORKS

PICTURES = tuple(name for name, each in NETWORKS["classes"].items() if each.reads.startswith("pictures"))
"""The classifiers that read nothing else."""


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    """The model.

    Attributes:
        model: lenet5, lenet300_100, resnet18, resnet20, wrn16_4 or scatternet for pictures, bilstm or transformer
            for texts, ctr for tables, lenet300_100 for numbers alone, matrix_factorization or neural for ratings. It
            gets an output for each class, or for each number of a target. Or package.module:factory, an importable
            class or function without arguments that gives a torch module; the folder that you are in is searched too.
        normalisation: none, layer, group or public_batch, where the model has the choice; None for its own.
        model_options: more of the model's own settings as name=value, for example hidden=64.
        public_inputs: for public_batch: data whose first 128 examples are public; they are never private records.
        pretrained: weights to start from, of the same network: a run's model.safetensors. The last layer is new where
            the classes differ. They must come from public data, or have a statement of their own.
    """

    model: str = "lenet5"
    normalisation: Literal["none", "layer", "group", "public_batch"] | None = None
    model_options: tuple[str, ...] = ()
    public_inputs: str | None = None
    pretrained: Path | None = None


def build_classifier(
    options: ClassifierOptions,
    data: ExampleDataset,
    seed: int | None,
    *,
    load: bool,
    quiet: bool,
    reading: LabelledDataOptions | None = None,
    trainable: str = "all",
) -> nn.Module:
    """The classifier at the start of a run.

    Args:
        options: which.
        data: for its shapes and public sizes.
        seed: of the run; None initialises at random.
        load: read the pretrained weights; not needed where a checkpoint replaces them.
        quiet: do not print what was loaded.
        reading: how public inputs are read.
        trainable: which parameters are trained.

    Raises:
        InputError: an unknown name or option, data that the model does not read, weights that do not fit, or a layer
            that would stay at random values beside them.
    """
    source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
    model = (
        _own(options, source) if is_own(options.model) else _of_the_catalogue(options, data, source, reading=reading)
    )
    if options.pretrained is not None and load:
        fresh = models.transfer_weights(model, options.pretrained)
        refuse_untrained(model, fresh, trainable, options.pretrained)
        if not quiet:
            say(f"weights: all tensors of {options.pretrained}" + (f" but {', '.join(fresh)}" if fresh else ""))
    return model


def _own(options: ClassifierOptions, source: RandomSource) -> nn.Module:
    """A network by its module's name, which takes no settings."""
    for flag, value in (
        ("--normalisation", options.normalisation),
        ("--public-inputs", options.public_inputs),
        ("--model-options", options.model_options),
    ):
        if value:
            raise InputError(f"{flag} is for the models of this package; {options.model} decides it itself")
    return own_model(options.model, source)


def _of_the_catalogue(
    options: ClassifierOptions, data: ExampleDataset, source: RandomSource, *, reading: LabelledDataOptions | None
) -> nn.Module:
    generator = torch.Generator().manual_seed(source.seed64("initial model"))
    chosen = named_values(options.model_options)
    if options.model in models.RECOMMENDERS:
        return _recommender(options, data, chosen, generator)
    if options.normalisation is not None:
        chosen["normalisation"] = options.normalisation
    if options.public_inputs is not None:
        public = read_examples(options.public_inputs, reading or LabelledDataOptions())
        chosen["public_inputs"] = to_tensor(public.examples(range(min(128, len(public))))[0][0])
    elif options.normalisation == "public_batch":
        raise InputError("normalisation public_batch needs public data for its statistics; give --public-inputs PATH")
    chosen = _sizes(options.model, data.vocabulary_sizes) | chosen
    _refuse_unlike_pictures(options.model, data)
    _refuse_ids(options.model, data)
    return models.classifier(options.model, _outputs(data), data.input_shapes, generator=generator, **chosen)


def _recommender(
    options: ClassifierOptions, data: ExampleDataset, chosen: dict[str, Any], generator: torch.Generator
) -> nn.Module:
    """A model of an item and a user, of each of which the data tell how many there are."""
    for flag, value in (("--normalisation", options.normalisation), ("--public-inputs", options.public_inputs)):
        if value is not None:
            raise InputError(f"{flag} is for other models, {options.model} has no such layer; leave it out")
    if data.columns != (("item", "user"),):
        raise InputError(
            f"{options.model} reads ratings, the numbers of an item and a user, got {data}; give ratings as --data, "
            "or another --model"
        )
    items, users = data.vocabulary_sizes
    return models.recommender(
        options.model, items, generator=generator, **{"users": users, "classes": data.num_classes, **chosen}
    )


def _outputs(data: ExampleDataset) -> int:
    """One for each class, or for each number of a target."""
    if data.num_classes is not None:
        return data.num_classes
    if data.targets is None:
        raise InputError(
            "the examples have no targets, so nothing tells how many outputs a model needs; name them with "
            "--label COLUMN, or train without targets from Python"
        )
    return 1 if data.targets.ndim == 1 else data.targets.shape[1]


def _refuse_unlike_pictures(name: str, data: ExampleDataset) -> None:
    """Refuse numbers or ids where a classifier of ours reads pictures.

    Args:
        name: of the classifier.
        data: of one input, in the shape of a picture.

    Raises:
        InputError: with how pictures are stored.
    """
    if name in PICTURES and len(data.dtypes) == 1 and len(data.input_shapes[0]) in (2, 3) and data.dtypes[0] != "uint8":
        raise InputError(
            f"{name} reads pictures, uint8 [height, width, channels] with values 0 … 255, got {data.dtypes[0]} "
            f"{data.input_shapes[0]}; store them so, or take lenet300_100, which reads floats of any shape"
        )


def _refuse_ids(name: str, data: ExampleDataset) -> None:
    if name == "lenet300_100" and data.dtypes[0].kind == "i":
        raise InputError(
            f"lenet300_100 reads pictures or floats, got {data.dtypes[0]} {data.input_shapes[0]}, which stand for ids; "
            "store numbers as float32, or declare the column as numeric in a --schema"
        )


def about_classifier(data: ExampleDataset) -> dict[str, Any]:
    """What is needed beside the options to build the classifier again."""
    return {
        "classes": data.num_classes,
        "outputs": _outputs(data),
        "input_shapes": data.input_shapes,
        "vocabulary_sizes": data.vocabulary_sizes,
    }


def _sizes(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    """The public sizes of the data under the name that the model gives them."""
    if not sizes:
        return {}
    reads = NETWORKS["classes"][name].reads if name in NETWORKS["classes"] else None
    if reads == "tokens":
        return {"vocabulary_size": sizes[0]}
    return {"vocabulary_sizes": tuple(sizes)} if reads == "table" else {}
