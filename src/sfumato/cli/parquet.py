"""Tables that are written to a Parquet file piece by piece, so that memory does not grow with them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato._check import InputError
from sfumato._files import write_atomic

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
