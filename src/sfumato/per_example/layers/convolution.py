"""`nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d` with stride, padding, dilation and groups.

Two ways to the gradients of each example's kernel, chosen by what costs least:

- One group an example: B examples with C channels are one image with B C channels in B groups, a view without a copy,
  and the ordinary weight gradient of that convolution is every example's own. The processor's library has kernels for
  this that need no patches, whatever stride and dilation; they want a multiple of eight channels in a group, or one.
- Patches: the input cut into patches, [B, C k, L], and one matrix product for each example. For few channels (the first
  layer), large kernels' weights, and accelerators. Where the image is small and the channels are many, `Outer` compares
  Gram matrices instead and nothing is materialised.

>>> layer = Layer("conv", nn.Conv2d(1, 1, 2), ConvolutionRule(), frozenset({"weight", "bias"}))
>>> image = torch.arange(9.0).view(1, 1, 3, 3)
>>> factors = layer.rule.factors(layer, image, torch.ones(1, 1, 2, 2))
>>> factors["weight"].dense().flatten().tolist(), factors["bias"].dense().tolist()
([8.0, 12.0, 20.0, 24.0], [[4.0]])
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._precision import at_least_single
from sfumato.per_example.factor import Dense, Factor, Outer
from sfumato.per_example.rule import Factors, Layer, OutputRule
from sfumato.per_example.workspace import Workspace

_LANES = 8  # channels that the kernels for groups take at once
_LARGEST_KERNEL = 1 << 16  # numbers of one example's gradient, above which matrix products are faster

AnyConvolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class ConvolutionRule(OutputRule):
    """Weight [O, C / groups, *kernel] and bias [O]."""

    def factors(self, layer: Layer[AnyConvolution], saved: Tensor, gradient: Tensor) -> Factors:
        result: Factors = {}
        if "weight" in layer.wanted:
            inputs = at_least_single(saved).to(gradient.dtype)
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
        workspace: scratch memory, and memory for the result.
    """
    shape, groups = module.weight.shape, module.groups
    examples, outputs = gradient.shape[:2]
    positions = math.prod(gradient.shape[2:])
    rows, numbers = outputs // groups, math.prod(shape[1:])
    if groups == 1 and 2 * positions * (outputs + numbers) < outputs * numbers and positions < numbers:
        patches = _patches(module, inputs, inputs.new_empty)
        return Outer(gradient.flatten(2).mT, patches.mT, shape)
    if _has_kernel(module, inputs):
        return Dense(_by_groups(module, inputs, gradient, workspace))
    patches = _patches(module, inputs, lambda size: workspace.take("patches", size, inputs))
    left = gradient.reshape(examples * groups, rows, positions)
    result = workspace.keep(gradient, (examples * groups, rows, numbers))
    torch.bmm(left, patches.view(examples * groups, numbers, positions).mT, out=result)
    return Dense(result.view(examples, *shape))


def _has_kernel(module: AnyConvolution, inputs: Tensor) -> bool:
    """Whether the library's kernels for groups are fast here."""
    outputs, channels = module.out_channels // module.groups, module.weight.shape[1]
    if inputs.device.type != "cpu" or inputs.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    if channels == 1 and outputs == 1:
        return module.groups % _LANES == 0
    if channels % _LANES or outputs % _LANES:
        return False
    return outputs * channels * math.prod(module.kernel_size) <= _LARGEST_KERNEL


def _by_groups(module: AnyConvolution, inputs: Tensor, gradient: Tensor, workspace: Workspace) -> Tensor:
    """The weight gradient of one convolution with a group for each example, [B, O, C / groups, *kernel]."""
    examples, outputs = gradient.shape[:2]
    shape, dims = module.weight.shape, len(module.kernel_size)
    inputs, padding = _padded(module, inputs)
    like_weight = workspace.take("weight", (examples * outputs, *shape[1:]), inputs)  # only its shape is read
    _, found, _ = torch.ops.aten.convolution_backward(
        gradient.contiguous().view(1, examples * outputs, *gradient.shape[2:]),
        inputs.contiguous().view(1, -1, *inputs.shape[2:]),
        like_weight,
        None,
        module.stride,
        padding,
        module.dilation,
        False,
        [0] * dims,
        examples * module.groups,
        [False, True, False],
    )
    return found.view(examples, *shape)


def _padded(module: AnyConvolution, inputs: Tensor) -> tuple[Tensor, list[int]]:
    """The input, and the zeros that are still to be added on both sides of each dimension."""
    sides: list[int] = module._reversed_padding_repeated_twice  # resolves "same" and "valid"
    before, after = sides[-2::-2], sides[::-2]
    if module.padding_mode == "zeros" and before == after:
        return inputs, before
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    return F.pad(inputs, sides, mode=mode), [0] * len(before)


def _patches(module: AnyConvolution, inputs: Tensor, memory: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """float [B, C k, L]: for each number of the kernel, the inputs that it meets."""
    inputs, zeros = _padded(module, inputs)
    if any(zeros):
        inputs = F.pad(inputs, [side for side in reversed(zeros) for _ in range(2)])
    inputs = inputs.contiguous()
    steps = inputs.stride()
    out = [
        (full - step * (kernel - 1) - 1) // stride + 1
        for full, kernel, stride, step in zip(
            inputs.shape[2:], module.kernel_size, module.stride, module.dilation, strict=True
        )
    ]
    moves = [step * stride for step, stride in zip(steps[2:], module.stride, strict=True)]
    reaches = [step * dilation for step, dilation in zip(steps[2:], module.dilation, strict=True)]
    view = inputs.as_strided(
        (*inputs.shape[:2], *module.kernel_size, *out), (*steps[:2], *reaches, *moves), inputs.storage_offset()
    )
    if all(kernel == 1 for kernel in module.kernel_size) and view.is_contiguous():
        return view.view(len(inputs), inputs.shape[1], math.prod(out))
    target = memory(tuple(view.shape)).copy_(view)
    return target.view(len(inputs), -1, math.prod(out))
