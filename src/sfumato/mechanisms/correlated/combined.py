"""Kept vectors times their weights, added up in their own precision: that is quick, and nothing of it is fresh.

>>> combined([(torch.ones(2), 0.5), (torch.ones(2), 2.0)])
tensor([2.5000, 2.5000])
"""

import torch
from torch import Tensor


def combined(parts: list[tuple[Tensor, float]]) -> Tensor:
    """The sum of weight × vector.

    Args:
        parts: one or more vectors, float [n], and their weights.
    """
    (first, weight), *others = parts
    total = torch.mul(first, weight)
    for vector, weight in others:
        total.add_(vector, alpha=weight)
    return total
