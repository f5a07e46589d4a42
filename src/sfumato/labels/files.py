"""Tables that are copied with one column exchanged: Parquet, delimited text and JSON lines.

JSON lines: one value of each line is exchanged, every other character stays.

>>> line = '{"a": 1.50, "label": "x",  "b": [1, 2]}'
>>> found = values(line)
>>> found["label"], line[: found["label"].start] + '"y"' + line[found["label"].end :]
(Value(value='x', start=21, end=24), '{"a": 1.50, "label": "y",  "b": [1, 2]}')
"""

import csv
import gzip
import io
import json
import json.decoder
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato._check import InputError
from sfumato.data.readers.delimited import SUFFIXES, Delimited, filled
from sfumato.data.readers.tables import LINES, PARQUET
from sfumato.data.records import is_nested, is_number, is_text, plain, plain_kind, refuse_absent, remedy_of

# A file of rows, one column of which is read and exchanged, while all others stay as they are.
#
# What is written of a row's own label never depends on how that label was written: a report has the type, and the
# spelling, that all reports have.


Cells = dict[str, pa.Array]
"""Some columns of some rows, by name."""


Exchange = Callable[[Cells], pa.Array]
"""Gives the new column of some rows: of the label's own type, or float64."""


class LabelFile(Protocol):
    """An open file.

    Attributes:
        path: of it.
        suffixes: of files of this format.
    """

    path: Path
    suffixes: tuple[str, ...]

    def kind(self, column: str) -> pa.DataType:
        """The type of a column's values; may read all of the file.

        Raises:
            InputError: there is no such column, or it holds values of several types.
        """
        ...

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        """Some columns, some rows at a time; what is missing is null."""
        ...

    def flat(self) -> Iterator[Cells]:
        """All columns of single values, some rows at a time; as texts where the format has no types."""
        ...

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        """Write all rows to another file, with another label.

        Args:
            out: the file to write.
            columns: that `exchange` gets.
            label: the column that it gives.
            exchange: called with the rows in the order of this file.
            order: int64 [rows], which row is written first, and so on; all are in memory then. None keeps the order.
        """
        ...


def refuse_nested(path: Path, column: str, kind: pa.DataType) -> None:
    """Refuse a column whose values are no numbers and no texts.

    Raises:
        InputError: they are lists, pictures or times.
    """
    if not (is_number(kind) or is_text(kind)):
        raise InputError(f"{path}: the column {column!r} must hold texts or numbers, got {kind}; {remedy_of(kind)}")


# CSV and TSV, plain or gzipped: fields as they were; quotes stand where a field needs them.


class DelimitedLabels:
    """A text file with a header.

    Args:
        path: of it.

    Raises:
        InputError: it has no header.
    """

    suffixes: tuple[str, ...] = SUFFIXES

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = Delimited(path)
        self._names = self._file.names

    def kind(self, column: str) -> pa.DataType:
        refuse_absent(str(self.path), self._names, "column", column)
        return pa.string()

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        for block in self._file.blocks([self._names.index(name) for name in columns], _ROWS):
            yield {name: column.cast(pa.string()) for name, column in zip(columns, block.columns, strict=True)}

    def flat(self) -> Iterator[Cells]:
        return self.cells([*self._names])

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        place = self._names.index(label)
        held: list[tuple[str, ...]] = []
        with _opened(out) as file:
            writer = csv.writer(file, delimiter="\t" if ".tsv" in out.name.lower() else ",", lineterminator="\n")
            writer.writerow(self._file.first)
            for block in self._file.blocks(range(len(self._names)), _ROWS, as_written=True):
                reports = exchange(
                    {name: filled(block.column(self._names.index(name))).cast(pa.string()) for name in columns}
                )
                fields = [*block.columns[:place], reports, *block.columns[place + 1 :]]
                rows = zip(*(column.to_pylist() for column in fields), strict=True)  # a number is as Python shows it
                if order is None:
                    writer.writerows(rows)
                else:
                    held.extend(rows)
            if order is not None:
                writer.writerows(held[place] for place in order.tolist())


