"""Arrow files of a store: columns of fixed width in batches of equally many rows, written in a stream and read mapped.

Each file is an Arrow IPC stream (schema, batches, end) with the footer of the IPC file format behind it, so that
readers of either find what they look for: `datasets.Dataset.from_file` and `pyarrow.ipc.open_stream` read from the
front, `polars.scan_ipc` and `pyarrow.ipc.open_file` from the end. Values of a column of fixed width lie as NumPy has
them, and every whole batch is equally long, so a row's place follows from its number.

>>> columns = (Column("target", (), np.dtype("<i8")), Column("inputs", (2, 2), np.dtype("<f4")))
>>> [str(field.type) for field in schema_of(columns)]
['int64', 'fixed_size_list<item: fixed_size_list<item: float not null>[2] not null>[2]']
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.data.mapped import ChunkedRows, Strings

_BATCH = 1 << 21  # bytes of a batch, about
_MOST_ROWS = 1 << 16
_MAGIC = b"ARROW1\0\0"  # begins a file in the format with a footer, and has no place before a stream
_DAMAGES = (pa.ArrowException, OSError, EOFError, ValueError, MemoryError, StopIteration)
_BLOCK = np.dtype({"names": ["at", "header", "body"], "formats": ["<i8", "<i4", "<i8"], "offsets": [0, 8, 16]})


@dataclass(frozen=True)
class Column:
    """A column of fixed width.

    Attributes:
        name: as other programs see it.
        shape: of one row.
        dtype: little-endian.

    Raises:
        InputError: the type is none that Arrow has.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def __post_init__(self) -> None:
        if self.dtype.kind not in "biuf" or self.dtype.itemsize > 8:
            raise InputError(f"{self.name} must be numbers of at most 64 bits, got {self.dtype}; cast them to float32")

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def stored(self) -> np.dtype:
        """The type on the disk: truth values are bytes, for Arrow's own are bits."""
        return np.dtype(np.uint8) if self.dtype.kind == "b" else self.dtype.newbyteorder("<")


