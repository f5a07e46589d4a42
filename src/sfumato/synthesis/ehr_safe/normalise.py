"""Stochastic normalisation: a column of numbers becomes uniform on [0, 1], whatever its distribution.

Each distinct observed value owns an interval as wide as its share of the observations; the intervals tile [0, 1]. A
number is drawn uniformly inside its interval, anew in each epoch, and comes back as the value that owns the interval.
So whatever draws uniform numbers has the column's marginal distribution exactly.

**What the table tells.** It holds observed values. `rounding` makes them coarse, and with `min_count` no value stands
that fewer observations are nearest to: rare ones, most of all in the tails, are merged into means of their neighbours.

>>> ages = np.array([23.0, 35.0, 35.0, np.nan, 41.0])
>>> table = Normaliser.fit(ages)
>>> table.values, table.ends
(array([23., 35., 41.]), array([0.25, 0.75, 1.  ]))
>>> table.inverse(np.array([0.1, 0.25, 0.7, 1.0]))
array([23., 35., 35., 41.])

References:
    Yoon et al. 2023, npj Digital Medicine 6:141. Section "Stochastic normalization".
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError

_DISTINCT = 0.9  # share of observations that differ from all others, from which on a column counts as continuous
_FEW = 50  # observations; fewer tell nothing about that


@dataclass(frozen=True, eq=False)
class Normaliser:
    """The table of one column.

    Attributes:
        values: float64 [k], ascending: what owns an interval; empty for a column without any observation.
        ends: float64 [k], ascending: where the intervals end, the last at 1.
        continuous: almost all observations differ, so what comes back lies between values, too.
    """

    values: np.ndarray
    ends: np.ndarray
    continuous: bool = False

    @classmethod
    def fit(
        cls,
        column: np.ndarray,
        *,
        whole: bool = False,
        rounding: float | None = None,
        min_count: int = 1,
        continuous: bool | None = None,
    ) -> Self:
        """The table of a column.

        Args:
            column: float [n], NaN where nothing was observed.
            whole: all values are whole numbers, and all that come back must be.
            rounding: observations are rounded to multiples of it first, > 0; None leaves them.
            min_count: observations that a value must stand for, >= 1.
            continuous: whether to interpolate; None looks at the column.

        Raises:
            InputError: a number is infinite, or an option is out of range.
        """
        _check.whole(min_count=min_count)
        if rounding is not None:
            _check.positive(rounding=rounding)
        observed = np.asarray(column, np.float64)
        observed = observed[~np.isnan(observed)]
        if np.isinf(observed).any():
            raise InputError(
                f"a column has infinite numbers, {int(np.isinf(observed).sum())} of {len(observed)}; "
                "correct them or mark them as missing"
            )
        if rounding is not None:
            observed = np.round(observed / rounding) * rounding
        values, counts = np.unique(observed, return_counts=True)
        if continuous is None:
            continuous = not whole and len(observed) >= _FEW and len(values) >= _DISTINCT * len(observed)
        if min_count > 1:
            values, counts = _merged(values, counts, min_count, whole=whole)
        ends = np.cumsum(counts) / max(1, counts.sum())
        return cls(values, ends, continuous)

    @property
    def starts(self) -> np.ndarray:
        """Where the intervals begin, float64 [k]."""
        return np.concatenate([[0.0], self.ends[:-1]])[: len(self.ends)]

    def places(self, column: np.ndarray) -> np.ndarray:
        """The interval of each number, int64 [n], -1 for NaN; a number without one has the nearest value's."""
        column = np.asarray(column, np.float64)
        known = ~np.isnan(column)
        places = np.full(column.shape, -1, np.int64)
        if len(self.values):
            places[known] = _nearest(self.values, column[known])
        return places

    def draw(self, places: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """A number inside each interval.

        Args:
            places: int64 [n], of `places`; -1 gives NaN.
            uniform: float64 [n] in [0, 1).

        Returns:
            float64 [n] in [0, 1).
        """
        if not len(self.values):
            return np.full(places.shape, np.nan)
        starts, ends = self.starts[places], self.ends[places]
        inside = np.minimum(starts + (ends - starts) * uniform, np.nextafter(ends, 0.0))  # rounded up, it is the next's
        return np.where(places < 0, np.nan, inside)

    def inverse(self, numbers: np.ndarray) -> np.ndarray:
        """The values that own the intervals which these numbers lie in.

        Args:
            numbers: float [n]; what lies outside of [0, 1] counts as its nearer end, NaN stays NaN.

        Returns:
            float64 [n]. Between values for a continuous column: its interval reaches halfway to its neighbours'.
        """
        numbers = np.clip(np.asarray(numbers, np.float64), 0.0, 1.0)
        if not len(self.values):
            return np.full(numbers.shape, np.nan)
        if self.continuous:
            halves = (self.values[1:] + self.values[:-1]) / 2
            knots = np.concatenate([self.values[:1], halves, self.values[-1:]])
            return np.interp(numbers, np.concatenate([[0.0], self.ends]), knots)
        places = np.searchsorted(self.ends, np.nan_to_num(numbers), side="right")
        found = self.values[np.minimum(places, len(self.values) - 1)]
        return np.where(np.isnan(numbers), np.nan, found)

    def state(self) -> dict[str, Tensor]:
        """All of it, as tensors."""
        return {
            "values": torch.tensor(self.values),
            "ends": torch.tensor(self.ends),
            "continuous": torch.tensor(self.continuous),
        }

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Self:
        """The table of a `state`."""
        return cls(state["values"].numpy(), state["ends"].numpy(), bool(state["continuous"]))


def _nearest(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The place of the nearest value, the lower of two; values ascending."""
    right = np.clip(np.searchsorted(values, numbers), 1 if len(values) > 1 else 0, len(values) - 1)
    left = np.maximum(right - 1, 0)
    return np.where(numbers - values[left] <= values[right] - numbers, left, right)


def _merged(values: np.ndarray, counts: np.ndarray, least: int, *, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values that at least so many observations are nearest to, and how many; one value for fewer observations."""
    kept: list[float] = []
    weight, total = 0, 0.0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if count >= least:
            kept.append(value)
            weight, total = 0, 0.0  # the few below it go to their nearest neighbour
            continue
        weight, total = weight + count, total + count * value
        if weight >= least:
            kept.append(round(total / weight) if whole else total / weight)
            weight, total = 0, 0.0
    if not kept and len(values):
        mean = float(np.average(values, weights=counts))
        kept = [round(mean) if whole else mean]
    known = np.unique(np.asarray(kept, np.float64))
    while True:
        found = np.bincount(_nearest(known, values), weights=counts, minlength=len(known)).astype(np.int64)
        if len(known) < 2 or found.min() >= least:
            return known, found
        known = np.delete(known, int(found.argmin()))
