"""A light VGG for images of 16 to 64 pixels: pairs of 3x3 convolutions with 32, 64 and 128 channels, two dense layers.

Each pair ends in 2x2 max pooling; then a dense layer of 128 and the classifier. A norm, if any, follows each trained
layer but the last, before the ReLU. 550,570 parameters for 32x32x3 images and ten classes. No layer couples examples.

References:
    Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition (2014), arXiv 1409.1556.
    Papernot, Thakurta, Song, Chien, Erlingsson: Tempered Sigmoid Activations for Deep Learning with Differential
    Privacy (2020), arXiv 2007.14191, table 2: this shape, for private training.
    Davody et al. (2020), arXiv 2006.10919.

>>> model = vgg()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
(550570, torch.Size([2, 10]))
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import whole
from sfumato.models import Stage
from sfumato.models.layers import (
    Normalisation,
    check_normalisation,
    check_shape,
    has_bias,
    he,
    height_and_width,
    norm_after,
    with_public_inputs,
)

_WIDTHS = (32, 64, 128)
_DENSE = 128


class VGG(nn.Module):
    """Convolutions in pairs, then dense layers; see `vgg`."""

    def __init__(
        self, *, num_classes: int, in_channels: int, image_size: tuple[int, int], normalisation: Normalisation
    ) -> None:
        super().__init__()
        self.input_shape = (in_channels, *image_size)
        bias = has_bias(normalisation)
        layers: list[nn.Module] = []
        channels = in_channels
        for width in _WIDTHS:
            for inputs in (channels, width):
                convolution = nn.Conv2d(inputs, width, 3, padding=1, bias=bias)
                layers += [convolution, norm_after(width, normalisation), nn.ReLU(inplace=True)]
            layers.append(nn.MaxPool2d(2))
            channels = width
        self.features = nn.Sequential(*layers)
        height, width = (side // 2 ** len(_WIDTHS) for side in image_size)
        self.dense = nn.Linear(channels * height * width, _DENSE, bias=bias)
        self.norm = norm_after(_DENSE, normalisation)
        self.classifier = nn.Linear(_DENSE, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to logits, float [n, num_classes]."""
        check_shape(inputs, self.input_shape, "VGG")
        x = self.features(inputs).flatten(1)
        return self.classifier(functional.relu(self.norm(self.dense(x))))

    def stages(self) -> tuple[Stage, ...]:
        """The layers of `features`, of which convolutions are the blocks; the dense layer; the classifier."""
        layers = [(f"features.{place}", layer) for place, layer in enumerate(self.features)]
        return (
            *(Stage(name, (name,), block=isinstance(layer, nn.Conv2d)) for name, layer in layers),
            Stage(
                "dense",
                ("dense", "norm"),
                lambda x, dense, norm: functional.relu(norm(dense(x.flatten(1)))),
                block=True,
            ),
            Stage("classifier", ("classifier",)),
        )


def vgg(
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: int | tuple[int, int] = 32,
    *,
    normalisation: Normalisation = "none",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> VGG:
    """Build a light VGG with He-normal convolutions, Glorot-uniform dense layers and zero biases.

    Args:
        num_classes: outputs, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        image_size: height and width of the images in pixels, >= 8; one number means square.
        normalisation: "none", "layer", "group" or "public_batch".
        public_inputs: float [M, C, H, W], for "public_batch"; see `use_public_batch`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is out of range, or a choice is unknown.
    """
    size = height_and_width(image_size, at_least=8)
    whole(num_classes=num_classes, in_channels=in_channels)
    check_normalisation(normalisation)
    model = VGG(num_classes=num_classes, in_channels=in_channels, image_size=size, normalisation=normalisation)
    he(model, generator)
    return with_public_inputs(model, normalisation, public_inputs)
