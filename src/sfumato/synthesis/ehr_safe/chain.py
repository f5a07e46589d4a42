"""Columns of one row, each given those before it: a strictly triangular linear map.

What is measured together is seen together, and a systolic pressure goes with its diastolic one: a column's number is
moved by those of the columns before it. All columns are learned at once, and drawn one after the other.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Chain(nn.Module):
    """Adds to each column what those before it say.

    Args:
        columns: how many.
        pace: by which weights are multiplied, so that large ones are soon learned.
    """

    def __init__(self, columns: int, *, pace: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(columns, columns))
        self._pace = pace

    def forward(self, base: Tensor, values: Tensor) -> Tensor:
        """Base [..., columns] and the row's own values [..., columns] -> [..., columns]."""
        return base + values @ (self._pace * self.weight).tril(-1).T

    def drawn(self, base: Tensor, draw: Callable[[int, Tensor], Tensor]) -> Tensor:
        """A row, column by column.

        Args:
            base: [n, columns].
            draw: from a column's place and what `forward` gives for it, [n], to its values, [n].
        """
        values = torch.zeros(base.shape[1], base.shape[0])
        weight = self._pace * self.weight.detach()
        for place in range(base.shape[1]):
            told = base[:, place] + weight[place, :place] @ values[:place] if place else base[:, 0]
            values[place] = draw(place, told)
        return values.T
