"""Health records from a table with a row a visit, and one with a row a patient if there is one.

>>> import pandas as pd
>>> visits = pd.DataFrame(
...     {"who": ["bo", "bo", "al"], "day": [0, 9, 0], "bili": [1, None, 2], "edema": [0, 1, 0], "sex": ["m", "m", "f"]}
... )
>>> data = ehr_from_tables(visits, id="who", time="day")
>>> data, [column.name for column in data.schema.static], data.ids, data.times.tolist()
(EHRDataset(2 patients, 3 visits, 1 static and 2 temporal columns), ['sex'], ('bo', 'al'), [0.0, 9.0, 0.0])
>>> ehr_from_tables(visits.assign(day=[9, 9, 0]), id="who", time="day")
Traceback (most recent call last):
...
sfumato._check.InputError: patient 'bo' has two visits at one time, the table position 0 and the table position 1; merge
them, or drop one
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato._check import InputError, one_of
from sfumato._types import Assumption, RecordUnit
from sfumato.data.columns import Codes
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import MICROSECONDS, Column, Schema, TimeUnit, declared, unit_of
from sfumato.data.ehr.values import (
    Profile,
    late_start,
    refuse_dates_in_numbers,
    refuse_nearly_unique,
    refuse_unlearnable,
    times_of,
    values_of,
)
from sfumato.data.readers.tables import open_rows
from sfumato.data.records import Records, refuse_absent
from sfumato.data.safeguards import Where, name_notes, odd_values, refuse_twice


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """A table as arrays, in the order of its rows.

    Attributes:
        owners: int32 [rows], the number of the patient.
        times: float64 [rows], or None.
        dates: whether times are dates, in microseconds.
        values: of each column, float64 or int32 [rows].
        where: describes a row.
    """

    owners: np.ndarray
    times: np.ndarray | None
    dates: bool
    values: dict[str, np.ndarray]
    where: Where

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
    """Whether each patient has one value at all visits, or none at any; visits must show it, so some have several.

    >>> offsets = np.array([0, 2, 3])
    >>> never_changes(np.array([7.0, 7.0, 9.0]), offsets), never_changes(np.array([7.0, np.nan, 9.0]), offsets)
    (True, False)
    """
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


def assumption(schema: Schema) -> Assumption:
    """What it means that the schema is public, in one sentence."""
    count = sum(len(column.categories) for column in schema.columns)
    size = {"columns": len(schema.columns), "categories": count}
    return Assumption("ehr_schema_found" if schema.inferred else "ehr_schema_public", size)


_SUBJECTS = ("subject_id", "patient_id")  # columns of patients, where the id is of something else


def ehr_from_tables(
    visits: Any,
    static: Any = None,
    *,
    schema: Schema | Path | str | None = None,
    id: str | None = None,
    time: str | None = None,
    time_unit: TimeUnit = "days",
    outcome: str | None = None,
    unit: RecordUnit | None = None,
    subject: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    unsorted: Literal["refuse", "sort"] = "refuse",
) -> EHRDataset:
    """Read health records from tables.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8, a patient twice in
    `static`, and a key twice in an object. Counted in `notes`: names that differ only in case, blanks, zeros or Unicode
    form, and names such as `NA` that often stand for a missing one. The rule is that of all readers,
    `sfumato.data.safeguards`.

    Args:
        visits: a row a visit, in any order of patients: a pandas or polars DataFrame, a pyarrow Table, or a path to
            .csv, .tsv (also .gz), .parquet (or a folder of them) or .jsonl.
        static: a row a patient, in a table of any of these kinds. None takes static columns from the visits, where
            each patient has one value in them.
        schema: the columns, or a file of YAML that `Schema.save` wrote; the fields below are then left out. None infers
            it from the records, which the statement says, with those columns of visits static that never change.
        id: the column of patients, in both tables.
        time: the column of times in the visits: numbers ≥ 0 since the patient's origin, or dates, which become times
            since the patient's first visit.
        time_unit: what times are counted in; dates are turned into it.
        outcome: the static column with two categories that is to be predicted.
        unit: what an id is of: patient, stay, admission or record; None goes by the column's name (stay_id).
        subject: the column that names the patient of each id, where the unit is no patient; None takes subject_id or
            patient_id, if there is one.
        categorical: columns of categories that look like numbers.
        drop: columns that are not read.
        unsorted: whether visits that are not in the order of time are refused, or sorted and counted in the notes.

    Raises:
        InputError: a file is missing or damaged, a column is not there, or a row is wrong; it names the row.
    """
    one_of(("refuse", "sort"), unsorted=unsorted)
    of_visits, of_static = open_rows(visits), None if static is None else open_rows(static)
    found = declared(
        schema, id=id, time=time, outcome=outcome, unit=unit, subject=subject, categorical=categorical, drop=drop
    )
    if found is None:
        if id is None or time is None:
            raise InputError("which columns are the patient and the time? give id= and time=, or a schema")
        whose = whose_of(id, unit, subject, [of_visits, *([] if of_static is None else [of_static])], drop)
        found = _inferred(of_visits, of_static, id, time, time_unit, outcome, whose, categorical, drop)
    if of_static is None:
        records = _read_one(of_visits, found, unsorted)
    else:
        records = _read_two(of_visits, of_static, found, unsorted)
    if found.inferred:
        refuse_unlearnable(records)
        refuse_nearly_unique(records)
    return records


def _inferred(
    visits: Records,
    static: Records | None,
    id: str,
    time: str,
    time_unit: TimeUnit,
    outcome: str | None,
    whose: Mapping[str, Any],
    categorical: Sequence[str],
    drop: Sequence[str],
) -> Schema:
    """The schema; without a static table all columns are temporal, except the outcome."""
    tables = [visits] if static is None else [visits, static]
    refuse_absent(visits.title, visits.names, "time", time)
    for table in tables:
        refuse_absent(table.title, table.names, "id", id)
    everywhere = [name for table in tables for name in table.names]
    for role, names in (("categorical", categorical), ("drop", drop), ("outcome", [outcome] if outcome else [])):
        if isinstance(names, str):
            raise InputError(f"{role} must be a list of columns, got {names!r}; write [{names!r}]")
        for name in names:
            refuse_absent("the table", list(dict.fromkeys(everywhere)), role, name)
    but = (id, time, *filter(None, [whose["subject"]]), *drop)
    temporal = profiled(visits, but, categorical, outcome)
    if static is not None:
        parts = {"static": profiled(static, but, categorical, outcome), "temporal": temporal}
    else:
        parts = {
            "static": tuple(column for column in temporal if column.name == outcome),
            "temporal": tuple(column for column in temporal if column.name != outcome),
        }
    return Schema(id=id, time=time, time_unit=time_unit, outcome=outcome, inferred=True, **parts, **whose)


def profiled(table: Records, but: Sequence[str], categorical: Sequence[str], outcome: str | None) -> tuple[Column, ...]:
    """The columns of a table but some, as they are found to be.

    Raises:
        InputError: a column is of mixed kinds, has no value or one, or too many categories.
    """
    names = [name for name in table.names if name not in but]
    profiles = {
        name: Profile(name, categorical=name in (*categorical, outcome), constant=name == outcome) for name in names
    }
    rows = 0
    for block, where in table.located(names) if names else ():
        for name in names:
            profiles[name].add(block[name], where)
        rows += len(block[names[0]])
    if names and not rows:
        raise InputError(f"{table.title} has no rows; needed is a row for each visit, or for each patient")
    return tuple(profile.column() for profile in profiles.values())


def whose_of(
    id: str, unit: RecordUnit | None, subject: str | None, tables: Sequence[Records], drop: Sequence[str]
) -> dict[str, Any]:
    """Unit and subject of a schema that is inferred: as they were given, else by the names of columns."""
    unit = unit or (unit_of(id) if subject is None or unit_of(id) != "patient" else "record")
    names = [name for table in tables for name in table.names]
    if subject is None and unit != "patient":
        subject = next((name for name in _SUBJECTS if name in names and name != id and name not in drop), None)
    elif subject is not None:
        refuse_absent("the table", list(dict.fromkeys(names)), "subject", subject)
    return {"unit": unit, "subject": subject}


def subjects_of(tables: Sequence[Records], ids: Sequence[str], schema: Schema) -> list[str] | None:
    """The patient behind each id, from the first table that has the schema's subject; None where it has none.

    Raises:
        InputError: no table has the column, or an id has two subjects or none.
    """
    if schema.subject is None:
        return None
    table = next((each for each in tables if schema.subject in each.names), tables[0])
    refuse_absent(table.title, table.names, "schema", schema.subject)
    owners, people, found = Codes(schema.unit), Codes("subject"), dict[int, int]()
    for block, where in table.located((schema.id, schema.subject)):
        pairs = np.stack([owners.add(block[schema.id], where), people.add(block[schema.subject], where)])
        for row in np.sort(np.unique(pairs, axis=1, return_index=True)[1]).tolist():
            owner, subject = pairs[:, row].tolist()
            if found.setdefault(owner, subject) != subject:
                raise InputError(
                    f"the {schema.unit} {owners.names[owner]!r} has two subjects, {people.names[found[owner]]!r} and "
                    f"{people.names[subject]!r} at {where(row)}; correct one"
                )
    named = {owners.names[owner]: people.names[subject] for owner, subject in found.items()}
    if lost := [name for name in ids if name not in named]:
        raise InputError(f"{table.title} does not name the {schema.subject} of {lost[0]!r}; add the row")
    return [named[name] for name in ids]


def _read(table: Records, ids: Codes, id: str, time: str | None, columns: Sequence[Column]) -> TableRows:
    """Read some columns of a table."""
    refuse_absent(table.title, table.names, "id", id)
    if time is not None:
        refuse_absent(table.title, table.names, "time", time)
    for column in columns:
        refuse_absent(table.title, table.names, "schema", column.name)
    owners, times, kinds = [], [], set[bool]()
    values: dict[str, list[np.ndarray]] = {column.name: [] for column in columns}
    for block, where in table.located([id, *([] if time is None else [time]), *values]):
        owners.append(ids.add(block[id], where))
        if time is not None:
            found, dates = times_of(block[time], time, where)
            if np.isnan(found).any():
                row = int(np.isnan(found).argmax())
                raise InputError(f"the time {time!r} is missing at {where(row)}; fill it in or drop the row")
            kinds |= {dates} if dates is not None else set()
            if len(kinds) > 1:
                raise InputError(f"the times are dates and numbers from {where(0)} on; write them in one way")
            times.append(found)
        for column in columns:
            values[column.name].append(values_of(block[column.name], column, where))
    if not owners:
        raise InputError(f"{table.title} has no rows; needed is one a {'visit' if time is not None else 'patient'}")
    return TableRows(
        owners=np.concatenate(owners),
        times=np.concatenate(times) if times else None,
        dates=True in kinds,
        values={name: np.concatenate(blocks) for name, blocks in values.items()},
        where=table.where,
    )


def _read_one(table: Records, schema: Schema, unsorted: str) -> EHRDataset:
    """Everything from the table of visits."""
    ids = Codes("patient", exact=True)
    read = _read(table, ids, schema.id, schema.time, schema.columns)
    order, offsets, times, notes = arranged(read, ids.names, schema, unsorted)
    values = read.taken(order)
    if schema.inferred:
        still = [column.name for column in schema.temporal if never_changes(values[column.name], offsets)]
        schema = replace(
            schema,
            static=tuple(c for c in schema.columns if c in schema.static or c.name in still),
            temporal=tuple(c for c in schema.temporal if c.name not in still),
        )
    for column in schema.static:
        first, wrong = first_and_other(values[column.name], offsets)
        if wrong is not None:
            owner, other = wrong
            raise InputError(
                f"patient {ids.names[owner]!r} has two values of the static {column.name!r}, at "
                f"{read.where(int(order[first[owner]]))} and {read.where(int(order[other]))}; correct one, or make the "
                "column temporal"
            )
        values[column.name] = values[column.name][first]
    return dataset_of(schema, ids.names, values, values, offsets, times, notes, subjects_of([table], ids.names, schema))


def _read_two(visits: Records, static: Records, schema: Schema, unsorted: str) -> EHRDataset:
    """Static columns from their own table, which has every patient once."""
    ids = Codes("patient", exact=True)
    facts = read_static(static, ids, schema.id, schema.static)
    count = len(ids.names)
    read = _read(visits, ids, schema.id, schema.time, schema.temporal)
    if len(ids.names) > count:
        row = int((read.owners >= count).argmax())
        raise InputError(
            f"patient {ids.names[count]!r} at {read.where(row)} is not in {static.title}; add the patient there, or "
            "drop the visits"
        )
    lengths = np.bincount(read.owners, minlength=count)
    if not lengths.all():
        owner = int(lengths.argmin())
        raise InputError(
            f"patient {ids.names[owner]!r} at {facts.where(owner)} has no visit in {visits.title}; add the visits, or "
            "leave the patient out"
        )
    order, offsets, times, notes = arranged(read, ids.names, schema, unsorted)
    subjects = subjects_of([static, visits], ids.names, schema)
    return dataset_of(schema, ids.names, facts.values, read.taken(order), offsets, times, notes, subjects)


def read_static(table: Records, ids: Codes, id: str, columns: Sequence[Column]) -> TableRows:
    """A table that has every patient once; the patients are numbered as they come.

    Raises:
        InputError: a patient is there twice, or a cell is not of its column's kind.
    """
    facts = _read(table, ids, id, None, columns)
    if len(ids.names) < len(facts.owners):
        refuse_twice((ids.names[owner] for owner in facts.owners.tolist()), "patient", facts.where)
    return facts
