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
from sfumato.clipping.per_example.workspace import Workspace

_FEW_CHANNELS = 8  # below, a shifted product is too thin to be worth its call

AnyConvolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class ConvolutionRule(OutputRule):
    """Weight [O, C / groups, *kernel] and bias [O]."""

    def factors(self, layer: Layer[AnyConvolution], saved: Tensor, gradient: Tensor) -> Factors:
        result: Factors = {}
        if "weight" in layer.wanted:
            inputs = exact(saved).to(gradient.dtype)
            result["weight"] = weight_factor(layer.module, inputs, gradient, layer.workspace)
        if "bias" in layer.wanted:
            result["bias"] = Dense(gradient.flatten(2).sum(dim=2))
        return result


def weight_factor(module: AnyConvolution, inputs: Tensor, gradient: Tensor, workspace: Workspace) -> Factor:
    """Per-example gradients of the kernel.

    Args:
        module: the convolution.
        inputs: float [B, C, *size].
        gradient: float [B, O, *out].
        workspace: scratch memory.
    """
    shape, groups = module.weight.shape, module.groups
    examples, outputs = gradient.shape[:2]
    positions = math.prod(gradient.shape[2:])
    channels, taps = shape[1], math.prod(shape[2:])
    gram = groups == 1 and positions * positions * (outputs + channels * taps) < 4 * outputs * channels * taps
    if not gram and all(step == 1 for step in module.stride) and channels >= _FEW_CHANNELS and taps > 1:
        return _by_shifts(module, inputs, gradient, workspace)
    padded = _padded(module, inputs)
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


class Shifts(Factor):
    """Gradients of a kernel, one offset after the other.

    Args:
        gradients: float [taps, B, O C].
        shape: of the kernel.
    """

    def __init__(self, gradients: Tensor, shape: torch.Size) -> None:
        self.gradients = gradients
        self.shape = shape

    def squared_norms(self) -> Tensor:
        return torch.linalg.vector_norm(self.gradients, dim=2).square().sum(dim=0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self._as_kernel((weights.to(self.gradients.dtype) @ self.gradients)[:, None])[0]

    def dense(self) -> Tensor:
        return self._as_kernel(self.gradients)

    def without(self, examples: Tensor) -> "Shifts":
        return Shifts(self.gradients.masked_fill(examples[None, :, None], 0.0), self.shape)

    def _as_kernel(self, values: Tensor) -> Tensor:
        """[taps, n, O C] → [n, O, C, *kernel]."""
        return values.permute(1, 2, 0).reshape(values.shape[1], *self.shape)


def _by_shifts(module: AnyConvolution, inputs: Tensor, gradient: Tensor, workspace: Workspace) -> Shifts:
    """One product of matrices for each offset within the kernel."""
    examples, outputs = gradient.shape[:2]
    groups = module.groups
    padded = _padded(module, inputs, workspace)
    size, out = padded.shape[2:], gradient.shape[2:]
    # the gradient on the padded input's grid: zeros in the last columns of every axis but the first
    line = _placed(
        gradient,
        (out[0], *size[1:]),
        (0,) * len(size),
        workspace.take("line", (*gradient.shape[:2], out[0], *size[1:]), gradient),
    )
    strides = [math.prod(size[axis + 1 :]) for axis in range(len(size))]
    length = sum((extent - 1) * stride for extent, stride in zip(out, strides, strict=True)) + 1
    left = line.view(examples * groups, outputs // groups, -1)[:, :, :length]
    flat = padded.view(examples * groups, -1, math.prod(size))
    offsets = [range(0, kernel * step, step) for kernel, step in zip(module.kernel_size, module.dilation, strict=True)]
    shape = (math.prod(module.kernel_size), examples * groups, outputs // groups, flat.shape[1])
    result = workspace.keep(gradient, shape)
    for tap, place in enumerate(itertools.product(*offsets)):
        start = sum(offset * stride for offset, stride in zip(place, strides, strict=True))
        torch.bmm(left, flat[:, :, start : start + length].mT, out=result[tap])
    return Shifts(result.view(len(result), examples, -1), module.weight.shape)


def _placed(values: Tensor, size: tuple[int, ...], start: tuple[int, ...], target: Tensor) -> Tensor:
    """The values [B, C, *inner] within zeros [B, C, *size], from `start` on; only the margin is filled."""
    inner = target
    for axis, (full, first) in enumerate(zip(size, start, strict=True), start=2):
        extent = values.shape[axis]
        inner.narrow(axis, 0, first).zero_()
        inner.narrow(axis, first + extent, full - first - extent).zero_()
        inner = inner.narrow(axis, first, extent)
    inner.copy_(values)
    return target


def _padded(module: AnyConvolution, inputs: Tensor, workspace: Workspace | None = None) -> Tensor:
    """The input as the convolution sees it, contiguous."""
    sides: list[int] = module._reversed_padding_repeated_twice  # resolves "same" and "valid"
    if not any(sides):
        return inputs.contiguous()
    if module.padding_mode != "zeros":
        return F.pad(inputs, sides, mode=module.padding_mode).contiguous()
    if workspace is None:
        return F.pad(inputs, sides)
    before, after = sides[-2::-2], sides[::-2]
    size = tuple(low + extent + high for low, extent, high in zip(before, inputs.shape[2:], after, strict=True))
    target = workspace.take("padded", (*inputs.shape[:2], *size), inputs)
    return _placed(inputs, size, tuple(before), target)


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
