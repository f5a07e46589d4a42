"""A digest of all records, so that a run cannot go on with other ones under the same noise.

Nothing is sampled: two runs that add the same noise to different sums give the difference away. Arrays, in memory or
mapped, are read as a whole once a run and hashed by SHA-256, block by block on several threads, in memory that does not
grow with them.

>>> rows = np.arange(6.0).reshape(3, 2)
>>> [digest_of("facts", other) == digest_of("facts", rows) for other in (rows.copy(), rows + 1, rows[::-1])]
[True, False, False]
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

_BLOCK = 1 << 22  # bytes that a thread reads and hashes in one go
_THREADS = 8


def digest_of(facts: object, *columns: Any) -> str:
    """SHA-256 over facts and over every row of every column, in hexadecimal.

    Args:
        facts: what a change of must show, too; its repr counts.
        columns: rows [n, …], arrays or what gives the rows of a slice, from several threads at a time.
    """
    total = hashlib.sha256(repr((facts, [(tuple(rows.shape), str(rows.dtype)) for rows in columns])).encode())
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for digest in pool.map(_block_digest, _blocks(columns)):
            total.update(digest)
    return total.hexdigest()


def row_digest(row: np.ndarray) -> bytes:
    """SHA-256 of one row, 32 bytes."""
    little = np.ascontiguousarray(row, row.dtype.newbyteorder("<")).reshape(-1)
    return hashlib.sha256(little.view(np.uint8).data).digest()


def _blocks(columns: tuple[Any, ...]) -> Iterator[tuple[Any, slice]]:
    for rows in columns:
        each = int(np.prod(rows.shape[1:])) * rows.dtype.itemsize
        step = max(1, _BLOCK // max(each, 1))
        for start in range(0, rows.shape[0], step):
            yield rows, slice(start, start + step)


def _block_digest(block: tuple[Any, slice]) -> bytes:
    rows, places = block
    return row_digest(np.asarray(rows[places]))
