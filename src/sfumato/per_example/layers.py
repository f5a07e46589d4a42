"""Layers with a rule of their own: linear, convolution, embedding, normalisation; and parameters outside layers.

`nn.Linear` over any leading dimensions: the gradient of the weight is a sum of outer products over positions.

>>> import torch
>>> layer = Layer("fc", nn.Linear(2, 1), LinearRule(), frozenset({"weight", "bias"}))
>>> factors = LinearRule().factors(layer, torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]))
>>> factors["weight"].dense().tolist(), factors["bias"].dense().tolist()
([[[3.0, 6.0]]], [[3.0]])

`nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d` with stride, padding, dilation and groups.

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

`nn.Embedding` and `nn.EmbeddingBag`: rows of a table, equal ids within an example merged; never a table an example.

>>> import torch
>>> layer = Layer("words", nn.Embedding(5, 2), EmbeddingRule(), frozenset({"weight"}))
>>> ids, gradient = torch.tensor([[4, 4, 1]]), torch.tensor([[[1.0, 0], [2.0, 0], [0, 1.0]]])
>>> layer.rule.factors(layer, ids, gradient)["weight"].squared_norms().tolist()      # (1 + 2)^2 for row 4, 1 for row 1
[10.0]

Layer, group, instance and root-mean-square normalisation with trained scale and shift.

The statistics belong to one example each, so the layers couple nothing; the gradient of the scale is the output's
gradient times the normalised input, summed over positions. The normalised input is recomputed: what is kept is the
input, which the graph holds anyway.

>>> import torch
>>> norm = nn.LayerNorm(2, elementwise_affine=True)
>>> layer = Layer("norm", norm, LayerNormRule(), frozenset({"weight", "bias"}))
>>> factors = layer.rule.factors(layer, torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 10.0]]))
>>> factors["weight"].dense().round(decimals=3).tolist(), factors["bias"].dense().tolist()
([[-1.0, 10.0]], [[1.0, 10.0]])
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from sfumato._torch import at_least_single
from sfumato.models import PublicBatchNorm, WSConv2d
from sfumato.models.row_embedding import RowEmbedding, RowEmbeddingBag
from sfumato.per_example.rule import Dense, Factor, Factors, Layer, Outer, OutputRule, Rows, Rule, Tap
from sfumato.per_example.workspace import Shared, Workspace


class LinearRule(OutputRule):
    """Weight [p, d] and bias [p]."""

    leading: ClassVar[bool] = True

    def factors(self, layer: Layer[nn.Linear], saved: Tensor, gradient: Tensor) -> Factors:
        left = gradient.reshape(len(gradient), -1, gradient.shape[-1])
        result: Factors = {}
        if "weight" in layer.wanted:
            right = at_least_single(saved).reshape(len(gradient), -1, saved.shape[-1])
            result["weight"] = Outer(left, right.to(left.dtype))
        if "bias" in layer.wanted:
            result["bias"] = Dense(left.sum(dim=1))
        return result


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


class EmbeddingRule(OutputRule):
    """A table [V, d]; the padding row gets no gradient."""

    leading: ClassVar[bool] = True

    def refusal(self, module: nn.Embedding) -> str:
        if module.scale_grad_by_freq:
            return "scale_grad_by_freq divides by counts over the whole batch; use scale_grad_by_freq=False"
        return ""

    def factors(self, layer: Layer[nn.Embedding], saved: Tensor, gradient: Tensor) -> Factors:
        module = layer.module
        ids = saved.reshape(len(saved), -1)
        rows = gradient.reshape(len(saved), -1, gradient.shape[-1])
        if module.padding_idx is not None:
            rows = rows.masked_fill((ids == module.padding_idx)[:, :, None], 0.0)
        return {"weight": Rows(ids, rows, module.num_embeddings)}


class RowEmbeddingRule(EmbeddingRule):
    """A table whose rows are kept elsewhere: rows of it by their ids, or its placeholder rows."""

    def factors(self, layer: Layer[RowEmbedding], saved: Tensor, gradient: Tensor) -> Factors:  # type: ignore[override]
        module = layer.module
        found = super().factors(layer, module.places(saved), gradient)["weight"]  # pyright: ignore[reportArgumentType]
        assert isinstance(found, Rows)
        return {"weight": found if module.live else Rows(found.ids, found.rows, len(module.weight))}


class EmbeddingBagRule(OutputRule):
    """Bags of ids, summed or averaged, with or without weights; a model whose bags differ in length gives offsets."""

    def refusal(self, module: nn.EmbeddingBag) -> str:
        if module.scale_grad_by_freq:
            return "scale_grad_by_freq divides by counts over the whole batch; use scale_grad_by_freq=False"
        if module.mode == "max":
            return 'mode "max" is not covered; use "sum" or "mean"'
        return ""

    def save(self, module: nn.EmbeddingBag, inputs: tuple[Any, ...], output: Tensor) -> tuple[Any, ...]:
        return inputs

    def factors(self, layer: Layer[nn.EmbeddingBag], saved: tuple[Any, ...], gradient: Tensor) -> Factors:
        module = layer.module
        ids: Tensor = saved[0]
        offsets, weights = (*saved[1:], None, None)[:2]
        if offsets is not None:
            ids, weights = _rectangle(ids, offsets, weights, module)
        elif weights is None:
            weights = gradient.new_ones(ids.shape)
        if module.padding_idx is not None:
            weights = weights * (ids != module.padding_idx)
        if module.mode == "mean":
            weights = weights / weights.count_nonzero(dim=1).clamp(min=1)[:, None]
        return {"weight": Rows(ids, gradient[:, None, :] * weights[:, :, None], module.num_embeddings)}


class RowEmbeddingBagRule(EmbeddingBagRule):
    """Bags of a table whose rows are kept elsewhere: rows of it by their ids, or its placeholder rows."""

    def factors(self, layer: Layer[RowEmbeddingBag], saved: tuple[Any, ...], gradient: Tensor) -> Factors:  # type: ignore[override]
        module = layer.module
        saved = (module.places(saved[0]), *saved[1:])
        found = super().factors(layer, saved, gradient)["weight"]  # pyright: ignore[reportArgumentType]
        assert isinstance(found, Rows)
        return {"weight": found if module.live else Rows(found.ids, found.rows, len(module.weight))}


def _rectangle(ids: Tensor, offsets: Tensor, weights: Tensor | None, module: nn.EmbeddingBag) -> tuple[Tensor, Tensor]:
    """Ragged bags as a rectangle with weight zero where there is nothing."""
    starts = offsets[:-1] if module.include_last_offset else offsets
    ends = offsets[1:] if module.include_last_offset else offsets.new_tensor([*offsets[1:].tolist(), len(ids)])
    lengths = ends - starts
    steps = offsets.new_zeros(0).new_tensor(range(int(lengths.max()) if len(lengths) else 0))
    inside = steps[None, :] < lengths[:, None]
    places = (starts[:, None] + steps[None, :]).clamp(max=max(0, len(ids) - 1))
    given = inside.to(module.weight.dtype) if weights is None else weights[places] * inside
    return ids[places] * inside, given


class ScaleRule(OutputRule):
    """Weight and bias that scale and shift a normalised input."""

    def factors(self, layer: Layer[Any], saved: Tensor, gradient: Tensor) -> Factors:
        result: Factors = {}
        if "weight" in layer.wanted:
            normalised = self.normalised(layer.module, at_least_single(saved)).to(gradient.dtype)
            result["weight"] = Dense(self.summed(layer.module, gradient * normalised))
        if "bias" in layer.wanted:
            result["bias"] = Dense(self.summed(layer.module, gradient))
        return result

    @abstractmethod
    def normalised(self, module: Any, inputs: Tensor) -> Tensor:
        """The input as it is before the scale."""

    @abstractmethod
    def summed(self, module: Any, values: Tensor) -> Tensor:
        """Sum over the positions that share a parameter, [B, *shape]."""


class _LastDimensions(ScaleRule):
    leading: ClassVar[bool] = True

    def summed(self, module: Any, values: Tensor) -> Tensor:
        shape = module.normalized_shape
        return values.reshape(len(values), -1, *shape).sum(dim=1)


class LayerNormRule(_LastDimensions):
    """`nn.LayerNorm`."""

    def normalised(self, module: nn.LayerNorm, inputs: Tensor) -> Tensor:
        return F.layer_norm(inputs, module.normalized_shape, eps=module.eps)


class RMSNormRule(_LastDimensions):
    """`nn.RMSNorm`."""

    def normalised(self, module: nn.RMSNorm, inputs: Tensor) -> Tensor:
        return F.rms_norm(inputs, list(module.normalized_shape), eps=module.eps)


class GroupNormRule(OutputRule):
    """`nn.GroupNorm`: with a group's mean m and scale r, sum g (x - m) r = r (sum g x - m sum g), as autograd has it.

    Both sums are over the positions of a channel, so the normalised input is never written; m and r are those that the
    layer's own backward pass keeps.
    """

    def save(self, module: nn.GroupNorm, inputs: tuple[Any, ...], output: Tensor) -> Any:
        values = inputs[0].detach()
        node = output.grad_fn
        mean, scale = getattr(node, "_saved_result1", None), getattr(node, "_saved_result2", None)
        known = (len(values), module.num_groups)
        if mean is None or scale is None or mean.shape != known or scale.shape != known:
            return values, None, None
        return values, mean, scale

    def factors(self, layer: Layer[nn.GroupNorm], saved: Any, gradient: Tensor) -> Factors:
        module = layer.module
        values, mean, scale = saved
        values = at_least_single(values).to(gradient.dtype).reshape(*values.shape[:2], -1)
        gradient = gradient.reshape(values.shape)
        total = gradient.sum(dim=2)
        result: Factors = {}
        if "weight" in layer.wanted:
            if mean is None:
                grouped = values.reshape(len(values), module.num_groups, -1)
                variance, mean = torch.var_mean(grouped, dim=2, correction=0)
                scale = (variance + module.eps).rsqrt()
            products = torch.linalg.vecdot(gradient, values).view(len(values), module.num_groups, -1)
            sums = total.view(products.shape)
            weight = (products - mean.to(sums.dtype)[:, :, None] * sums) * scale.to(sums.dtype)[:, :, None]
            result["weight"] = Dense(weight.view(total.shape))
        if "bias" in layer.wanted:
            result["bias"] = Dense(total)
        return result


class InstanceNormRule(ScaleRule):
    """`nn.InstanceNorm1d/2d/3d` without running statistics."""

    def normalised(self, module: Any, inputs: Tensor) -> Tensor:
        return F.instance_norm(inputs, eps=module.eps)

    def summed(self, module: Any, values: Tensor) -> Tensor:
        return values.flatten(2).sum(dim=2)


# Layers of `sfumato.models` that torch does not have: public batch norm and standardised convolutions.
#
# Public batch norm normalises with the statistics of public inputs, which are constants here (what flows through them
# is added after the noise, see docs/explanation/public-batch-norm.md). A standardised convolution is an ordinary one in
# its standardised weight; the layer says how a gradient of that weight becomes one of the trained weight.


class PublicBatchNormRule(ScaleRule):
    """Scale and shift over channels, dimension 1."""

    def normalised(self, module: PublicBatchNorm, inputs: Tensor) -> Tensor:
        return module.normalised(inputs)

    def summed(self, module: PublicBatchNorm, values: Tensor) -> Tensor:
        return values.flatten(2).sum(dim=2) if values.dim() > 2 else values


class StandardisedConvolutionRule(OutputRule):
    """The raw weight and the bias of `WSConv2d`."""

    def factors(self, layer: Layer[WSConv2d], saved: Tensor, gradient: Tensor) -> Factors:
        result: Factors = {}
        if "weight" in layer.wanted:
            inputs = at_least_single(saved).to(gradient.dtype)
            kernels = weight_factor(layer.module, inputs, gradient, layer.workspace).dense()
            result["weight"] = Dense(layer.module.pull_back(kernels))
        if "bias" in layer.wanted:
            result["bias"] = Dense(gradient.flatten(2).sum(dim=2))
        return result


# Parameters that a module uses outside its layers, such as class tokens, tables of positions and scales.
#
# While the module runs in a recording, each is replaced by one copy for every example (see `shared`), a view without
# memory of its own, and the gradient of the copies is the gradient of each example. The module's layers keep their own
# rules, and nothing is run twice. A module that uses such a parameter in another way is found out by the self-check.


class ExpandRule(Rule):
    """Own parameters of a module with layers."""

    path: ClassVar[str] = "one backward pass, one copy of the parameter for each example"

    def attach(self, layer: Layer[nn.Module], tap: Tap) -> Callable[[], None]:
        module = layer.module
        held: dict[str, nn.Parameter] = {}

        def restore() -> None:
            for name, parameter in held.items():
                module._parameters[name] = parameter  # in its old place: the order is the optimiser's
            held.clear()

        def before(_: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            if not tap.listening or held:
                return
            examples = tap.examples or _first_size((inputs, keywords))
            if examples is None:
                return
            for name in sorted(layer.wanted):
                parameter = held[name] = module.get_parameter(name)
                copies = tap(parameter.expand(examples, *parameter.shape), _factors(name), (name,))
                module._parameters[name] = Shared(copies, layer.workspace.decisions)  # type: ignore[assignment]

        def after(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            restore()

        handles = [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after, always_call=True),
        ]

        def detach() -> None:
            for handle in handles:
                handle.remove()
            restore()

        return detach


def _factors(name: str) -> Callable[[Tensor], Factors]:
    return lambda gradient: {name: Dense(gradient)}


def _first_size(values: Any) -> int | None:
    sizes = [len(value) for value in tree_leaves(values) if isinstance(value, torch.Tensor) and value.dim()]
    return sizes[0] if sizes else None
