"""Layer, group, instance and root-mean-square normalisation with trained scale and shift.

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

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._precision import at_least_single
from sfumato.per_example.factor import Dense
from sfumato.per_example.rule import Factors, Layer, OutputRule


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
