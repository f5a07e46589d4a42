"""Parquet files: rows in blocks, other columns, types and metadata as they were."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato._check import InputError
from sfumato.data.tables.open import PARQUET
from sfumato.data.tables.source import plain, refuse_absent
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
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        kind = pa.large_string() if str(kind) == "string_view" else kind
        refuse_nested(self.path, column, kind)
        return kind

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        for batch in self._batches(columns):
            yield {name: plain(batch.column(name)) for name in columns}

    def copy(self, out: Path, columns: list[str], label: str, exchange: Exchange) -> None:
        place = self._schema.get_field_index(label)
        field = self._schema.field(place)
        writer: pq.ParquetWriter | None = None
        try:
            for batch in self._batches(None):
                column = exchange({name: plain(batch.column(name)) for name in columns})
                kind = pa.float64() if pa.types.is_float64(column.type) else field.type
                field = field.with_type(kind)
                schema = self._schema.set(place, field)
                writer = writer or pq.ParquetWriter(out, schema)
                arrays = [*batch.columns[:place], _typed(column, kind), *batch.columns[place + 1 :]]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        finally:
            if writer is not None:
                writer.close()

    def _batches(self, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(self.path) as file:
                for group in range(file.num_row_groups):  # all at once, Arrow keeps what it has read of the file
                    yield from file.iter_batches(_ROWS, row_groups=[group], columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> InputError:
        return InputError(f"{self.path} cannot be read as Parquet: {' '.join(str(error).split())[:300]}")


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    coded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.cast(kind.index_type), coded.dictionary.cast(kind.value_type))
