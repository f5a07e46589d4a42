"""From latent vectors to records: static columns first, then visit after visit, all patients side by side.

The number of visits, the first and the last time are static columns, so they are drawn first. Times ascend because gaps
are positive and leave enough time for those that follow.

**Calibration.** It keeps the shares of generated records those of the real ones: a map for each number, a shift for
each share.

Normalised numbers of real records are uniform, and their scores normal, by construction. So whatever a decoder gives
can be brought there by its own distribution function, column by column: ranks stay, and with them what goes together.
That function is measured on generated records alone. What is missing, and categories, are shifted on the scale of
logarithms until their shares are those in `Scales`.

A decoder reads what it generated before. Numbers are mapped when all are generated, so that it reads only its own;
shifts change what follows, and are found in small steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from sfumato._lazy import scipy
from sfumato.synthesis.networks import CategoryCodec, DecoderStart, Fixed, Rows, SequenceCodec
from sfumato.synthesis.records import Before, clock
from sfumato.synthesis.scales import ADDED, END, START, VISITS, MinMax, Normaliser, Scales, scores_of
from sfumato.synthesis.summaries import OF_NUMBERS, Spans, aims, brought, needed

KNOTS = 200
"""Points of each map."""

_SHARES = (np.arange(KNOTS) + 0.5) / KNOTS
EVEN = torch.from_numpy(scipy.special.ndtri(_SHARES)).float()
"""Normal scores at even shares, float [KNOTS]."""

_SETTLED = 30.0  # the shift of what is always there, or never
_LEAST = 1e-4  # a share that was never drawn counts as this one


@dataclass(frozen=True, eq=False)
class RowCalibration:
    """Of the columns of one kind of row.

    Attributes:
        knots: float [numbers, KNOTS], ascending: what the decoder gives at even shares; None changes nothing.
        masks: float [columns], added to the logits of what is observed.
        categories: float [categories of all columns], added to their logits.
    """

    knots: Tensor | None
    masks: Tensor
    categories: Tensor

    @classmethod
    def none(cls, columns: int, categories: int) -> Self:
        """One that changes nothing."""
        return cls(None, torch.zeros(columns), torch.zeros(categories))

    def mapped(self, raw: Tensor, place: int) -> Tensor:
        """Numbers [n] of the column at this place as normal scores."""
        return raw if self.knots is None else mapped(raw, self.knots[place])

    def improved(
        self,
        *,
        raw: Tensor | None,
        observed: Tensor,
        codes: Tensor,
        sizes: tuple[int, ...],
        rates: np.ndarray,
        shares: np.ndarray,
        stride: float,
    ) -> Self:
        """The calibration after a look at what was generated with this one.

        Args:
            raw: float [n, numbers], what the decoder gave, 0 where missing; None leaves numbers as they are.
            observed: float [n, columns], what was observed.
            codes: int64 [n, categorical columns], -1 where missing.
            sizes: categories of each categorical column.
            rates: float [columns], the shares of `observed` to reach.
            shares: float [categories of all columns], those of observed categories to reach.
            stride: share of the way to the shifts that would be right if nothing followed from them, in (0, 1].
        """
        counts = [
            torch.bincount(codes[:, place] + 1, minlength=size + 1)[1:].double() for place, size in enumerate(sizes)
        ]
        found = torch.cat([each / each.sum().clamp_min(1) for each in counts] or [torch.zeros(0)])
        wanted = torch.from_numpy(rates)
        masks = self.masks + stride * (_logit(wanted) - _logit(observed.double().mean(0))).float()
        masks = torch.where(wanted >= 1, _SETTLED, torch.where(wanted <= 0, -_SETTLED, masks))
        target = torch.from_numpy(shares)
        change = target.clamp_min(_LEAST).log() - found.clamp_min(_LEAST).log()
        categories = self.categories + stride * change.float()
        categories = torch.where(target > 0, categories, -_SETTLED)
        knots = None
        if raw is not None:
            columns = [knots_of(raw[observed[:, place] > 0, place]) for place in range(raw.shape[1])]
            knots = torch.stack(columns or [EVEN])
        return type(self)(knots if raw is not None and raw.shape[1] else None, masks, categories)

    def state(self) -> dict[str, Tensor]:
        """All of it, as tensors."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Self:
        """The calibration of a `state`."""
        return cls(state.get("knots"), state["masks"], state["categories"])


