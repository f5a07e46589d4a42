"""Public grids: into which cells numbers fall is decided before anybody looks at the records.

A column's range stands in the schema. Numbers beyond it count in the cell at its end. Columns of whole numbers have a
cell for each of them where there are few enough; times have cells whose widths grow with the time.

>>> grid = even(0.0, 4.0, cells=4)
>>> grid.values.tolist(), grid.cell(np.array([-3.0, 0.2, 3.9, 7.0, np.nan])).tolist()
([0.5, 1.5, 2.5, 3.5], [0, 0, 3, 3, -1])
>>> even(1.0, 3.0, cells=8, whole=True).values.tolist()
[1.0, 2.0, 3.0]
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from sfumato._check import InputError
from sfumato.data.ehr.schema import Column, Schema

_SPAN = 4096.0  # the horizon is so many times the shortest time that is told from none


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of one column.

    Attributes:
        edges: float64 [cells - 1], ascending: where a cell ends and the next begins.
        values: float64 [cells], ascending: what stands for a cell.
        continuous: whether numbers between these values are told, too.
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
                f"with epsilon every numeric column needs a public range, and these have none: {shown}; write "
                "range: [lowest, highest] into the schema, without looking at the records"
            )
        times = _times(horizon, cells)
        starts = Grid(times.edges, np.concatenate([[0.0], times.values[1:]]), True)
        return cls(
            static=_columns(schema.static_numeric, cells),
            temporal=_columns(schema.temporal_numeric, cells),
            # rounded where they are told, so between the values of wide cells, too
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
