"""One vector of counts for each patient: all that tables and shares of columns are made of.

The vector has blocks. What is counted once a patient (static columns, the number of visits, the first and the last
time) gives a 1 to one cell. What is counted at visits (numbers, categories, gaps) gives counts of a column's cells,
divided by `MOST` or, where a patient has more observations than that, by their number: a block weighs 1 at most,
whoever has it. The last block says at how many visits each column was observed, and how many visits there are, by the
public number of visits.

So a patient's whole vector has an L2 norm of at most √blocks plus the last block's, and is cut to a norm that is
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
| `seen` | columns + 2 | visits with a value, a column; visits without any; visits |
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.synthesis.ehr_safe.private.grids import Grids

MOST = 8
"""Observations of a column that a patient is counted with; more of them weigh no more."""

SEEN = "seen"
"""The last block."""

_SEEN_WEIGHT = 4.0  # of the last block, whose norm is at most this


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
        return found | {SEEN: len(schema.temporal) + 2}

    @property
    def seen_weight(self) -> float:
        """What the entries of the last block are multiplied with."""
        return _SEEN_WEIGHT / (len(self.schema.temporal) + 2) ** 0.5

    @property
    def largest_norm(self) -> float:
        """The most that a patient's vector can have, L2."""
        return (len(self.sizes()) - 1 + _SEEN_WEIGHT**2) ** 0.5

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
        found[SEEN] = found[SEEN] * (self.max_visits / self.seen_weight)
        return found

    def _blocks(self, data: EHRDataset) -> Iterator[np.ndarray]:
        grids, schema, owners, n = self.grids, self.schema, data.owners, len(data)
        everybody, first = np.arange(n), data.offsets[:-1]
        for grid, column in zip(grids.static, data.static_numbers.T, strict=True):
            yield _counts(grid.cell(column), everybody, n, len(grid))
        for column, codes in zip(schema.static_categorical, data.static_codes.T, strict=True):
            yield _counts(codes, everybody, n, len(column.categories))
        yield _counts(grids.visits.cell(data.lengths.astype(np.float64)), everybody, n, len(grids.visits))
        yield _counts(grids.start.cell(data.times[first]), everybody, n, len(grids.start))
        yield _counts(grids.end.cell(data.times[data.offsets[1:] - 1]), everybody, n, len(grids.end))
        gaps = np.diff(data.times, prepend=0.0)
        gaps[first] = np.nan
        yield _evened(_counts(grids.gap.cell(gaps), owners, n, len(grids.gap)))
        for grid, column in zip(grids.temporal, data.numbers.T, strict=True):
            yield _evened(_counts(grid.cell(column), owners, n, len(grid)))
        for column, codes in zip(schema.temporal_categorical, data.codes.T, strict=True):
            yield _evened(_counts(codes, owners, n, len(column.categories)))
        there = np.concatenate([~np.isnan(data.numbers), data.codes >= 0], axis=1)
        rows = np.column_stack([there, ~there.any(axis=1), np.ones(len(there), bool)])
        yield np.add.reduceat(rows.astype(np.float64), first, axis=0) * (self.seen_weight / self.max_visits)


def _counts(cells: np.ndarray, owners: np.ndarray, patients: int, size: int) -> np.ndarray:
    """How often each patient has each cell, float64 [patients, size]; -1 is none."""
    known = cells >= 0
    flat = owners[known] * size + cells[known]
    return np.bincount(flat, minlength=patients * size).reshape(patients, size).astype(np.float64)


def _evened(counts: np.ndarray) -> np.ndarray:
    """Counts so that each patient's are 1 in total at most."""
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), MOST)
