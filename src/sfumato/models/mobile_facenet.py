"""MobileFaceNet: a face embedding of a million parameters for pictures of one size, with PReLU and no norm layer.

A convolution and a depthwise one, fifteen inverted residual blocks, a 1x1 convolution to 512 channels, a depthwise
convolution as large as what is left of the picture (each place has a weight of its own there, since a face's places
differ), and a dense layer. Published weights have batch norm folded in, so there is no norm layer here either, and
nothing couples examples. Layers have the names of the published file, see `sfumato.models.load_pretrained`.

Pixels come as sfumato feeds them, (v − 128) / 128; the network adds 1/256, which makes the (v − 127.5) / 128 of the
published weights. 993,344 parameters at 112x112 and 128 dimensions.

References:
    Chen, Liu, Gao, Han: MobileFaceNets (2018), arXiv 1804.07573, table 1.

>>> sum(parameter.numel() for parameter in mobilefacenet().parameters())
993344
>>> mobilefacenet(64, in_channels=1, image_size=(28, 28))(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 64])
"""

import torch
from torch import nn

from sfumato._check import InputError, whole
from sfumato.models.layers import check_images, he
from sfumato.models.trainable import Stage

# Hidden and outgoing channels, blocks and stride of the first block: Chen et al., table 1, with one block more of each
# stage, as in the published weights.
STAGES = ((128, 64, 1, 2), (128, 64, 4, 1), (256, 128, 1, 2), (256, 128, 6, 1), (512, 128, 1, 2), (256, 128, 2, 1))

_SHIFT = 0.5 / 128  # from (v - 128) / 128 to (v - 127.5) / 128
_SHRINKS = 16  # by how much the picture is shorter when the last depthwise convolution sees it


class Bottleneck(nn.Module):
    """Widen, filter each channel, narrow; added to the input where the block keeps its shape."""

    def __init__(self, inputs: int, hidden: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(inputs, hidden, 1)
        self.expand_prelu = nn.PReLU(hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, stride, padding=1, groups=hidden)
        self.depthwise_prelu = nn.PReLU(hidden)
        self.project = nn.Conv2d(hidden, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map float [n, inputs, H, W] to float [n, outputs, H / stride, W / stride]."""
        x = self.expand_prelu(self.expand(inputs))
        x = self.project(self.depthwise_prelu(self.depthwise(x)))
        return inputs + x if self.residual else x


class MobileFaceNet(nn.Module):
    """Two convolutions, bottlenecks, a global depthwise convolution, a dense layer; see `mobilefacenet`."""

    def __init__(self, *, embedding_dim: int, in_channels: int, image_size: tuple[int, int]) -> None:
        super().__init__()
        whole(embedding_dim=embedding_dim, in_channels=in_channels, height=image_size[0], width=image_size[1])
        self.in_channels, self.image_size = in_channels, tuple(image_size)
        self.stem = nn.Conv2d(in_channels, 64, 3, 2, padding=1)
        self.stem_prelu = nn.PReLU(64)
        self.stem_depthwise = nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.stem_depthwise_prelu = nn.PReLU(64)
        blocks, channels = [], 64
        for hidden, outputs, count, first_stride in STAGES:
            for block in range(count):
                blocks.append(Bottleneck(channels, hidden, outputs, first_stride if block == 0 else 1))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Conv2d(channels, 512, 1)
        self.last_prelu = nn.PReLU(512)
        left = [-(-side // _SHRINKS) for side in image_size]
        self.last_depthwise = nn.Conv2d(512, 512, (left[0], left[1]), groups=512)
        self.embedding = nn.Linear(512, embedding_dim)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map pictures, float [n, C, H, W] in [-1, 1), to raw (not normalised) embeddings, float [n, embedding_dim]."""
        check_images(inputs, self.in_channels, "MobileFaceNet")
        if tuple(inputs.shape[2:]) != self.image_size:
            raise InputError(
                f"this MobileFaceNet reads pictures of {self.image_size[0]}x{self.image_size[1]} pixels, got "
                f"{inputs.shape[2]}x{inputs.shape[3]}; bring them to one size or build it with image_size=..."
            )
        x = self.stem_prelu(self.stem(inputs + _SHIFT))
        x = self.stem_depthwise_prelu(self.stem_depthwise(x))
        x = self.last_prelu(self.last(self.blocks(x)))
        return self.embedding(self.last_depthwise(x).flatten(1))

    def stages(self) -> tuple[Stage, ...]:
        """The two convolutions of the stem, the bottlenecks, which are the blocks, the last two, the embedding."""
        return (
            Stage("stem", ("stem", "stem_prelu"), lambda x, stem, prelu: prelu(stem(x + _SHIFT))),
            Stage("stem_depthwise", ("stem_depthwise", "stem_depthwise_prelu"), lambda x, conv, prelu: prelu(conv(x))),
            *(Stage(f"blocks.{place}", (f"blocks.{place}",), block=True) for place in range(len(self.blocks))),
            Stage("last", ("last", "last_prelu"), lambda x, conv, prelu: prelu(conv(x))),
            Stage("last_depthwise", ("last_depthwise",), lambda x, conv: conv(x).flatten(1)),
            Stage("embedding", ("embedding",)),
        )


def mobilefacenet(
    embedding_dim: int = 128,
    in_channels: int = 3,
    image_size: tuple[int, int] = (112, 112),
    *,
    generator: torch.Generator | None = None,
) -> MobileFaceNet:
    """Build a MobileFaceNet backbone.

    Args:
        embedding_dim: dimensions of the embedding, >= 1.
        in_channels: channels of the pictures, 1 for grey and 3 for colour.
        image_size: (height, width) of all pictures, >= 1; published weights are for (112, 112).
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1.
    """
    model = MobileFaceNet(embedding_dim=embedding_dim, in_channels=in_channels, image_size=image_size)
    he(model, generator)
    return model
