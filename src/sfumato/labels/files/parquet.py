"""Parquet files: rows in blocks, other columns, types and metadata as they were."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato._check import InputError
from sfumato.data.readers.parquet_folder import PARQUET
from sfumato.data.tables.kinds import is_nested, plain, plain_kind
from sfumato.data.tables.source import refuse_absent
from sfumato.labels.files.label_file import Cells, Exchange, refuse_nested

_ROWS = 1 << 16


class ParquetLabels:
    """A Parquet file.

    Args:
        path: of it.

    Raises:
        InputError: it cannot be read.
    """

    suffixes: tuple[str, ...] = PARQUET

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                self._schema = file.schema_arrow
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from None

    def kind(self, column: str) -> pa.DataType:
        refuse_absent(str(self.path), self._schema.names, "column", column)
        kind = self._schema.field(column).type
        refuse_nested(self.path, column, kind)
        return plain_kind(kind)

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        for batch in self._batches(columns):
            yield {name: plain(batch.column(name)) for name in columns}

    def flat(self) -> Iterator[Cells]:
        names = [field.name for field in self._schema if not is_nested(field.type)]
        for batch in self._batches(names):
            yield {name: plain(batch.column(name)) for name in names}

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        batches = self._exchanged(columns, label, exchange)
        if order is not None:
            table = pa.Table.from_batches(batches)
            batches = (
                batch
                for start in range(0, len(order), _ROWS)
                for batch in table.take(pa.array(order[start : start + _ROWS])).to_batches()
            )
        writer: pq.ParquetWriter | None = None
        try:
            for batch in batches:
                writer = writer or pq.ParquetWriter(out, batch.schema)
                writer.write_batch(batch)
        finally:
            if writer is not None:
                writer.close()

    def _exchanged(self, columns: list[str], label: str, exchange: Exchange) -> Iterator[pa.RecordBatch]:
        place = self._schema.get_field_index(label)
        field = self._schema.field(place)
        for batch in self._batches(None):
            column = exchange({name: plain(batch.column(name)) for name in columns})
            kind = pa.float64() if pa.types.is_float64(column.type) else _written(field.type, column.type)
            schema = self._schema.set(place, field.with_type(kind))
            arrays = [*batch.columns[:place], _typed(column, kind), *batch.columns[place + 1 :]]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.path) as file:
                for group in range(file.num_row_groups):  # all at once, Arrow keeps what it has read of the file
                    yield from file.iter_batches(_ROWS, row_groups=[group], columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self.path} cannot be read as Parquet: {' '.join(str(error).split())[:300]}")


def _written(kind: pa.DataType, read: pa.DataType) -> pa.DataType:
    """The label's type in the file; where it is read as text that does not go back (identifiers in binary), text."""
    binary = pa.types.is_fixed_size_binary(getattr(kind, "storage_type", kind))
    return read if binary and not pa.types.is_decimal(kind) else kind


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    coded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.cast(kind.index_type), coded.dictionary.cast(kind.value_type))
