"""Health records as the recurrent GANs see them: one frame of numbers in [0, 1] for each visit, padded to one length.

The papers generate complete sequences of numbers, all equally long. What they lack is added in the simplest way that
can produce it at all, as further channels of a frame:

- a number of its column's range, min-max; where it is missing, the column's mean stands there;
- for each column whether there is a value;
- categories one-hot, zeros where missing;
- the time since the visit before, min-max over its range;
- the number of visits, in every frame; a generated record has the mean over all frames, rounded. After the last visit
  what a visit holds is 0;
- all static columns and the time of the first visit, again in every frame; a generated patient has the mean over its
  visits.

Whether there is a value, and which category it is, is drawn in proportion to what the channels give. With min-max a
single outlier presses all other values of its column together: that is the papers' normalisation, and one of the things
that EHR-Safe does otherwise.

**What is lost.** Records are cut at a quantile of the numbers of visits, so of some patients the last visits are not
learned from; and no generated record is longer.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.synthesis.networks import CategoryCodec
from sfumato.synthesis.scales import START, MinMax, Scales, static_numbers


@dataclass(frozen=True, eq=False)
class Frames:
    """What a frame holds.

    Attributes:
        scales: min-max, of the records that were learned from.
        steps: frames of a record, >= 1.
        outcomes: float64 [categories + 1], share of each category of the outcome, missing ones last; [1] without one.
    """

    scales: Scales
    steps: int
    outcomes: np.ndarray

    @classmethod
    def fit(cls, data: EHRDataset, *, longest: float) -> Self:
        """Look at all records.

        Args:
            data: the records.
            longest: the quantile of the numbers of visits at which records are cut, in (0, 1].
        """
        steps = int(np.quantile(data.lengths, longest, method="higher"))
        place, size = _outcome(data.schema)
        codes = np.full(len(data), -1) if place is None else data.static_codes[:, place]
        counts = np.bincount(np.where(codes < 0, size, codes), minlength=size + 1)
        return cls(Scales.fit(data, stochastic=False, summed=False), steps, counts / counts.sum())

    @cached_property
    def _static(self) -> tuple[MinMax, ...]:
        """Scales of the numeric static columns, and of the time of the first visit."""
        scales = (*self.scales.static[: len(self.scales.schema.static_numeric)], self.scales.static[START])
        assert all(isinstance(scale, MinMax) for scale in scales)
        return scales  # pyright: ignore[reportReturnType]

    @cached_property
    def _codecs(self) -> tuple[CategoryCodec, CategoryCodec]:
        schema = self.scales.schema
        static, temporal = (
            CategoryCodec([len(column.categories) for column in columns], None)
            for columns in (schema.static_categorical, schema.temporal_categorical)
        )
        return static, temporal

    @cached_property
    def _widths(self) -> list[int]:
        """Channels: numbers, values there, categories, gap, visits, then static numbers, values there, categories."""
        numbers, (static, temporal) = len(self.scales.schema.temporal_numeric), self._codecs
        visit = [numbers, numbers + len(temporal.sizes), temporal.total, 1, 1]
        return [*visit, len(self._static), len(self._static) - 1 + len(static.sizes), static.total]

    @property
    def width(self) -> int:
        """Channels of a frame."""
        return sum(self._widths)

    def of(self, data: EHRDataset) -> Tensor:
        """Records as frames, float [n, steps, width] in [0, 1]; all of them are in memory, 4 bytes a number."""
        static_codec, temporal_codec = self._codecs
        lengths = np.minimum(data.lengths, self.steps)
        rows = np.concatenate([np.arange(start, start + n) for start, n in zip(data.offsets, lengths, strict=False)])
        owners = np.repeat(np.arange(len(data)), lengths)
        steps = rows - data.offsets[:-1][owners]
        gaps = np.diff(data.times, prepend=0.0)
        gaps[data.offsets[:-1]] = np.nan
        visit = np.concatenate(
            [
                _scaled(self.scales.temporal, data.numbers),
                ~np.isnan(data.numbers),
                data.codes >= 0,
                _one_hot(temporal_codec, data.codes),
                np.nan_to_num(self.scales.gap.positions(gaps))[:, None],
                np.zeros((len(data.times), 1)),  # the number of visits, below
            ],
            axis=1,
        )
        known = static_numbers(data, self.scales)[:, [*range(len(self._static) - 1), START]]
        fixed = np.concatenate(
            [
                _scaled(self._static, known),
                ~np.isnan(known[:, :-1]),
                data.static_codes >= 0,
                _one_hot(static_codec, data.static_codes),
            ],
            axis=1,
        )
        found = np.zeros((len(data), self.steps, self.width), np.float32)
        found[owners, steps, : visit.shape[1]] = visit[rows]
        found[:, :, visit.shape[1] - 1] = lengths[:, None] / self.steps
        found[:, :, visit.shape[1] :] = fixed[:, None]
        return torch.from_numpy(found)

    def lost(self, data: EHRDataset) -> float:
        """The share of visits that are cut."""
        return 1.0 - float(np.minimum(data.lengths, self.steps).sum() / len(data.times))

    def outcome(self, data: EHRDataset) -> Tensor:
        """The outcome one-hot, float [n, categories]; zeros where it is missing, [n, 0] without one."""
        place, size = _outcome(self.scales.schema)
        codes = torch.zeros(len(data), 0) if place is None else torch.from_numpy(data.static_codes[:, [place]]).long()
        return torch.zeros(len(data), 0) if place is None else CategoryCodec([size], None).one_hot(codes)

    def outcome_drawn(self, count: int, generator: torch.Generator) -> Tensor:
        """Outcomes by their shares, float [count, categories] as `outcome` gives them."""
        shares = torch.from_numpy(self.outcomes)
        drawn = torch.multinomial(shares, count, replacement=True, generator=generator)
        return torch.nn.functional.one_hot(drawn, len(shares))[:, :-1].float()

    def records(self, frames: Tensor, outcome: Tensor | None, generator: torch.Generator) -> EHRDataset:
        """Frames as records.

        Args:
            frames: float [n, steps, width] in [0, 1].
            outcome: one-hot [n, categories], where it was given to the generator; None takes what the frames say.
            generator: draws whether there are values, and categories.
        """
        static_codec, temporal_codec = self._codecs
        schema, scales = self.scales.schema, self.scales
        parts = frames.split(self._widths, dim=2)
        lengths = (parts[4][..., 0].mean(1) * self.steps).round().long().clamp(1, self.steps)
        exists = torch.arange(self.steps) < lengths[:, None]
        numbers, seen, hot, gap = (part[exists] for part in parts[:4])
        fixed, fixed_seen, fixed_hot = ((part * exists[..., None]).sum(1) / lengths[:, None] for part in parts[5:])
        codes = temporal_codec.drawn(temporal_codec.logits(hot), generator).numpy()
        static_codes = static_codec.drawn(static_codec.logits(fixed_hot), generator).numpy()
        there, static_there = (torch.bernoulli(part, generator=generator).numpy() > 0 for part in (seen, fixed_seen))
        static = _unscaled(self._static, fixed)
        static_codes = np.where(static_there[:, len(self._static) - 1 :], static_codes, -1)
        place, _ = _outcome(schema)
        if outcome is not None and place is not None:
            static_codes[:, place] = np.where(outcome.sum(1).numpy() > 0, outcome.argmax(1).numpy(), -1)
        steps, owners = lengths.numpy(), np.repeat(np.arange(len(frames)), lengths.numpy())
        offsets = np.concatenate([[0], np.cumsum(steps)])
        gaps = scales.gaps(scales.scores(gap[:, 0].double().numpy()))
        gaps[offsets[:-1]] = 0.0
        total = np.cumsum(gaps)
        times = total - total[offsets[:-1]][owners] + np.maximum(static[:, -1], 0.0)[owners]
        kept = (times <= scales.horizon) | (np.arange(len(times)) == offsets[:-1][owners])
        return EHRDataset(
            schema=schema,
            ids=tuple(f"made-{place}" for place in range(len(frames))),
            static_numbers=np.where(static_there[:, : len(self._static) - 1], static[:, :-1], np.nan),
            static_codes=static_codes,
            offsets=np.concatenate([[0], np.cumsum(np.bincount(owners[kept], minlength=len(frames)))]),
            times=times[kept],
            numbers=np.where(there[:, : numbers.shape[1]], _unscaled(scales.temporal, numbers), np.nan)[kept],
            codes=np.where(there[:, numbers.shape[1] :], codes, -1)[kept],
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of a file."""
        tensors, plain = self.scales.state()
        facts = {"scales": plain, "steps": self.steps, "outcomes": self.outcomes.tolist()}
        return tensors, {"schema": self.scales.schema.to_yaml(), **facts}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """The frames of a `state`."""
        scales = Scales.of(Schema.from_yaml(facts["schema"]), tensors, dict(facts["scales"]))
        return cls(scales, int(facts["steps"]), np.asarray(facts["outcomes"]))


def _outcome(schema: Schema) -> tuple[int | None, int]:
    """Its place among the categorical static columns, and how many categories it has."""
    for place, column in enumerate(schema.static_categorical):
        if column.name == schema.outcome:
            return place, len(column.categories)
    return None, 0


def _scaled(scales: Any, values: np.ndarray) -> np.ndarray:
    """Numbers [n, columns] in [0, 1], a column's mean where they are missing."""
    found = np.empty(values.shape)
    for place, scale in enumerate(scales):
        column = scale.positions(values[:, place])
        known = ~np.isnan(column)
        found[:, place] = np.where(known, column, column[known].mean() if known.any() else 0.5)
    return found


def _unscaled(scales: Any, numbers: Tensor) -> np.ndarray:
    """Numbers [n, columns] in [0, 1] in the columns' own units."""
    columns = [scale.inverse(numbers[:, place].double().numpy()) for place, scale in enumerate(scales)]
    return np.column_stack(columns) if columns else np.empty((len(numbers), 0))


def _one_hot(codec: CategoryCodec, codes: np.ndarray) -> np.ndarray:
    return codec.one_hot(torch.from_numpy(codes.astype(np.int64))).numpy()
