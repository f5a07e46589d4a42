"""A table that is open: its columns are read by their names, some rows at a time, as Arrow arrays of few types.

**Types** that other tools write, as those that readers take: one rule for files and for data frames.

| written as                                        | read as                                |
| ------------------------------------------------- | -------------------------------------- |
| string_view, binary_view                          | large_string, large_binary             |
| dictionary, run-end encoding                      | its values                             |
| list_view                                         | large_list                             |
| decimal without digits after the point, with some | int64, float64 (the nearest)           |
| extension: fixed_shape_tensor, bool8, uuid, other | lists, bool, text, its storage         |

All other types stay: a reader takes them, or refuses them with their name and `remedy_of`.

>>> plain(pa.array(["a", "b"], pa.string_view())).type, plain(pa.array(["1.50"]).cast(pa.decimal128(5, 2))).to_pylist()
(DataType(large_string), [1.5])
>>> is_text(pa.dictionary(pa.int8(), pa.string_view())), is_number(pa.decimal256(60, 3)), is_number(pa.date32())
(True, True, False)
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError, guess
from sfumato.data.mapped import Strings
from sfumato.data.safeguards import Where

_COUNTED = ("pandas.period",)
"""Extensions whose storage counts something that the type alone says: months since 1970 would be taken for numbers."""


def plain_kind(kind: pa.DataType) -> pa.DataType:
    """The type that `plain` gives for a column of a type."""
    name = getattr(kind, "extension_name", None)
    if name == "arrow.fixed_shape_tensor":
        return kind.storage_type
    if name == "arrow.bool8":
        return pa.bool_()
    if name == "arrow.uuid":
        return pa.large_string()
    if isinstance(kind, pa.BaseExtensionType):
        return kind if name in _COUNTED else plain_kind(kind.storage_type)
    if pa.types.is_dictionary(kind) or _named(kind, "is_run_end_encoded"):
        return plain_kind(kind.value_type)
    if _named(kind, "is_string_view"):
        return pa.large_string()
    if _named(kind, "is_binary_view"):
        return pa.large_binary()
    if _named(kind, "is_list_view") or _named(kind, "is_large_list_view"):
        return pa.large_list(kind.value_type)
    if pa.types.is_decimal(kind):
        return pa.int64() if kind.scale <= 0 else pa.float64()
    return kind


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece, of the type that `plain_kind` gives.

    Raises:
        pyarrow.ArrowInvalid: a decimal has no place in 64 bits.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of several chunks, since no single array could hold them
        array = pa.concat_arrays(array.chunks)
    kind, wanted = array.type, plain_kind(array.type)
    if isinstance(array, pa.FixedShapeTensorArray) and not array.null_count + array.storage.flatten().null_count:
        return lists(array.to_numpy_ndarray())
    if isinstance(array, pa.ExtensionArray):
        if kind.extension_name == "arrow.bool8":
            return pc.not_equal(array.storage, pa.scalar(0, pa.int8()))  # pyright: ignore[reportAttributeAccessIssue]
        if kind.extension_name == "arrow.uuid":
            cells = [None if cell is None else str(uuid.UUID(bytes=cell)) for cell in array.storage.to_pylist()]
            return pa.array(cells, wanted)
        return array if kind == wanted else plain(array.storage)
    if pa.types.is_dictionary(kind):
        values = plain(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    if _named(kind, "is_run_end_encoded"):
        return plain(pc.run_end_decode(array))  # pyright: ignore[reportAttributeAccessIssue]
    if pa.types.is_large_list(wanted) and kind != wanted:  # a view; Arrow's own cast loses its lengths
        missing = array.is_null()
        ends = np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))  # pyright: ignore[reportAttributeAccessIssue]
        offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
        return pa.LargeListArray.from_arrays(offsets, array.flatten(), mask=missing)
    if pa.types.is_decimal(kind) and wanted == pa.float64():
        return array.cast(pa.string()).cast(wanted)  # by way of text it is the nearest number
    return array if kind == wanted else array.cast(wanted)


def is_list(kind: pa.DataType) -> bool:
    """Whether a column has a list in each row."""
    kind = plain_kind(kind)
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has a text in each row."""
    kind = plain_kind(kind)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column has a number in each row."""
    kind = plain_kind(kind)
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def is_picture(kind: pa.DataType) -> bool:
    """Whether a column can hold pictures."""
    if not pa.types.is_struct(kind):
        return _is_bytes(kind)
    names = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
    return set(names) <= {"bytes", "path"} and ("bytes" in names or is_text(names.get("path", pa.null())))


def is_nested(kind: pa.DataType) -> bool:
    """Whether a column has several values in each row."""
    kind = plain_kind(kind)
    return is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_union(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    kind = plain_kind(kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def flags_as_texts(array: pa.Array) -> pa.Array:
    """Booleans as the texts that files of the same table have, False and True."""
    return pa.array(["False", "True"], pa.large_string()).take(array.cast(pa.int8()))


def is_date(kind: pa.DataType) -> bool:
    """Whether a column has a date in each row, with a time of day or without."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def remedy_of(kind: pa.DataType) -> str:
    """What to do about a column of a type that is not taken where it stands."""
    kind = plain_kind(kind)
    if pa.types.is_null(kind):
        return "no row has a value; fill it in or leave the column out"
    if is_date(kind):
        return "count the time in numbers, as days since the first visit, or leave the column out"
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "write it as a number, as hours, or leave the column out"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "decode the bytes to text or numbers, or leave the column out"
    if is_nested(kind):
        return "write each part as a column of its own, or leave the column out"
    return "convert it or leave the column out"


