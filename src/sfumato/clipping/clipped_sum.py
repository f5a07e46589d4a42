"""A running sum of contributions, each weighted by a `NormBound`, then forgotten.

Unit: one contribution (an example's gradient, a client's delta). Each adds a vector of L2 norm at most the bound's
sensitivity to `total`, whatever it holds: a contribution with NaN or Inf counts as zero. Weights are rounded towards
zero by more than norms and products can be off, so that the bound holds for what each adds in floating point too. The
sum is in double precision; rows that come together are added up in single precision before. The round-off of that
depends on which rows share a batch, and weights do not cover it: in a batch of adversarial rows a contribution
moves the sum by 1.001 bounds. A statement says that sums are exact up to rounding. Memory is one vector, however many
contribute.

Contributions come one by one (`add`), in rows (`add_rows`), or many at once through views of the total (`parts`), with
the weights that `weigh` gives for their norms. There is no other way to a weight.

| contribution        | adds                          | counted in            |
| ------------------- | ----------------------------- | --------------------- |
| norm ≤ C            | what the bound leaves of it   | units, below          |
| norm > C            | what the bound leaves of it   | units, clipped        |
| norm > C·2^126      | nothing                       | units, clipped        |
| has NaN or Inf      | nothing                       | units, non_finite     |
| clip_norm is None   | itself                        | units, below          |

>>> from sfumato.clipping.bounds import Flat
>>> layout = Layout(names=("w",), shapes=(torch.Size([2]),))
>>> total = ClippedSum(Flat(norm=1.0), 1.0, layout)
>>> total.add(torch.tensor([3.0, 4.0])); total.add(torch.tensor([float("nan"), 0.0]))
>>> total.total.round(decimals=3).tolist(), total.tally["units"], total.tally["non_finite"]
([0.6, 0.8], 2.0, 1.0)

How a vector is made of parameters, one after the other.

>>> layout = Layout(names=("weight", "bias"), shapes=(torch.Size([2, 3]), torch.Size([2])))
>>> layout.size, [tuple(view.shape) for view in layout.views(torch.zeros(8))]
(8, [(2, 3), (2,)])

Counts and sums of a round, as one vector that processes add up. All of them are private.

>>> tally = Tally("cpu")
>>> tally.add(units=3, below=2, clipped=1, loss=4.5)
>>> tally.row()["loss"], tally["below"]
(1.5, 2.0)
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sfumato import _check
from sfumato._torch import at_least_single
from sfumato.clipping.bounds import ROUND_DOWN, NormBound


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters in the vector's order.

    Attributes:
        names: of the parameters.
        shapes: of the parameters.
    """

    names: Sequence[str]
    shapes: Sequence[torch.Size]

    @cached_property
    def sizes(self) -> list[int]:
        """How many numbers each parameter has."""
        return [shape.numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self.sizes)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Views of a vector [..., size] in the parameters' shapes [..., *shape]."""
        pieces = vector.split(self.sizes, dim=-1)
        return [piece.view((*vector.shape[:-1], *shape)) for piece, shape in zip(pieces, self.shapes, strict=True)]


_FIELDS = ("units", "below", "clipped", "non_finite", "norms", "loss", "examples")


