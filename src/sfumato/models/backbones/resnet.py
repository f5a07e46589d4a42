"""ResNet-18, ResNet-50 (version 1) and ResNet-20 with group norm: per-example networks for private training.

Group norm (32 groups, eps 1e-5; ResNet-20: 8 groups, as its first layers have 16 channels) computes its
statistics from one example, so no person's image changes another's gradient, and nothing but parameters is
learnt: the whole model is in what the private sum releases. Convolutions have no bias. In ResNet-50 the
stride is in the 3x3 convolution. Shortcuts that change shape are 1x1 convolutions. Global average pooling
accepts any image size; a dense layer with bias gives the embedding.

`stem="imagenet"` starts with 7x7 stride 2 and 3x3 max pooling stride 2; `stem="small"` with 3x3 stride 1 and
no pooling, for images below 64 pixels. Layers have the usual names (`layer3.1.conv2`), so that published
weights can be mapped; see `sfumato.models.load_pretrained`.

`normalisation="none"` builds the network that published weights with *folded* batch norm need: convolutions with bias
and no norm at all.

References:
    He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition (2015), arXiv 1512.03385, tables 1, 6.
    Wu, He: Group Normalization (2018), arXiv 1803.08494.
    Xu et al. (2022), arXiv 2211.10844: ResNet-50 with group norm as the backbone of DP-FedEmb.

>>> sum(parameter.numel() for parameter in resnet50(embedding_dim=128).parameters())
23770304
>>> resnet20(embedding_dim=64, in_channels=1)(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 64])
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from sfumato.models.layers.blocks import (
    GroupOrNone,
    Normalisation,
    Stem,
    backbone_norm,
    check_arguments,
    check_images,
    convolution,
)
from sfumato.models.layers.initialise import he
from sfumato.models.stages import Stage

_EPS = 1e-5


class ResidualBlock(nn.Module):
    """Convolutions with norms, added to a shortcut: 3x3, 3x3 (basic) or 1x1, 3x3, 1x1 (bottleneck)."""

    def __init__(
        self, inputs: int, width: int, *, stride: int, bottleneck: bool, normalisation: Normalisation, groups: int
    ) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width

        def normed(channels: int) -> nn.Module:
            return backbone_norm(channels, normalisation, groups=groups, eps=_EPS)

        if bottleneck:
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
    """A stem, stages of residual blocks, global average pooling, a dense layer; see `resnet50`."""

    def __init__(
        self,
        *,
        depths: Sequence[int],
        width: int,
        bottleneck: bool,
        groups: int,
        embedding_dim: int,
        in_channels: int,
        stem: Stem,
        normalisation: Normalisation,
    ) -> None:
        super().__init__()
        check_arguments(embedding_dim=embedding_dim, in_channels=in_channels, stem=stem, normalisation=normalisation)
        self.in_channels = in_channels
        large = stem == "imagenet"
        self.conv1 = convolution(
            in_channels, width, 7 if large else 3, normalisation=normalisation, stride=2 if large else 1
        )
        self.norm1 = backbone_norm(width, normalisation, groups=groups, eps=_EPS)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        self.layers: list[str] = []
        channels = width
        for stage, depth in enumerate(depths):
            blocks = []
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(
                    ResidualBlock(
                        channels,
                        width,
                        stride=stride,
                        bottleneck=bottleneck,
                        normalisation=normalisation,
                        groups=groups,
                    )
                )
                channels = 4 * width if bottleneck else width
            self.layers.append(f"layer{stage + 1}")
            self.add_module(self.layers[-1], nn.Sequential(*blocks))
            width *= 2
        self.embedding = nn.Linear(channels, embedding_dim)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to raw (not normalised) embeddings, float [n, embedding_dim]."""
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
    """Build a ResNet-18 backbone (11,242,176 parameters at 3 channels and 128 dimensions).

    Args:
        embedding_dim: dimensions of the embedding, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        stem: "imagenet" for photographs, "small" for images below 64 pixels.
        normalisation: "group", or "none" for weights with folded batch norm.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    model = ResNet(
        depths=(2, 2, 2, 2),
        width=64,
        bottleneck=False,
        groups=32,
        embedding_dim=embedding_dim,
        in_channels=in_channels,
        stem=stem,
        normalisation=normalisation,
    )
    he(model, generator)
    return model


def resnet20(
    embedding_dim: int = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "small",
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> ResNet:
    """Build a ResNet-20 backbone, three stages of 16, 32 and 64 channels (280,144 parameters at 3 channels).

    Arguments and errors as `resnet18`.
    """
    model = ResNet(
        depths=(3, 3, 3),
        width=16,
        bottleneck=False,
        groups=8,
        embedding_dim=embedding_dim,
        in_channels=in_channels,
        stem=stem,
        normalisation=normalisation,
    )
    he(model, generator)
    return model


def resnet50(
    embedding_dim: int = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "imagenet",
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> ResNet:
    """Build a ResNet-50 backbone (23,770,304 parameters at 3 channels and 128 dimensions).

    Arguments and errors as `resnet18`.
    """
    model = ResNet(
        depths=(3, 4, 6, 3),
        width=64,
        bottleneck=True,
        groups=32,
        embedding_dim=embedding_dim,
        in_channels=in_channels,
        stem=stem,
        normalisation=normalisation,
    )
    he(model, generator)
    return model
