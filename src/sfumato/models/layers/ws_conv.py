"""Convolution with standardised weights: each output channel's kernel has mean zero and length one.

The raw weight v [O, I, k, k] is what is trained; the convolution uses

    w = (v - mean(v)) / sqrt(|v - mean(v)|^2 + eps), for each output channel by itself.

The weights alone enter, so no example is coupled to another. An example's gradient of v is a linear map of its
gradient g of w: (g - mean(g) - w <g, w>) / sqrt(...), which is `pull_back`. Private training clips the gradient of v.
There is no trained gain: a norm layer is meant to follow.

References:
    Qiao, Wang, Liu, Shen, Yuille: Micro-Batch Training with Batch-Channel Normalization and Weight Standardization
    (2019), arXiv 1903.10520.
    De, Berrada, Hayes, Smith, Balle: Unlocking High-Accuracy Differentially Private Image Classification through
    Scale (2022), arXiv 2204.13650, section 3.

>>> layer = WSConv2d(2, 1, 1, eps=0.0)
>>> with torch.no_grad():
...     _ = layer.weight.copy_(torch.tensor([3.0, -5.0]).view(1, 2, 1, 1))
>>> [round(w, 4) for w in layer.standardised().flatten().tolist()]
[0.7071, -0.7071]
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError, non_negative

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
