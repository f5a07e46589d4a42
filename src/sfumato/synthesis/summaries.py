"""Summary features of a patient's visits: numbers that are generated with the static ones, before the visits.

A decoder that generates visit after visit drifts: each visit follows from the one before, and nothing holds the whole
record. So the record's mean, last, smallest and largest value of each column, and how often it is there, are drawn
first, all in one row. Each visit is generated given them and what is still `needed` to reach them.

**Counts.** How often a column is there becomes a number by `CountFeatures`. Columns of a panel are there equally often:
such a column has the difference from an earlier one, which is nearly always 0 and is drawn so, whatever else was drawn.
Another column has its count: drawn without regard to the number of visits that has the distribution of real counts,
where a share of the visits would not, as a record of few visits has a large one. Only a column that is there at most
visits has its share, since its count goes with theirs. The counts that were drawn are then kept exactly
(`_VisitDrawing` in `decoder`).

**Spans.** The first and the last time of a record, and the longest gap that may lie between two visits.

The number of visits, the first and the last time are drawn before any visit. So a gap never takes what the
visits after it need at the least, and the last gap is what is left: both marginals are kept, and times ascend.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema

SUMMED_AS = "counts"
"""Part of a run's fingerprint. Change it with the summaries: a stopped run must not go on with other ones."""
OF_NUMBERS = 5
"""Numbers that a numeric column is summed up by; a categorical one has one."""


def summary_width(schema: Schema) -> int:
    """How many numbers sum up a record."""
    return OF_NUMBERS * len(schema.temporal_numeric) + len(schema.temporal_categorical)


_FARTHEST = 4.0  # mean scores that are needed end here
_OFTEN = 0.5  # share of the visits from which on a count is drawn as such a share
_TOGETHER = 0.5  # share of records in which two columns are there equally often, from which on one refers to the other


@dataclass(frozen=True, eq=False)
class CountFeatures:
    """How often a column is there, as a number.

    Attributes:
        references: int64 [columns], the earlier column from whose count the number is the difference; -1 for none.
        shares: bool [columns], whether a number without reference is a share of the visits and not a count.
    """

    references: np.ndarray
    shares: np.ndarray

    @classmethod
    def plain(cls, columns: int) -> Self:
        """Shares of the visits."""
        return cls(np.full(columns, -1), np.ones(columns, bool))

    @classmethod
    def fit(cls, counts: np.ndarray, visits: np.ndarray) -> Self:
        """By real records: float64 [n, columns], how often each column is there, and [n], the numbers of visits."""
        found = cls.plain(counts.shape[1])
        for column, count in enumerate(counts.T):
            there = count > 0
            if not there.any():
                continue
            equal = (counts[there, :column] == count[there, None]).mean(axis=0)
            if column and equal.max() >= _TOGETHER:
                found.references[column] = int(equal.argmax())
            found.shares[column] = count[there].sum() >= _OFTEN * visits[there].sum()
        return found

    def numbers(self, counts: np.ndarray, visits: np.ndarray) -> np.ndarray:
        """Of counts float64 [n, columns]; NaN where a column is never there."""
        found = np.where(self.shares, counts / visits[:, None], counts)
        based = self.references >= 0
        found[:, based] = counts[:, based] - counts[:, self.references[based]]
        return np.where(counts > 0, found, np.nan)

    def counts(self, numbers: np.ndarray, visits: np.ndarray) -> np.ndarray:
        """Whole numbers in [1, visits] that numbers float64 [n, columns] come to; 0 for NaN."""
        found = np.zeros(numbers.shape)
        for column, (reference, share) in enumerate(zip(self.references, self.shares, strict=True)):
            number = numbers[:, column]
            count = number + found[:, reference] if reference >= 0 else number * visits if share else number
            found[:, column] = np.where(np.isnan(number), 0.0, np.clip(np.round(count), 1.0, visits))
        return found


