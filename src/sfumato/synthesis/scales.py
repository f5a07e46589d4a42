"""What is computed of columns before any training: scales of numbers, shares of categories and of observed values.

Three numbers are added to the static ones of each patient: how many visits there are, and when the first and the last
one are. So all are generated like any other number, and come from no patient. So are `summaries` of the visits, where
they are wanted. Between visits there are gaps, which are positive.

On a stochastic scale numbers are uniform on [0, 1]; networks get them as normal scores, Φ⁻¹(u), on which squared errors
are errors of a normal distribution. Numbers of a min-max scale are only centred.

**Min-max.** Min-max normalisation, to compare stochastic normalisation with: smallest observed value 0, largest 1.

>>> scale = MinMax.fit(np.array([2.0, np.nan, 10.0, 4.0]), whole=True)
>>> scale.draw(scale.positions(np.array([4.0, np.nan, 12.0])), np.zeros(3))
array([0.25,  nan, 1.  ])
>>> scale.inverse(np.array([0.25, 0.3]))
array([4., 4.])

**Stochastic.** Stochastic normalisation: a column of numbers becomes uniform on [0, 1], whatever its distribution.

Each distinct observed value owns an interval as wide as its share of the observations; the intervals tile [0, 1]. A
number is drawn uniformly inside its interval, anew in each epoch, and comes back as the value that owns the interval.
So whatever draws uniform numbers has the column's marginal distribution exactly.

**What the table reveals.** It holds observed values. `rounding` makes them coarse, and with `min_count` no value stands
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

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import scipy
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column, Schema
from sfumato.synthesis.summaries import CountFeatures, counts_of, summaries


@dataclass(frozen=True, eq=False)
class MinMax:
    """The scale of one column; the methods are those of `Normaliser`, and nothing is drawn.

    Attributes:
        low, high: the range; NaN for a column without any observation.
        whole: what comes back is rounded to whole numbers.
    """

    low: float
    high: float
    whole: bool = False

    @classmethod
    def fit(cls, column: np.ndarray, *, whole: bool = False) -> Self:
        """The scale of a column, float [n] with NaN where nothing was observed."""
        observed = column[~np.isnan(column)]
        return cls(float(observed.min()), float(observed.max()), whole) if len(observed) else cls(np.nan, np.nan, whole)

    def positions(self, column: np.ndarray) -> np.ndarray:
        """The numbers on the scale, cut off at its ends; NaN stays NaN."""
        width = self.high - self.low
        return np.clip((np.asarray(column, np.float64) - self.low) / (width if width > 0 else 1.0), 0.0, 1.0)

    def draw(self, positions: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """The positions, whatever is drawn."""
        return positions

    def inverse(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in [0, 1], cut off there, in the column's own unit."""
        found = self.low + (self.high - self.low) * np.clip(np.asarray(numbers, np.float64), 0.0, 1.0)
        return np.round(found) if self.whole else found

    def state(self) -> dict[str, Tensor]:
        """All of it, as tensors."""
        return {"range": torch.tensor([self.low, self.high, float(self.whole)], dtype=torch.float64)}

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Self:
        """The scale of a `state`."""
        low, high, whole = state["range"].tolist()
        return cls(low, high, bool(whole))


