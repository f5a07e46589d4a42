"""A file of rows, one column of which is read and exchanged, while all others stay as they are.

What is written of a row's own label never depends on how that label was written: a report has the type, and the
spelling, that all reports have.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.tables.kinds import is_number, is_text, remedy_of

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