def counts_of(data: EHRDataset) -> np.ndarray:
    """How often each column is there, float64 [n, numbers + categories]."""
    there = np.concatenate([~np.isnan(data.numbers), data.codes >= 0], axis=1)
    return np.add.reduceat(there.astype(np.float64), data.offsets[:-1], axis=0)


def summaries(data: EHRDataset, scores: np.ndarray, counting: CountFeatures) -> np.ndarray:
    """Numbers that sum up each record, float64 [n, width]; NaN where a column is never there.

    Of each numeric column how often it is there, by `counting`, the mean score, and the last, the smallest and the
    largest value; of each categorical column how often it is there.

    Args:
        data: the records.
        scores: float [visits, numeric columns], what stands for each value; anything where it is missing.
        counting: how a count becomes a number.
    """
    starts, found = data.offsets[:-1], []
    counts = counts_of(data)
    often = counting.numbers(counts, data.lengths)
    numbers = zip(data.numbers.T, scores.T, strict=True)
    for place, (values, score) in enumerate([*numbers, *((each, None) for each in data.codes.T)]):
        numeric = score is not None
        there = ~np.isnan(values) if numeric else values >= 0
        count = counts[:, place]
        parts = [often[:, place]]
        if numeric:
            last = np.maximum.reduceat(np.where(there, np.arange(len(there)), 0), starts)
            parts += [
                np.add.reduceat(np.where(there, score, 0.0), starts) / np.maximum(count, 1),
                values[last],
                np.minimum.reduceat(np.where(there, values, np.inf), starts),
                np.maximum.reduceat(np.where(there, values, -np.inf), starts),
            ]
        found += [np.where(count > 0, part, np.nan) for part in parts]
    return np.column_stack(found)


def aims(
    values: np.ndarray, schema: Schema, visits: np.ndarray, counting: CountFeatures
) -> tuple[np.ndarray, np.ndarray]:
    """What summaries ask for.

    Args:
        values: float64 [n, width], summaries.
        schema: of the records.
        visits: [n], how many there are.
        counting: how a count became a number.

    Returns:
        How often each column is to be there, float64 [n, numbers + categories], and the mean scores of numbers, float64
        [n, numbers]; 0 for a column that is never there.
    """
    numeric = OF_NUMBERS * len(schema.temporal_numeric)
    often = np.concatenate([values[:, :numeric:OF_NUMBERS], values[:, numeric:]], axis=1)
    return counting.counts(often, visits), np.nan_to_num(values[:, 1:numeric:OF_NUMBERS])


def needed(counts: Tensor, means: Tensor, so_far: Tensor, sums: Tensor, left: Tensor) -> Tensor:
    """What the visits that are left need for a record to reach its summary, [..., numbers + columns].

    Args:
        counts, means: of `aims`, [..., columns] and [..., numbers].
        so_far: [..., columns], how often each was there.
        sums: [..., numbers], of the scores so far, 0 where there was none.
        left: [...], visits from here on, >= 1.

    Returns:
        The mean score of numbers that are still to come, then the share of visits at which each column is there.
    """
    rest = (counts - so_far).clamp_min(0.0)
    numbers = rest[..., : means.shape[-1]]
    mean = (counts[..., : means.shape[-1]] * means - sums) / numbers.clamp_min(1.0)
    mean = torch.where(numbers > 0, mean.clamp(-_FARTHEST, _FARTHEST), 0.0)
    return torch.cat([mean, (rest / left.clamp_min(1.0)[..., None]).clamp_max(1.0)], dim=-1)


