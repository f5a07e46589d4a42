"""SqueezeNet 1.0: fire modules, no norm layer, 735,424 parameters before the dense layer.

A fire module squeezes the channels by a 1x1 convolution and expands them by 1x1 and 3x3 convolutions side by side.
There is no norm in it at all, so nothing couples examples and nothing has to be folded: published weights are used as
they are. Layers have torchvision's names (`features.3.squeeze.weight`), see `sfumato.models.load_pretrained`. The
published classifier is a 1x1 convolution to 1,000 classes before the global average pooling; here the pooled 512
channels go to the embedding, or are the embedding with `embedding_dim=None`.

`stem="imagenet"` starts with 7x7 stride 2 and 3x3 max pooling stride 2; `stem="small"` with 3x3 stride 1 and no
pooling, for images below 64 pixels.

References:
    Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer: SqueezeNet (2016), arXiv 1602.07360, table 1.

>>> sum(parameter.numel() for parameter in squeezenet(None).parameters())
735424
>>> squeezenet(64, in_channels=1, stem="small")(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 64])
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato.models.layers import Stem, check_arguments, check_images, he
from sfumato.models.trainable import Stage

FEATURES = 512

# Squeezed channels and those of each expansion, with a pooling where there is None: Iandola et al., table 1.
STAGES = ((16, 64), (16, 64), (32, 128), None, (32, 128), (48, 192), (48, 192), (64, 256), None, (64, 256))


class Fire(nn.Module):
    """1x1 to `squeezed` channels, then 1x1 and 3x3 to `expanded` each, side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map float [n, inputs, H, W] to float [n, 2 expanded, H, W]."""
        x = functional.relu(self.squeeze(inputs))
        return functional.relu(torch.cat([self.expand1x1(x), self.expand3x3(x)], dim=1))


class SqueezeNet(nn.Module):
    """A convolution, eight fire modules, global average pooling, a dense layer; see `squeezenet`."""

    def __init__(self, *, embedding_dim: int | None, in_channels: int, stem: Stem) -> None:
        super().__init__()
        dense = FEATURES if embedding_dim is None else embedding_dim
        check_arguments(embedding_dim=dense, in_channels=in_channels, stem=stem, normalisation="none")
        self.in_channels = in_channels
        small = stem == "small"
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, 96, 3, padding=1) if small else nn.Conv2d(in_channels, 96, 7, stride=2),
            nn.ReLU(),
            nn.Identity() if small else _pooling(),
        ]
        channels = 96
        for stage in STAGES:
            if stage is None:
                layers.append(_pooling())
                continue
            squeezed, expanded = stage
            layers.append(Fire(channels, squeezed, expanded))
            channels = 2 * expanded
        self.features = nn.Sequential(*layers)
        self.embedding = nn.Identity() if embedding_dim is None else nn.Linear(FEATURES, embedding_dim)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to raw (not normalised) embeddings, float [n, embedding_dim]."""
        check_images(inputs, self.in_channels, "SqueezeNet")
        return self.embedding(_pooled(self.features(inputs)))

    def stages(self) -> tuple[Stage, ...]:
        """The layers of `features`, of which fire modules are the blocks; pooling; the embedding."""
        layers = [(f"features.{place}", layer) for place, layer in enumerate(self.features)]
        found = [Stage(name, (name,), block=isinstance(layer, Fire)) for name, layer in layers]
        return (*found, Stage("pool", run=_pooled), Stage("embedding", ("embedding",)))


def squeezenet(
    embedding_dim: int | None = 128,
    in_channels: int = 3,
    *,
    stem: Stem = "imagenet",
    generator: torch.Generator | None = None,
) -> SqueezeNet:
    """Build a SqueezeNet 1.0 backbone.

    Args:
        embedding_dim: dimensions of the embedding, >= 1; None: the 512 pooled channels, without a dense layer.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        stem: "imagenet" for photographs, "small" for images below 64 pixels.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    model = SqueezeNet(embedding_dim=embedding_dim, in_channels=in_channels, stem=stem)
    he(model, generator)
    return model


def _pooled(x: torch.Tensor) -> torch.Tensor:
    return x.mean((2, 3))


def _pooling() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, 2, ceil_mode=True)