def lists(rows: np.ndarray) -> pa.Array:
    """Rows [n, …] as lists within lists, whose lengths Arrow then knows."""
    array = pa.array(rows.reshape(-1))
    for side in reversed(rows.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, side)
    return array


def _named(kind: Any, test: str) -> bool:
    """Whether a type is one that early versions of pyarrow do not know."""
    known = getattr(pa.types, test, None)
    return known is not None and known(kind)


# A table that is open: its columns are read by their names, some rows at a time, as Arrow arrays.


_ROWS = 1 << 18  # read in one go
_LOOKED_AT = 20  # columns named in a message


def position(row: int) -> str:
    """A row by its number, from 0."""
    return f"position {row}"


@dataclass(frozen=True, kw_only=True)
class RowClasses:
    """What rows are labelled.

    Attributes:
        values: classes, values or attributes of all rows, [rows] or [rows, k].
        names: of the classes 0, 1, …; None where values are no numbers of classes with names.
        groups: of the classes, or None.
        whole: whether a class stays that no row has, as one that was declared does.
        found: what of the domain was found in the records (`data.domain`); None where its dtype says it.
    """

    values: np.ndarray
    names: Sequence[str] | None
    groups: Sequence[str] | None = None
    whole: bool = False
    found: tuple[str, ...] | None = ()

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, Sequence[str] | None, Sequence[str] | None]:
        """Values, names and groups of some rows."""
        values = self.values[rows]
        if self.names is None or self.whole:
            return values, self.names, self.groups
        held, codes = np.unique(values, return_inverse=True)
        names = Strings.from_list(str(self.names[place]) for place in held.tolist())
        return (
            codes,
            names,
            None if self.groups is None else Strings.from_list(str(self.groups[i]) for i in held.tolist()),
        )


