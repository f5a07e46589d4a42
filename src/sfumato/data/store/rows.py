"""Rows that are computed from records, as a store: written in a stream, taken up after a stop, opened mapped.

The folder is that of every store (`facts.py`), with one column and neither users nor classes. What the rows were
computed from and how is told by `origin`, JSON values that are sealed with it: a store of another origin is refused,
never used, and one that was not finished goes on where it stopped.

Such rows are as private as the records, so the folder is for its owner only.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.data.chunked import ChunkedRows
from sfumato.data.store.arrow import Column
from sfumato.data.store.facts import read_facts
from sfumato.data.store.opened import Opened
from sfumato.data.store.users import INPUTS
from sfumato.data.store.writer import StoreWriter, disk_full

_SAFE_EVERY = 20.0  # seconds between points that a stop goes back to


@dataclass(frozen=True)
class StoredRows:
    """Rows of a finished store.

    Attributes:
        rows: [n, *shape], mapped.
        digest: gives the SHA-256 of all of them; reads them again only where the file looks different.
    """

    rows: ChunkedRows
    digest: Callable[[], str]


def stored_rows(
    path: Path,
    column: tuple[tuple[int, ...], np.dtype],
    count: int,
    origin: dict[str, Any],
    compute: Callable[[int, int], np.ndarray],
    *,
    block: int,
    progress: Callable[[int, int], None] | None = None,
    told: str = "",
    meaning: Mapping[str, str] | None = None,
) -> StoredRows:
    """Open computed rows, or compute and write those that are not there yet.

    Args:
        path: the store's folder.
        column: shape and type of a row.
        count: rows, >= 1.
        origin: what they follow from; JSON.
        compute: gives the rows from one number to another, [stop − start, *shape].
        block: rows computed at once, >= 1: all that is held in memory, beside a batch of the file.
        progress: called with (rows done, rows).
        told: a line on what the rows are, kept in store.json.
        meaning: for each name of `origin`, what it means that it differs.

    Raises:
        InputError: the folder holds something else, rows of another origin or damaged ones; another process writes it;
            or the disk is full.
    """
    if path.exists():
        return _opened(path, origin, meaning or {})
    shape, dtype = column
    writer = StoreWriter(
        path,
        [Column(INPUTS, shape, dtype)],
        users=False,
        class_names=False,
        options=origin,
        private=True,
    )
    try:
        _fill(writer, count, compute, block, progress)
        writer.finish({"notes": [told], "assumptions": []})
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()
    return _opened(path, origin, meaning or {})


def _fill(
    writer: StoreWriter,
    count: int,
    compute: Callable[[int, int], np.ndarray],
    block: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    saved = time.monotonic()
    try:
        while writer.examples < count:
            start = writer.examples
            writer.add(compute(start, min(start + block, count)))
            writer.mark()
            if time.monotonic() - saved > _SAFE_EVERY:
                writer.commit()
                saved = time.monotonic()
            if progress is not None:
                progress(writer.examples, count)
    except BaseException:  # ctrl-C, too: what was computed is not computed again
        writer.commit()
        raise


def _opened(path: Path, origin: dict[str, Any], meaning: Mapping[str, str]) -> StoredRows:
    try:
        found = read_facts(path)["options"]
        if found == origin:
            store = Opened(path)
            store.digest()
            return StoredRows(store.rows(INPUTS), store.digest)
    except InputError as error:
        what = str(error).rpartition(";")[0] or str(error)
        raise InputError(f"{what}; delete {path}, and it is made again") from None
    differ = [name for name, value in origin.items() if found.get(name) != value]
    what = ", ".join(f"{name} {_short(found.get(name))} then, {_short(origin[name])} now" for name in differ)
    means = " and ".join(meaning[name] for name in differ if name in meaning)
    raise InputError(
        f"{path} was made of something else ({what}){means and f': {means}'}; give another folder, or delete this one "
        "and it is made again"
    )


def _short(value: Any) -> str:
    """A digest by its first digits."""
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 12 else f"{value}"
