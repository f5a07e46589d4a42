"""ResNet-18, ResNet-50 (version 1) and ResNet-20 with group norm, for embeddings and for classes.

Group norm (32 groups, eps 1e-5; ResNet-20: 8 groups, as its first layers have 16 channels) computes its
statistics from one example, so no person's image changes another's gradient, and nothing but parameters is
learnt: the whole model is in what the private sum releases. Convolutions have no bias. In ResNet-50 the
stride is in the 3x3 convolution. Shortcuts that change shape are 1x1 convolutions. Global average pooling
accepts any image size; a dense layer with bias gives the embedding, or the logits of a classifier. It keeps its name,
so that published weights of a ResNet-18 can be loaded under any classifier (`sfumato.models.load_pretrained`).

`stem="imagenet"` starts with 7x7 stride 2 and 3x3 max pooling stride 2; `stem="small"` with 3x3 stride 1 and
no pooling, for images below 64 pixels. Layers have the usual names (`layer3.1.conv2`), so that published
weights can be mapped.

`normalisation="none"` builds the network that published weights with *folded* batch norm need: convolutions with bias
and no norm at all. Layer and public batch norm take the place of group norm after each convolution; neither couples
examples.

References:
    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition (2015), arXiv 1512.03385, tables 1, 6.
    Wu, He: Group Normalization (2018), arXiv 1803.08494.
    Xu et al. (2022), arXiv 2211.10844: ResNet-50 with group norm as the backbone of DP-FedEmb.
    Davody et al. (2020), arXiv 2006.10919.

>>> sum(parameter.numel() for parameter in resnet50(embedding_dim=128).parameters())
23770304
>>> resnet20(embedding_dim=64, in_channels=1)(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 64])
>>> model = resnet20_classifier()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
(272474, torch.Size([2, 10]))
>>> sum(parameter.numel() for parameter in resnet18_classifier().parameters())
11173962
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import one_of
from sfumato.models.layers import (
    GroupOrNone,
    Normalisation,
    Stem,
    backbone_norm,
    check_arguments,
    check_images,
    convolution,
    he,
    with_public_inputs,
)
from sfumato.models.trainable import Stage

_EPS = 1e-5

Name = Literal["resnet18", "resnet20", "resnet50"]
"""The networks of this file."""


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """Blocks of each stage, channels of the first one, groups of group norm, and which block."""

    depths: tuple[int, ...]
    width: int
    groups: int
    bottleneck: bool = False


_SHAPES = {
    "resnet18": _Shape(depths=(2, 2, 2, 2), width=64, groups=32),
    "resnet20": _Shape(depths=(3, 3, 3), width=16, groups=8),
    "resnet50": _Shape(depths=(3, 4, 6, 3), width=64, groups=32, bottleneck=True),
}


class ResidualBlock(nn.Module):
    """Convolutions with norms, added to a shortcut: 3x3, 3x3 (basic) or 1x1, 3x3, 1x1 (bottleneck)."""

    def __init__(self, inputs: int, width: int, shape: _Shape, *, stride: int, normalisation: Normalisation) -> None:
        super().__init__()
        outputs = 4 * width if shape.bottleneck else width

        def normed(channels: int) -> nn.Module:
            return backbone_norm(channels, normalisation, groups=shape.groups, eps=_EPS)

        if shape.bottleneck:
            self.conv1 = convolution(inputs, width, 1, normalisation=normalisation)
            self.conv2 = convolution(width, width, 3, normalisation=normalisation, stride=stride)
            self.conv3 = convolution(width, outputs, 1, normalisation=normalisation)
            self.norm3 = normed(outputs)
        else:
            self.conv1 = convolution(inputs, width, 3, normalisation=normalisation, stride=stride)
            self.conv2 = convolution(width, width, 3, normalisation=normalisation)
            self.conv3 = None
        self.norm1, self.norm2 = normed(width), normed(width)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                convolution(inputs, outputs, 1, normalisation=normalisation, stride=stride), normed(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float [n, inputs, H, W] to float [n, outputs, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.norm1(self.conv1(x)))
        x = self.norm2(self.conv2(x))
        if self.conv3 is not None:
            x = self.norm3(self.conv3(functional.relu(x)))
        return functional.relu(x + shortcut)


class ResNet(nn.Module):
    """A stem, stages of residual blocks, global average pooling, a dense layer, with He-normal convolutions.

    Args:
        name: "resnet18", "resnet20" or "resnet50".
        outputs: dimensions of the embedding, or classes; >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        stem: "imagenet" for photographs, "small" for images below 64 pixels.
        normalisation: "group", "layer", "public_batch", or "none", as for weights with folded batch norm.
        public_inputs: float [M, C, H, W], for "public_batch"; see `use_public_batch`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """

    def __init__(
        self,
        name: Name,
        outputs: int = 128,
        in_channels: int = 3,
        *,
        stem: Stem = "imagenet",
        normalisation: Normalisation = "group",
        public_inputs: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        one_of(_SHAPES, name=name)
        check_arguments(embedding_dim=outputs, in_channels=in_channels, stem=stem, normalisation=normalisation)
        shape = _SHAPES[name]
        width, channels = shape.width, shape.width
        self.in_channels = in_channels
        large = stem == "imagenet"
        self.conv1 = convolution(
            in_channels, width, 7 if large else 3, normalisation=normalisation, stride=2 if large else 1
        )
        self.norm1 = backbone_norm(width, normalisation, groups=shape.groups, eps=_EPS)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        self.layers: list[str] = []
        for stage, depth in enumerate(shape.depths):
            blocks = []
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(ResidualBlock(channels, width, shape, stride=stride, normalisation=normalisation))
                channels = 4 * width if shape.bottleneck else width
            self.layers.append(f"layer{stage + 1}")
            self.add_module(self.layers[-1], nn.Sequential(*blocks))
            width *= 2
        self.embedding = nn.Linear(channels, outputs)
        he(self, generator)
        with_public_inputs(self, normalisation, public_inputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to raw (not normalised) embeddings or logits, float [n, outputs]."""
        check_images(inputs, self.in_channels, "ResNet")
        x = self.pool(functional.relu(self.norm1(self.conv1(inputs))))
        for layer in self.layers:
            x = self.get_submodule(layer)(x)
        return self.embedding(x.mean((2, 3)))

    def stages(self) -> tuple[Stage, ...]:
        """The stem, the residual blocks, pooling, the embedding."""
        blocks = [f"{layer}.{place}" for layer in self.layers for place, _ in enumerate(self.get_submodule(layer))]  # pyright: ignore[reportArgumentType]
        return (
            Stage("stem", ("conv1", "norm1", "pool"), lambda x, conv, norm, pool: pool(functional.relu(norm(conv(x))))),
            *(Stage(name, (name,), block=True) for name in blocks),
            Stage("pool", run=lambda x: x.mean((2, 3))),
            Stage("embedding", ("embedding",)),
        )


