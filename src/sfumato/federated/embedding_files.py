"""Files of embeddings: written piece by piece, with the model that made them, and read some rows at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._lazy import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from sfumato.data.records import Records
    from sfumato.runs import RunFolder

# Tables that are written to a Parquet file piece by piece, so that memory does not grow with them.


_OTHERS = frozenset((".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".npz", ".npy", ".arrow", ".feather"))
"""Names of other formats, as which programs would read the file."""


def refuse_taken(out: Path) -> None:
    """Refuse a place where a new Parquet file cannot be.

    Raises:
        InputError: it exists, its folder does not, or its name is that of another format.
    """
    if out.suffix.lower() in _OTHERS:
        raise InputError(
            f"{out} would hold Parquet and no {out.suffix[1:]}; name it {out.with_suffix('.parquet').name} "
            "(pandas, polars and pyarrow read it and write others)"
        )
    if out.exists():
        raise InputError(f"{out} exists; choose another file, or delete it first")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent} for {out.name}; make it first")


def write_tables(out: Path, tables: Iterable[pa.Table], *, private: bool = False) -> int:
    """Write row groups; an error leaves no file.

    Args:
        out: the file.
        tables: one at least.
        private: for its owner's eyes only.

    Returns:
        rows.

    Raises:
        InputError: the disk is full, or the folder cannot be written.
    """
    import pyarrow.parquet as pq

    rows = 0

    def write(path: Path) -> None:
        nonlocal rows
        writer: pq.ParquetWriter | None = None
        try:
            for table in tables:
                writer = writer or pq.ParquetWriter(path, table.schema)
                writer.write_table(table)
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()

    try:
        write_atomic(out, write, private=private)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}; choose another place") from None
    return rows


# Which model made a table of embeddings: stated in the Parquet file's metadata, under the key `sfumato`.
#
# Embeddings of two models have nothing to do with each other, and nothing in the numbers shows it. So the file names
# the released model by its SHA-256, and the size that pictures were brought to.


_KEY = b"sfumato"
_SHOWN = 12  # digits of a digest


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The model that made embeddings.

    Attributes:
        model: SHA-256 of model.safetensors, 64 hexadecimal digits.
        input_shape: height, width and channels that pictures are brought to.
    """

    model: str
    input_shape: tuple[int, ...]

    def metadata(self) -> dict[bytes, bytes]:
        """The entry of the file."""
        return {_KEY: json.dumps({"made_by": asdict(self)}, sort_keys=True).encode()}


def provenance_of_run(folder: RunFolder, about: Mapping[str, Any]) -> Provenance:
    """The model of a run.

    Args:
        folder: of the run.
        about: what its plan.json states about the model, which was built from it.
    """
    with open(folder.model, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Provenance(model=digest, input_shape=tuple(about["input_shape"]))


def read_provenance(metadata: Mapping[bytes, bytes]) -> Provenance | None:
    """The model that a file names; None where it names none."""
    try:
        fields = json.loads(metadata[_KEY])["made_by"]
        model, shape = fields["model"], fields["input_shape"]
        return Provenance(model=str(model), input_shape=tuple(int(side) for side in shape))
    except (KeyError, TypeError, ValueError):
        return None


def refuse_another(
    gallery: tuple[Path, Provenance | None], asker: tuple[Path, Provenance | None], *, remedy: str
) -> str | None:
    """Refuse to compare embeddings of two models.

    Args:
        gallery: the file, and who made it.
        asker: the file or the run of what is looked for, and who made or makes that.
        remedy: what to do about it.

    Returns:
        a warning where one of them does not name its model; None where both do, and it is the same.

    Raises:
        InputError: two models, or one model on pictures of two sizes.
    """
    (path, ours), (other, theirs) = gallery, asker
    if ours is None or theirs is None:
        silent, named = (path, other) if ours is None else (other, path)
        return (
            f"{silent} does not say which model made its embeddings, so it may not be that of {named}; "
            "files of sfumato embed name it"
        )
    if ours.model != theirs.model:
        raise InputError(
            f"{path} was made by the model {ours.model[:_SHOWN]}… and {other} has {theirs.model[:_SHOWN]}… (SHA-256 of "
            f"model.safetensors): embeddings of two models cannot be compared; {remedy}"
        )
    if ours.input_shape != theirs.input_shape:
        raise InputError(
            f"{path} was made of pictures of {_shape(ours)} and {other} has {_shape(theirs)}: such embeddings cannot "
            f"be compared; {remedy}"
        )
    return None


def _shape(made: Provenance) -> str:
    return "×".join(map(str, made.input_shape))


# Tables of embeddings, as `sfumato embed` writes them: read some rows at a time.


USER, INDEX = "user", "index"
ABOUT = (USER, INDEX, "file", "row", "label", "label_name")
"""Columns that describe a row, those that are there; the first has to be."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingTable:
    """A table of embeddings.

    Attributes:
        source: the table.
        column: of embeddings.
        about: of `ABOUT`, the columns that it has.
    """

    source: Records
    column: str
    about: tuple[str, ...]

    @property
    def provenance(self) -> Provenance | None:
        """The model that made it; None where the file names none."""
        return read_provenance(self.source.metadata)

    def vectors(self, rows: int) -> Iterator[np.ndarray]:
        """Unit rows, float32 [n, d], in blocks of at most so many."""
        for _, vectors in self.blocks(rows):
            yield vectors

    def blocks(self, rows: int) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """What rows are, and their embeddings as unit rows, in blocks of at most so many.

        Raises:
            InputError: a value is missing, embeddings have different lengths, or one is not finite or zero.
        """
        from sfumato.metrics.neighbours import directions

        start, dimensions = 0, None
        for block in self.source.blocks([*self.about, self.column], rows):
            vectors = self._matrix(block.pop(self.column), start)
            if dimensions not in (None, vectors.shape[1]):
                raise InputError(
                    f"{self.source.title}: embeddings have {dimensions} and {vectors.shape[1]} dimensions; embed all "
                    "with one model"
                )
            dimensions, first = vectors.shape[1], start
            start += len(vectors)
            yield pa.table(block), directions(vectors, lambda row: f"{self.source.title}: row {first + row}")  # noqa: B023

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
            raise InputError(f"{self.source.title}: row {start + row} has no embedding; leave it out")
        flat = column.flatten()
        if flat.null_count:
            raise InputError(
                f"{self.source.title}: an embedding between rows {start} and {start + len(column)} lacks values"
            )
        width = len(flat) // len(column)
        if not pa.types.is_fixed_size_list(column.type) and (np.diff(column.offsets.to_numpy()) != width).any():
            raise InputError(f"{self.source.title}: embeddings have different lengths; embed all with one model")
        return flat.to_numpy(zero_copy_only=False).reshape(len(column), width)


def open_embeddings(path: Path, column: str) -> EmbeddingTable:
    """Open a table.

    Raises:
        InputError: there is none, it has no rows, or no such columns, or they hold something else.
    """
    from sfumato.data.readers.tables import is_table_file, open_source

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
