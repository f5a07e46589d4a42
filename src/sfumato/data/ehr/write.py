"""Health records written as tables that `ehr_from_tables` and `ehr_from_events` read back as they were.

Records come as one data set or as several of one schema, which are written one after the other: memory does not grow
with their number.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import SUBJECT, VISIT
from sfumato.data.ehr.schema import Column, Schema
from sfumato.data.safeguards import refuse_twice

EHRRecords = EHRDataset | Iterable[EHRDataset]


def write_ehr_tables(records: EHRRecords, visits: Path | str, static: Path | str) -> None:
    """Write a table with a row a visit and one with a row a patient.

    Args:
        records: a data set, or several of one schema and with ids of their own.
        visits: the file of visits, .parquet or .csv; it appears when it is whole.
        static: the file of patients, of either kind.

    Raises:
        InputError: a file's name is of another kind, there are no records, or schemas or ids clash.
    """
    if Path(visits) == Path(static):
        raise InputError(f"visits and static must be two files, got {visits} for both")
    _write([Path(visits), Path(static)], records, lambda schema: [_visits_of(schema), _static_of(schema)], _two_tables)


def write_ehr_events(records: EHRRecords, path: Path | str, *, code: str = "code", value: str = "value") -> None:
    """Write a table of events, values as texts: whose, when (empty for what is static), what, and its value.

    A visit at which nothing was measured is an event of the code sfumato//visit without a value.

    Args:
        records: as in `write_ehr_tables`.
        path: the file, .parquet or .csv.
        code, value: the columns of codes and of values; those of patients and times are named by the schema.

    Raises:
        InputError: as `write_ehr_tables`, or two of the columns have one name.
    """

    def layout(schema: Schema) -> list[pa.Schema]:
        names = [schema.id, schema.time, code, value]
        if len(set(names)) < 4:
            raise InputError(f"the columns of events must have names of their own, got {', '.join(names)}; rename one")
        kinds = [pa.large_string(), pa.float64(), pa.large_string(), pa.large_string()]
        return [pa.schema(list(zip(names, kinds, strict=True)))]

    _write([Path(path)], records, layout, lambda part, kinds: [_events(part, kinds[0])])


def parts_of(records: EHRRecords) -> tuple[Schema, Iterator[EHRDataset]]:
    """The schema, and the data sets one after the other.

    Raises:
        InputError: there are none, or while they are gone through: they have several schemas, or an id comes twice.
    """
    parts = iter([records] if isinstance(records, EHRDataset) else records)
    first = next(parts, None)
    if first is None:
        raise InputError("there are no records to write; give at least one data set")

    def checked() -> Iterator[EHRDataset]:
        seen: set[str] = set()
        for part in chain([first], parts):
            if part.schema != first.schema:
                raise InputError("records of one file must have one schema; write the others to another file")
            if again := seen.intersection(part.ids):
                refuse_twice([min(again)] * 2, "patient")
            seen.update(part.ids)
            yield part

    return first.schema, checked()


def _write(
    paths: Sequence[Path],
    records: EHRRecords,
    layout: Callable[[Schema], list[pa.Schema]],
    tables: Callable[[EHRDataset, list[pa.Schema]], list[pa.Table]],
) -> None:
    """Write each part of the records to each of the files; none appears before all are whole."""
    for path in paths:
        if path.suffix.lower() not in (".parquet", ".csv"):
            raise InputError(f"{path} must end on .parquet or .csv")
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent}; make it, or name another")
    schema, parts = parts_of(records)
    kinds = layout(schema)

    def fill(temporaries: Sequence[Path]) -> None:
        with ExitStack() as stack:
            writers = [stack.enter_context(_writer(path, kind)) for path, kind in zip(temporaries, kinds, strict=True)]
            for part in parts:
                for writer, table in zip(writers, tables(part, kinds), strict=True):
                    writer.write_table(table)

    def nested(left: Sequence[Path], temporaries: Sequence[Path]) -> None:
        if left:
            write_atomic(left[0], lambda temporary: nested(left[1:], [*temporaries, temporary]))
        else:
            fill(temporaries)

    nested(paths, [])


def _writer(path: Path, kind: pa.Schema) -> Any:
    if path.suffix.lower() == ".csv":
        import pyarrow.csv  # late: other formats need none of it

        return pyarrow.csv.CSVWriter(path, kind)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(path, kind)


def _kind(column: Column) -> pa.DataType:
    if column.kind == "categorical":
        return pa.large_string()
    return pa.int64() if column.whole else pa.float64()


def _visits_of(schema: Schema) -> pa.Schema:
    kinds = [(column.name, _kind(column)) for column in schema.temporal]
    return pa.schema([(schema.id, pa.large_string()), (schema.time, pa.float64()), *kinds])


def _static_of(schema: Schema) -> pa.Schema:
    kinds = [(column.name, _kind(column)) for column in schema.static]
    whose = [(name, pa.large_string()) for name in (schema.id, schema.subject) if name is not None]
    return pa.schema([*whose, *kinds])


def columns_of(records: EHRDataset) -> Iterator[tuple[Column, np.ndarray]]:
    """Each column with its values, float64 or int32 codes, static ones [n] first, then temporal ones [visits]."""
    schema = records.schema
    for columns, numbers, codes in (
        (schema.static, records.static_numbers, records.static_codes),
        (schema.temporal, records.numbers, records.codes),
    ):
        place = {"numeric": 0, "categorical": 0}
        for column in columns:
            yield column, (numbers if column.kind == "numeric" else codes)[:, place[column.kind]]
            place[column.kind] += 1


def cells_of(column: Column, values: np.ndarray) -> pa.Array:
    """A column's values as a table has them, null where they are missing."""
    if column.kind == "categorical":
        names = pa.array([*column.categories], pa.large_string())
        return names.take(pa.array(values, pa.int32(), mask=values < 0))
    missing = np.isnan(values)
    if column.whole:
        return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
    return pa.array(values, mask=missing)