def resnet18(
    embedding_dim: int = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "imagenet",
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> ResNet:
    """A ResNet-18 backbone: 11,242,176 parameters at 3 channels, 128 dimensions. Arguments and errors as `ResNet`."""
    return ResNet("resnet18", embedding_dim, in_channels, stem=stem, normalisation=normalisation, generator=generator)


def resnet20(
    embedding_dim: int = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "small",
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> ResNet:
    """A ResNet-20 backbone, stages of 16, 32 and 64 channels: 280,144 parameters. Arguments and errors as `ResNet`."""
    return ResNet("resnet20", embedding_dim, in_channels, stem=stem, normalisation=normalisation, generator=generator)


def resnet50(
    embedding_dim: int = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "imagenet",
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> ResNet:
    """A ResNet-50 backbone: 23,770,304 parameters at 3 channels, 128 dimensions. Arguments and errors as `ResNet`."""
    return ResNet("resnet50", embedding_dim, in_channels, stem=stem, normalisation=normalisation, generator=generator)


def resnet18_classifier(
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    stem: Stem = "small",
    normalisation: Normalisation = "group",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> ResNet:
    """A ResNet-18 classifier. Arguments and errors as `ResNet`."""
    return ResNet(
        "resnet18",
        num_classes,
        in_channels,
        stem=stem,
        normalisation=normalisation,
        public_inputs=public_inputs,
        generator=generator,
    )


def resnet20_classifier(
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    stem: Stem = "small",
    normalisation: Normalisation = "group",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> ResNet:
    """A ResNet-20 classifier for images of about 32 pixels. Arguments and errors as `ResNet`."""
    return ResNet(
        "resnet20",
        num_classes,
        in_channels,
        stem=stem,
        normalisation=normalisation,
        public_inputs=public_inputs,
        generator=generator,
    )
