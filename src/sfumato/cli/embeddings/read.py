"""Tables of embeddings, as `sfumato embed` writes them: read some rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.cli.embeddings.made_by import MadeBy, made_by_told
from sfumato.data.tables.open import is_table_file, open_source
from sfumato.data.tables.source import Source
from sfumato.metrics.nearest import directions

USER, INDEX = "user", "index"
ABOUT = (USER, INDEX, "file", "row", "label", "label_name")
"""Columns that say what a row is, those that are there; the first has to be."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingTable:
    """A table of embeddings.

    Attributes:
        source: the table.
        column: of embeddings.
        about: of `ABOUT`, the columns that it has.
    """

    source: Source
    column: str
    about: tuple[str, ...]

    @property
    def made_by(self) -> MadeBy | None:
        """The model that made it; None where the file names none."""
        return made_by_told(self.source.metadata)

    def vectors(self, rows: int) -> Iterator[np.ndarray]:
        """Unit rows, float32 [n, d], in blocks of at most so many."""
        for _, vectors in self.blocks(rows):
            yield vectors

    def blocks(self, rows: int) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """What rows are, and their embeddings as unit rows, in blocks of at most so many.

        Raises:
            InputError: a value is missing, embeddings have different lengths, or one is not finite or zero.
        """
        start, dimensions = 0, None
        for block in self.source.blocks([*self.about, self.column], rows):
            vectors = self._matrix(block.pop(self.column), start)
            if dimensions not in (None, vectors.shape[1]):
                raise InputError(
                    f"{self.source.told}: embeddings have {dimensions} and {vectors.shape[1]} dimensions; embed all "
                    "with one model"
                )
            dimensions, first = vectors.shape[1], start
            start += len(vectors)
            yield pa.table(block), directions(vectors, lambda row: f"{self.source.told}: row {first + row}")  # noqa: B023

    def taken(self, places: np.ndarray, rows: int) -> pa.Table:
        """What these rows are, in this order; any of them may come several times."""
        wanted, back = np.unique(places, return_inverse=True)
        parts, start = [], 0
        for block in self.source.blocks(self.about, rows):
            table = pa.table(block)
            low, high = np.searchsorted(wanted, [start, start + len(table)])
            parts.append(table.take(pa.array(wanted[low:high] - start)))
            start += len(table)
        return pa.concat_tables(parts).take(pa.array(back.reshape(-1)))

    def _matrix(self, column: pa.Array, start: int) -> np.ndarray:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(f"{self.source.told}: row {start + row} has no embedding; leave it out")
        flat = column.flatten()
        if flat.null_count:
            raise InputError(
                f"{self.source.told}: an embedding between rows {start} and {start + len(column)} lacks values"
            )
        width = len(flat) // len(column)
        if not pa.types.is_fixed_size_list(column.type) and (np.diff(column.offsets.to_numpy()) != width).any():
            raise InputError(f"{self.source.told}: embeddings have different lengths; embed all with one model")
        return flat.to_numpy(zero_copy_only=False).reshape(len(column), width)


def open_embeddings(path: Path, column: str) -> EmbeddingTable:
    """Open a table.

    Raises:
        InputError: there is none, it has no rows, or no such columns, or they hold something else.
    """
    if not is_table_file(path):
        raise InputError(f"{path} is no table of embeddings; give a Parquet file, as sfumato embed writes")
    source = open_source(path)
    source.refuse_absent("embeddings", column)
    source.refuse_absent("user", USER)
    kind = source.kind(column)
    listed = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not listed or not pa.types.is_floating(kind.value_type):
        raise InputError(f"{path}: the column {column} holds {kind}, not lists of numbers; name another with --column")
    if not source.count:
        raise InputError(f"{path} has no rows; embed some records first")
    return EmbeddingTable(source=source, column=column, about=tuple(name for name in ABOUT if name in source.names))
