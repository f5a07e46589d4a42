"""The first release: tables of all numbers and shares of all columns, from one noisy sum of the patients' counts.

- **Unit.** A patient with all visits, added or removed.
- **Sensitivity.** Each patient adds one vector (`counting`), always clipped to the L2 norm `Tables.clip_norm`.
- **Noise.** Normal, with std noise_multiplier × clip_norm on every entry, once.
- **Event.** `Gaussian(noise_multiplier)`: every patient is counted, none is sampled.
- **Edges.** No observation at all leaves noise, of which even shares are made where nothing is left of it.

What is made of the sum is post-processing. Every field of `Scales` is public or follows from the sum:

| field | from |
| --- | --- |
| schema | public |
| static, temporal, gap | values: the public grid; widths: noisy shares of the cells |
| stochastic | the plan |
| summed | no summaries are counted |
| horizon | the plan: public |
| pace | mean of the noisy table of gaps |
| visits | mean of the noisy table of the number of visits |
| static_rates | noisy totals of a column's block by that of the number of visits, which every patient has |
| rates | noisy numbers of visits with a value, half of the noise's std at the least, by that of all visits |
| static_shares, shares | noisy shares of the categories |
| empty | whether more than 1 % of the visits are without any value, by the noisy counts |

**Grids.** Public grids: into which cells numbers fall is decided before anybody looks at the records.

A column's range stands in the schema. Numbers beyond it count in the cell at its end. Columns of whole numbers have a
cell for each of them where there are few enough; times have cells whose widths grow with the time.

>>> grid = even(0.0, 4.0, cells=4)
>>> grid.values.tolist(), grid.cell(np.array([-3.0, 0.2, 3.9, 7.0, np.nan])).tolist()
([0.5, 1.5, 2.5, 3.5], [0, 0, 3, 3, -1])
>>> even(1.0, 3.0, cells=8, whole=True).values.tolist()
[1.0, 2.0, 3.0]

**Counting.** One vector of counts for each patient: all that tables and shares of columns are made of.

The vector has blocks. What is counted once a patient (static columns, the number of visits, the first and the last
time) gives a 1 to one cell. What is counted at visits (numbers, categories, gaps) gives counts of a column's cells,
divided by `MOST` or, where a patient has more observations than that, by their number: a block weighs 1 at most,
for every patient. The last block has the number of visits at which each column was observed, and the number of visits,
by the public number of visits.

So a patient's whole vector has an L2 norm of at most √blocks plus the last block's, and is clipped to a norm that is
smaller than that and public. Nothing here depends on two patients.

| block | entries | what is made of it |
| --- | --- | --- |
| `static.0` … | cells | table of a numeric static column, and how often it is there |
| `static category.0` … | categories | shares of a static category, and how often it is there |
| `visits` | cells | table of the number of visits, and the mean; its total counts all patients |
| `start`, `end` | cells | tables of the first and of the last time |
| `gap` | cells | table of the gaps, and their mean |
| `number.0` … | cells | table of a number of visits |
| `category.0` … | categories | shares of a visit's category |
| `observed` | columns + 2 | visits with a value, a column; visits without any; visits |

**Shares.** Noisy counts as shares: the nearest point among shares that are not negative, which takes away noise evenly.

Cutting negative counts at zero would leave the noise of empty cells where it is positive, and so would move mass into
the tails. The projection takes the same number from all cells until those that are left add up to the noisy total.

>>> shares_of(np.array([60.0, 3.0, -5.0, 42.0])).round(3).tolist()
[0.583, 0.013, 0.0, 0.403]
>>> shares_of(np.array([-4.0, -1.0])).tolist()
[0.5, 0.5]

References:
    Duchi, Shalev-Shwartz, Singer, Chandra 2008, Efficient projections onto the l1-ball. Figure 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Event
from sfumato.clipping import ClippedSum, Flat, Layout
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column, Schema
from sfumato.mechanisms import Gaussian
from sfumato.runs import Run
from sfumato.synthesis.scales import ADDED, Normaliser, Scales
from sfumato.synthesis.summaries import CountFeatures

_SPAN = 4096.0  # the horizon is so many times the shortest time that is distinguished from none


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of one column.

    Attributes:
        edges: float64 [cells - 1], ascending: where a cell ends and the next begins.
        values: float64 [cells], ascending: what stands for a cell.
        continuous: whether numbers between these values are generated, too.
    """

    edges: np.ndarray
    values: np.ndarray
    continuous: bool

    def __len__(self) -> int:
        """Cells."""
        return len(self.values)

    def cell(self, column: np.ndarray) -> np.ndarray:
        """The cell of each number, int64 [n]; -1 for NaN."""
        found = np.searchsorted(self.edges, column, side="right").astype(np.int64)
        return np.where(np.isnan(column), -1, found)