def brought(raw: np.ndarray, observed: np.ndarray, starts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """A column's scores, moved so that each record's smallest, mean, largest and last one are about its summary's.

    A map of each record: straight lines through the first three points, so that ranks within a record stay. Then the
    last score is set, within these bounds.

    Args:
        raw: float64 [visits], as they were drawn.
        observed: bool [visits].
        starts: int64 [n], each record's first visit.
        wanted: float64 [n, 4], the mean, the last, the smallest and the largest score to come to; NaN leaves the record
            as it is.

    Returns:
        float64 [visits]; 0 where nothing was observed.
    """
    count = np.add.reduceat(observed.astype(np.int64), starts)
    owners = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(raw))))
    low = np.minimum.reduceat(np.where(observed, raw, np.inf), starts)
    high = np.maximum.reduceat(np.where(observed, raw, -np.inf), starts)
    middle = np.add.reduceat(np.where(observed, raw, 0.0), starts) / np.maximum(count, 1)
    points = np.stack([low, middle, high], axis=1)
    unknown = np.asarray(np.isnan(wanted).any(axis=1))[:, None]
    aim = np.where(unknown, points, wanted[:, [2, 0, 3]])
    aim[:, 2] = np.maximum(aim[:, 2], aim[:, 0])
    aim[:, 1] = np.clip(aim[:, 1], aim[:, 0], aim[:, 2])
    found = np.zeros(len(raw))
    rows = np.flatnonzero(observed)
    ends = np.clip(wanted[:, 1], aim[:, 0], aim[:, 2])
    points, aim, values = points[owners[rows]], aim[owners[rows]], raw[rows]
    found[rows] = aim[:, 1]
    for end, below in ((0, values < points[:, 1]), (2, values > points[:, 1])):
        share = (values - points[:, 1]) / np.where(below, points[:, end] - points[:, 1], 1.0)
        found[rows] += np.where(below, share * (aim[:, end] - aim[:, 1]), 0.0)
    last = np.maximum.reduceat(np.where(observed, np.arange(len(raw)), 0), starts)
    there = (count > 0) & ~unknown[:, 0]
    found[last[there]] = ends[there]
    return found


@dataclass(frozen=True, eq=False)
class Spans:
    """Spans of patients.

    Attributes:
        visits: int64 [n], >= 1.
        start: float64 [n], time of the first visit, >= 0.
        end: float64 [n], time of the last one; that of the first one where there is one visit only.
        least: the smallest gap, > 0.
    """

    visits: np.ndarray
    start: np.ndarray
    end: np.ndarray
    least: float

    @classmethod
    def of(
        cls, visits: np.ndarray, start: np.ndarray, end: np.ndarray, *, horizon: float, least: float, middle: float
    ) -> Self:
        """What was drawn, made possible.

        The number of visits stays where they fit before the horizon at all. An end that is too early for them moves:
        just as far as they need, or, where it is not after the first visit, to where gaps of middle length lead.

        Args:
            visits, start, end: float64 [n], as they were drawn; NaN for no idea.
            horizon: the latest time of any visit.
            least, middle: the smallest gap and one of middle length, > 0.
        """
        visits = np.maximum(np.nan_to_num(np.round(visits), nan=1.0), 1.0)
        start, end = np.clip(np.nan_to_num(start), 0.0, horizon), np.nan_to_num(end)
        visits = np.minimum(visits, np.floor((horizon - start) / least) + 1)
        gaps = visits - 1
        end = np.where(end > start, end, np.minimum(start + gaps * middle, horizon))
        end = np.where(gaps > 0, np.maximum(end, start + gaps * least), start)
        return cls(visits.astype(np.int64), start, end, least)

    def at(self, order: np.ndarray) -> "Spans":
        """Those of some patients, int64 [m]."""
        return Spans(self.visits[order], self.start[order], self.end[order], self.least)

    def longest_gaps(self, elapsed: np.ndarray, step: int) -> np.ndarray:
        """The longest gap before a visit that leaves the least one before each later visit, float64 [m].

        Args:
            elapsed: float64 [m], when the visit before was; of the first patients.
            step: which visit, >= 1; all of these patients have it.
        """
        now = len(elapsed)
        later = self.visits[:now] - step - 1
        return np.maximum(self.end[:now] - elapsed - later * self.least, self.least)

    def ends(self, now: int, step: int) -> np.ndarray:
        """Whether this visit is the last one, bool [now], of the first patients."""
        return self.visits[:now] == step + 1
