"""Rows of a delimited text file, plain or gzipped, a block at a time, with the line that each row ends on."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from sfumato._check import InputError

BLOCK = 4096  # rows read in one go
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
DIVIDERS = ",;\t|"
"""Marks that columns may be divided by; the comma and the tab are read."""


_DECIMAL = ", with decimal=',' where numbers have a comma"
_LOOKED_AT = 100  # lines of a file of one column, of which one can show that it has several
_FIELD = 1 << 24  # characters of one field; the csv module stops at 131,072 unless told


@dataclass(frozen=True)
class RowBlock:
    """Some rows.

    Attributes:
        rows: each a list of fields, all equally many.
        lines: the line of the file that each row ends on, from 1.
    """

    rows: list[list[str]]
    lines: list[int]


def is_delimited(path: Path) -> bool:
    """Whether a file's name is that of a delimited text file."""
    return path.name.lower().endswith(SUFFIXES)


def read_rows(path: Path | str, delimiter: str | None = None, *, keep_blanks: bool = False) -> Iterator[RowBlock]:
    """The rows of a file; a header, if it has one, is the first. Blank lines are passed over.

    Args:
        path: UTF-8, with or without byte order mark; fields may be quoted with "; blanks behind a delimiter are
            dropped.
        delimiter: None takes the tab for .tsv, else the comma.
        keep_blanks: take blanks behind a delimiter for a part of the field.

    Raises:
        InputError: the file is missing, is no text, or a row has another number of columns than the first.
    """
    path = Path(path)
    if delimiter is None:
        delimiter = "\t" if ".tsv" in path.name.lower() else ","
    if len(delimiter) != 1:
        raise InputError(f"delimiter must be one character, got {delimiter!r}")
    before = csv.field_size_limit()
    first: list[str] = []
    at = 0
    try:
        with _opened(path) as file:
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=not keep_blanks)
            while True:
                # The limit is the csv module's own and global: it is lifted while a block is read, and put back.
                csv.field_size_limit(_FIELD)
                try:
                    rows, lines, taken = [], [], 0
                    for row in islice(reader, BLOCK):
                        taken += 1
                        at = reader.line_num
                        if not row:
                            continue
                        first = first or row
                        if len(row) != len(first) or (len(first) == 1 and at <= _LOOKED_AT):
                            refuse_divider(path, first, row, delimiter)
                        if len(row) != len(first):
                            raise InputError(
                                f"{path} line {at} has {len(row)} columns, the first row has {len(first)}; "
                                "complete the row, quote fields with a delimiter in them, or remove it"
                            )
                        rows.append(row)
                        lines.append(at)
                finally:
                    csv.field_size_limit(before)
                if rows:
                    yield RowBlock(rows, lines)
                if not taken:
                    return
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        line = _not_utf8(path) or at + 1  # it is decoded in blocks of many lines
        raise InputError(f"{path} is not UTF-8 at line {line} ({error.reason}); convert it to UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path} line {at + 1} cannot be read as CSV: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None


def refuse_divider(told: object, header: Sequence[str], row: Sequence[str], delimiter: str) -> None:
    """Refuse a file whose columns are divided by another mark than the one that its fields were read by.

    Args:
        told: what messages call the file.
        header: the fields of its first row.
        row: those of another one, which should be as many, and more than one.
        delimiter: they were read by.

    Raises:
        InputError: another mark divides both into as many fields.
    """
    names, cells = delimiter.join(header), delimiter.join(row)
    for mark in DIVIDERS.replace(delimiter, ""):
        if row != header and 0 < names.count(mark) == cells.count(mark) and all(map(str.strip, names.split(mark))):
            raise InputError(
                f"{told} has columns that are divided by {mark!r}, as {names!r:.200}, and is read by {delimiter!r}; "
                f"write it anew: pandas.read_csv(FILE, sep={mark!r}).to_csv('new.csv', index=False)"
                f"{_DECIMAL * (mark == ';')}"
            )


def _opened(path: Path, errors: str = "strict") -> TextIO:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="", errors=errors)
    return open(path, encoding="utf-8-sig", newline="", errors=errors)


def _not_utf8(path: Path) -> int | None:
    """The first line that is not UTF-8, from 1; None if the file is damaged besides."""
    try:
        with _opened(path, errors="surrogateescape") as file:
            for at, line in enumerate(file, 1):
                if any("\udc80" <= mark <= "\udcff" for mark in line):
                    return at
    except (OSError, EOFError, zlib.error):
        pass
    return None
