"""LeNet-5: 6 and 16 channels, dense layers of 120 and 84, one output a class.

5x5 convolutions, the first with zero padding 2 so that 28x28 images give the classic 14x14 and 5x5 positions; 2x2 max
pooling and ReLU. A norm, if any, follows each trained layer but the last, before the activation (Davody et al.).
61,706 parameters for 28x28 images and ten classes. No layer couples examples.

References:
    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition (1998), section II.B.
    Davody et al. (2020), arXiv 2006.10919.

>>> model = lenet5()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 1, 28, 28)).shape
(61706, torch.Size([2, 10]))
>>> sum(parameter.numel() for parameter in lenet5(normalisation="layer").parameters())
62158
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import whole
from sfumato.models.layers.blocks import (
    Normalisation,
    check_normalisation,
    check_shape,
    has_bias,
    height_and_width,
    norm_after,
    with_public_inputs,
)
from sfumato.models.layers.initialise import glorot


class LeNet5(nn.Module):
    """Two convolutions with pooling, three dense layers; see `lenet5`."""

    def __init__(
        self, *, num_classes: int, in_channels: int, image_size: tuple[int, int], normalisation: Normalisation
    ) -> None:
        super().__init__()
        self.input_shape = (in_channels, *image_size)
        bias = has_bias(normalisation)
        height, width = ((side // 2 - 4) // 2 for side in image_size)
        self.conv1 = nn.Conv2d(in_channels, 6, 5, padding=2, bias=bias)
        self.norm1 = norm_after(6, normalisation)
        self.conv2 = nn.Conv2d(6, 16, 5, bias=bias)
        self.norm2 = norm_after(16, normalisation)
        self.dense1 = nn.Linear(16 * height * width, 120, bias=bias)
        self.norm3 = norm_after(120, normalisation)
        self.dense2 = nn.Linear(120, 84, bias=bias)
        self.norm4 = norm_after(84, normalisation)
        self.classifier = nn.Linear(84, num_classes)
        self.pool = nn.MaxPool2d(2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to logits, float [n, num_classes]."""
        check_shape(inputs, self.input_shape, "LeNet-5")
        x = functional.relu(self.pool(self.norm1(self.conv1(inputs))))
        x = functional.relu(self.pool(self.norm2(self.conv2(x))))
        x = functional.relu(self.norm3(self.dense1(x.flatten(1))))
        x = functional.relu(self.norm4(self.dense2(x)))
        return self.classifier(x)


def lenet5(
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    *,
    normalisation: Normalisation = "none",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> LeNet5:
    """Build a LeNet-5 with Glorot-uniform weights and zero biases.

    Args:
        num_classes: outputs, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        image_size: height and width of the images in pixels, >= 12; one number means square.
        normalisation: "none", "layer", "group" or "public_batch".
        public_inputs: float [M, C, H, W], for "public_batch"; see `use_public_batch`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is out of range, or a choice is unknown.
    """
    size = height_and_width(image_size, at_least=12)
    whole(num_classes=num_classes, in_channels=in_channels)
    check_normalisation(normalisation)
    model = LeNet5(num_classes=num_classes, in_channels=in_channels, image_size=size, normalisation=normalisation)
    glorot(model, generator)
    return with_public_inputs(model, normalisation, public_inputs)