def knots_of(raw: Tensor) -> Tensor:
    """What the decoder gave at even shares, float [KNOTS]; for too few numbers those of a normal distribution."""
    if len(raw) < 2:
        return EVEN
    return torch.from_numpy(np.quantile(raw.double().numpy(), _SHARES)).float()


def mapped(raw: Tensor, knots: Tensor) -> Tensor:
    """Normal scores of numbers: between knots along a line, beyond the last one along that of all knots.

    Args:
        raw: [n].
        knots: [KNOTS].
    """
    right = torch.searchsorted(knots, raw.contiguous()).clamp(1, KNOTS - 1)
    low, high = knots[right - 1], knots[right]
    share = ((raw - low) / (high - low).clamp_min(1e-6)).clamp(0.0, 1.0)
    inside = torch.lerp(EVEN[right - 1], EVEN[right], share)
    slope = (EVEN[-1] - EVEN[0]) / (knots[-1] - knots[0]).clamp_min(1e-6)
    return inside + slope * ((raw - knots[-1]).clamp_min(0.0) + (raw - knots[0]).clamp_max(0.0))


def _logit(share: Tensor) -> Tensor:
    return torch.logit(share.clamp(_LEAST, 1 - _LEAST))


_REDRAWN = 8  # times that a visit without any value is drawn anew, or a gap that is too long


@dataclass(frozen=True, eq=False)
class RowsDrawn:
    """Rows as they were drawn.

    Attributes:
        raw: float [n, numbers], what the decoder gave; 0 where missing.
        codes: int64 [n, categorical columns], -1 where missing.
        observed: float [n, columns].
    """

    raw: Tensor
    codes: Tensor
    observed: Tensor

    def at(self, rows: Tensor) -> "RowsDrawn":
        """Some of them, by int64 [m]."""
        return RowsDrawn(self.raw[rows], self.codes[rows], self.observed[rows])

    @classmethod
    def concatenated(cls, blocks: "Sequence[RowsDrawn]") -> "RowsDrawn":
        """One below the other."""
        names = ("raw", "codes", "observed")
        return cls(*(torch.cat([getattr(block, name) for block in blocks]) for name in names))


@dataclass(frozen=True, eq=False)
class VisitsDrawn:
    """Visits as they were drawn, those of a patient together.

    Attributes:
        lengths: int64 [patients], visits of each, >= 1.
        times: float64 [visits].
        rows: of the visits.
        raw_gaps: float [gaps], what the decoder gave; the last gap of a record is none of them.
    """

    lengths: np.ndarray
    times: np.ndarray
    rows: RowsDrawn
    raw_gaps: Tensor