@contextmanager
def _opened(out: Path) -> Iterator[TextIO]:
    if out.suffix == ".gz":
        with (
            open(out, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
            io.TextIOWrapper(packed, "utf-8", newline="") as text,
        ):
            yield text
    else:
        with open(out, "w", encoding="utf-8", newline="") as text:
            yield text


_ROWS = 1 << 12
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_KINDS = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


class Value(NamedTuple):
    """A value of an object and where it stands in the text."""

    value: Any
    start: int
    end: int


class LineLabels:
    """A file of JSON objects, one a line.

    Args:
        path: of it.
    """

    suffixes: tuple[str, ...] = LINES

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kinds: dict[str, pa.DataType] = {}

    def kind(self, column: str) -> pa.DataType:
        if column not in self._kinds:
            self._kinds[column] = self._found_kind(column)
        return self._kinds[column]

    def _found_kind(self, column: str) -> pa.DataType:
        seen: dict[type, int] = {}
        for number, _, found in self._objects():
            if column not in found:
                raise InputError(f"{self.path} line {number} has no {column!r}; fill it in or drop the line")
            if found[column].value is not None:
                seen.setdefault(type(found[column].value), number)
        if {int, float} == seen.keys():
            return pa.float64()
        if len(seen) > 1:
            types = " and ".join(f"{kind.__name__} (line {number})" for kind, number in seen.items())
            raise InputError(f"{self.path}: the values of {column!r} are of several types, {types}; make them one")
        kind = next(iter(seen), str)
        if kind not in _KINDS:
            raise InputError(f"{self.path}: {column!r} must be a text or a number, got a {kind.__name__}; convert it")
        return _KINDS[kind]

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        kinds = {name: self.kind(name) for name in columns}
        for rows in self._blocks():
            yield self._cells(rows, kinds)

    def flat(self) -> Iterator[Cells]:
        for rows in self._blocks():
            names = dict.fromkeys(name for *_, found in rows for name in found)
            yield {name: pa.array([_text(found.get(name)) for *_, found in rows], pa.string()) for name in names}

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        kinds = {name: self.kind(name) for name in columns}
        held: list[str] = []
        with open(out, "w", encoding="utf-8", newline="") as file:
            for rows in self._blocks():
                reports = exchange(self._cells(rows, kinds)).to_pylist()
                for (_, line, found), report in zip(rows, reports, strict=True):
                    _, start, end = found[label]
                    held.append(f"{line[:start]}{json.dumps(report, ensure_ascii=False)}{line[end:]}")
                if order is None:
                    file.writelines(held)
                    held.clear()
            if order is not None:  # the last line of a file may be without an end
                file.writelines(held[place].rstrip("\r\n") + "\n" for place in order.tolist())

    def _cells(self, rows: list[tuple[int, str, dict[str, Value]]], kinds: dict[str, pa.DataType]) -> Cells:
        try:
            return {name: pa.array([found[name].value for *_, found in rows], kind) for name, kind in kinds.items()}
        except (KeyError, pa.ArrowException, OverflowError) as error:
            where = f"{self.path}, lines {rows[0][0]} to {rows[-1][0]}"
            raise InputError(f"{where}: a value cannot be read: {' '.join(str(error).split())[:200]}") from None

    def _blocks(self) -> Iterator[list[tuple[int, str, dict[str, Value]]]]:
        held = []
        for row in self._objects():
            held.append(row)
            if len(held) == _ROWS:
                yield held
                held = []
        if held:
            yield held

    def _objects(self) -> Iterator[tuple[int, str, dict[str, Value]]]:
        number = 0
        try:
            with open(self.path, encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield number, line, values(line)
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is not UTF-8 behind line {number} ({error.reason}); convert it") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path} line {number} is no JSON object: {error}") from None


def values(line: str) -> dict[str, Value]:
    """The values of an object, by name, each with its place in the line.

    Raises:
        ValueError: the line is no object, or has a name twice.
    """
    found: dict[str, Value] = {}
    place = _skip(line, 0)
    if line[place : place + 1] != "{":
        raise ValueError("it does not begin with {")
    place = _skip(line, place + 1)
    more = line[place : place + 1] != "}"
    while more:
        if line[place : place + 1] != '"':
            raise ValueError(f"a name is wanted at character {place + 1}")
        name, place = json.decoder.scanstring(line, place + 1, True)  # type: ignore[attr-defined]  # since Python 2.7
        place = _skip(line, place)
        if line[place : place + 1] != ":":
            raise ValueError(f"a colon is wanted at character {place + 1}")
        start = _skip(line, place + 1)
        value, end = _DECODER.raw_decode(line, start)
        if name in found:
            raise ValueError(f"{name[:200]!r} is there twice")
        found[name] = Value(value, start, end)
        place = _skip(line, end)
        more = line[place : place + 1] == ","
        place = _skip(line, place + 1) if more else place
    if line[place : place + 1] != "}" or _skip(line, place + 1) != len(line):
        raise ValueError(f"the object ends at character {place + 1}")
    return found


def _text(value: Value | None) -> str | None:
    if value is None or value.value is None:
        return None
    return value.value if isinstance(value.value, str) else json.dumps(value.value)


def _skip(line: str, place: int) -> int:
    match = _BLANK.match(line, place)
    return match.end() if match else place


# Parquet files: rows in blocks, other columns, types and metadata as they were.


_PARQUET_ROWS = 1 << 16


class ParquetLabels:
    """A Parquet file.

    Args:
        path: of it.

    Raises:
        InputError: it cannot be read.
    """

    suffixes: tuple[str, ...] = PARQUET

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                self._schema = file.schema_arrow
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from None

    def kind(self, column: str) -> pa.DataType:
        refuse_absent(str(self.path), self._schema.names, "column", column)
        kind = self._schema.field(column).type
        refuse_nested(self.path, column, kind)
        return plain_kind(kind)

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        for batch in self._batches(columns):
            yield {name: plain(batch.column(name)) for name in columns}

    def flat(self) -> Iterator[Cells]:
        names = [field.name for field in self._schema if not is_nested(field.type)]
        for batch in self._batches(names):
            yield {name: plain(batch.column(name)) for name in names}

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        batches = self._exchanged(columns, label, exchange)
        if order is not None:
            table = pa.Table.from_batches(batches)
            batches = (
                batch
                for start in range(0, len(order), _PARQUET_ROWS)
                for batch in table.take(pa.array(order[start : start + _PARQUET_ROWS])).to_batches()
            )
        writer: pq.ParquetWriter | None = None
        try:
            for batch in batches:
                writer = writer or pq.ParquetWriter(out, batch.schema)
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()

    def _exchanged(self, columns: list[str], label: str, exchange: Exchange) -> Iterator[pa.RecordBatch]:
        place = self._schema.get_field_index(label)
        field = self._schema.field(place)
        for batch in self._batches(None):
            column = exchange({name: plain(batch.column(name)) for name in columns})
            kind = pa.float64() if pa.types.is_float64(column.type) else _written(field.type, column.type)
            schema = self._schema.set(place, field.with_type(kind))
            arrays = [*batch.columns[:place], _typed(column, kind), *batch.columns[place + 1 :]]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.path) as file:
                for group in range(file.num_row_groups):  # all at once, Arrow keeps what it has read of the file
                    yield from file.iter_batches(_PARQUET_ROWS, row_groups=[group], columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self.path} cannot be read as Parquet: {' '.join(str(error).split())[:300]}")