class Tally:
    """Figures of a round, without its sum.

    units: contributions seen; below: those of norm at most the clip norm (the count that adaptive clipping releases
    with noise); clipped: those that were longer; non_finite: those that counted as zero because of NaN or Inf; norms:
    the sum of the finite norms before clipping; loss: the sum of the contributions' mean losses; examples: processed.

    Attributes:
        values: float64 [7], on the device of the sum.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.values = torch.zeros(len(_FIELDS), dtype=torch.float64, device=device)

    def add(self, **amounts: Tensor | float) -> None:
        """Add to some of the fields; scalars."""
        for name, amount in amounts.items():
            self.values[_FIELDS.index(name)] += amount

    def __getitem__(self, name: str) -> float:
        return self.values[_FIELDS.index(name)].item()

    def row(self) -> dict[str, float | int | None]:
        """Figures for the metrics, to be marked as private."""
        of = dict(zip(_FIELDS, self.values.tolist(), strict=True))
        units, finite = of["units"], of["units"] - of["non_finite"]
        return {
            "units": int(units),
            "examples": int(of["examples"]),
            "loss": _finite(of["loss"] / units) if units else None,
            "clipped": round(of["clipped"] / units, 4) if units else None,
            "norm_mean": _finite(of["norms"] / finite) if finite else None,
            "non_finite": int(of["non_finite"]),
        }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


_CHUNK = 1 << 21  # numbers weighed at a time: they stay in a large cache
_ROWS = 1 << 8  # rows added up in single precision: the longer such a sum, the more round-off they share
_PIECE = 1 << 6  # numbers whose squares are added up in single precision
_LEAST, _MOST = 1e-12, 1e15  # norms whose squares are far from the ends of single precision


class RowSum:
    """The sum of some rows of a table, as large as the rows that were added; held by the processor, as the table is.

    Args:
        width: numbers in a row.
    """

    dtype = torch.float64

    def __init__(self, width: int) -> None:
        # parts, each of rows in rising order without repetition
        self._parts = [(torch.zeros(0, dtype=torch.int64), torch.zeros(0, width, dtype=torch.float64))]

    def index_add_(self, dim: int, rows: Tensor, values: Tensor) -> None:
        """Add float64 [n, width] to the rows int64 [n], of which some may be the same; `dim` is 0."""
        found, total = _added_up(rows, values)
        if not len(self._parts[0][0]):
            self._parts.clear()
        self._parts.append((found.cpu(), total.cpu()))
        if sum(len(part) for part, _ in self._parts[1:]) > len(self._parts[0][0]):
            self.gathered()  # so that a batch of many micro-batches takes the memory of its rows

    def gathered(self) -> tuple[Tensor, Tensor]:
        """The rows, in rising order, and their sums: int64 [n] and float64 [n, width]."""
        if len(self._parts) > 1:
            rows, values = zip(*self._parts, strict=True)
            self._parts = [_added_up(torch.cat(rows), torch.cat(values))]
        return self._parts[0]


def _added_up(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in rising order without repetition, and the sums of their values."""
    found, which = torch.unique(rows, return_inverse=True)
    return found, values.new_zeros(len(found), values.shape[1]).index_add_(0, which, values)


class RowCounts:
    """How many contributions read each row of some tables, the counts of one contribution having norm C₁ at most.

    Unit: one contribution. It has a count of one for each row that it reads, over all tables, times min(1, C₁/√rows).

    Args:
        norm: C₁, > 0.
        tables: names.

    Attributes:
        sums: of each table, rows of one number.
    """

    def __init__(self, norm: float, tables: Iterable[str]) -> None:
        self._norm = norm
        self.sums = {name: RowSum(1) for name in tables}

    def add(self, read: Mapping[str, Tensor]) -> None:
        """Add what some contributions read: of each table int64 [n, T] rows, in which one may stand several times."""
        ordered = {name: ids.sort(dim=1).values for name, ids in read.items()}
        first = {name: torch.ones_like(ids, dtype=torch.bool) for name, ids in ordered.items()}
        for name, ids in ordered.items():
            first[name][:, 1:] = ids[:, 1:] != ids[:, :-1]
        each = torch.stack([once.sum(dim=1) for once in first.values()]).sum(dim=0).double()
        weights = (self._norm * ROUND_DOWN / each.sqrt()).clamp(max=1.0)
        for name, ids in ordered.items():
            counted = weights[:, None].expand_as(ids)[first[name]]
            self.sums[name].index_add_(0, ids[first[name]], counted[:, None])


