"""Three LeNets: a backbone for embeddings, LeNet-5 and LeNet-300-100 for classes.

**LeNet:** two convolutions and one dense layer, the small backbone of the federated embedding papers. The layers are
those of the reference code of Xu et al. (2022): 5x5 convolutions with biases that keep the image's size (zero padding
2), 2x2 max pooling that rounds odd sizes up, and a dense layer with bias straight to the embedding. At 28x28x1 and 128
dimensions that is 832 + 51,264 + 401,536 = 453,632 parameters; without padding the dense layer would read 4x4 instead
of 7x7 positions and the count would be 183,296.

No layer couples examples or keeps running statistics, so one person's images never change another's gradient.

>>> backbone = lenet()
>>> sum(parameter.numel() for parameter in backbone.parameters())
453632
>>> backbone(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 128])

**LeNet-5:** 6 and 16 channels, dense layers of 120 and 84, one output a class. 5x5 convolutions, the first with zero
padding 2 so that 28x28 images give the classic 14x14 and 5x5 positions; 2x2 max pooling and ReLU. A norm, if any,
follows each trained layer but the last, before the activation (Davody et al.). 61,706 parameters for 28x28 images and
ten classes. No layer couples examples.

>>> model = lenet5()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 1, 28, 28)).shape
(61706, torch.Size([2, 10]))
>>> sum(parameter.numel() for parameter in lenet5(normalisation="layer").parameters())
62158

**LeNet-300-100:** dense layers of 300 and 100 units with ReLU, one output a class. A norm, if any, follows the two
hidden layers, before the activation. 266,610 parameters for 28x28 images and ten classes. No layer couples examples.

>>> model = lenet300_100()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 1, 28, 28)).shape
(266610, torch.Size([2, 10]))

References:
    Xu, Collins, Wang, Panait, Oh, Augenstein, Liu, Schroff, McMahan: Learning to Generate Image Embeddings
    with User-level Differential Privacy (2022), arXiv 2211.10844, section 4 and appendix.
    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition (1998), sections II.B
    (LeNet-5) and III.C.4 (LeNet-300-100).
    Davody et al. (2020), arXiv 2006.10919.
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import InputError, whole
from sfumato.models.layers import (
    Normalisation,
    check_normalisation,
    check_shape,
    glorot,
    has_bias,
    height_and_width,
    norm_after,
    with_public_inputs,
)
from sfumato.models.trainable import Stage


class LeNet(nn.Module):
    """conv 5x5-32, pool, conv 5x5-64, pool, dense; see `lenet`."""

    def __init__(self, *, embedding_dim: int, in_channels: int, image_size: tuple[int, int]) -> None:
        super().__init__()
        height, width = image_size
        self.input_shape = (in_channels, height, width)
        self.conv1 = nn.Conv2d(in_channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        # Two poolings that round up: ceil(ceil(x / 2) / 2) = ceil(x / 4).
        self.embedding = nn.Linear(64 * -(-height // 4) * -(-width // 4), embedding_dim)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to raw (not normalised) embeddings, float [n, embedding_dim]."""
        if inputs.shape[1:] != self.input_shape:
            expected = ", ".join(map(str, self.input_shape))
            raise InputError(
                f"this LeNet reads images [n, {expected}] (examples, channels, height, width), "
                f"got {list(inputs.shape)}; resize the images or build lenet(in_channels=..., image_size=...)"
            )
        x = _convolved(inputs, self.conv1, self.pool)
        return self.embedding(_convolved(x, self.conv2, self.pool).flatten(1))

    def stages(self) -> tuple[Stage, ...]:
        """Two convolutions, which are the blocks, and the embedding."""
        return (
            Stage("conv1", ("conv1", "pool"), _convolved, block=True),
            Stage("conv2", ("conv2", "pool"), _convolved, block=True),
            Stage("embedding", ("embedding",), lambda x, embedding: embedding(x.flatten(1))),
        )


def _convolved(x: torch.Tensor, convolution: nn.Module, pool: nn.Module) -> torch.Tensor:
    # Pooling before the activation gives the same numbers (both are monotone) with a quarter of the work.
    return functional.relu(pool(convolution(x)))


def lenet(
    embedding_dim: int = 128,
    in_channels: int = 1,
    image_size: int | tuple[int, int] = 28,
    *,
    generator: torch.Generator | None = None,
) -> LeNet:
    """Build a LeNet backbone with Glorot-uniform weights and zero biases, as in the reference code.

    Args:
        embedding_dim: dimensions of the embedding, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        image_size: height and width of the images in pixels; one number means square.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1.
    """
    height, width = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    whole(embedding_dim=embedding_dim, in_channels=in_channels, height=height, width=width)
    model = LeNet(embedding_dim=embedding_dim, in_channels=in_channels, image_size=(height, width))
    glorot(model, generator)
    return model


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


class LeNet300100(nn.Module):
    """Three dense layers; see `lenet300_100`."""

    def __init__(self, *, num_classes: int, in_features: int, normalisation: Normalisation) -> None:
        super().__init__()
        self.in_features = in_features
        bias = has_bias(normalisation)
        self.dense1 = nn.Linear(in_features, 300, bias=bias)
        self.norm1 = norm_after(300, normalisation)
        self.dense2 = nn.Linear(300, 100, bias=bias)
        self.norm2 = norm_after(100, normalisation)
        self.classifier = nn.Linear(100, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map float [n, ...] with `in_features` numbers an example to logits, float [n, num_classes]."""
        x = inputs.flatten(1)
        if x.shape[1] != self.in_features:
            raise InputError(
                f"this LeNet-300-100 reads {self.in_features} numbers an example, got {list(inputs.shape)}; "
                "build it with in_features=..."
            )
        x = functional.relu(self.norm1(self.dense1(x)))
        x = functional.relu(self.norm2(self.dense2(x)))
        return self.classifier(x)


def lenet300_100(
    num_classes: int = 10,
    in_features: int = 784,
    *,
    normalisation: Normalisation = "none",
    public_inputs: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> LeNet300100:
    """Build a LeNet-300-100 with Glorot-uniform weights and zero biases.

    Args:
        num_classes: outputs, >= 1.
        in_features: numbers in one example, >= 1.
        normalisation: "none", "layer", "group" or "public_batch".
        public_inputs: float [M, ...], for "public_batch"; see `use_public_batch`.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1, or a choice is unknown.
    """
    whole(num_classes=num_classes, in_features=in_features)
    check_normalisation(normalisation)
    model = LeNet300100(num_classes=num_classes, in_features=in_features, normalisation=normalisation)
    glorot(model, generator)
    return with_public_inputs(model, normalisation, public_inputs)
