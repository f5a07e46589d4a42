"""WRN-16-4 and the convolution with standardised weights that it is made of.

**Convolution:** each output channel's kernel has mean zero and length one. The raw weight v [O, I, k, k] is what is
trained; the convolution uses

    w = (v - mean(v)) / sqrt(|v - mean(v)|^2 + eps), for each output channel by itself.

The weights alone enter, so no example is coupled to another. An example's gradient of v is a linear map of its
gradient g of w: (g - mean(g) - w <g, w>) / sqrt(...), which is `pull_back`. Private training clips the gradient of v.
There is no trained gain: a norm layer is meant to follow.

>>> layer = WSConv2d(2, 1, 1, eps=0.0)
>>> with torch.no_grad():
...     _ = layer.weight.copy_(torch.tensor([3.0, -5.0]).view(1, 2, 1, 1))
>>> [round(w, 4) for w in layer.standardised().flatten().tolist()]
[0.7071, -0.7071]

**WRN-16-4:** the wide residual network that De et al. (2022) train with DP-SGD, with group norm. A 3x3 convolution to
16 channels, three stages of two pre-activation blocks with 64, 128 and 256 channels, group norm (16 groups), ReLU,
global average pooling and a dense layer. Convolutions have no bias and, by default, standardised weights (`WSConv2d`;
the 1x1 convolutions of the shortcuts too). 2,748,890 parameters for ten classes. No layer couples examples or keeps
running statistics.

>>> model = wrn16_4()
>>> sum(parameter.numel() for parameter in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape
(2748890, torch.Size([2, 10]))

References:
    Qiao, Wang, Liu, Shen, Yuille: Micro-Batch Training with Batch-Channel Normalization and Weight Standardization
    (2019), arXiv 1903.10520.
    De, Berrada, Hayes, Smith, Balle: Unlocking High-Accuracy Differentially Private Image Classification through
    Scale (2022), arXiv 2204.13650, section 3 and appendix C.
    Zagoruyko, Komodakis: Wide Residual Networks (2016), arXiv 1605.07146, table 1 and figure 1.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError, non_negative, whole
from sfumato.models.layers import check_images, he

_EPS = 1e-4


class WSConv2d(nn.Conv2d):
    """`nn.Conv2d` with standardised weights; its arguments, zero padding only.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias: as `nn.Conv2d`.
        eps: added to the squared length of a kernel, >= 0.

    Raises:
        InputError: eps is negative.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: str | int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        eps: float = _EPS,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        non_negative(eps=eps)
        if self.weight[0].numel() < 2:
            raise InputError("a kernel of one number standardises to zero; use nn.Conv2d for it")
        self.eps = eps

    def forward(self, input: Tensor) -> Tensor:
        """Convolve float [n, in_channels, H, W] with the standardised weight."""
        weight = self.standardised()
        return functional.conv2d(input, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def standardised(self) -> Tensor:
        """The weight that the convolution uses, float [O, I / groups, k, k]."""
        centred, inverse = self._centred()
        return centred * inverse

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Gradients of the raw weight from those of the standardised one.

        Args:
            gradient: float [B, O, I / groups, k, k], or any leading dimensions.

        Returns:
            the same shape.
        """
        centred, inverse = (each.detach().to(gradient.dtype) for each in self._centred())
        weight = centred * inverse
        over = (-3, -2, -1)
        along = (gradient * weight).sum(over, keepdim=True)
        return (gradient - gradient.mean(over, keepdim=True) - weight * along) * inverse

    def _centred(self) -> tuple[Tensor, Tensor]:
        """v - mean(v), [O, I / groups, k, k], and 1 / sqrt(|v - mean(v)|^2 + eps), [O, 1, 1, 1]."""
        over = (1, 2, 3)
        centred = self.weight - self.weight.mean(over, keepdim=True)
        return centred, torch.rsqrt(centred.square().sum(over, keepdim=True) + self.eps)


_GROUPS = 16
_FIRST = 16
_BLOCKS = 2  # (16 - 4) / 6
_WIDEN = 4


class WideBlock(nn.Module):
    """Norm, ReLU, 3x3, norm, ReLU, 3x3, added to the input or, where the shape changes, to a 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, convolution: type[nn.Conv2d]) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(_GROUPS, inputs)
        self.conv1 = convolution(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(_GROUPS, outputs)
        self.conv2 = convolution(outputs, outputs, 3, padding=1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.shortcut = convolution(inputs, outputs, 1, stride, bias=False) if changes else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float [n, inputs, H, W] to float [n, outputs, H / stride, W / stride]."""
        active = functional.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.conv2(functional.relu(self.norm2(self.conv1(active))))


class WideResNet(nn.Module):
    """Three stages of wide blocks; see `wrn16_4`."""

    def __init__(self, *, num_classes: int, in_channels: int, convolution: type[nn.Conv2d]) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.first = convolution(in_channels, _FIRST, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        channels = _FIRST
        for stage in range(3):
            width = _FIRST * _WIDEN * 2**stage
            for block in range(_BLOCKS):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(WideBlock(channels, width, stride=stride, convolution=convolution))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.GroupNorm(_GROUPS, channels)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images, float [n, C, H, W], to logits, float [n, num_classes]."""
        check_images(inputs, self.in_channels, "WRN-16-4")
        x = functional.relu(self.norm(self.blocks(self.first(inputs))))
        return self.classifier(x.mean((2, 3)))


def wrn16_4(
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    weight_standardisation: bool = True,
    generator: torch.Generator | None = None,
) -> WideResNet:
    """Build a WRN-16-4 with He-normal convolutions.

    Args:
        num_classes: outputs, >= 1.
        in_channels: channels of the images, 1 for grey and 3 for colour.
        weight_standardisation: whether convolutions standardise their weights.
        generator: source of the initial weights; None takes torch's global generator, as torch's layers do.

    Raises:
        InputError: a size is not a whole number >= 1.
    """
    whole(num_classes=num_classes, in_channels=in_channels)
    convolution = WSConv2d if weight_standardisation else nn.Conv2d
    model = WideResNet(num_classes=num_classes, in_channels=in_channels, convolution=convolution)
    he(model, generator)
    return model