class ClippedSum:
    """Σ w(Δ)·Δ over contributions Δ, with counts that are private: see `Tally`.

    Args:
        bound: gives the weights.
        clip_norm: the bound's state, > 0; None for a run without privacy.
        layout: of a contribution.
        device: where the sum is held.
        out: float64 [size] that holds the sum, overwritten; None takes new memory.
        tables: sums of tables that are no part of the vector, by the name of their parameter.

    Attributes:
        total: float64 [size], the sum so far.
        tables: those of the tables.
        counts: how many contributions read each of their rows; None where they are not needed.
        tally: counts so far.
        groups: the parameters that are bounded together, as indices.
    """

    def __init__(
        self,
        bound: NormBound,
        clip_norm: float | None,
        layout: Layout,
        *,
        device: torch.device | str = "cpu",
        out: Tensor | None = None,
        tables: Mapping[str, RowSum] | None = None,
    ) -> None:
        if clip_norm is not None:
            _check.positive(clip_norm=clip_norm, remedy="for a run without privacy use clip_norm=None")
        self.total = torch.zeros(layout.size, dtype=torch.float64, device=device) if out is None else out.zero_()
        self.tally = Tally(device)
        self.tables = dict(tables or {})
        self.counts: RowCounts | None = None
        self.groups = bound.groups([*layout.names, *self.tables])
        self._bound, self._clip_norm, self._layout = bound, clip_norm, layout

    def add(self, contribution: Tensor) -> None:
        """Weight one contribution, float [size], and add it."""
        self.add_rows(contribution[None])

    def add_rows(self, contributions: Tensor) -> None:
        """Weight every row of float [n, size] by itself and add them."""
        rows = min(_ROWS, max(1, _CHUNK // max(1, contributions.shape[1])))
        for chunk in contributions.split(rows):
            chunk = at_least_single(chunk)  # half precision rounds by more than weights are rounded down
            weights = self.weigh(self._norms(chunk))
            usable = weights[0] > 0  # zero times NaN would be NaN
            if not usable.all():
                chunk, weights = chunk[usable], weights[:, usable]
            if len(chunk) == 1:
                for piece, part, weight in self._pieces(chunk[0], weights[:, 0].tolist()):
                    piece.add_(part, alpha=weight)
            elif len(chunk):
                for piece, part, weight in self._pieces(chunk, list(weights.to(chunk.dtype))):
                    piece.add_(torch.mv(part.T, weight))

    def parts(self) -> list[Any]:
        """Views of `total` in the parameters' shapes, then the sums of tables; what is added through them must be
        weighted by `weigh`."""
        return [*self._layout.views(self.total), *self.tables.values()]

    def weigh(self, norms: Tensor) -> Tensor:
        """Weights of contributions, which are counted.

        Args:
            norms: float64 [groups, n], of each contribution's part in each group; NaN or inf where it is not finite.

        Returns:
            float64 [groups, n], 0 for a contribution that is not finite.
        """
        weights = self._bound.weights(norms, self._clip_norm)
        whole = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(norms, dim=0)
        finite = torch.isfinite(whole)
        below = finite if self._clip_norm is None else (whole <= self._clip_norm) & finite
        usable, short = finite.sum(), below.sum()
        self.tally.add(
            units=len(whole),
            below=short,
            clipped=usable - short,
            non_finite=len(whole) - usable,
            norms=torch.where(finite, whole, 0.0).sum(),
        )
        return weights

    def merge(self, other: "ClippedSum") -> None:
        """Add what another sum under the same bound has collected."""
        self.total.add_(other.total)
        self.tally.values.add_(other.tally.values)

    def _norms(self, rows: Tensor) -> Tensor:
        """Of every row of [n, size], by group, float64 [groups, n]."""
        if len(self.groups) == 1:
            return row_norms(rows)[None]
        each = torch.stack([row_norms(part) for part in rows.split(self._layout.sizes, dim=1)])
        return torch.stack([torch.linalg.vector_norm(each[group], dim=0) for group in self.groups])

    def _pieces(self, contribution: Tensor, weights: list[Any]) -> list[tuple[Tensor, Tensor, Any]]:
        """(part of the total, part of the contribution, weight) for each parameter, or for all of them as one."""
        if len(self.groups) == 1:
            return [(self.total, contribution, weights[0])]
        sizes = self._layout.sizes
        pieces, parts = self.total.split(sizes), contribution.split(sizes, dim=-1)
        return [
            (pieces[i], parts[i], weight) for group, weight in zip(self.groups, weights, strict=True) for i in group
        ]


def row_norms(rows: Tensor) -> Tensor:
    """L2 norms of float [n, size], float64 [n], to 2^-18 of each.

    Single numbers are squared and added up in pieces so short that their round-off stays far below what weights are
    rounded down by; pieces are put together in double precision. Squares that leave single precision are taken again.
    """
    rows = at_least_single(rows)
    whole = rows.shape[1] // _PIECE * _PIECE
    norms = torch.linalg.vector_norm(rows[:, :whole].unflatten(1, (-1, _PIECE)), dim=2).double()
    parts = [torch.linalg.vector_norm(norms, dim=1)] if whole else []
    if whole < rows.shape[1]:
        parts.append(torch.linalg.vector_norm(rows[:, whole:], dim=1).double())
    found = torch.linalg.vector_norm(torch.stack(parts), dim=0) if parts else rows.new_zeros(len(rows)).double()
    again = ~((found > _LEAST) & (found < _MOST))  # row by row: no row decides how the norm of another one rounds
    if again.any():
        found[again] = torch.linalg.vector_norm(rows[again], dim=1, dtype=torch.float64)
    return found
