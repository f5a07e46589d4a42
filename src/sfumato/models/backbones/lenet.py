"""LeNet: two convolutions and one dense layer, the small backbone of the federated embedding papers.

The layers are those of the reference code of Xu et al. (2022): 5x5 convolutions with biases that keep the
image's size (zero padding 2), 2x2 max pooling that rounds odd sizes up, and a dense layer with bias straight
to the embedding. At 28x28x1 and 128 dimensions that is 832 + 51,264 + 401,536 = 453,632 parameters; without
padding the dense layer would read 4x4 instead of 7x7 positions and the count would be 183,296.

No layer couples examples or keeps running statistics, so one person's images never change another's gradient.

References:
    Xu, Collins, Wang, Panait, Oh, Augenstein, Liu, Schroff, McMahan: Learning to Generate Image Embeddings
    with User-level Differential Privacy (2022), arXiv 2211.10844, section 4 and appendix.
    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition (1998).

>>> backbone = lenet()
>>> sum(parameter.numel() for parameter in backbone.parameters())
453632
>>> backbone(torch.zeros(2, 1, 28, 28)).shape
torch.Size([2, 128])
"""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import InputError, whole
from sfumato.models.layers.initialise import glorot
from sfumato.models.stages import Stage


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
