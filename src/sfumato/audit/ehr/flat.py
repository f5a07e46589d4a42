"""Health records as one row a patient: the one flattening that detector, classifiers and attacks use.

A static column stays as it is. A numeric temporal column becomes its last value, mean, smallest, largest and how often
it is there; a categorical one its last and its most frequent category (the first of several) and how often it is there.
The visits become their number and the time of the last one. What is never there is missing.

>>> from sfumato.data.ehr.schema import Schema, numeric
>>> schema = Schema(id="id", time="day", time_unit="days", static=(), temporal=(numeric("bili"),))
>>> records = EHRDataset(
...     schema=schema, ids=("a",), static_numbers=np.empty((1, 0)), static_codes=np.empty((1, 0)),
...     offsets=np.array([0, 3]), times=np.array([0.0, 7, 9]), numbers=np.array([[1.5], [4.5], [np.nan]]),
...     codes=np.empty((3, 0)),
... )
>>> flat = flatten(records)
>>> [f"{each.name} {value:g}" for each, value in zip(flat.number_columns, flat.numbers[0])]
['visits 3', 'last day 9', 'bili last 4.5', 'bili mean 3', 'bili least 1.5', 'bili most 4.5', 'bili count 2']
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sfumato.data.ehr.dataset import EHRDataset

Part = Literal["static", "temporal"]


@dataclass(frozen=True)
class FlatColumn:
    """A column of the flat table.

    Attributes:
        name: for people.
        column: the column of the records that it comes from; the column of times for the visits themselves.
        part: which columns of the schema that is one of.
        what: "value", "visits", "last", "mean", "least", "most", "count" or "mode".
        categories: how many there are; 0 for a number.
    """

    name: str
    column: str
    part: Part
    what: str
    categories: int = 0


@dataclass(frozen=True, eq=False)
class Flat:
    """One row a patient.

    Attributes:
        numbers: float64 [n, p]; NaN = missing.
        codes: int32 [n, q]; −1 = missing.
        number_columns, code_columns: what each is.
    """

    numbers: np.ndarray
    codes: np.ndarray
    number_columns: tuple[FlatColumn, ...]
    code_columns: tuple[FlatColumn, ...]

    def __len__(self) -> int:
        """Patients."""
        return len(self.numbers)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of the records that it comes from, each once."""
        return tuple(dict.fromkeys(each.column for each in (*self.number_columns, *self.code_columns)))

    def take(self, rows: np.ndarray) -> "Flat":
        """These patients."""
        return replace(self, numbers=self.numbers[rows], codes=self.codes[rows])

    def where(self, wanted: Callable[[FlatColumn], bool]) -> "Flat":
        """These columns."""
        numbers, codes = (
            [place for place, each in enumerate(columns) if wanted(each)]
            for columns in (self.number_columns, self.code_columns)
        )
        return Flat(
            self.numbers[:, numbers],
            self.codes[:, codes],
            tuple(self.number_columns[place] for place in numbers),
            tuple(self.code_columns[place] for place in codes),
        )

    def without(self, *columns: str) -> "Flat":
        """All but what comes from these columns of the records."""
        return self.where(lambda each: each.column not in columns)


def flatten(records: EHRDataset) -> Flat:
    """The flat table of these patients, in their order."""
    schema, starts = records.schema, records.offsets[:-1]
    numbers = [records.static_numbers, records.lengths[:, None], records.times[records.offsets[1:] - 1, None]]
    number_columns = [FlatColumn(each.name, each.name, "static", "value") for each in schema.static_numeric]
    number_columns += [
        FlatColumn("visits", schema.time, "temporal", "visits"),
        FlatColumn(f"last {schema.time}", schema.time, "temporal", "last"),
    ]
    for place, column in enumerate(schema.temporal_numeric):
        values = records.numbers[:, place]
        there = ~np.isnan(values)
        count = np.add.reduceat(there.astype(np.int64), starts)
        seen = count > 0
        mean = np.add.reduceat(np.where(there, values, 0.0), starts) / np.maximum(count, 1)
        least = np.minimum.reduceat(np.where(there, values, np.inf), starts)
        most = np.maximum.reduceat(np.where(there, values, -np.inf), starts)
        found = {"last": values[_last(there, starts)], "mean": mean, "least": least, "most": most}
        numbers += [np.where(seen, each, np.nan)[:, None] for each in found.values()]
        numbers.append(count[:, None])
        number_columns += [
            FlatColumn(f"{column.name} {what}", column.name, "temporal", what) for what in (*found, "count")
        ]
    codes = [records.static_codes]
    code_columns = [
        FlatColumn(each.name, each.name, "static", "value", len(each.categories)) for each in schema.static_categorical
    ]
    for place, column in enumerate(schema.temporal_categorical):
        values = records.codes[:, place]
        there = values >= 0
        count = np.add.reduceat(there.astype(np.int64), starts)
        last = np.where(count > 0, values[_last(there, starts)], -1)
        mode = _most_frequent(values[there], records.owners[there], len(records), len(column.categories))
        codes += [last[:, None], mode[:, None]]
        numbers.append(count[:, None])
        number_columns.append(FlatColumn(f"{column.name} count", column.name, "temporal", "count"))
        code_columns += [
            FlatColumn(f"{column.name} {what}", column.name, "temporal", what, len(column.categories))
            for what in ("last", "mode")
        ]
    return Flat(
        np.concatenate(numbers, 1, dtype=np.float64),
        np.concatenate(codes, 1, dtype=np.int32, casting="unsafe"),
        tuple(number_columns),
        tuple(code_columns),
    )


def pooled(*tables: Flat) -> Flat:
    """The rows of several tables with the same columns, one after the other."""
    return replace(
        tables[0],
        numbers=np.concatenate([each.numbers for each in tables]),
        codes=np.concatenate([each.codes for each in tables]),
    )


def _last(there: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Row of the last visit of each patient in which something is there; any row where it never is."""
    return np.maximum.reduceat(np.where(there, np.arange(len(there)), 0), starts)


def _most_frequent(codes: np.ndarray, owners: np.ndarray, patients: int, categories: int) -> np.ndarray:
    """Of each patient, the lowest code of those that are there most often; −1 where none is."""
    keys, counts = np.unique(owners * categories + codes, return_counts=True)
    whose, which = keys // categories, keys % categories
    order = np.lexsort((which, -counts, whose))
    first = np.r_[True, np.diff(whose[order]) > 0][: len(order)]
    found = np.full(patients, -1)
    found[whose[order][first]] = which[order][first]
    return found