def batch_rows(columns: Sequence[Column]) -> int:
    """Rows of a whole batch: a power of two, so that a row is found by shifting its number."""
    most = min(max(_BATCH // max(sum(column.row_bytes for column in columns), 1), 1), _MOST_ROWS)
    return 1 << (most.bit_length() - 1)


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The columns as Arrow names them: pictures are lists of lists, each of a fixed size."""
    fields = []
    for column in columns:
        kind = pa.from_numpy_dtype(column.stored)
        for side in reversed(column.shape):
            kind = pa.list_(pa.field("item", kind, nullable=False), side)
        fields.append(pa.field(column.name, kind, nullable=False))
    return pa.schema(fields)


def batch_of(schema: pa.Schema, arrays: Sequence[np.ndarray]) -> pa.RecordBatch:
    """A batch over the memory of the arrays, one a column, [rows, *shape]."""
    made = [_array(field.type, len(array), array) for field, array in zip(schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _array(kind: pa.DataType, rows: int, values: np.ndarray) -> pa.Array:
    if not pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(np.ascontiguousarray(values).reshape(-1))])
    inner = _array(kind.value_type, rows * kind.list_size, values)
    return pa.Array.from_buffers(kind, rows, [None], children=[inner])


def ending(schema: pa.Schema, batches: Sequence[tuple[int, int, int]]) -> bytes:
    """What stands behind the batches: the end of the stream, and the footer that says where each batch is.

    Args:
        schema: of the file.
        batches: where each begins, the length of its header, and that of its body.
    """
    empty = pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for _ in batches:
            writer.write_batch(empty)
        start = sink.tell()
    tail = bytearray(sink.getvalue()[start:])
    # The footer that Arrow wrote is of batches without rows; the true places are written over theirs.
    written, true = np.zeros(len(batches), _BLOCK), np.zeros(len(batches), _BLOCK)
    header, body = lengths(empty.serialize())
    first = len(_MAGIC) + len(schema.serialize())
    written["at"], written["header"], written["body"] = first + np.arange(len(batches)) * (header + body), header, body
    true["at"], true["header"], true["body"] = np.array(batches, np.int64).T
    place = tail.index(written.tobytes())
    tail[place : place + written.nbytes] = true.tobytes()
    return bytes(tail)


def lengths(message: pa.Buffer) -> tuple[int, int]:
    """The bytes of a message's header and of its body."""
    body = pa.ipc.read_message(message).body.size
    return len(message) - body, body


class Frame:
    """Where columns lie in a mapped file of batches of equally many rows.

    Args:
        path: the file.
        columns: what it should hold.
        rows: how many rows.
        mode: "r", or "r+" to change values in place.

    Raises:
        InputError: it is no such file.
    """

    def __init__(self, path: Path, columns: Sequence[Column], rows: int, mode: Literal["r", "r+"] = "r") -> None:
        self.content = np.memmap(path, np.uint8, mode)
        self._columns, self._rows = columns, rows
        self._batches, self._rest = divmod(rows, batch_rows(columns))
        source = pa.BufferReader(pa.py_buffer(self.content))
        try:
            schema = pa.ipc.read_schema(pa.ipc.read_message(source))
            if not schema.equals(schema_of(columns)):
                found = ", ".join(f"{field.name}: {field.type}" for field in schema)
                raise ValueError(f"its columns are {found}")
            self._first = source.tell()
            self._whole = self._places(source, schema, batch_rows(columns)) if self._batches else []
            self._step = source.tell() - self._first
            self._last = self._first + self._batches * self._step
            source.seek(self._last)
            self._short = self._places(source, schema, self._rest) if self._rest else []
            self._end = source.tell()
        except _DAMAGES as error:
            said = " ".join(str(error).split())[:300]
            raise InputError(f"{path} is not the Arrow file of a store: {said}; pack it again") from None

    @property
    def pieces(self) -> np.ndarray:
        """Where each of its parts ends: schema, batches, ending; int64."""
        whole = self._first + np.arange(self._batches + 1) * self._step
        return np.unique([*whole, self._end, len(self.content)])

    def rows(self, name: str) -> ChunkedRows:
        """One column."""
        place = [column.name for column in self._columns].index(name)
        column = self._columns[place]
        shape, size = column.shape, batch_rows(self._columns)
        first = self._first + self._whole[place] if self._batches else 0
        last = self._last + self._short[place] if self._rest else 0
        inner = np.empty((1, *shape), column.stored).strides
        whole = np.ndarray((self._batches, size, *shape), column.stored, self.content, first, (self._step, *inner))
        rest = np.ndarray((self._rest, *shape), column.stored, self.content, last)
        return ChunkedRows(whole.view(column.dtype), rest.view(column.dtype))

    def _places(self, source: pa.BufferReader, schema: pa.Schema, rows: int) -> list[int]:
        """Where in the batch that comes next each column's values begin."""
        start = source.tell()
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(source), schema)
        if batch.num_rows != rows:
            raise ValueError(f"it has a batch of {batch.num_rows:,} rows, should have {rows:,}")
        places = []
        for column, array in zip(self._columns, batch.columns, strict=True):
            values, wanted = array.buffers()[-1], rows * column.row_bytes
            if not wanted:
                places.append(0)
                continue
            place = -1 if values is None else values.address - self.content.ctypes.data
            if values is None or values.size < wanted or not start <= place <= len(self.content) - wanted:
                raise ValueError(f"{column.name} has fewer than {wanted:,} bytes, or they are not in the file")
            places.append(place - start)
        return places


def write_table(path: Path, columns: Mapping[str, np.ndarray | Strings]) -> None:
    """Write a small table as a file of one batch; text that is not UTF-8, as names of files may be, becomes bytes.

    Raises:
        OSError: it cannot be written.
    """
    arrays = [_texts(each) if isinstance(each, Strings) else _numbers(each) for each in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def write(temporary: Path) -> None:
        with open(temporary, "w+b") as file:
            with pa.ipc.new_stream(pa.PythonFile(file, "w"), batch.schema) as writer:
                writer.write_batch(batch)
                file.flush()
            source = pa.BufferReader(pa.py_buffer(np.memmap(temporary, np.uint8, "r")))
            pa.ipc.read_message(source)
            first, body = source.tell(), pa.ipc.read_message(source).body.size
            file.seek(source.tell())
            file.write(ending(batch.schema, [(first, source.tell() - body - first, body)]))

    write_atomic(path, write)


def read_table(path: Path, rows: int) -> dict[str, np.ndarray | Strings]:
    """Open a table that `write_table` wrote, mapped.

    Raises:
        InputError: it is no such table.
    """
    try:
        source = pa.BufferReader(pa.py_buffer(np.memmap(path, np.uint8, "r")))
        batch = pa.ipc.open_stream(source).read_next_batch()
        if batch.num_rows != rows:
            raise ValueError(f"it has {batch.num_rows:,} rows, should have {rows:,}")
        batch.validate()
        return {name: _values(batch.column(name)) for name in batch.schema.names}
    except _DAMAGES as error:
        said = " ".join(str(error).split())[:300]
        raise InputError(f"{path} is not the Arrow table of a store: {said}; pack it again") from None


def _texts(strings: Strings) -> pa.Array:
    content, offsets = strings.arrays
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(content))]
    texts = pa.Array.from_buffers(pa.large_string(), len(strings), buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.Array.from_buffers(pa.large_binary(), len(strings), buffers)
    return texts


def _numbers(values: np.ndarray) -> pa.Array:
    return _array(pa.int64(), len(values), values.astype(np.int64, copy=False))


def _values(array: pa.Array) -> np.ndarray | Strings:
    if not pa.types.is_large_string(array.type) and not pa.types.is_large_binary(array.type):
        return np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype(), len(array))
    _, offsets, content = array.buffers()
    held = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return Strings(held, np.frombuffer(offsets, np.int64, len(array) + 1))


# An append-only file with a buffer, whose length can be set back: what a writer that may be killed writes to.


_BUFFER = 1 << 20  # bytes kept per file before they are written


class Stream:
    """The file at `path`, made if it is not there; `length` counts what was written, flushed or not."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        self._waiting = bytearray()
        self.length = 0

    def resume(self, length: int) -> bool:
        """Cut the file to a length; False if it is shorter than that."""
        if os.fstat(self._handle).st_size < length:
            return False
        os.ftruncate(self._handle, length)
        os.lseek(self._handle, length, os.SEEK_SET)
        self.length = length
        return True

    def write(self, content: bytes | memoryview) -> None:
        self._waiting += content
        self.length += len(content)
        if len(self._waiting) >= _BUFFER:
            self._drain()

    def flush(self) -> None:
        """Put what was written safely on the disk."""
        self._drain()
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)

    def _drain(self) -> None:
        while self._waiting:  # what could not be written stays, so that a failed flush can never look like a good one
            del self._waiting[: os.write(self._handle, self._waiting)]
