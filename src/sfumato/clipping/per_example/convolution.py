"""`nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d` with stride, padding, dilation and groups.

The gradient of one example's kernel is, for each offset within the kernel, the product of the output's gradient with
the input shifted by that offset. Two ways to it:

- Patches: the input cut into patches, [B, L, C k], a view until it is multiplied. An `Outer` then decides between the
  gradients themselves and Gram matrices. Best for few channels, large strides and small images.
- Shifted views, for stride 1: the padded input is one line of numbers an example, and so is the output's gradient with
  zeros in the columns that padding added. A shift is then an offset into the line: k x k matrix products on views,
  without a copy of the patches (which is k x k times the input).

>>> layer = Layer("conv", nn.Conv2d(1, 1, 2), ConvolutionRule(), frozenset({"weight", "bias"}))
>>> image = torch.arange(9.0).view(1, 1, 3, 3)
>>> factors = layer.rule.factors(layer, image, torch.ones(1, 1, 2, 2))
>>> factors["weight"].dense().flatten().tolist(), factors["bias"].dense().tolist()
([8.0, 12.0, 20.0, 24.0], [[4.0]])
"""

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.clipping.per_example.factor import Dense, Factor, Outer
from sfumato.clipping.per_example.rule import Factors, Layer, OutputRule, exact

_FEW_CHANNELS = 8  # below, a shifted product is too thin to be worth its call

AnyConvolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class ConvolutionRule(OutputRule):
    """Weight [O, C / groups, *kernel] and bias [O]."""

    def factors(self, layer: Layer[AnyConvolution], saved: Tensor, gradient: Tensor) -> Factors:
        result: Factors = {}
        if "weight" in layer.wanted:
            result["weight"] = weight_factor(layer.module, exact(saved).to(gradient.dtype), gradient)
        if "bias" in layer.wanted:
            result["bias"] = Dense(gradient.flatten(2).sum(dim=2))
        return result


def weight_factor(module: AnyConvolution, inputs: Tensor, gradient: Tensor) -> Factor:
    """Per-example gradients of the kernel.

    Args:
        module: the convolution.
        inputs: float [B, C, *size].
        gradient: float [B, O, *out].
    """
    padded = _padded(module, inputs)
    shape, groups = module.weight.shape, module.groups
    examples, outputs = gradient.shape[:2]
    positions = math.prod(gradient.shape[2:])
    channels, taps = shape[1], math.prod(shape[2:])
    gram = groups == 1 and positions * positions * (outputs + channels * taps) < 4 * outputs * channels * taps
    if not gram and all(step == 1 for step in module.stride) and channels >= _FEW_CHANNELS and taps > 1:
        return Dense(_by_shifts(module, padded, gradient).view(examples, *shape))
    patches = _patches(module, padded)  # [B, C, *out, *kernel]
    dims = len(module.kernel_size)
    if groups == 1:
        order = (0, *range(2, 2 + dims), 1, *range(2 + dims, 2 + 2 * dims))
        right = patches.permute(order).reshape(examples, positions, channels * taps)
        return Outer(gradient.flatten(2).mT, right, shape)
    order = (0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))
    right = patches.permute(order).reshape(examples * groups, channels * taps, positions)
    left = gradient.reshape(examples * groups, outputs // groups, positions)
    return Dense((left @ right.mT).view(examples, *shape))


def _by_shifts(module: AnyConvolution, padded: Tensor, gradient: Tensor) -> Tensor:
    """[B, O, C, taps], by one product of matrices for each offset within the kernel."""
    examples, outputs = gradient.shape[:2]
    groups, size = module.groups, padded.shape[2:]
    # the gradient on the padded input's grid: zeros in the last columns of every axis but the first
    room: list[int] = []
    for full, out in zip(reversed(size[1:]), reversed(gradient.shape[3:]), strict=True):
        room += [0, full - out]
    line = F.pad(gradient, room).flatten(2)
    strides = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    length = sum((out - 1) * stride for out, stride in zip(gradient.shape[2:], strides, strict=True)) + 1
    left = line[:, :, :length].reshape(examples * groups, outputs // groups, length)
    flat = padded.flatten(2).reshape(examples * groups, -1, math.prod(size))
    offsets = [range(0, kernel * step, step) for kernel, step in zip(module.kernel_size, module.dilation, strict=True)]
    taps = math.prod(module.kernel_size)
    result = gradient.new_empty(taps, examples * groups, outputs // groups, flat.shape[1])
    for tap, place in enumerate(itertools.product(*offsets)):
        start = sum(offset * stride for offset, stride in zip(place, strides, strict=True))
        torch.matmul(left, flat[:, :, start : start + length].mT, out=result[tap])
    return result.permute(1, 2, 3, 0).reshape(examples, outputs, -1, taps)


def _padded(module: AnyConvolution, inputs: Tensor) -> Tensor:
    sides: list[int] = module._reversed_padding_repeated_twice  # resolves "same" and "valid"
    if not any(sides):
        return inputs.contiguous()
    if module.padding_mode == "zeros":
        return F.pad(inputs, sides)
    return F.pad(inputs, sides, mode=module.padding_mode).contiguous()


def _patches(module: AnyConvolution, padded: Tensor) -> Tensor:
    """A view [B, C, *out, *kernel] of the padded input [B, C, *size]."""
    padded = padded.contiguous()
    steps = padded.stride()
    out = [
        (full - step * (kernel - 1) - 1) // stride + 1
        for full, kernel, stride, step in zip(
            padded.shape[2:], module.kernel_size, module.stride, module.dilation, strict=True
        )
    ]
    moves = [step * stride for step, stride in zip(steps[2:], module.stride, strict=True)]
    reaches = [step * dilation for step, dilation in zip(steps[2:], module.dilation, strict=True)]
    return padded.as_strided(
        (*padded.shape[:2], *out, *module.kernel_size), (*steps[:2], *moves, *reaches), padded.storage_offset()
    )