@dataclass(frozen=True, kw_only=True)
class Records:
    """Rows that a reader has found, in columns that are read some rows at a time, as often as is needed.

    A reader of a format makes one. Readers do not decode pictures: a cell is their bytes, the path of their file, or
    both as Hugging Face keeps them.

    Attributes:
        title: what messages call it.
        names: of its columns.
        count: how many rows it has; −1 where only reading it shows.
        kind: gives the Arrow type of a column.
        read: gives some columns in blocks of at most so many rows.
        classes: names of the classes of columns that have some, as Hugging Face's do.
        place: what messages call a row.
        texts: the same as `read`, with every cell as the file has it, where that is a file of text or the name of a
            folder; None where all columns have types. Names are read so: a column of 7 and NA is one of two names, and
            no column of numbers.
        metadata: what the file states next to its columns; empty where several files differ.
        parent: the folder that the table lies in; the working directory for one in memory.
        folder: where its pictures are, if it was named; None for `parent`.
        owners: the users in their order, and which of them each row belongs to, int64 [rows]; None where a column says
            it.
        labelled: what rows are labelled, where no column says it.
        files: whether each row is a file, which messages call by its path.
        strays: files that are no rows, with the reason.
        needs: what is missing where no row can be read, and how it should be laid out.
        options: JSON values that must be the same when writing a store goes on after a stop.
        channels: what pictures are converted to where no option says it; None keeps theirs.
    """

    title: str
    names: tuple[str, ...]
    count: int
    kind: Callable[[str], pa.DataType]
    read: Callable[[list[str], int], Iterable[pa.RecordBatch | pa.Table]]
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    place: Callable[[int], str] = position
    texts: Callable[[list[str], int], Iterable[pa.RecordBatch | pa.Table]] | None = None
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    parent: Path = Path()
    folder: Path | None = None
    owners: tuple[Sequence[str], np.ndarray] | None = None
    labelled: RowClasses | None = None
    files: bool = False
    strays: Sequence[tuple[str, str]] = ()
    needs: tuple[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    channels: int | None = None

    def blocks(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, pa.Array]]:
        """Some columns, in blocks of at most `rows` rows, each of the type that `plain_kind` gives.

        Raises:
            InputError: a decimal number is too large.
        """
        for block in self.read(list(dict.fromkeys(columns)), rows):
            yield {name: self._plain(name, block.column(name)) for name in dict.fromkeys(columns)}

    def where(self, row: int) -> str:
        """What messages call a row, with the table."""
        return f"{self.title} {self.place(row)}"

    def located(self, columns: Sequence[str]) -> Iterator[tuple[dict[str, pa.Array], Where]]:
        """Blocks of some columns, each with a function that describes one of its rows."""
        start = 0
        for block in self.blocks(columns, _ROWS):
            yield block, lambda row, first=start: self.where(first + row)
            start += len(block[columns[0]])

    def _plain(self, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Array:
        try:
            return plain(column)
        except pa.ArrowInvalid:
            raise InputError(
                f"{self.title}: the column {name!r} is {column.type} and has a number that {plain_kind(column.type)} "
                "cannot hold; write it as text, or as a floating-point number"
            ) from None

    def names_of(self, column: str, rows: int) -> Iterator[pa.Array]:
        """A column of names, in blocks of at most `rows` rows, as `blocks` gives them."""
        for block in (self.texts or self.read)([column], rows):
            yield self._plain(column, block.column(column))

    def refuse_absent(self, role: str, column: str) -> None:
        """Refuse a column that is not there, or is there twice."""
        refuse_absent(self.title, self.names, role, column)

    @property
    def pictures(self) -> Path:
        """The folder that relative paths of pictures start at."""
        return self.parent if self.folder is None else self.folder

    @property
    def has(self) -> str:
        """The names of the columns."""
        return listed(self.names)


def refuse_absent(title: str, names: Sequence[str], role: str, column: str) -> None:
    """Refuse a column that is not among those of a table, or is there twice.

    Args:
        title: what messages call the table.
        names: of its columns.
        role: what the column is named for.
        column: its name.
    """
    if names.count(column) == 1:
        return
    if column in names:
        raise InputError(f"{title} has the column {column!r} twice; rename one")
    raise InputError(
        f"{title} has no column {column!r} for {role}={column!r}{guess(column, names)}; it has {listed(names)}"
    )


def refuse_missing(
    array: pa.Array, title: str, start: int, each: int = 1, place: Callable[[int], str] = position
) -> None:
    """Refuse a column with a null.

    Args:
        array: its values.
        title: what messages call it.
        start: the number of the first row in the table.
        each: how many values a row has.
        place: what messages call a row.
    """
    if array.null_count:
        row = start + int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // max(each, 1)
        raise InputError(f"{title} is missing (null) at {place(row)}; fill it in or drop the row")


def listed(names: Sequence[str]) -> str:
    """The names of columns, for a message."""
    more = f" and {len(names) - _LOOKED_AT} more" if len(names) > _LOOKED_AT else ""
    return (", ".join(names[:_LOOKED_AT]) or "none") + more


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reads one format.

    Attributes:
        name: what messages call a source of this format.
        recognises: whether a source (a path, or a table in memory) is of it, in view of the options that were given.
        endings: how the names of its files end, in small letters; a file that is named otherwise is not asked about.
            Folders are; None where any name will do.
        read: opens one, as `Records` or, where the format holds arrays, as a data set; `store` and `progress` are among
            the options.
        options: names of the options that are read; any other one that is given is refused.
        parts: whether sources may be divided into train and test.
        names_files: whether rows name all files of a folder that count.
    """

    name: str
    recognises: Callable[[Any, Mapping[str, Any]], bool]
    read: Callable[[Any, Mapping[str, Any]], Any]
    endings: tuple[str, ...] | None = None
    options: frozenset[str] = frozenset()
    parts: bool = False
    names_files: bool = False


def some(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Those of the options that were given."""
    return {name: options[name] for name in names if name in options}


COLUMNS = frozenset({"user", "input", "label", "label_names", "folder", "tokenize"})
PICTURES = frozenset({"size", "channels", "on_error", "keep"})
"""Options of tables, and of what has pictures: `data.gather` reads them for every reader that names them."""