@dataclass(frozen=True, eq=False)
class RecordDecoder:
    """A decoder that draws.

    Attributes:
        codec: the sequential autoencoder.
        static, temporal: the codecs of categories.
        scales: of the records.
        masks: False where nothing is ever missing.
        static_calibration, calibration: of static rows and of visits.
        gap_knots: float [KNOTS], as of `RowCalibration`, or None.
    """

    codec: SequenceCodec
    static: CategoryCodec
    temporal: CategoryCodec
    scales: Scales
    masks: bool
    static_calibration: RowCalibration
    calibration: RowCalibration
    gap_knots: Tensor | None

    def statics(self, latent: Tensor, generator: torch.Generator) -> RowsDrawn:
        """The static columns of latent vectors [n, latent]."""
        body = self.codec.from_latent(latent)
        return self._rows(
            self.codec.static_rows, body, None, self.static, self.static_calibration, generator, may_be_empty=True
        )

    def visits(self, latent: Tensor, statics: RowsDrawn, values: np.ndarray, generator: torch.Generator) -> VisitsDrawn:
        """All visits of latent vectors [n, latent] whose static columns were drawn, and `static_values` of these."""
        scales = self.scales
        spans = Spans.of(
            *values[:, [VISITS, START, END]].T,
            horizon=scales.horizon,
            least=scales.least_gap,
            middle=float(scales.gaps(np.zeros(1))[0]),
        )
        order = np.argsort(-spans.visits, kind="stable")
        wanted = None
        if scales.summed:
            sums = values[order, len(scales.schema.static_numeric) : -ADDED]
            counts, means = aims(sums, scales.schema, spans.visits[order], scales.count_features)
            wanted = torch.from_numpy(counts).float(), torch.from_numpy(means).float()
        drawing = _VisitDrawing(self, self._start(latent, statics, torch.from_numpy(order)), spans.at(order), wanted)
        for step in range(int(spans.visits.max())):
            drawing.step(step, generator)
        found = drawing.gathered(order)
        return self._brought(found, values, generator) if scales.summed else found

    def _brought(self, visits: VisitsDrawn, values: np.ndarray, generator: torch.Generator) -> VisitsDrawn:
        """Visits whose numbers are adjusted to the summaries among the static values, column by column."""
        schema, starts = self.scales.schema, np.cumsum(visits.lengths) - visits.lengths
        first, columns = len(schema.static_numeric), len(self.scales.temporal)
        if not columns:
            return visits
        parts = values[:, first : first + OF_NUMBERS * columns].reshape(-1, columns, OF_NUMBERS)
        stochastic = self.scales.stochastic
        inside = (
            torch.rand(3, *parts.shape[:2], generator=generator).double().numpy()
        )  # all in the middle would be steps
        ends = [
            scores_of(self.scales.temporal, parts[:, :, 2 + at], inside[at], stochastic=stochastic) for at in range(3)
        ]
        wanted = np.stack([parts[:, :, 1], *ends], axis=2)
        # column by column in memory, as they are moved and then given in their units
        raw, observed = visits.rows.raw.T.double().contiguous().numpy(), visits.rows.observed.T.contiguous().numpy() > 0
        moved = np.stack([brought(raw[at], observed[at], starts, wanted[:, at]) for at in range(columns)])
        return replace(visits, rows=replace(visits.rows, raw=torch.from_numpy(moved).float().T))

    def _start(self, latent: Tensor, statics: RowsDrawn, order: Tensor) -> DecoderStart:
        numbers = statics.raw.shape[1]
        scores = [self.static_calibration.mapped(statics.raw[:, place], place) for place in range(numbers)]
        scores = torch.stack(scores, dim=1) * statics.observed[:, :numbers]
        return self.codec.start(latent[order], scores[order], statics.observed[order], statics.codes[order])

    def static_values(self, statics: RowsDrawn) -> np.ndarray:
        """Numbers in their columns' units, float64 [n, static numbers], NaN for missing."""
        return self._values(self.scales.static, self.static_calibration, statics)

    def values(self, visits: RowsDrawn) -> np.ndarray:
        """Numbers in their columns' units, float64 [visits, temporal numbers], NaN for missing."""
        return self._values(self.scales.temporal, self.calibration, visits)

    def _values(
        self, scales: Sequence[Normaliser | MinMax], calibration: RowCalibration, rows: RowsDrawn
    ) -> np.ndarray:
        found = np.full(rows.raw.T.shape, np.nan)
        observed, raw = rows.observed.T.contiguous(), rows.raw.T.contiguous()
        for place, scale in enumerate(scales):
            there = torch.nonzero(observed[place]).squeeze(1)
            scores = calibration.mapped(raw[place, there], place)
            found[place, there.numpy()] = scale.inverse(self.scales.numbers(scores.numpy()))
        return found.T

    def _rows(
        self,
        heads: Rows,
        x: Tensor,
        fixed: Fixed,
        categories: CategoryCodec,
        calibration: RowCalibration,
        generator: torch.Generator,
        *,
        may_be_empty: bool,
        settled: Tensor | None = None,
    ) -> RowsDrawn:
        """One row each: what is observed, categories, numbers; `settled` is added to the logits of what is observed."""
        shift = calibration.masks if settled is None else calibration.masks + settled
        observed = self._draw_observed(heads, x, fixed, shift, generator, may_be_empty=may_be_empty)
        columns = heads.number_chain.weight.shape[0]
        found = heads.embedding(torch.cat([x, observed], dim=1))
        codes = categories.drawn(categories.logits(found) + calibration.categories, generator)
        codes = torch.where(observed[:, columns:] > 0, codes, -1)
        mean, spread = heads.number_moments(x, observed, categories.encode(codes), fixed)
        # column by column in memory, as they are drawn
        moved = (spread * torch.randn(mean.shape, generator=generator)).T.contiguous()
        there = observed[:, :columns].T.contiguous()
        raw = heads.number_chain.drawn(mean, lambda place, base: (base + moved[place]) * there[place])
        return RowsDrawn(raw, codes, observed)

    def _draw_observed(
        self,
        heads: Rows,
        x: Tensor,
        fixed: Fixed,
        shift: Tensor,
        generator: torch.Generator,
        *,
        may_be_empty: bool,
    ) -> Tensor:
        """What is observed, float [n, columns]; `shift` [columns] or [n, columns] is added to the logits."""
        if not self.masks:
            return torch.ones(len(x), heads.mask_chain.weight.shape[0])
        base = heads.mask_base(x, fixed) + shift

        def drawn(part: Tensor) -> Tensor:
            coins = torch.rand(part.shape[1], part.shape[0], generator=generator)
            return heads.mask_chain.drawn(part, lambda place, logit: (coins[place] < torch.sigmoid(logit)).float())

        observed = drawn(base)
        if may_be_empty:
            return observed
        for _ in range(_REDRAWN):
            empty = torch.nonzero(observed.sum(1) == 0).squeeze(1)
            if not len(empty):
                return observed
            observed = observed.index_copy(0, empty, drawn(base[empty]))
        empty = torch.nonzero(observed.sum(1) == 0).squeeze(1)
        return observed.index_put((empty, base[empty].argmax(1)), torch.ones(len(empty)))