@dataclass(frozen=True, eq=False)
class Grids:
    """All grids of a schema.

    Attributes:
        static, temporal: of the numeric columns.
        visits: of the number of visits.
        start, end: of the first and of the last visit's time.
        gap: of the time between visits.
    """

    static: tuple[Grid, ...]
    temporal: tuple[Grid, ...]
    visits: Grid
    start: Grid
    end: Grid
    gap: Grid

    @classmethod
    def of(cls, schema: Schema, *, cells: int, max_visits: int, horizon: float) -> Self:
        """The grids.

        Args:
            schema: public; each numeric column needs a range.
            cells: of a column, at most; >= 2.
            max_visits: of a patient.
            horizon: the latest time of a visit.

        Raises:
            InputError: columns have no range, which names the first ones, or a range is too narrow or too wide.
        """
        missing = [column.name for column in schema.columns if column.kind == "numeric" and column.range is None]
        if missing:
            shown = ", ".join(missing[:5]) + (f" … ({len(missing)} in all)" if len(missing) > 5 else "")
            raise InputError(
                f"with epsilon every numeric column needs a public range, got none for {shown}; write range: "
                "[lowest, highest] into the schema, without looking at records"
            )
        times = _times(horizon, cells)
        starts = Grid(times.edges, np.concatenate([[0.0], times.values[1:]]), True)
        return cls(
            static=_columns(schema.static_numeric, cells),
            temporal=_columns(schema.temporal_numeric, cells),
            # rounded where they are generated, so between the values of wide cells, too
            visits=replace(even(1.0, float(max_visits), cells=cells, whole=True), continuous=max_visits > cells),
            start=starts,
            end=even(0.0, horizon, cells=cells),
            gap=times,
        )


def even(low: float, high: float, *, cells: int, whole: bool = False) -> Grid:
    """Cells of even width from `low` to `high`; for whole numbers of whole widths, as even as can be."""
    if whole and high - low + 1 <= cells:
        values = np.arange(low, high + 1)
        return Grid(values[:-1] + 0.5, values, False)
    ends = np.linspace(low - 0.5 if whole else low, high + 0.5 if whole else high, cells + 1)
    if whole:
        ends = np.floor(ends) + 0.5
    middles = (ends[1:] + ends[:-1]) / 2
    return Grid(ends[1:-1], np.floor(middles) if whole else middles, not whole)


def _columns(columns: Sequence[Column], cells: int) -> tuple[Grid, ...]:
    return tuple(_column(column, *column.range, cells=cells) for column in columns if column.range is not None)


def _column(column: Column, low: float, high: float, *, cells: int) -> Grid:
    if high - low < np.finfo(np.float64).max:
        grid = even(low, high, cells=cells, whole=column.whole)
        if (np.diff(grid.values) > 0).all() and (np.diff(grid.edges) > 0).all():
            return grid
    raise InputError(
        f"the range of column {column.name!r}, {low!r} to {high!r}, cannot be divided into {cells} cells; give one "
        "that is neither so narrow nor so wide"
    )


def _times(horizon: float, cells: int) -> Grid:
    """Cells whose widths grow by the same factor, the last one up to the horizon."""
    ends = horizon * _SPAN ** (np.arange(1 - cells, 1) / max(1, cells - 1))
    values = np.sqrt(ends[1:] * ends[:-1])
    return Grid(ends[:-1], np.concatenate([ends[:1] / 2, values]), True)


MOST = 8
"""Observations of a column that a patient is counted with; more of them weigh no more."""

OBSERVED = "observed"
"""The last block."""

_OBSERVED_WEIGHT = 4.0  # of the last block, whose norm is at most this


