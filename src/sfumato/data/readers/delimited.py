"""Delimited text, plain or gzipped, read by Arrow some rows at a time: every cell stays a text, so 007 and 7 are two.

>>> import io
>>> file = Delimited("people.csv", open=lambda: io.BytesIO(b"name, age\\n007, 31\\n7, 44\\n"))
>>> file.first, [block.to_pydict() for block in file.blocks([0], 10)], file.line(2)
(('name', ' age'), [{'0': ['007', '7']}], 3)
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError
from sfumato.data.records import Records

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
DIVIDERS = ",;\t|"
"""Marks that columns may be divided by; the comma and the tab are read."""

_BYTES = 1 << 23  # of the file, read in one go; no row is longer
_FIRST_LINE = 1 << 16  # bytes that show the delimiter
_LOOKED_AT = 100  # first rows, of which one can show that another mark divides the columns
_DECIMAL = ", with decimal=',' where numbers have a comma"
_ROW = re.compile(r"Row #(\d+): ")  # in Arrow's errors, the header's is 1
_RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")


def is_delimited(path: Path) -> bool:
    """Whether a file's name is that of a delimited text file."""
    return path.name.lower().endswith(SUFFIXES)


class Delimited:
    """A file of delimited text. A header, if it has one, is the first row; blank lines are no rows.

    Args:
        path: UTF-8, with or without byte order mark; names that end on .gz are unpacked.
        delimiter: None takes the comma for .csv, the tab for .tsv, and else the one that the first line has.
        quoted: whether fields may stand in quotes ("), with delimiters and line breaks in them.
        open: gives the bytes of what is no file of its own; `path` is then what messages call it.

    Attributes:
        title: what messages call it.
        delimiter: one character.
        first: the fields of the first row, as they are written; () where there is none.

    Raises:
        InputError: the file is missing or no text, or its columns are divided by another mark.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        delimiter: str | None = None,
        quoted: bool = True,
        open: Callable[[], IO[bytes] | gzip.GzipFile] | None = None,
    ) -> None:
        self.title = str(path)
        self._open = open or (lambda: _opened(Path(path)))
        self._quoted = quoted
        self.delimiter = self._found_delimiter() if delimiter is None else delimiter
        if len(self.delimiter) != 1:
            raise InputError(f"delimiter must be one character, got {delimiter!r}")
        with self._errors():
            rows = [fields for _, fields in islice(self._parsed(), _LOOKED_AT)]
        self.first = tuple(rows[0]) if rows else ()
        for fields in rows:
            if len(fields) != len(self.first) or len(fields) == 1:
                self._refuse_divider(self.delimiter.join(fields))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, as the header has them.

        Raises:
            InputError: there is no header.
        """
        if not self.first:
            raise InputError(f"{self.title} is empty; needed are a header and a row an example")
        return tuple(name.strip() for name in self.first)

    def records(self, names: Sequence[str] | None = None) -> Records:
        """The rows behind the header as a table that is read as it comes, so that its length is not known.

        Args:
            names: of the columns, "" for one that is left out; None takes those of the header.
        """
        columns = self.names if names is None else tuple(names)
        header = int(names is None)

        def read(wanted: list[str], rows: int) -> Iterator[pa.RecordBatch]:
            for block in self.blocks([columns.index(name) for name in wanted], rows, header=bool(header)):
                yield pa.RecordBatch.from_arrays(block.columns, wanted)

        return Records(
            title=self.title,
            names=tuple(filter(None, columns)),
            count=-1,
            kind=lambda name: pa.large_string(),
            read=read,
            place=lambda row: f"line {self.line(row + header)}",
        )

    def blocks(
        self, columns: Sequence[int], rows: int, *, header: bool = True, as_written: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Some columns, by their places, in blocks of at most `rows` rows; the columns are named by their places.

        Args:
            columns: places from 0.
            rows: of a block at most.
            header: whether the first row is one, and left out.
            as_written: whether cells stay as they are; else blanks around them are dropped, and what is empty is null.

        Raises:
            InputError: a row has another number of columns than the first, or is no text in UTF-8.
        """
        if not self.first:
            return
        start, parsed = 0, enumerate(self._parsed(skip_blanks=True))
        with self._reading([*map(str, columns)]) as reader:
            for batch in reader:
                if self._quoted:
                    self._refuse_late_quotes(batch, start, parsed)
                start += len(batch)
                if not as_written:
                    batch = pa.RecordBatch.from_arrays([*map(filled, batch.columns)], batch.schema.names)
                if header:
                    batch, header = batch.slice(1), False
                for place in range(0, len(batch), rows):
                    yield batch.slice(place, rows)

    def line(self, row: int) -> int:
        """The line of the file that a row ends on, from 1; the file is read anew, as far as there."""
        return next(islice(self.lines(), row, None), row + 1)

    def lines(self) -> Iterator[int]:
        """The line that each row ends on, the header's first."""
        return (line for line, _ in self._parsed())

    def _parsed(self, *, skip_blanks: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Each row with the line that it ends on, by the csv module: slow, but Arrow knows neither lines nor widths."""
        before = csv.field_size_limit()
        with self._open() as file:
            text = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")  # type: ignore[arg-type]
            quoting = csv.QUOTE_MINIMAL if self._quoted else csv.QUOTE_NONE
            reader = csv.reader(text, delimiter=self.delimiter, quoting=quoting, skipinitialspace=skip_blanks)
            while True:
                csv.field_size_limit(_BYTES)  # the module's own limit is global: it is lifted for a row, and put back
                try:
                    fields = next(reader, None)
                finally:
                    csv.field_size_limit(before)
                if fields is None:
                    return
                if fields:
                    yield reader.line_num, fields

    def _found_delimiter(self) -> str:
        name = PurePath(self.title).name.lower()
        if ".csv" in name or ".tsv" in name:
            return "\t" if ".tsv" in name else ","
        with self._errors(), self._open() as file:
            line = file.readline(_FIRST_LINE)
        return "\t" if b"\t" in line and b"," not in line else ","

    @contextmanager
    def _reading(self, columns: list[str]) -> Iterator[Any]:
        """Arrow's reader of some columns, by their places."""
        import pyarrow.csv  # late: other formats need none of it

        with self._errors(), self._open() as file:
            yield pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(
                    use_threads=False, column_names=[*map(str, range(len(self.first)))], block_size=_BYTES
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char='"' if self._quoted else False,
                    newlines_in_values=self._quoted,
                ),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.large_string()), include_columns=columns
                ),
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of reading in one line, with the row's."""
        try:
            yield
        except FileNotFoundError:
            raise InputError(f"there is no file {self.title}") from None
        except (OSError, EOFError, zlib.error, csv.Error, pa.ArrowException) as error:
            said = " ".join(str(error).split())
            row = _ROW.search(said)
            at = f" line {self.line(int(row[1]) - 1)}" if row else ""
            if row and (ragged := _RAGGED.match(said, row.end())):
                raise InputError(
                    f"{self.title}{at} has {ragged[2]} columns, the first row has {ragged[1]}; complete the row, quote "
                    "fields with a delimiter in them, without blanks in front of the quote, or remove the row"
                ) from None
            if "invalid UTF8" in said:
                raise InputError(f"{self.title} is not UTF-8 at{at}; convert it to UTF-8") from None
            if "straddling" in said:
                said = f"a row has more than {_BYTES:,} bytes; is a quote left open?"
            raise InputError(f"{self.title} cannot be read: {said[:300]}") from None

    def _refuse_late_quotes(self, batch: pa.RecordBatch, start: int, parsed: Iterator[tuple[int, Any]]) -> None:
        """Refuse blanks in front of a quote: Arrow takes them, and the quotes, for a part of the field.

        Args:
            batch: some rows.
            start: the number of the first one.
            parsed: the same rows with their numbers by the csv module, which passes over such blanks. It
                distinguishes these fields from those that are quoted as a whole and begin with blanks and a quote.
        """
        late = np.zeros(len(batch), bool)
        for column in batch.columns:
            found = pc.match_substring_regex(column, r'^\s+"')  # pyright: ignore[reportAttributeAccessIssue]
            late |= found.to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(late).tolist():
            line, fields = next((found for number, found in parsed if number == start + row), (row, []))
            for place, column in zip(map(int, batch.schema.names), batch.columns, strict=True):
                cell = column[row].as_py()
                if [field.strip() for field in fields[place : place + 1]] != [cell.strip()]:
                    raise InputError(
                        f"{self.title} line {line} has blanks in front of the quote of {cell[:60]!r}; remove them"
                    )

    def _refuse_divider(self, row: str) -> None:
        """Refuse a file in which another mark divides both the first row and this one into as many fields."""
        names = self.delimiter.join(self.first)
        for mark in DIVIDERS.replace(self.delimiter, ""):
            if row != names and 0 < names.count(mark) == row.count(mark) and all(map(str.strip, names.split(mark))):
                raise InputError(
                    f"{self.title} has columns that are divided by {mark!r}, as {names!r:.200}, and is read by "
                    f"{self.delimiter!r}; write it anew: pandas.read_csv(FILE, sep={mark!r}).to_csv('new.csv', "
                    f"index=False){_DECIMAL * (mark == ';')}"
                )


def filled(cells: pa.Array) -> pa.Array:
    """Texts without blanks around them, null where nothing is left."""
    texts = pc.utf8_trim_whitespace(cells)  # pyright: ignore[reportAttributeAccessIssue]
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)  # pyright: ignore[reportAttributeAccessIssue]


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
