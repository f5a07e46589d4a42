"""What the convolutional backbones share: a convolution, the norm after it, the check of arguments."""

from typing import Literal

import torch
from torch import nn

from sfumato._check import InputError, one_of, whole

Norm = Literal["group", "none"]
"""Group norm after convolutions without bias, or no norm after convolutions with bias (folded weights)."""

Stem = Literal["imagenet", "small"]
"""How fast the first layers shrink the image: by 4 for photographs, not at all for images below 64 pixels."""


def convolution(inputs: int, outputs: int, kernel: int, *, norm: Norm, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1; it has a bias only where no norm follows."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=norm == "none")


def normalisation(channels: int, *, norm: Norm, groups: int, eps: float) -> nn.Module:
    """The layer after a convolution: group norm, or nothing."""
    return nn.GroupNorm(groups, channels, eps=eps) if norm == "group" else nn.Identity()


def check_arguments(*, embedding_dim: int, in_channels: int, stem: str, norm: str) -> None:
    """Refuse sizes below 1 and unknown choices."""
    whole(embedding_dim=embedding_dim, in_channels=in_channels)
    one_of(("imagenet", "small"), stem=stem)
    one_of(("group", "none"), norm=norm)


def check_images(inputs: torch.Tensor, in_channels: int, name: str) -> None:
    """Refuse anything but images [n, in_channels, H, W]."""
    if inputs.ndim != 4 or inputs.shape[1] != in_channels:
        raise InputError(
            f"this {name} reads images [n, {in_channels}, height, width], got {list(inputs.shape)}; "
            f"convert the images or build the model with in_channels=..."
        )