@dataclass(frozen=True, eq=False)
class Counting:
    """How a patient becomes a vector; all of it is public.

    Attributes:
        schema: of the records.
        grids: of their numbers.
        max_visits: of a patient; records with more are refused.
    """

    schema: Schema
    grids: Grids
    max_visits: int

    def sizes(self) -> dict[str, int]:
        """The blocks in their order, and how many entries each has."""
        grids, schema = self.grids, self.schema
        found = {f"static.{place}": len(grid) for place, grid in enumerate(grids.static)}
        found |= {f"static category.{p}": len(c.categories) for p, c in enumerate(schema.static_categorical)}
        found |= {"visits": len(grids.visits), "start": len(grids.start), "end": len(grids.end), "gap": len(grids.gap)}
        found |= {f"number.{place}": len(grid) for place, grid in enumerate(grids.temporal)}
        found |= {f"category.{place}": len(c.categories) for place, c in enumerate(schema.temporal_categorical)}
        return found | {OBSERVED: len(schema.temporal) + 2}

    @property
    def observed_weight(self) -> float:
        """What the entries of the last block are multiplied with."""
        return _OBSERVED_WEIGHT / (len(self.schema.temporal) + 2) ** 0.5

    @property
    def largest_norm(self) -> float:
        """The most that a patient's vector can have, L2."""
        return (len(self.sizes()) - 1 + _OBSERVED_WEIGHT**2) ** 0.5

    def vectors(self, data: EHRDataset) -> np.ndarray:
        """The patients' vectors, float64 [patients, entries].

        Args:
            data: no patient has more than `max_visits` visits.
        """
        assert data.lengths.max() <= self.max_visits
        return np.concatenate(list(self._blocks(data)), axis=1)

    def blocks(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """The blocks of a vector or of a sum, float64 [entries]; the last one without its weight, in visits."""
        sizes = self.sizes()
        found = dict(zip(sizes, np.split(vector, np.cumsum(list(sizes.values()))[:-1]), strict=True))
        found[OBSERVED] = found[OBSERVED] * (self.max_visits / self.observed_weight)
        return found

    def _blocks(self, data: EHRDataset) -> Iterator[np.ndarray]:
        grids, schema, owners, n = self.grids, self.schema, data.owners, len(data)
        patients, first = np.arange(n), data.offsets[:-1]
        for grid, column in zip(grids.static, data.static_numbers.T, strict=True):
            yield _counts(grid.cell(column), patients, n, len(grid))
        for column, codes in zip(schema.static_categorical, data.static_codes.T, strict=True):
            yield _counts(codes, patients, n, len(column.categories))
        yield _counts(grids.visits.cell(data.lengths.astype(np.float64)), patients, n, len(grids.visits))
        yield _counts(grids.start.cell(data.times[first]), patients, n, len(grids.start))
        yield _counts(grids.end.cell(data.times[data.offsets[1:] - 1]), patients, n, len(grids.end))
        gaps = np.diff(data.times, prepend=0.0)
        gaps[first] = np.nan
        yield _evened(_counts(grids.gap.cell(gaps), owners, n, len(grids.gap)))
        for grid, column in zip(grids.temporal, data.numbers.T, strict=True):
            yield _evened(_counts(grid.cell(column), owners, n, len(grid)))
        for column, codes in zip(schema.temporal_categorical, data.codes.T, strict=True):
            yield _evened(_counts(codes, owners, n, len(column.categories)))
        there = np.concatenate([~np.isnan(data.numbers), data.codes >= 0], axis=1)
        rows = np.column_stack([there, ~there.any(axis=1), np.ones(len(there), bool)])
        yield np.add.reduceat(rows.astype(np.float64), first, axis=0) * (self.observed_weight / self.max_visits)


def _counts(cells: np.ndarray, owners: np.ndarray, patients: int, size: int) -> np.ndarray:
    """How often each patient has each cell, float64 [patients, size]; -1 is none."""
    known = cells >= 0
    flat = owners[known] * size + cells[known]
    return np.bincount(flat, minlength=patients * size).reshape(patients, size).astype(np.float64)


def _evened(counts: np.ndarray) -> np.ndarray:
    """Counts so that each patient's are 1 in total at most."""
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), MOST)


def shares_of(counts: np.ndarray) -> np.ndarray:
    """Shares, float64 [k], >= 0 and 1 in total; even ones where nothing is left.

    Args:
        counts: float64 [k], k >= 1, noisy.
    """
    total = counts.sum()
    if not total > 0:
        return np.full(len(counts), 1.0 / len(counts))
    falling = np.sort(counts)[::-1]
    taken = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    threshold = taken[np.flatnonzero(falling > taken)[-1]]
    kept = np.maximum(counts - threshold, 0.0)
    return kept / kept.sum()


PHASE = "tables"
"""The name of the release, in a run and in its ledger."""

