"""A table that is open: its columns are read by their names, some rows at a time, as Arrow arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, guess

_LOOKED_AT = 20  # columns named in a message


def position(row: int) -> str:
    """A row by its number, from 0."""
    return f"position {row}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table that is open.

    Attributes:
        told: what messages call it.
        names: of its columns.
        count: how many rows it has.
        kind: gives the Arrow type of a column.
        read: gives some columns in blocks of at most so many rows.
        classes: names of the classes of columns that have some, as Hugging Face's do.
        place: what messages call a row.
        metadata: what the file says beside its columns; empty where several files say different things.
        beside: the folder that the table lies in; the working directory for one in memory.
        folder: where somebody says that its pictures are; None for beside it.
    """

    told: str
    names: tuple[str, ...]
    count: int
    kind: Callable[[str], pa.DataType]
    read: Callable[[list[str], int], Iterable[pa.RecordBatch | pa.Table]]
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    place: Callable[[int], str] = position
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    beside: Path = Path()
    folder: Path | None = None

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, pa.Array]]:
        """Some columns, in blocks of at most `rows` rows."""
        for block in self.read(list(dict.fromkeys(columns)), rows):
            yield {name: plain(block.column(name)) for name in dict.fromkeys(columns)}

    def refuse_absent(self, role: str, column: str) -> None:
        """Refuse a column that is not there, or is there twice."""
        refuse_absent(self.told, self.names, role, column)

    @property
    def pictures(self) -> Path:
        """The folder that relative paths of pictures start at."""
        return self.beside if self.folder is None else self.folder

    @property
    def has(self) -> str:
        """The names of the columns."""
        return listed(self.names)


def refuse_absent(told: str, names: Sequence[str], role: str, column: str) -> None:
    """Refuse a column that is not among those of a table, or is there twice.

    Args:
        told: what messages call the table.
        names: of its columns.
        role: what the column is named for.
        column: its name.
    """
    if names.count(column) == 1:
        return
    if column in names:
        raise InputError(f"{told} has the column {column!r} twice; rename one")
    if len(names) == 1 and (mark := next((mark for mark in ";|\t" if mark in names[0]), None)):
        raise InputError(
            f"{told} has one column, {names[0]!r:.200}: are its columns divided by {mark!r}? Write them with commas, "
            "or with tabs into a file named .tsv"
        )
    raise InputError(
        f"{told} has no column {column!r} for {role}={column!r}{guess(column, names)}; it has {listed(names)}"
    )


def listed(names: Sequence[str]) -> str:
    """The names of columns, for a message."""
    more = f" and {len(names) - _LOOKED_AT} more" if len(names) > _LOOKED_AT else ""
    return (", ".join(names[:_LOOKED_AT]) or "none") + more


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece, without the wrappings that tell a program how to show it."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.FixedShapeTensorArray) and not array.null_count + array.storage.flatten().null_count:
        return lists(array.to_numpy_ndarray())
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if str(array.type) == "string_view":  # as polars has texts; few functions of Arrow take it
        array = array.cast(pa.large_string())
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def lists(rows: np.ndarray) -> pa.Array:
    """Rows [n, …] as lists within lists, whose lengths Arrow then knows."""
    array = pa.array(rows.reshape(-1))
    for side in reversed(rows.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, side)
    return array
