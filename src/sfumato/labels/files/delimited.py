"""CSV and TSV, plain or gzipped: fields as they were; quotes stand where a field needs them."""

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.readers.csv_rows import SUFFIXES, read_rows
from sfumato.data.tables.source import refuse_absent
from sfumato.labels.files.label_file import Cells, Exchange


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
        header = next(self._blocks(), None)
        if header is None:
            raise InputError(f"{path} is empty; needed are a header and a row for each label")
        self._header = header[0]
        self._names = [name.strip() for name in self._header]

    def kind(self, column: str) -> pa.DataType:
        refuse_absent(str(self.path), self._names, "column", column)
        return pa.string()

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        for rows in self._rows():
            yield self._cells(rows, columns)

    def flat(self) -> Iterator[Cells]:
        return self.cells(self._names)

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        place = self._names.index(label)
        held: list[list[str]] = []
        with _opened(out) as file:
            writer = csv.writer(file, delimiter="\t" if ".tsv" in out.name.lower() else ",", lineterminator="\n")
            writer.writerow(self._header)
            for rows in self._rows():
                reports = exchange(self._cells(rows, columns)).to_pylist()
                for row, report in zip(rows, reports, strict=True):
                    row[place] = report  # a number is written as Python shows it
                held.extend(rows)
                if order is None:
                    writer.writerows(held)
                    held.clear()
            if order is not None:
                writer.writerows(held[place] for place in order.tolist())

    def _rows(self) -> Iterator[list[list[str]]]:
        blocks = self._blocks()
        yield next(blocks)[1:]
        yield from blocks

    def _blocks(self) -> Iterator[list[list[str]]]:
        return (block.rows for block in read_rows(self.path, keep_blanks=True))

    def _cells(self, rows: list[list[str]], columns: list[str]) -> Cells:
        places = {name: self._names.index(name) for name in columns}
        return {
            name: pa.array([row[place].strip() or None for row in rows], pa.string()) for name, place in places.items()
        }


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
