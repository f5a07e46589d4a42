"""Parameters that are used more than once: one layer called twice, or one tensor in two layers (tied weights).

The gradient is the sum over uses, so norms do not add up. Uses of one form are joined along the positions; a table that
is also a linear map (tied input and output embeddings) keeps both forms and their inner products, without a table for
each example; blocks of rows that do not overlap stay apart; anything else is materialised and added.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sfumato.per_example.factor import ROUNDINGS, Dense, Factor, Keep, Outer, Rows, lengths_of


def joined(uses: Sequence[Factor], keep: Keep = torch.Tensor.new_empty) -> Factor:
    """One factor for all uses of a parameter."""
    if len(uses) == 1:
        return uses[0].settled(keep)
    blocks = [use for use in uses if isinstance(use, Blocks)]
    if len(blocks) == len(uses):
        places = sorted({place for use in blocks for place in use.parts})
        found = {place: [use.parts[place] for use in blocks if place in use.parts] for place in places}
        return Blocks({place: joined(parts, keep) for place, parts in found.items()}, blocks[0].shape)
    outers = [use for use in uses if isinstance(use, Outer)]
    rows = [use for use in uses if isinstance(use, Rows)]
    if len(outers) == len(uses):
        return _outers_joined(outers).settled(keep)
    if len(rows) == len(uses):
        return _rows_joined(rows)
    if len(outers) + len(rows) == len(uses):
        return TiedTable(_rows_joined(rows), _outers_joined(outers))
    total = uses[0].dense()
    for use in uses[1:]:
        total = total + use.dense().view_as(total)
    return Dense(total)


class TiedTable(Factor):
    """Rows of a table plus a linear map with the same weight.

    Args:
        rows: from the embedding.
        outer: from the linear map, with p = V outputs.
    """

    def __init__(self, rows: Rows, outer: Outer) -> None:
        self.rows = rows
        self.outer = outer

    def squared_norms(self) -> Tensor:
        """|R|^2 + |O|^2 + 2 <R, O>, the last one from the columns of the outer product that the rows touch."""
        ids, vectors = self.rows.ids, self.rows.rows
        positions = self.outer.left.shape[1]
        index = ids[:, None, :].expand(-1, positions, -1)
        touched = self.outer.left.gather(2, index)  # [B, S, T]
        inner = (touched * (self.outer.right @ vectors.mT)).sum(dim=(1, 2), dtype=torch.float64)
        lengths = lengths_of(self.outer.right)[:, :, None] * lengths_of(vectors)[:, None, :]
        slack = ROUNDINGS * torch.finfo(vectors.dtype).eps * (touched.abs() * lengths).sum(dim=(1, 2))
        total = self.rows.squared_norms() + self.outer.squared_norms() + 2 * (inner + slack)
        return total.clamp_min(0.0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.rows.weighted_sum(weights) + self.outer.weighted_sum(weights)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        self.rows.add_to(total, weights)
        self.outer.add_to(total, weights)

    def dense(self) -> Tensor:
        return self.rows.dense() + self.outer.dense()

    def without(self, examples: Tensor) -> "TiedTable":
        return TiedTable(self.rows.without(examples), self.outer.without(examples))


class Blocks(Factor):
    """Gradients of a parameter of which each use sees one block of rows, such as a joint projection of q, k and v.

    Args:
        parts: by the block's place; a block that is missing has gradient zero.
        shape: of the whole parameter, whose blocks are equal.
    """

    def __init__(self, parts: Mapping[int, Factor], shape: torch.Size) -> None:
        self.parts = dict(parts)
        self.shape = shape

    def settled(self, keep: Keep = torch.Tensor.new_empty) -> "Blocks":
        return Blocks({place: part.settled(keep) for place, part in self.parts.items()}, self.shape)

    def squared_norms(self) -> Tensor:
        return torch.stack([part.squared_norms() for part in self.parts.values()]).sum(dim=0)

    def _assembled(self, parts: Mapping[int, Tensor], dim: int) -> Tensor:
        some = next(iter(parts.values()))
        rows = some.shape[dim]
        whole = some.new_zeros(*some.shape[:dim], *self.shape)
        for place, part in parts.items():
            whole.narrow(dim, place * rows, rows).copy_(part)
        return whole

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self._assembled({place: part.weighted_sum(weights) for place, part in self.parts.items()}, 0)

    def dense(self) -> Tensor:
        return self._assembled({place: part.dense() for place, part in self.parts.items()}, 1)

    def without(self, examples: Tensor) -> "Blocks":
        return Blocks({place: part.without(examples) for place, part in self.parts.items()}, self.shape)


def _outers_joined(uses: Sequence[Outer]) -> Outer:
    return Outer(
        torch.cat([use.left for use in uses], dim=1), torch.cat([use.right for use in uses], dim=1), uses[0].shape
    )


def _rows_joined(uses: Sequence[Rows]) -> Rows:
    return Rows(
        torch.cat([use.ids for use in uses], dim=1), torch.cat([use.rows for use in uses], dim=1), uses[0].table
    )
