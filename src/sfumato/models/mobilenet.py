"""MobileNetV2 (width 1) with group norm: the backbone for models that stay on a phone.

Seventeen inverted residual blocks (1x1 expansion, 3x3 depthwise, 1x1 projection, the last one linear), a 1x1
convolution to 1,280 channels, global average pooling and a dense layer with bias. Group norm has 2 groups and
eps 1e-3 as in the reference code of Xu et al. (2022); activations are ReLU6; convolutions have no bias.
2,223,872 parameters before the dense layer. No layer couples examples or keeps running statistics.

`stem="small"` drops the first two strides of 2, for images below 64 pixels; the parameters stay the same.
`normalisation="none"` builds the network that published weights with *folded* batch norm need.

References:
    Sandler, Howard, Zhu, Zhmoginov, Chen: MobileNetV2 (2018), arXiv 1801.04381, table 2.
    Xu et al. (2022), arXiv 2211.10844.

>>> sum(parameter.numel() for parameter in mobilenet_v2(embedding_dim=128).parameters())
2387840
>>> mobilenet_v2(in_channels=1, stem="small")(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 128])
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato.models.layers import GroupOrNone, Stem, backbone_norm, check_arguments, check_images, convolution, he
from sfumato.models.trainable import Stage

_GROUPS, _EPS = 2, 1e-3

# Expansion, channels, blocks and stride of the first block: Sandler et al., table 2.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _normed(channels: int, normalisation: GroupOrNone) -> nn.Module:
    return backbone_norm(channels, normalisation, groups=_GROUPS, eps=_EPS)


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; added to the input where the shape allows it."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int, normalisation: GroupOrNone) -> None:
        super().__init__()
        wide = expansion * inputs
        self.expand = None
        if expansion != 1:
            self.expand = convolution(inputs, wide, 1, normalisation=normalisation)
            self.expand_norm = _normed(wide, normalisation)
        self.depthwise = convolution(wide, wide, 3, normalisation=normalisation, stride=stride, groups=wide)
        self.depthwise_norm = _normed(wide, normalisation)
        self.project = convolution(wide, outputs, 1, normalisation=normalisation)
        self.project_norm = _normed(outputs, normalisation)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map float [n, inputs, H, W] to float [n, outputs, H / stride, W / stride]."""
        x = inputs
        if self.expand is not None:
            x = functional.relu6(self.expand_norm(self.expand(x)))
        x = functional.relu6(self.depthwise_norm(self.depthwise(x)))
        x = self.project_norm(self.project(x))
        return inputs + x if self.residual else x


class MobileNetV2(nn.Module):
    """A convolution, inverted residual blocks, a wide convolution, a dense layer; see `mobilenet_v2`."""

    def __init__(self, *, embedding_dim: int, in_channels: int, stem: Stem, normalisation: GroupOrNone) -> None:
        super().__init__()
        check_arguments(embedding_dim=embedding_dim, in_channels=in_channels, stem=stem, normalisation=normalisation)
        self.in_channels = in_channels
        small = stem == "small"
        channels = 32
        self.first = convolution(in_channels, channels, 3, normalisation=normalisation, stride=1 if small else 2)
        self.first_norm = _normed(channels, normalisation)
        blocks = []
        for stage, (expansion, outputs, count, first_stride) in enumerate(STAGES):
            for block in range(count):
                stride = first_stride if block == 0 and not (small and stage == 1) else 1
                blocks.append(
                    InvertedResidual(channels, outputs, expansion=expansion, stride=stride, normalisation=normalisation)
                )
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = convolution(channels, 1280, 1, normalisation=normalisation)
        self.last_norm = _normed(1280, normalisation)
        self.embedding = nn.Linear(1280, embedding_dim)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to raw (not normalised) embeddings, float [n, embedding_dim]."""
        check_images(inputs, self.in_channels, "MobileNetV2")
        x = functional.relu6(self.first_norm(self.first(inputs)))
        x = self.blocks(x)
        x = functional.relu6(self.last_norm(self.last(x)))
        return self.embedding(x.mean((2, 3)))

    def stages(self) -> tuple[Stage, ...]:
        """The first convolution, the inverted residuals, which are the blocks, the last one, pooling, the embedding."""
        return (
            Stage("first", ("first", "first_norm"), _convolved),
            *(Stage(f"blocks.{place}", (f"blocks.{place}",), block=True) for place in range(len(self.blocks))),
            Stage("last", ("last", "last_norm"), _convolved),
            Stage("pool", run=lambda x: x.mean((2, 3))),
            Stage("embedding", ("embedding",)),
        )


def _convolved(x: torch.Tensor, convolution: nn.Module, norm: nn.Module) -> torch.Tensor:
    return functional.relu6(norm(convolution(x)))


def mobilenet_v2(
    embedding_dim: int = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "imagenet",
    normalisation: GroupOrNone = "group",
    generator: torch.Generator | None = None,
) -> MobileNetV2:
    """Build a MobileNetV2 backbone (2,387,840 parameters at 3 channels and 128 dimensions).

    Args:
        embedding_dim: dimensions of the embedding, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        stem: "imagenet" for photographs, "small" for images below 64 pixels.
        normalisation: "group", or "none" for weights with folded batch norm.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    model = MobileNetV2(embedding_dim=embedding_dim, in_channels=in_channels, stem=stem, normalisation=normalisation)
    he(model, generator)
    return model
