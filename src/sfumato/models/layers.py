"""What the networks share: norms, initial weights, checks of arguments.

A convolution, the norm after it and after any trained layer; initial weights that come from one explicit generator,
whatever the layers drew when they were built; and whether an operation is mapped over a stack of models, where some of
torch's fused operations are slow or missing.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from sfumato._check import InputError, one_of, whole
from sfumato.models.public_batch_norm import PublicBatchNorm, use_public_batch


def is_mapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of many that `torch.func.vmap` goes through together.

    >>> is_mapped(torch.zeros(2)), torch.func.vmap(lambda row: row + is_mapped(row))(torch.zeros(2)).tolist()
    (False, [1.0, 1.0])
    """
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]


def refuse_no_units(**layers: Any) -> None:
    """Refuse what is no list of units of layers, each a whole number >= 1."""
    for name, sizes in layers.items():
        if isinstance(sizes, str) or not isinstance(sizes, Sequence):
            raise InputError(f"{name} must be a list of numbers of units, got {sizes!r:.40}; give [64] for one layer")
        for units in sizes:
            whole(**{name: units})


def glorot(model: nn.Module, generator: torch.Generator | None) -> None:
    """Glorot-uniform weights and zero biases in convolutions and dense layers, in place (Keras' default)."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def he(model: nn.Module, generator: torch.Generator | None) -> None:
    """He-normal convolutions (by fan-out) and Glorot-uniform dense layers, zero biases, in place."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
        elif isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def sequence_layers(model: nn.Module, generator: torch.Generator | None) -> None:
    """Normal embeddings with variance 1 / width, uniform LSTM weights within 1 / sqrt(hidden), zero biases, in place.

    Rows of length about one: longer ones, as torch draws them, drown the gradient of the layers above.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, std=layer.embedding_dim**-0.5, generator=generator)
        elif isinstance(layer, nn.RNNBase):
            for name, parameter in layer.named_parameters(recurse=False):
                if name.startswith("bias"):
                    nn.init.zeros_(parameter)
                else:
                    bound = layer.hidden_size**-0.5
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)


AnyModule = TypeVar("AnyModule", bound=nn.Module)

GroupOrNone = Literal["group", "none"]
"""Group norm after convolutions without bias, or no norm after convolutions with bias (folded weights)."""

Normalisation = Literal["none", "layer", "group", "public_batch"]
"""What follows each trained layer of a classifier but the last."""

_NORMALISATIONS = ("none", "layer", "group", "public_batch")
_MOST_GROUPS = 16

Stem = Literal["imagenet", "small"]
"""How fast the first layers shrink the image: by 4 for photographs, not at all for images below 64 pixels."""


def convolution(
    inputs: int, outputs: int, kernel: int, *, normalisation: Normalisation, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1; it has a bias only where no norm follows."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=normalisation == "none")


def backbone_norm(channels: int, kind: Normalisation, *, groups: int, eps: float) -> nn.Module:
    """The layer after a convolution of a backbone, with the backbone's own groups and eps."""
    return nn.GroupNorm(groups, channels, eps=eps) if kind == "group" else norm_after(channels, kind)


def norm_after(channels: int, kind: Normalisation) -> nn.Module:
    """What follows a trained layer with outputs [n, channels] or [n, channels, H, W], before the activation.

    Layer norm is over all of an example's numbers, with a scale and a shift for each channel. Group norm has the most
    groups, up to 16, that divide the channels into groups of at least two.
    """
    if kind == "none":
        return nn.Identity()
    if kind == "public_batch":
        return PublicBatchNorm(channels)
    groups = 1 if kind == "layer" else group_count(channels)
    return nn.GroupNorm(groups, channels)


def group_count(channels: int) -> int:
    """The most groups, up to 16, that divide the channels into groups of at least two."""
    most = min(_MOST_GROUPS, max(channels // 2, 1))
    return next(count for count in range(most, 0, -1) if channels % count == 0)


def has_bias(kind: Normalisation) -> bool:
    """Whether a layer has a bias: public batch norm would subtract it again."""
    return kind != "public_batch"


def check_arguments(*, embedding_dim: int, in_channels: int, stem: str, normalisation: str) -> None:
    """Refuse sizes below 1 and unknown choices."""
    whole(embedding_dim=embedding_dim, in_channels=in_channels)
    one_of(("imagenet", "small"), stem=stem)
    one_of(_NORMALISATIONS, normalisation=normalisation)


def check_images(inputs: torch.Tensor, in_channels: int, name: str) -> None:
    """Refuse anything but images [n, in_channels, H, W]."""
    if inputs.ndim != 4 or inputs.shape[1] != in_channels:
        raise InputError(
            f"this {name} reads images [n, {in_channels}, height, width], got {list(inputs.shape)}; "
            f"convert the images or build the model with in_channels=..."
        )


def check_normalisation(kind: str, allowed: tuple[str, ...] = _NORMALISATIONS) -> None:
    """Refuse an unknown norm."""
    one_of(allowed, normalisation=kind)


def with_public_inputs(model: AnyModule, kind: Normalisation, public_inputs: torch.Tensor | None) -> AnyModule:
    """Hand the public inputs to the model; without them its statistics must come from a file or be given later.

    Raises:
        InputError: no layer takes them.
    """
    if public_inputs is None:
        return model
    if kind != "public_batch":
        raise InputError(
            f"public_inputs go with normalisation='public_batch', got normalisation={kind!r}; leave them out"
        )
    use_public_batch(model, public_inputs)
    return model


def height_and_width(image_size: int | tuple[int, int], at_least: int = 1) -> tuple[int, int]:
    """Both sides in pixels; one number means square.

    Raises:
        InputError: a side is not a whole number >= `at_least`.
    """
    height, width = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    remedy = "bring the pictures to that size, or take a model for smaller ones" if at_least > 1 else ""
    whole(at_least=at_least, remedy=remedy, height=height, width=width)
    return height, width


def check_shape(inputs: torch.Tensor, expected: tuple[int, ...], name: str) -> None:
    """Refuse anything but [n, *expected]."""
    if inputs.shape[1:] != expected:
        shape = ", ".join(map(str, expected))
        raise InputError(
            f"this {name} reads [n, {shape}], got {list(inputs.shape)}; build it for the shape of the data"
        )
