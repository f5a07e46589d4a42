"""A table that is open: its columns are read by their names, some rows at a time, as Arrow arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from sfumato._check import InputError, guess
from sfumato.data.tables.kinds import plain, plain_kind

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
        texts: the same as `read`, with every cell as the file has it, where that is a file of text or the name of a
            folder; None where all columns have types. Names are read so: a column of 7 and NA is one of two names, and
            no column of numbers.
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
    texts: Callable[[list[str], int], Iterable[pa.RecordBatch | pa.Table]] | None = None
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    beside: Path = Path()
    folder: Path | None = None

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, pa.Array]]:
        """Some columns, in blocks of at most `rows` rows, each of the type that `plain_kind` gives.

        Raises:
            InputError: a decimal number is too large.
        """
        for block in self.read(list(dict.fromkeys(columns)), rows):
            yield {name: self._plain(name, block.column(name)) for name in dict.fromkeys(columns)}

    def _plain(self, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        try:
            return plain(column)
        except pa.ArrowInvalid:
            raise InputError(
                f"{self.told}: the column {name!r} is {column.type} and has a number that {plain_kind(column.type)} "
                "cannot hold; write it as text, or as a floating-point number"
            ) from None

    def names_of(self, column: str, rows: int) -> Iterator[pa.Array]:
        """A column of names, in blocks of at most `rows` rows, as `blocks` gives them."""
        for block in (self.texts or self.read)([column], rows):
            yield self._plain(column, block.column(column))

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
    raise InputError(
        f"{told} has no column {column!r} for {role}={column!r}{guess(column, names)}; it has {listed(names)}"
    )


def listed(names: Sequence[str]) -> str:
    """The names of columns, for a message."""
    more = f" and {len(names) - _LOOKED_AT} more" if len(names) > _LOOKED_AT else ""
    return (", ".join(names[:_LOOKED_AT]) or "none") + more
