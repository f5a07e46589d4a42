"""What is known of columns before anything is learned: scales of numbers, shares of categories and of what is there.

Three numbers are added to the static ones of each patient: how many visits there are, and when the first and the last
one are. So all are generated like any other number, and come from no patient. So are `summaries` of the visits, where
they are wanted. Between visits there are gaps, which are positive.

On a stochastic scale numbers are uniform on [0, 1]; networks get them as normal scores, Φ⁻¹(u), on which squared errors
are errors of a normal distribution. Numbers of a min-max scale are only centred.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column, Schema
from sfumato.synthesis.ehr_safe.min_max import MinMax
from sfumato.synthesis.ehr_safe.normalise import Normaliser
from sfumato.synthesis.ehr_safe.outline.summaries import summaries

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
        if summed:
            sums = summaries(
                data, scores_of(temporal, data.numbers, np.full(data.numbers.shape, 0.5), stochastic=stochastic)
            )
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
        )

    def scores(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in [0, 1] as networks see them."""
        return _scores(numbers, stochastic=self.stochastic)

    def numbers(self, scores: np.ndarray) -> np.ndarray:
        """Scores as numbers in [0, 1]."""
        if self.stochastic:
            return ndtr(scores.astype(np.float64))
        return np.clip(scores.astype(np.float64) / _WIDTH + 0.5, 0.0, 1.0)

    def gaps(self, scores: np.ndarray) -> np.ndarray:
        """Scores [n] as times between visits, > 0."""
        found = self.gap.inverse(self.numbers(scores))
        return np.where(found > 0, found, self.least_gap)  # rounded to zero, or nothing known of gaps

    def gap_scores(self, gaps: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Times between visits [n] as scores; `uniform` [n] in [0, 1) says where in its interval each lies."""
        if not self.has_gaps:
            return np.zeros(len(gaps))
        return self.scores(self.gap.draw(self.gap.places(gaps), uniform))

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
        return cls(
            schema=schema, static=found["static"], temporal=found["temporal"], gap=found["gap"][0], **arrays, **plain
        )


def _scores(numbers: np.ndarray, *, stochastic: bool) -> np.ndarray:
    return ndtri(np.clip(numbers, _EDGE, 1 - _EDGE)) if stochastic else (numbers - 0.5) * _WIDTH


def scores_of(
    scales: Sequence[Normaliser | MinMax], values: np.ndarray, inside: np.ndarray, *, stochastic: bool
) -> np.ndarray:
    """The scores of values float64 [n, columns]; `inside`, of that shape, says where in its interval each lies."""
    found = np.full(values.shape, np.nan)
    for place, scale in enumerate(scales):
        there = np.flatnonzero(~np.isnan(values[:, place]))
        numbers = scale.draw(scale.places(values[there, place]), inside[there, place])
        found[there, place] = _scores(numbers, stochastic=stochastic)
    return found


def static_numbers(data: EHRDataset, scales: Scales) -> np.ndarray:
    """Numeric static columns, summaries, number of visits, first and last time, float64 [n, static numbers]."""
    sums = np.empty((len(data), 0))
    if scales.summed:
        middle = np.full(data.numbers.shape, 0.5)
        sums = summaries(data, scores_of(scales.temporal, data.numbers, middle, stochastic=scales.stochastic))
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