def _written(kind: pa.DataType, read: pa.DataType) -> pa.DataType:
    """The label's type in the file; where it is read as text that does not go back (identifiers in binary), text."""
    binary = pa.types.is_fixed_size_binary(getattr(kind, "storage_type", kind))
    return read if binary and not pa.types.is_decimal(kind) else kind


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    coded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.cast(kind.index_type), coded.dictionary.cast(kind.value_type))


# Opens a file of rows by its name.


_FORMATS = (ParquetLabels, DelimitedLabels, LineLabels)
UNDERSTOOD = ".parquet, .csv, .tsv (also .gz) or .jsonl"


def open_label_file(path: Path) -> LabelFile:
    """Open a table whose labels are to be exchanged.

    Raises:
        InputError: there is no such file, or it is none of those that are understood.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}; give one table: {UNDERSTOOD}")
    for kind in _FORMATS:
        if path.name.lower().endswith(kind.suffixes):
            return kind(path)
    raise InputError(f"{path} is no table that can be copied; give {UNDERSTOOD}")


def refuse_other_format(file: LabelFile, out: Path) -> None:
    """Refuse an output of another format than the table's.

    Raises:
        InputError: it is.
    """
    if not out.name.lower().endswith(file.suffixes):
        raise InputError(f"{out} must be of the table's format: let its name end in {' or '.join(file.suffixes)}")
