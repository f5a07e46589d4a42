"""`nn.Linear` over any leading dimensions: the gradient of the weight is a sum of outer products over positions.

>>> import torch
>>> layer = Layer("fc", nn.Linear(2, 1), LinearRule(), frozenset({"weight", "bias"}))
>>> factors = LinearRule().factors(layer, torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]))
>>> factors["weight"].dense().tolist(), factors["bias"].dense().tolist()
([[[3.0, 6.0]]], [[3.0]])
"""

from typing import ClassVar

from torch import Tensor, nn

from sfumato._precision import at_least_single
from sfumato.per_example.factor import Dense, Outer
from sfumato.per_example.rule import Factors, Layer, OutputRule


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
