"""Tables that are written to a Parquet file piece by piece, so that memory does not grow with them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato._check import InputError
from sfumato._files import write_atomic


def refuse_taken(out: Path) -> None:
    """Refuse a place where a new file cannot be.

    Raises:
        InputError: it exists, or its folder does not.
    """
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
