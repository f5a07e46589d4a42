"""Rows of a table as health records: by patient and time, with one value a patient of what is static.

>>> offsets = np.array([0, 2, 3])
>>> never_changes(np.array([7.0, 7.0, 9.0]), offsets), never_changes(np.array([7.0, np.nan, 9.0]), offsets)
(True, False)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.plausible import late_start, refuse_dates_in_numbers
from sfumato.data.ehr.schema import MICROSECONDS, Column, Schema
from sfumato.data.safeguards import name_notes
from sfumato.data.spellings import odd_values


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """A table as arrays, in the order of its rows.

    Attributes:
        owners: int32 [rows], the number of the patient.
        times: float64 [rows], or None.
        dates: whether times are dates, in microseconds.
        values: of each column, float64 or int32 [rows].
        where: tells of a row.
    """

    owners: np.ndarray
    times: np.ndarray | None
    dates: bool
    values: dict[str, np.ndarray]
    where: Callable[[int], str]

    def taken(self, order: np.ndarray) -> dict[str, np.ndarray]:
        return {name: values[order] for name, values in self.values.items()}


def arranged(
    read: TableRows, names: list[str], schema: Schema, unsorted: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """The order of rows by patient and time, the offsets of patients, the times in this order, and notes."""
    assert read.times is not None
    owners, times = read.owners, read.times
    if not read.dates:
        refuse_dates_in_numbers(times, schema.time_unit, f"the time {schema.time!r}", read.where)
    order = np.argsort(owners, kind="stable")
    back = (owners[order][1:] == owners[order][:-1]) & (np.diff(times[order]) < 0)
    notes = []
    if back.any():
        row = int(back.argmax())
        if unsorted == "refuse":
            raise InputError(
                f"patient {names[owners[order[row]]]!r} goes back in time from {read.where(int(order[row]))} to "
                f"{read.where(int(order[row + 1]))}; correct the time, or give unsorted='sort' where "
                "the order of rows means nothing"
            )
        order = np.lexsort((times, owners))
        notes.append(f"{int(back.sum()):,} visits stood behind a later one of their patient: sorted by time")
    owners, times = owners[order], times[order]
    same = (owners[1:] == owners[:-1]) & (np.diff(times) == 0)
    if same.any():
        row = int(same.argmax())
        raise InputError(
            f"patient {names[owners[row]]!r} has two visits at one time, {read.where(int(order[row]))} and "
            f"{read.where(int(order[row + 1]))}; merge them, or drop one"
        )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(names)))])
    if read.dates:
        times = (times - np.repeat(times[offsets[:-1]], np.diff(offsets))) / MICROSECONDS[schema.time_unit]
    else:
        notes += late_start(times[offsets[:-1]], schema.time_unit)
    return order, offsets, times, notes


def _present(values: np.ndarray) -> np.ndarray:
    return ~np.isnan(values) if values.dtype.kind == "f" else values >= 0


def first_and_other(values: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, tuple[int, int] | None]:
    """The row of each patient's first value (any, where all are missing), and a patient with a row of another value."""
    present, rows = _present(values), np.arange(len(values))
    first = np.minimum.reduceat(np.where(present, rows, len(values)), offsets[:-1])
    first = np.where(first == len(values), offsets[:-1], first)
    other = present & (values != np.repeat(values[first], np.diff(offsets)))
    if not other.any():
        return first, None
    row = int(other.argmax())
    return first, (int(np.searchsorted(offsets, row, side="right")) - 1, row)


def never_changes(values: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether each patient has one value at all visits, or none at any; visits must tell, so some have several."""
    counts = np.add.reduceat(_present(values).astype(np.int64), offsets[:-1])
    lengths = np.diff(offsets)
    return (
        bool((lengths > 1).any())
        and bool(((counts == 0) | (counts == lengths)).all())
        and first_and_other(values, offsets)[1] is None
    )


def dataset_of(
    schema: Schema,
    ids: Sequence[str],
    static: Mapping[str, np.ndarray],
    temporal: Mapping[str, np.ndarray],
    offsets: np.ndarray,
    times: np.ndarray,
    notes: Sequence[str],
    subjects: Sequence[str] | None = None,
) -> EHRDataset:
    def stacked(columns: Sequence[Column], values: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        kind = np.int32 if columns and columns[0].kind == "categorical" else np.float64
        made = np.empty((rows, len(columns)), kind)
        for place, column in enumerate(columns):
            made[:, place] = values[column.name]
        return made

    return EHRDataset(
        schema=schema,
        ids=tuple(ids),
        static_numbers=stacked(schema.static_numeric, static, len(ids)),
        static_codes=stacked(schema.static_categorical, static, len(ids)),
        offsets=offsets,
        times=times,
        numbers=stacked(schema.temporal_numeric, temporal, len(times)),
        codes=stacked(schema.temporal_categorical, temporal, len(times)),
        subjects=None if subjects is None else tuple(subjects),
        notes=(
            *name_notes(ids),
            *(line for column in schema.columns for line in odd_values(repr(column.name), column.categories)),
            *notes,
        ),
    )


def assumption(schema: Schema) -> str:
    """What it means that the schema is public, in one sentence."""
    count = sum(len(column.categories) for column in schema.columns)
    what = f"The schema ({len(schema.columns)} columns, {count:,} categories)"
    if schema.inferred:
        return f"{what} was taken from the records: no guarantee covers it."
    return f"{what} is assumed to be public: declared without looking at the records."