def _two_tables(part: EHRDataset, kinds: list[pa.Schema]) -> list[pa.Table]:
    held = {column.name: cells_of(column, values) for column, values in columns_of(part)}
    ids = pa.array(part.ids, pa.large_string())
    visits = [ids.take(pa.array(part.owners)), pa.array(part.times), *(held[c.name] for c in part.schema.temporal)]
    subjects = [] if part.subjects is None else [pa.array(part.subjects, pa.large_string())]
    static = [ids, *subjects, *(held[column.name] for column in part.schema.static)]
    return [pa.Table.from_arrays(arrays, schema=kind) for arrays, kind in zip((visits, static), kinds, strict=True)]


def _events(part: EHRDataset, kind: pa.Schema) -> pa.Table:
    """All that is not missing, by patient and time."""
    gathered = list(observed(part))
    owners = np.concatenate([owner for _, owner, _, _ in gathered])
    times = np.concatenate([time for _, _, time, _ in gathered])
    order = pa.array(np.lexsort((np.where(np.isnan(times), -1, times), owners)))
    codes = [pa.repeat(pa.scalar(name, pa.large_string()), len(owner)) for name, owner, _, _ in gathered]
    values = [array.cast(pa.large_string()) for _, _, _, array in gathered]
    ids = pa.array(part.ids, pa.large_string()).take(pa.array(owners))
    arrays = [ids, pa.array(times, mask=np.isnan(times)), pa.concat_arrays(codes), pa.concat_arrays(values)]
    return pa.Table.from_arrays(arrays, schema=kind).take(order)


def observed(part: EHRDataset) -> Iterator[tuple[str, np.ndarray, np.ndarray, pa.Array]]:
    """What was observed, by code: its name, whose, when (NaN: static), and the values. First subjects, then columns,
    at last the empty visits.
    """
    owners, empty = part.owners, np.ones(len(part.times), bool)
    static = {column.name for column in part.schema.static}
    if part.subjects is not None:
        named = pa.array([json.dumps(name, ensure_ascii=False) for name in part.subjects], pa.large_string())
        yield SUBJECT, np.arange(len(part)), np.full(len(part), np.nan), named
    for column, values in columns_of(part):
        cells = cells_of(column, values)
        there = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
        found = cells.take(pa.array(there))
        if column.name in static:
            yield column.name, there, np.full(len(there), np.nan), found
        else:
            empty[there] = False
            yield column.name, owners[there], part.times[there], found
    yield VISIT, owners[empty], part.times[empty], pa.nulls(int(empty.sum()), pa.large_string())
