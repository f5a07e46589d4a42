"""Health records as networks read them: padded batches of scores, of codes and of what was observed.

What a decoder knows before a visit is made here, too: each column's last value and how long ago it was, so that no
recurrent state has to carry them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis.scales import ADDED, Scales, static_numbers
from sfumato.synthesis.summaries import aims, needed

CLOCK = 6
"""Numbers that hold the state of the clock."""

_SOON = 0.02  # the least that the mean gap to come counts as, in mean gaps, before its logarithm
_BATCHES_IN_GROUP = 8  # batches among which patients are sorted by their number of visits, so that little is padded


@dataclass(frozen=True, eq=False)
class Drawn:
    """Scores of one epoch; 0 where nothing was observed.

    Attributes:
        static: float32 [n, static numbers].
        scores: float32 [visits, temporal numbers].
        gaps: float32 [visits], between a visit and the one before; 0 for a patient's first.
    """

    static: np.ndarray
    scores: np.ndarray
    gaps: np.ndarray


@dataclass(frozen=True, eq=False)
class Batch:
    """Patients [B] with up to T visits; c and d are the temporal numbers and categories, M = c + d.

    Attributes:
        static: float [B, static numbers], 0 where missing.
        static_codes: int64 [B, static categories], -1 where missing.
        static_observed: float [B, static columns], 1 where there is a value.
        valid: float [B, T], 1 for a visit and 0 for padding.
        scores: float [B, T, c], 0 where missing.
        codes: int64 [B, T, d], -1 where missing.
        observed: float [B, T, M], 1 where there is a value.
        gaps: float [B, T], scores; 0 at the first visit.
        before: what is known before each visit.
    """

    static: Tensor
    static_codes: Tensor
    static_observed: Tensor
    valid: Tensor
    scores: Tensor
    codes: Tensor
    observed: Tensor
    gaps: Tensor
    before: "Before"


@dataclass(frozen=True, eq=False)
class Before:
    """What is known before a visit; the shapes have [B, T] or, one visit at a time, [B] in front.

    Attributes:
        scores: float [..., c], the last ones, 0 for none.
        codes: int64 [..., d], the last ones, -1 for none.
        known: float [..., M], 1 where there was a value.
        waited: float [..., M], log(1 + time since then in mean gaps), 0 for none.
        observed: float [..., M], what was observed at the last visit.
        needed: float [..., c + M], of `needed`, without summaries [..., 0].
        gap: float [...], the score of the gap before the last visit; 0 for none.
        clock: float [..., CLOCK], of `clock`.
    """

    scores: Tensor
    codes: Tensor
    known: Tensor
    waited: Tensor
    observed: Tensor
    needed: Tensor
    gap: Tensor
    clock: Tensor


def clock(elapsed: Tensor, end: Tensor, left: Tensor, first: Tensor, scales: Scales) -> Tensor:
    """The state of the clock before a visit, float [..., CLOCK]; the last of it is `first`.

    Args:
        elapsed: float [...], the time of the visit before, or of the first one before that.
        end: float [...], the time of the patient's last visit.
        left: float [...], visits from here on.
        first: float [...], 1 before the first visit.
        scales: the horizon and the pace.
    """
    horizon = max(scales.horizon, scales.pace)
    rest = (end - elapsed).clamp_min(0.0) / scales.pace
    each = rest / left.clamp_min(1.0)
    parts = [
        elapsed / horizon,
        left.clamp_min(0.0).log1p() / 3,
        rest.log1p() / 3,
        each.clamp_max(3.0),
        each.clamp_min(_SOON).log(),
        first,
    ]
    return torch.stack(parts, dim=-1)


class Records:
    """Records under their scales.

    Args:
        data: the records.
        scales: of these records.
        masks: False takes every column as observed at every visit; what is missing is filled in with a score of zero,
            the middle of its scale, and with the most common category.
    """

    def __init__(self, data: EHRDataset, scales: Scales, *, masks: bool = True) -> None:
        self.scales, self.offsets, self.lengths, self._times = scales, data.offsets, data.lengths, data.times
        fixed = static_numbers(data, scales)
        self._static_positions = [s.positions(c) for s, c in zip(scales.static, fixed.T, strict=True)]
        self._positions = [s.positions(column) for s, column in zip(scales.temporal, data.numbers.T, strict=True)]
        gaps = np.diff(data.times, prepend=0.0)
        gaps[data.offsets[:-1]] = np.nan
        self._gap_positions = scales.gap.positions(gaps)
        self.static_codes, self.codes = data.static_codes.astype(np.int64), data.codes.astype(np.int64)
        if not masks:
            self.static_codes = _filled(self.static_codes, scales.static_shares, scales.schema.static_categorical)
            self.codes = _filled(self.codes, scales.shares, scales.schema.temporal_categorical)
        self.static_observed = np.concatenate([~np.isnan(fixed), self.static_codes >= 0], axis=1)
        self.observed = np.concatenate([~np.isnan(data.numbers), self.codes >= 0], axis=1)
        first, last = data.static_numbers.shape[1], fixed.shape[1] - ADDED
        self._aims = None
        if scales.summed:
            self._aims = aims(fixed[:, first:last], data.schema, self.lengths, scales.count_features)
        if not masks:
            self.static_observed[:], self.observed[:] = True, True
        self._last = self._last_rows()

    def __len__(self) -> int:
        """Patients."""
        return len(self.lengths)

    def _last_rows(self) -> np.ndarray:
        """The row of the last value before each visit, int32 [visits, M], -1 for none."""
        rows = np.where(self.observed, np.arange(len(self.observed), dtype=np.int32)[:, None], np.int32(-1))
        np.maximum.accumulate(rows, axis=0, out=rows)
        last = np.concatenate([np.full((1, rows.shape[1]), -1, np.int32), rows[:-1]])
        starts = np.repeat(self.offsets[:-1], self.lengths)[:, None]
        return np.where(last >= starts, last, np.int32(-1))

    def draw(self, seed: int) -> Drawn:
        """Scores of an epoch, by its seed."""
        random = np.random.default_rng(seed)
        scales = self.scales

        def column(scale, positions: np.ndarray) -> np.ndarray:
            found = np.zeros(len(positions), np.float32)
            known = np.flatnonzero(~np.isnan(positions) & (positions >= 0))
            found[known] = scales.scores(scale.draw(positions[known], random.random(len(known))))
            return found

        def table(normalisers: tuple, positions: list[np.ndarray], rows: int) -> np.ndarray:
            columns = [column(scale, each) for scale, each in zip(normalisers, positions, strict=True)]
            return np.column_stack(columns) if columns else np.empty((rows, 0), np.float32)

        return Drawn(
            table(scales.static, self._static_positions, len(self)),
            table(scales.temporal, self._positions, len(self._times)),
            column(scales.gap, self._gap_positions),
        )

    def batches(self, size: int, source: RandomSource, epoch: int) -> list[np.ndarray]:
        """The patients of an epoch's batches: in an order of their own, those of one batch of similar length."""
        stream = source.stream("ehr order", epoch)
        order = stream.permutation(len(self))
        count = -(-len(self) // size)
        groups = np.array_split(order, max(1, count // _BATCHES_IN_GROUP))
        found = []
        for group in groups:
            by_length = group[np.argsort(self.lengths[group], kind="stable")]
            found += np.array_split(by_length, -(-len(by_length) // size))
        return [found[place] for place in stream.permutation(len(found))]

    def in_blocks(self, size: int) -> Iterator[np.ndarray]:
        """All patients in blocks of similar length, the longest first."""
        order = np.argsort(-self.lengths, kind="stable")
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def batch(self, rows: np.ndarray, drawn: Drawn) -> Batch:
        """Patients int64 [B] as tensors."""
        lengths = self.lengths[rows]
        steps = np.arange(lengths.max())
        places = self.offsets[rows][:, None] + np.minimum(steps, lengths[:, None] - 1)
        valid = steps < lengths[:, None]
        first = steps == 0
        previous = np.where(first, places, places - 1)
        last = self._last[places]
        known = last >= 0
        columns = drawn.scores.shape[1]
        elapsed = self._times[previous]
        since = np.maximum(elapsed[..., None] - self._times[last], 0.0)
        waited = np.where(known, np.log1p(since / self.scales.pace), 0.0)
        last_scores = drawn.scores[last[..., :columns], np.arange(columns)]
        last_codes = self.codes[last[..., columns:], np.arange(self.codes.shape[1])]
        before = Before(
            scores=_float(np.where(known[..., :columns], last_scores, 0.0)),
            codes=torch.from_numpy(np.where(known[..., columns:], last_codes, -1)),
            known=_float(known),
            waited=_float(waited),
            observed=_float(self.observed[previous] & ~first[None, :, None]),
            needed=self._needed(rows, places, drawn, _float(lengths[:, None] - steps)),
            gap=_float(np.where(first, 0.0, drawn.gaps[previous])),
            clock=clock(
                _float(elapsed),
                _float(np.broadcast_to(self._times[self.offsets[rows + 1] - 1][:, None], places.shape)),
                _float(lengths[:, None] - steps),
                _float(np.broadcast_to(first, places.shape)),
                self.scales,
            ),
        )
        return Batch(
            static=_float(drawn.static[rows]),
            static_codes=torch.from_numpy(self.static_codes[rows]),
            static_observed=_float(self.static_observed[rows]),
            valid=_float(valid),
            scores=_float(drawn.scores[places]),
            codes=torch.from_numpy(self.codes[places]),
            observed=_float(self.observed[places]),
            gaps=_float(np.where(first, 0.0, drawn.gaps[places])),
            before=before,
        )

    def _needed(self, rows: np.ndarray, visits: np.ndarray, drawn: Drawn, left: Tensor) -> Tensor:
        """What is still needed before each visit, [B, T, c + M]; padding counts the last visit again."""
        if self._aims is None:
            return torch.zeros(*visits.shape, 0)
        observed, sums = _float(self.observed[visits]), _float(drawn.scores[visits])
        counts, means = (_float(each[rows])[:, None] for each in self._aims)
        return needed(counts, means, observed.cumsum(1) - observed, sums.cumsum(1) - sums, left)


def _float(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.float32))


def _filled(codes: np.ndarray, shares: np.ndarray, columns: tuple) -> np.ndarray:
    """Codes with the most common category of its column for each that is missing."""
    starts = np.cumsum([0, *(len(column.categories) for column in columns)])
    common = [int(shares[low:high].argmax()) for low, high in itertools.pairwise(starts)]
    return np.where(codes < 0, np.asarray(common, np.int64), codes)