_DISTINCT = 0.9  # share of observations that differ from all others, from which on a column counts as continuous
_FEW = 50  # observations; fewer are too few to decide that


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

    def positions(self, column: np.ndarray) -> np.ndarray:
        """The interval of each number, int64 [n], -1 for NaN; a number without one has the nearest value's."""
        column = np.asarray(column, np.float64)
        known = ~np.isnan(column)
        positions = np.full(column.shape, -1, np.int64)
        if len(self.values):
            positions[known] = _nearest(self.values, column[known])
        return positions

    def draw(self, positions: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """A number inside each interval.

        Args:
            positions: int64 [n], of `positions`; -1 gives NaN.
            uniform: float64 [n] in [0, 1).

        Returns:
            float64 [n] in [0, 1).
        """
        if not len(self.values):
            return np.full(positions.shape, np.nan)
        starts, ends = self.starts[positions], self.ends[positions]
        inside = np.minimum(starts + (ends - starts) * uniform, np.nextafter(ends, 0.0))  # rounded up, it is the next's
        return np.where(positions < 0, np.nan, inside)

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


ADDED = 3
VISITS, START, END = -3, -2, -1
"""How many numbers are added, and where they stand among the static ones."""

_EDGE = 1e-4  # normal scores end here, at ±3.72
_WIDTH = 12**0.5  # 1 / std of uniform numbers


@dataclass(frozen=True, eq=False)
class Scales:
    """Scales and shares of all columns.

    Attributes:
        schema: of the records.
        static: of the numeric static columns, then of the summaries, of the number of visits and of the first and the
            last visit's time.
        temporal: of the numeric temporal columns.
        gap: of the time between visits.
        stochastic: whether the scales are stochastic.
        summed: whether there are summaries.
        horizon: the latest time of a visit.
        pace: the mean gap, > 0.
        visits: mean number of visits.
        static_rates: float64, share of patients with a value: numeric columns with the added ones, categorical.
        rates: float64, share of visits with a value: numeric columns, then categorical ones.
        static_shares, shares: float64, of the categories among observed values, the columns side by side.
        empty: whether there are visits at which nothing was observed.
        references, counted_by_share: of `count_features`.
    """

    schema: Schema
    static: tuple[Normaliser | MinMax, ...]
    temporal: tuple[Normaliser | MinMax, ...]
    gap: Normaliser | MinMax
    stochastic: bool
    summed: bool
    horizon: float
    pace: float
    visits: float
    static_rates: np.ndarray
    rates: np.ndarray
    static_shares: np.ndarray
    shares: np.ndarray
    empty: bool
    references: np.ndarray
    counted_by_share: np.ndarray

    @property
    def count_features(self) -> CountFeatures:
        """How a column's count becomes a number of the summaries."""
        return CountFeatures(self.references, self.counted_by_share)

    @classmethod
    def fit(
        cls,
        data: EHRDataset,
        *,
        stochastic: bool = True,
        rounding: float | None = None,
        min_count: int = 1,
        summed: bool = True,
    ) -> Self:
        """Look at all records.

        Args:
            data: the records.
            stochastic: stochastic normalisation; False for min-max.
            rounding, min_count: as for `Normaliser.fit`, of every stochastic scale; columns of whole numbers, visits
                and times are not rounded.
            summed: whether visits are summed up, too.
        """

        def scale(column: np.ndarray, whole: bool, coarse: float | None = None) -> Normaliser | MinMax:
            if not stochastic:
                return MinMax.fit(column, whole=whole)
            return Normaliser.fit(column, whole=whole, rounding=coarse, min_count=min_count)

        def scales(columns: Sequence[Column], values: np.ndarray) -> list[Normaliser | MinMax]:
            return [
                scale(values[:, place], column.whole, None if column.whole else rounding)
                for place, column in enumerate(columns)
            ]

        schema, first, last = data.schema, data.times[data.offsets[:-1]], data.times[data.offsets[1:] - 1]
        gaps = np.delete(np.diff(data.times, prepend=0.0), data.offsets[:-1])
        whole = bool((data.times == np.floor(data.times)).all())
        temporal = scales(schema.temporal_numeric, data.numbers)
        added = []
        counting = CountFeatures.plain(data.numbers.shape[1] + data.codes.shape[1])
        if summed:
            counting = CountFeatures.fit(counts_of(data), data.lengths)
            middle = np.full(data.numbers.shape, 0.5)
            sums = summaries(data, scores_of(temporal, data.numbers, middle, stochastic=stochastic), counting)
            added = [scale(column, False) for column in sums.T]
        added += [scale(data.lengths.astype(np.float64), True), scale(first, whole), scale(last, whole)]
        fixed = [data.static_numbers, *([sums] if summed else []), np.ones((len(data), ADDED))]
        seen = _observed(data.numbers, data.codes)
        return cls(
            schema=schema,
            static=(*scales(schema.static_numeric, data.static_numbers), *added),
            temporal=tuple(temporal),
            gap=scale(gaps, whole),
            stochastic=stochastic,
            summed=summed,
            horizon=float(data.times.max()),
            pace=float(gaps.mean()) if len(gaps) else 1.0,
            visits=float(data.lengths.mean()),
            static_rates=_observed(np.column_stack(fixed), data.static_codes).mean(axis=0),
            rates=seen.mean(axis=0),
            static_shares=_shares(schema.static_categorical, data.static_codes),
            shares=_shares(schema.temporal_categorical, data.codes),
            empty=not bool(seen.any(axis=1).all()),
            references=counting.references,
            counted_by_share=counting.shares,
        )

    def scores(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in [0, 1] as networks see them."""
        return _scores(numbers, stochastic=self.stochastic)

    def numbers(self, scores: np.ndarray) -> np.ndarray:
        """Scores as numbers in [0, 1]."""
        if self.stochastic:
            return scipy.special.ndtr(scores.astype(np.float64))
        return np.clip(scores.astype(np.float64) / _WIDTH + 0.5, 0.0, 1.0)

    def gaps(self, scores: np.ndarray) -> np.ndarray:
        """Scores [n] as times between visits, > 0."""
        found = self.gap.inverse(self.numbers(scores))
        return np.where(found > 0, found, self.least_gap)  # rounded to zero, or nothing known of gaps

    def gap_scores(self, gaps: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Times between visits [n] as scores; `uniform` [n] in [0, 1) says where in its interval each lies."""
        if not self.has_gaps:
            return np.zeros(len(gaps))
        return self.scores(self.gap.draw(self.gap.positions(gaps), uniform))

    @property
    def has_gaps(self) -> bool:
        """Whether anybody has two visits."""
        return bool(len(self.gap.values)) if isinstance(self.gap, Normaliser) else not np.isnan(self.gap.low)

    @cached_property
    def least_gap(self) -> float:
        """The smallest time between visits, > 0."""
        if isinstance(self.gap, Normaliser) and len(self.gap.values) and self.gap.values[0] > 0:
            return float(self.gap.values[0])
        return float(self.gap.low) if isinstance(self.gap, MinMax) and self.gap.low > 0 else self.pace

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers, without the schema."""
        tensors, plain = {}, {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("static", "temporal", "gap"):
                for place, scale in enumerate(value if isinstance(value, tuple) else (value,)):
                    tensors |= {f"{field.name}.{place}.{name}": part for name, part in scale.state().items()}
            elif isinstance(value, np.ndarray):
                tensors[field.name] = torch.tensor(value)
            elif field.name != "schema":
                plain[field.name] = value
        return tensors, plain

    @classmethod
    def of(cls, schema: Schema, tensors: dict[str, Tensor], plain: dict[str, Any]) -> Self:
        """The scales of a `state`."""
        kind = Normaliser if plain["stochastic"] else MinMax
        parts: dict[str, dict[str, dict[str, Tensor]]] = {"static": {}, "temporal": {}, "gap": {}}
        arrays = {}
        for name, value in tensors.items():
            group, _, rest = name.partition(".")
            if rest:
                place, _, part = rest.partition(".")
                parts[group].setdefault(place, {})[part] = value
            else:
                arrays[name] = value.numpy()
        found = {
            group: tuple(kind.of(scales[place]) for place in sorted(scales, key=int)) for group, scales in parts.items()
        }
        plainly = CountFeatures.plain(len(arrays["rates"]))  # files that were written before counts had references
        arrays = {"references": plainly.references, "counted_by_share": plainly.shares, **arrays}
        return cls(
            schema=schema, static=found["static"], temporal=found["temporal"], gap=found["gap"][0], **arrays, **plain
        )


def _scores(numbers: np.ndarray, *, stochastic: bool) -> np.ndarray:
    return scipy.special.ndtri(np.clip(numbers, _EDGE, 1 - _EDGE)) if stochastic else (numbers - 0.5) * _WIDTH


def scores_of(
    scales: Sequence[Normaliser | MinMax], values: np.ndarray, inside: np.ndarray, *, stochastic: bool
) -> np.ndarray:
    """The scores of values float64 [n, columns]; `inside`, of that shape, says where in its interval each lies."""
    found = np.full(values.shape, np.nan)
    for place, scale in enumerate(scales):
        there = np.flatnonzero(~np.isnan(values[:, place]))
        numbers = scale.draw(scale.positions(values[there, place]), inside[there, place])
        found[there, place] = _scores(numbers, stochastic=stochastic)
    return found


def static_numbers(data: EHRDataset, scales: Scales) -> np.ndarray:
    """Numeric static columns, summaries, number of visits, first and last time, float64 [n, static numbers]."""
    sums = np.empty((len(data), 0))
    if scales.summed:
        middle = np.full(data.numbers.shape, 0.5)
        scores = scores_of(scales.temporal, data.numbers, middle, stochastic=scales.stochastic)
        sums = summaries(data, scores, scales.count_features)
    first, last = data.times[data.offsets[:-1]], data.times[data.offsets[1:] - 1]
    return np.column_stack([data.static_numbers, sums, data.lengths, first, last])


def _observed(numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Whether there is a value, bool [n, columns]."""
    return np.concatenate([~np.isnan(numbers), codes >= 0], axis=1)


def _shares(columns: Sequence[Column], codes: np.ndarray) -> np.ndarray:
    """The share of each category among the observed ones, even where none was observed."""
    found = [np.zeros(0)]
    for place, column in enumerate(columns):
        size = len(column.categories)
        counts = np.bincount(codes[:, place] + 1, minlength=size + 1)[1:]
        found.append(counts / counts.sum() if counts.sum() else np.full(size, 1.0 / size))
    return np.concatenate(found)