class _VisitDrawing:
    """The visits of some patients, those with most visits first, while they are drawn."""

    def __init__(
        self, decoder: RecordDecoder, start: DecoderStart, spans: Spans, wanted: tuple[Tensor, Tensor] | None
    ) -> None:
        self._wanted = wanted
        self._decoder, self._scales, self._spans = decoder, decoder.scales, spans
        self._state, self._context, self._fixed = start.state, start.context, start.fixed
        count, numbers = len(start.context), decoder.codec.sizes.numbers
        categories = len(decoder.temporal.sizes)
        self._elapsed, self._end = spans.start.copy(), torch.from_numpy(spans.end)
        self._last_scores = torch.zeros(count, numbers)
        self._last_codes = torch.full((count, categories), -1)
        self._last_times = torch.zeros(count, numbers + categories, dtype=torch.float64)
        self._known = torch.zeros(count, numbers + categories)
        self._counts, self._sums = torch.zeros(count, numbers + categories), torch.zeros(count, numbers)
        self._observed = torch.zeros(count, numbers + categories)
        self._gap = torch.zeros(count)
        self._found: list[tuple[np.ndarray, RowsDrawn, Tensor]] = []

    def step(self, step: int, generator: torch.Generator) -> None:
        """The next visit of all patients who have one; they are the first ones."""
        decoder, codec = self._decoder, self._decoder.codec
        now = int((self._spans.visits > step).sum())
        inputs = codec.visit_inputs(self._before(now, step), self._context[:now])
        states, self._state = codec.teller(inputs[:, None], self._state[:, :now].contiguous())  # old name
        x = torch.cat([states[:, 0], inputs], dim=1)
        raw, gap = self._waited(x, step, generator) if step else (torch.zeros(0), torch.zeros(now))
        x = torch.cat([x, gap[:, None]], dim=1)
        rows = decoder._rows(
            codec.visit_rows,
            x,
            None if self._fixed is None else (self._fixed[0][:now], self._fixed[1][:now]),
            decoder.temporal,
            decoder.calibration,
            generator,
            may_be_empty=self._scales.empty,
            settled=self._settled(now, step),
        )
        self._remember(rows, gap)
        self._found.append((self._elapsed[:now].copy(), rows, raw))

    def _waited(self, x: Tensor, step: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Let the time before this visit pass; what the decoder gave for gaps within a record, and all gaps' scores."""
        decoder, scales, now = self._decoder, self._scales, len(x)
        elapsed, last = self._elapsed[:now], self._spans.ends(now, step)
        longest = self._spans.longest_gaps(elapsed, step)
        mean, spread = decoder.codec.gap_moments(x)
        raw, gap, waited = torch.zeros(now), torch.zeros(now), np.full(now, np.inf)
        for _ in range(_REDRAWN):
            long = np.flatnonzero((waited > longest) & ~last)
            if not len(long):
                break
            places = torch.from_numpy(long)
            raw[places] = mean[places] + spread[places] * torch.randn(len(places), generator=generator)
            gap[places] = raw[places] if decoder.gap_knots is None else mapped(raw[places], decoder.gap_knots)
            waited[long] = scales.gaps(gap[places].numpy())
        cut = np.flatnonzero(waited > longest)
        uniform = torch.rand(len(cut), generator=generator).double().numpy()
        gap[torch.from_numpy(cut)] = torch.from_numpy(scales.gap_scores(longest[cut], uniform)).float()
        times = np.where(last, self._spans.end[:now], elapsed + np.minimum(waited, longest))
        self._elapsed[:now] = np.maximum(times, np.nextafter(elapsed, np.inf))
        return raw[torch.from_numpy(~last)], gap

    def _before(self, now: int, step: int) -> Before:
        elapsed = torch.from_numpy(self._elapsed[:now].copy())
        left = torch.from_numpy(self._spans.visits[:now] - step).float()
        waited = ((elapsed[:, None] - self._last_times[:now]) / self._scales.pace).clamp_min(0.0).log1p().float()
        return Before(
            scores=self._last_scores[:now],
            codes=self._last_codes[:now],
            known=self._known[:now],
            waited=waited * self._known[:now],
            observed=self._observed[:now],
            needed=self._needed(now, left),
            gap=self._gap[:now],
            clock=clock(
                elapsed.float(), self._end[:now].float(), left, torch.full((now,), float(step == 0)), self._scales
            ),
        )

    def _remember(self, rows: RowsDrawn, gap: Tensor) -> None:
        now, numbers = len(gap), rows.raw.shape[1]
        there = rows.observed > 0
        self._last_scores[:now] = torch.where(there[:, :numbers], rows.raw, self._last_scores[:now])
        self._last_codes[:now] = torch.where(there[:, numbers:], rows.codes, self._last_codes[:now])
        times = torch.from_numpy(self._elapsed[:now].copy())[:, None]
        self._last_times[:now] = torch.where(there, times, self._last_times[:now])
        self._known[:now] = torch.maximum(self._known[:now], rows.observed)
        self._observed[:now], self._gap[:now] = rows.observed, gap
        self._counts[:now] += rows.observed
        self._sums[:now] += rows.raw * rows.observed[:, :numbers]

    def _needed(self, now: int, left: Tensor) -> Tensor:
        if self._wanted is None:
            return torch.zeros(now, 0)
        counts, means = (each[:now] for each in self._wanted)
        return needed(counts, means, self._counts[:now], self._sums[:now], left)

    def _settled(self, now: int, step: int) -> Tensor | None:
        """Logits to add where a column's count leaves no choice: it is reached, or needs a value at each visit left.

        A visit without any value gets one all the same where real visits always have one; one count is then too large.
        """
        if self._wanted is None:
            return None
        rest = self._wanted[0][:now] - self._counts[:now]
        left = torch.from_numpy(self._spans.visits[:now] - step)[:, None]
        decided = 2 * _SETTLED  # more than a calibration adds
        return torch.where(rest <= 0, -decided, torch.where(rest >= left, decided, 0.0))

    def gathered(self, order: np.ndarray) -> VisitsDrawn:
        """All visits, each patient's together, the patients as they were given."""
        count = len(order)
        lengths = np.empty(count, np.int64)
        lengths[order] = self._spans.visits
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # where the visits lie that were drawn step by step
        target = np.concatenate([offsets[order[: len(times)]] + step for step, (times, *_) in enumerate(self._found)])
        place = np.empty(len(target), np.int64)
        place[target] = np.arange(len(target))
        return VisitsDrawn(
            lengths=lengths,
            times=np.concatenate([times for times, _, _ in self._found])[place],
            rows=RowsDrawn.concatenated([rows for _, rows, _ in self._found]).at(torch.from_numpy(place)),
            raw_gaps=torch.cat([raw for _, _, raw in self._found]),
        )
