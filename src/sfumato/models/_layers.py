"""What the networks share: a convolution, the norm after it, the norm after any trained layer, checks of arguments."""

from typing import Literal

import torch
from torch import nn

from sfumato._check import InputError, one_of, whole
from sfumato.models.public_batch_norm import PublicBatchNorm

Norm = Literal["group", "none"]
"""Group norm after convolutions without bias, or no norm after convolutions with bias (folded weights)."""

Normalisation = Literal["none", "layer", "group", "public_batch"]
"""What follows each trained layer of a classifier but the last."""

_NORMALISATIONS = ("none", "layer", "group", "public_batch")
_MOST_GROUPS = 16

Stem = Literal["imagenet", "small"]
"""How fast the first layers shrink the image: by 4 for photographs, not at all for images below 64 pixels."""


def convolution(
    inputs: int, outputs: int, kernel: int, *, norm: Normalisation, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1; it has a bias only where no norm follows."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=norm == "none")


def normalisation(channels: int, *, norm: Normalisation, groups: int, eps: float) -> nn.Module:
    """The layer after a convolution of a backbone, with the backbone's own groups and eps."""
    return nn.GroupNorm(groups, channels, eps=eps) if norm == "group" else norm_after(channels, norm)


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


def check_arguments(*, embedding_dim: int, in_channels: int, stem: str, norm: str) -> None:
    """Refuse sizes below 1 and unknown choices."""
    whole(embedding_dim=embedding_dim, in_channels=in_channels)
    one_of(("imagenet", "small"), stem=stem)
    one_of(_NORMALISATIONS, norm=norm)


def check_images(inputs: torch.Tensor, in_channels: int, name: str) -> None:
    """Refuse anything but images [n, in_channels, H, W]."""
    if inputs.ndim != 4 or inputs.shape[1] != in_channels:
        raise InputError(
            f"this {name} reads images [n, {in_channels}, height, width], got {list(inputs.shape)}; "
            f"convert the images or build the model with in_channels=..."
        )


def check_classifier(*, normalisation: str, allowed: tuple[str, ...] = _NORMALISATIONS, **sizes: int) -> None:
    """Refuse sizes below 1 and an unknown norm."""
    whole(**sizes)
    one_of(allowed, normalisation=normalisation)
