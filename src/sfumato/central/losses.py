"""Losses that are one number an example.

>>> [round(loss, 4) for loss in cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()]
[1.3863, 1.3863]
"""

from collections.abc import Callable

import torch  # noqa: F401  # for the doctest
from torch import Tensor
from torch.nn import functional

LossPerExample = Callable[[Tensor, Tensor], Tensor]
"""From the model's outputs [n, …] and targets [n, …] to one loss an example, [n]."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of classifiers: logits [n, classes], labels int64 [n] → [n]."""
    return functional.cross_entropy(logits, labels, reduction="none")
