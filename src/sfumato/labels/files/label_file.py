"""A file of rows, one column of which is read and exchanged, while all others stay as they are.

What is written of a row's own label never depends on how that label was written: a report has the type, and the
spelling, that all reports have.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from sfumato._check import InputError

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

    def copy(self, out: Path, columns: list[str], label: str, exchange: Exchange) -> None:
        """Write all rows to another file, with another label.

        Args:
            out: the file to write.
            columns: that `exchange` gets.
            label: the column that it gives.
            exchange: called with the rows in order.
        """
        ...


def refuse_nested(path: Path, column: str, kind: pa.DataType) -> None:
    """Refuse a column whose values are no numbers and no texts.

    Raises:
        InputError: they are lists, pictures or times.
    """
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (number or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InputError(f"{path}: the column {column!r} must hold texts or numbers, got {kind}; convert it")
