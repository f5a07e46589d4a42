"""Kept vectors times their weights, added up in their own precision: that is quick, and nothing of it is fresh.

>>> row = torch.ones(2, dtype=torch.float64)
>>> add_combined(row, [(torch.ones(2), 0.5), (torch.ones(2), -2.0)]); row
tensor([-0.5000, -0.5000], dtype=torch.float64)
>>> add_product(row, torch.ones(3, 2), [0.5, 0.0, -2.0]); row
tensor([-2., -2.], dtype=torch.float64)
"""

import numpy as np
import torch
from torch import Tensor


def add_combined(row: Tensor, parts: list[tuple[Tensor, float]]) -> None:
    """Add the sum of weight × vector to float [n], contiguous, in place.

    Args:
        row: of single precision or more.
        parts: one or more vectors, float [n], and their weights.
    """
    (first, weight), *others = parts
    total = torch.mul(first, weight)
    for vector, weight in others:
        total.add_(vector, alpha=weight)
    _add(row, total)


def add_product(row: Tensor, kept: Tensor, weights: list[float]) -> None:
    """The same for all kept vectors, float [vectors, n], in one pass over them."""
    _add(row, torch.mv(kept.T, torch.tensor(weights, dtype=kept.dtype, device=kept.device)))


def _add(row: Tensor, total: Tensor) -> None:
    if row.device.type == "cpu":  # NumPy adds single to double precision twice as fast
        np.add(row.numpy(), total.numpy(), out=row.numpy())
    else:
        row.add_(total)
