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
_ENDS = [*b"\r\n"]  # of lines
_MARK, _QUOTE = b"\xef\xbb\xbf", ord('"')
_ROW = re.compile(r"Row #(\d+): ")  # in Arrow's errors, the header's is 1
_RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")


def is_delimited(path: Path) -> bool:
    """Whether a file's name is that of a delimited text file."""
    return path.name.lower().endswith(SUFFIXES)


class _Quotes:
    """The bytes of a file on their way to Arrow, and whether a quoted field swallows what comes behind it.

    Arrow ends a field that is never closed with the file, or with the next quote that it meets, without a word. Where
    every second quote begins a field and the others end one, or stand for a quote in it, a few passes of NumPy show
    it; a block with other quotes is looked at quote by quote.

    Args:
        file: bytes.
        delimiter: one character.

    Attributes:
        closed: whether the file is, for Arrow.
        swallows: the place of the quote that begins such a field, in bytes from the file's start; None for none.
    """

    closed = False

    def __init__(self, file: IO[bytes] | gzip.GzipFile, delimiter: str) -> None:
        self._file = file
        self._begins, self._ends = (
            np.isin(np.arange(256), [*marks.encode()]) for marks in ("\r\n" + delimiter, " \t\r\n" + delimiter)
        )  # of each byte, whether a quoted field can begin behind it, or end in front of it
        self._before, self._waiting, self._done = b"\n", b"", 0
        self._opened, self._lines = -1, False  # where the field that is open begins, and whether lines end in it
        self.swallows: int | None = None

    def read(self, size: int = -1) -> bytes:
        """The next bytes; nothing at the end."""
        content = self._file.read(size)
        block = self._waiting + content
        if not self._done and block.startswith(_MARK):
            block, self._done = block[len(_MARK) :], len(_MARK)
        known = len(block.rstrip(b'"')) if content else len(block)  # what follows the others shows in the next block
        self._waiting = block[known:]
        if known and self.swallows is None:
            self._look(block[:known])
        self._done += known
        if not content and self._opened >= 0 and self.swallows is None:
            self.swallows = self._opened
        return content

    def _look(self, block: bytes) -> None:
        """Follow the quotes of some bytes, the last of which is none unless the file ends."""
        text = np.frombuffer(self._before + block + b"\n", np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        inside = self._opened >= 0
        starts, stops = quotes[inside::2], quotes[1 - inside :: 2]
        before, behind = text[starts - 1], text[stops + 1]
        begins = self._begins[before]
        regular = (begins | (before == _QUOTE)).all() and (self._ends[behind] | (behind == _QUOTE)).all()
        if regular:
            if begins.any():
                self._opened = self._done + int(starts[begins][-1]) - 1
            if (len(quotes) + inside) % 2 == 0:
                self._opened = -1
        else:
            self._follow(text, quotes.tolist())
        at = max(self._opened - self._done, 0)
        held = self._opened < self._done and self._lines
        self._lines = self._opened >= 0 and (held or b"\n" in block[at:] or b"\r" in block[at:])
        self._before = block[-1:]

    def _follow(self, text: np.ndarray, quotes: list[int]) -> None:
        passed = -1
        for quote in quotes:
            if quote == passed:
                continue
            if self._opened < 0:
                if self._begins[text[quote - 1]]:
                    self._opened = self._done + quote - 1
            elif text[quote + 1] == _QUOTE:
                passed = quote + 1
            else:
                start = self._opened - self._done
                several = (start < 0 and self._lines) or np.isin(text[max(start, 0) + 1 : quote], _ENDS).any()
                if several and not self._ends[text[quote + 1]]:
                    self.swallows = self._opened
                    return
                self._opened = -1


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
        for batch in self._read([*map(str, columns)]):
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

    def _read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns as Arrow reads them, by their places."""
        import pyarrow.csv  # late: other formats need none of it

        with self._errors(), self._open() as file:
            source = _Quotes(file, self.delimiter) if self._quoted else file
            yield from pyarrow.csv.open_csv(
                source,  # pyright: ignore[reportArgumentType]
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
            if isinstance(source, _Quotes):
                self._refuse_open(source)

    def _quotes(self) -> _Quotes:
        """The quotes of all of the file."""
        with self._open() as file:
            found = _Quotes(file, self.delimiter)
            while found.read(_BYTES):
                pass
        return found

    def _refuse_open(self, quotes: _Quotes) -> None:
        """Refuse a quoted field that swallows what comes behind it."""
        if quotes.swallows is not None:
            left, lines = quotes.swallows, 1
            with self._open() as file:
                while left and (block := file.read(min(left, _BYTES))):
                    left, lines = left - len(block), lines + (block.count(b"\n") or block.count(b"\r"))
            raise InputError(
                f"{self.title} line {lines} opens a quote that nothing closes in its field; close it, or write two "
                "quotes for one in a text"
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
            if self._quoted and isinstance(error, csv.Error | pa.ArrowException) and "UTF8" not in said:
                self._refuse_open(self._quotes())
            row = _ROW.search(said)
            at = f" line {self.line(int(row[1]) - 1)}" if row else ""
            if row and (ragged := _RAGGED.match(said, row.end())):
                raise InputError(
                    f"{self.title}{at} has {ragged[2]} columns, the first row has {ragged[1]}; complete or remove the "
                    "row, or quote fields that hold a delimiter (no blank before)"
                ) from None
            if "invalid UTF8" in said:
                raise InputError(f"{self.title} is not UTF-8 at{at}; convert it to UTF-8") from None
            if "straddling" in said:
                said = f"a row has more than {_BYTES:,} bytes; is a quote left open?"
            whole = "; copy or download it again" if isinstance(error, EOFError | zlib.error) else ""
            raise InputError(f"{self.title} cannot be read: {said[:300]}{whole}") from None

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