_CUT = 0.4  # of the largest norm: half of the columns are missing for most patients, and numbers lie in several cells
_EMPTY = 0.01
_BLOCK = 1024  # patients whose vectors are made at once


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The release.

    Attributes:
        counting: how a patient becomes a vector.
        noise_multiplier: std of the noise by the clip norm.
        horizon: public, for the scales.
    """

    counting: Counting
    noise_multiplier: float
    horizon: float

    @property
    def clip_norm(self) -> float:
        """The norm to which each patient's vector is clipped."""
        return _CUT * self.counting.largest_norm

    @property
    def _mechanism(self) -> Gaussian:
        return Gaussian(noise_multiplier=self.noise_multiplier)

    @property
    def _least(self) -> float:
        """Visits with a value of a column, as far as is known at the least: half of the noise's std."""
        entry = self._mechanism.noise_std(self.clip_norm) / 2
        return entry * self.counting.max_visits / self.counting.observed_weight

    def event(self) -> Event:
        """What it costs one patient."""
        return self._mechanism.single(1.0)

    def clipped_sum(self, data: EHRDataset) -> torch.Tensor:
        """The sum of the patients' vectors, each clipped to the clip norm, float64 [entries]; without noise.

        Args:
            data: of `first_visits`.
        """
        size = sum(self.counting.sizes().values())
        total = ClippedSum(Flat(norm=self.clip_norm), self.clip_norm, Layout(["counts"], [torch.Size([size])]))
        for start in range(0, len(data), _BLOCK):
            part = data.take(np.arange(start, min(start + _BLOCK, len(data))))
            total.add_rows(torch.from_numpy(self.counting.vectors(part)))
        return total.total

    def release(self, run: Run, data: EHRDataset) -> Scales:
        """Scales from the noisy sum, as a phase of a run that has started."""

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            noisy = self._mechanism.release(self.clipped_sum(data), scale=self.clip_norm, round=0, source=source)
            return {"counts": noisy}

        public = {"clip_norm": self.clip_norm, "noise_std": self._mechanism.noise_std(self.clip_norm)}
        return self.scales(run.release(PHASE, self.event(), draw, **public)["counts"].numpy())

    def scales(self, noisy: np.ndarray) -> Scales:
        """What is made of a noisy sum, float64 [entries]; nothing private is read here."""
        counting, blocks = self.counting, self.counting.blocks(noisy)
        grids, schema = counting.grids, counting.schema
        patients = max(blocks["visits"].sum(), 1.0)

        def table(name: str, grid: Grid) -> Normaliser:
            return Normaliser(grid.values, _ends(shares_of(blocks[name])), grid.continuous)

        def tables(name: str, of: tuple[Grid, ...]) -> list[Normaliser]:
            return [table(f"{name}.{place}", grid) for place, grid in enumerate(of)]

        def shares(name: str, count: int) -> np.ndarray:
            return np.concatenate([np.zeros(0), *(shares_of(blocks[f"{name}.{place}"]) for place in range(count))])

        numbers, categories = len(schema.static_numeric), len(schema.static_categorical)
        there = [blocks[f"static.{place}"].sum() / patients for place in range(numbers)]
        known = [blocks[f"static category.{place}"].sum() / patients for place in range(categories)]
        observed, empty, visits = blocks[OBSERVED][:-2], blocks[OBSERVED][-2], max(blocks[OBSERVED][-1], 1.0)
        uncounted = CountFeatures.plain(len(observed))
        return Scales(
            schema=schema,
            static=(
                *tables("static", grids.static),
                *(table(name, getattr(grids, name)) for name in ("visits", "start", "end")),
            ),
            temporal=tuple(tables("number", grids.temporal)),
            gap=table("gap", grids.gap),
            stochastic=True,
            summed=False,
            horizon=self.horizon,
            pace=float(shares_of(blocks["gap"]) @ grids.gap.values),
            visits=float(shares_of(blocks["visits"]) @ grids.visits.values),
            static_rates=np.clip(np.array([*there, *(1.0,) * ADDED, *known]), 0.0, 1.0),
            rates=np.clip(np.maximum(observed, self._least) / visits, 0.0, 1.0),
            static_shares=shares("static category", categories),
            shares=shares("category", len(schema.temporal_categorical)),
            empty=bool(empty > _EMPTY * visits),
            references=uncounted.references,
            counted_by_share=uncounted.shares,
        )


def _ends(shares: np.ndarray) -> np.ndarray:
    """Where intervals of these widths end, the last at 1."""
    ends = np.minimum(np.cumsum(shares), 1.0)
    ends[-1] = 1.0
    return ends
