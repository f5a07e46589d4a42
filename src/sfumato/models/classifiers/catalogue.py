"""Classifiers by name, for configuration files and the command line: from the shapes of a data set to a model.

>>> model = classifier("lenet5", 10, [(28, 28, 1)], normalisation="layer")
>>> model(torch.zeros(3, 1, 28, 28)).shape
torch.Size([3, 10])
>>> classifier("bilstm", 4, [(28, 28, 1)], vocabulary_size=100)
Traceback (most recent call last):
...
sfumato._check.InputError: bilstm reads token ids of shape (T,), got input shapes (28, 28, 1); \
for images take lenet5, lenet300_100, resnet18, resnet20, wrn16_4 or scatternet
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from sfumato._check import InputError, one_of, whole
from sfumato.models.backbones.resnet import resnet18_classifier, resnet20_classifier
from sfumato.models.classifiers.bilstm import bilstm_classifier
from sfumato.models.classifiers.ctr import ctr_model
from sfumato.models.classifiers.lenet5 import lenet5
from sfumato.models.classifiers.lenet300_100 import lenet300_100
from sfumato.models.classifiers.scatternet import scatternet_linear
from sfumato.models.classifiers.transformer import transformer_classifier
from sfumato.models.classifiers.wide_resnet import wrn16_4

_SMALL = 64  # pixels: below it, a stem that shrinks the image by 4 leaves almost nothing to see

_SIZED = {"lenet5": lenet5, "scatternet": scatternet_linear}
_ANY_SIZE = {"resnet18": resnet18_classifier, "resnet20": resnet20_classifier, "wrn16_4": wrn16_4}
_TEXT = {"bilstm": bilstm_classifier, "transformer": transformer_classifier}
_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    **_SIZED,
    "lenet300_100": lenet300_100,
    **_ANY_SIZE,
    **_TEXT,
    "ctr": ctr_model,
}

CLASSIFIERS = ("lenet5", "lenet300_100", "resnet18", "resnet20", "wrn16_4", "scatternet", *_TEXT, "ctr")
"""The names that `classifier` knows."""

_READS = {
    **dict.fromkeys(_BUILDERS, "images of shape (height, width) or (height, width, channels)"),
    "lenet300_100": "numbers of any shape",
    **dict.fromkeys(_TEXT, "token ids of shape (T,)"),
    "ctr": "numbers of shape (a,) and categories of shape (b,)",
}


def classifier(
    name: str,
    num_classes: int,
    input_shapes: Sequence[Sequence[int]],
    *,
    generator: torch.Generator | None = None,
    **options: Any,
) -> nn.Module:
    """Build a classifier for a data set.

    Args:
        name: one of `CLASSIFIERS`.
        num_classes: outputs, >= 1.
        input_shapes: the shape of one example of each input, as the data set stores it: [(height, width, channels)] or
            [(height, width)] for images, [(T,)] for texts, [(a,), (b,)] for tables.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.
        options: keyword arguments of the model's own function (`lenet5`, `bilstm_classifier`, ...), such as
            normalisation; what follows from the shapes (channels, image_size, max_length, columns) need not be given.
            Texts and tables need their public sizes: vocabulary_size and vocabulary_sizes.

    Raises:
        InputError: the name or an option is unknown, the shapes are not what the model reads, or an option is missing.
    """
    one_of(CLASSIFIERS, model=name, remedy="or package.module:factory for a torch module of your own")
    shapes = [tuple(shape) for shape in input_shapes]
    for shape in shapes:
        for side in shape:
            whole(input_shapes=side)
    build = _BUILDERS[name]
    known = inspect.signature(build).parameters
    taken = {key for key, value in known.items() if value.kind is value.KEYWORD_ONLY} - {"generator"}
    for option in options:
        if option not in taken:
            raise InputError(f"{name} has no option {option}; it has {', '.join(sorted(taken))}")
    positional, derived = _from_shapes(name, shapes)
    missing = [
        key for key, value in known.items() if value.default is value.empty and key in taken and key not in options
    ]
    if missing:
        raise InputError(f"{name} needs {missing[0]}=..., a public number that is not counted from private data")
    sizes = options.get("vocabulary_sizes")
    if sizes is not None and not isinstance(sizes, int) and len(sizes) != derived["columns"]:
        raise InputError(
            f"vocabulary_sizes must be one number or one for each of the {derived['columns']} categorical columns, "
            f"got {len(sizes)}"
        )
    return build(num_classes, *positional, generator=generator, **(derived | options))


def _from_shapes(name: str, shapes: list[tuple[int, ...]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the shapes say: positional arguments after the number of classes, and options."""
    ranks = [len(shape) for shape in shapes]
    if name in _TEXT and ranks == [1]:
        return (), {"max_length": shapes[0][0]} if name == "transformer" else {}
    if name == "ctr" and ranks == [1, 1]:
        return (), {"numeric": shapes[0][0], "columns": shapes[1][0]}
    if name == "lenet300_100" and len(shapes) == 1 and shapes[0]:
        return (int(torch.Size(shapes[0]).numel()),), {}
    if (name in _SIZED or name in _ANY_SIZE) and ranks in ([2], [3]):
        height, width, channels = (*shapes[0], 1)[:3]
        if name in _SIZED:
            return (channels, (height, width)), {}
        small = {"stem": "small" if min(height, width) < _SMALL else "imagenet"}
        return (channels,), small if name != "wrn16_4" else {}
    found = ", ".join(map(str, shapes)) or "none"
    raise InputError(f"{name} reads {_READS[name]}, got input shapes {found}; {_remedy(ranks)}")


def _remedy(ranks: list[int]) -> str:
    if ranks in ([2], [3]):
        return "for images take lenet5, lenet300_100, resnet18, resnet20, wrn16_4 or scatternet"
    if ranks == [1]:
        return "for texts take bilstm or transformer, for numbers lenet300_100"
    return "for tables take ctr" if ranks == [1, 1] else "for other data bring your own torch module"
