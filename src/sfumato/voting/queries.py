"""Which examples of the public pool are asked about: chosen from what is public, so the choice costs nothing.

>>> pool = np.array([[0.0], [0.0], [1.0], [5.0]])
>>> choose(pool, 3, "random", seed=0).tolist()          # the second one is the first again
[0, 2, 3]
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from sklearn.cluster import kmeans_plusplus

from sfumato._check import InputError, one_of, whole
from sfumato._random import RandomSource

Selection = Literal["random", "diverse"]
"""How queries are chosen: uniformly, or far from each other (the seeding of k-means++)."""

_BLOCK = 1 << 12


def choose(rows: Any, count: int, selection: Selection, seed: int) -> np.ndarray:
    """Positions of the queries.

    Args:
        rows: the pool as a data set stores it, [n, …].
        count: how many, >= 1.
        selection: see `Selection`.
        seed: public.

    Returns:
        int64 [count], ascending; no two of them are the same example.

    Raises:
        InputError: the pool has fewer different examples.
    """
    one_of(get_args(Selection), selection=selection)
    whole(queries=count)
    different, size = _different(rows), int(rows.shape[0])
    if len(different) < count:
        copies = size - len(different)
        what = f"{len(different)} different examples ({copies} are copies)" if copies else f"{size} examples"
        raise InputError(
            f"the public pool has {what}, and {count} queries were asked for; ask fewer, or give a larger pool"
        )
    stream = RandomSource.from_seed(seed).stream("queries")
    if selection == "random":
        taken = stream.permutation(len(different))[:count]
    else:
        flat = np.concatenate(
            [
                np.asarray(rows[different[start : start + _BLOCK]], np.float32).reshape(-1, _width(rows))
                for start in range(0, len(different), _BLOCK)
            ]
        )
        _, taken = kmeans_plusplus(flat, count, random_state=int(stream.uint64(1)[0] >> 32))
        taken = np.unique(taken)
        rest = np.setdiff1d(np.arange(len(different)), taken)[: count - len(taken)]
        taken = np.concatenate([taken, rest])
    return np.sort(different[taken])


def refuse_duplicates(positions: Sequence[int] | np.ndarray, pool: int) -> np.ndarray:
    """Queries that were given, int64 [queries].

    Raises:
        InputError: one of them is asked twice, which costs twice and tells the same, or is not in the pool.
    """
    places = np.asarray(positions)
    if places.ndim != 1 or not len(places) or places.dtype.kind not in "iu":
        raise InputError(f"queries must be a number of them or a list of positions in the pool, got {positions!r:.80}")
    outside = (places < 0) | (places >= pool)
    if outside.any():
        raise InputError(f"a query must be a position 0 … {pool - 1} of the pool, got {int(places[outside][0])}")
    values, counts = np.unique(places, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"query {int(values[counts > 1][0])} is asked twice, and would be paid for twice; ask it once")
    return places.astype(np.int64)


def _width(rows: Any) -> int:
    return int(np.prod(rows.shape[1:], dtype=np.int64))


def _different(rows: Any) -> np.ndarray:
    """Positions of the first of each example, int64 [different]."""
    seen: dict[bytes, int] = {}
    size = int(rows.shape[0])  # rows that are read on demand have no len()
    for start in range(0, size, _BLOCK):
        block = np.ascontiguousarray(rows[np.arange(start, min(start + _BLOCK, size))])
        for place, row in enumerate(block, start):
            seen.setdefault(hashlib.blake2b(row.tobytes(), digest_size=16).digest(), place)
    return np.fromiter(seen.values(), np.int64, len(seen))
