"""The rows of a gallery most similar to some others by the cosine, the gallery block by block.

Memory grows with the largest block and with the queries, not with the gallery. Each block is searched by scikit-learn;
the similarities that are returned are computed anew, as products of unit rows.

>>> gallery = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
>>> rows, similarities = nearest(np.array([[2.0, 0.0]]), [gallery[:2], gallery[2:]], count=2)
>>> rows.tolist(), [f"{value:.3f}" for value in similarities[0]]
([[0, 2]], ['1.000', '0.949'])
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from sfumato._check import InputError, whole

_QUERIES_AT_ONCE = 1024  # compared with a block: their neighbours' rows are in memory


def nearest(queries: np.ndarray, gallery: Iterable[np.ndarray], *, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Most similar first; of equals the one that comes first in the gallery.

    Args:
        queries: float [queries, d], of any length but 0.
        gallery: blocks float [rows, d], the same.
        count: of neighbours, >= 1; where the gallery has fewer rows, all of them.

    Returns:
        places in the gallery, int64 [queries, count], and cosine similarities in [-1, 1], float32 [queries, count].

    Raises:
        InputError: dimensions differ, or a row is not finite or is zero.
    """
    whole(count=count)
    asked = directions(queries, lambda row: f"queries: row {row}")
    return nearest_directions(asked, _unit_blocks(gallery), count=count)


def nearest_directions(
    asked: np.ndarray, gallery: Iterable[np.ndarray], *, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest`, for rows that are of length 1 already: nothing is computed of them twice.

    The gallery is gone through once, whatever the number of queries; what is kept meanwhile is `count` rows a query.

    Args:
        asked: the queries, float32 [queries, d].
        gallery: blocks float32 [rows, d].
        count: of neighbours, >= 1.

    Returns:
        as `nearest`.

    Raises:
        InputError: dimensions differ.
    """
    from sklearn.neighbors import NearestNeighbors  # late: half a second

    places = np.empty((len(asked), 0), np.int64)
    similar = np.empty((len(asked), 0), np.float32)
    start = 0
    for rows in gallery:
        first = start
        start += len(rows)
        if not len(rows) or not len(asked):
            continue
        if rows.shape[1] != asked.shape[1]:
            raise InputError(
                f"queries have {asked.shape[1]} dimensions and the gallery {rows.shape[1]}; embed both with one model"
            )
        # Of unit rows the Euclidean order is that of the cosine, and scikit-learn finds it in little memory.
        found = NearestNeighbors(n_neighbors=min(count, len(rows)), algorithm="brute").fit(rows)
        kept = min(count, places.shape[1] + found.n_neighbors)
        held, places = places, np.empty((len(asked), kept), np.int64)
        value, similar = similar, np.empty((len(asked), kept), np.float32)
        for some in (slice(at, at + _QUERIES_AT_ONCE) for at in range(0, len(asked), _QUERIES_AT_ONCE)):
            near = found.kneighbors(asked[some], return_distance=False)
            cosine = np.clip(np.einsum("qd,qnd->qn", asked[some], rows[near]), -1, 1)
            each = np.concatenate([held[some], near + first], axis=1), np.concatenate([value[some], cosine], axis=1)
            best = np.lexsort((each[0], -each[1]), axis=1)[:, :kept]
            places[some], similar[some] = (np.take_along_axis(part, best, axis=1) for part in each)
    return places, similar


def _unit_blocks(gallery: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    start = 0
    for block in gallery:
        first = start
        yield directions(block, lambda row: f"gallery: row {first + row}")  # noqa: B023 - called before the next block
        start += len(block)


def directions(vectors: np.ndarray, label: Callable[[int], str]) -> np.ndarray:
    """Rows of length 1, float32 [n, d].

    Args:
        vectors: float [n, d].
        label: what messages call a row, by its number.

    Raises:
        InputError: a row is not finite or is zero.
    """
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise InputError(f"embeddings must be a float array [rows, dimensions], got {vectors.dtype} {vectors.shape}")
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0).astype(np.float64)
    if not np.isfinite(largest).all():
        row = int(np.flatnonzero(~np.isfinite(largest[:, 0]))[0])
        raise InputError(f"{label(row)} is not finite; leave it out, or embed it anew")
    if not (largest > 0).all():
        row = int(np.flatnonzero(largest[:, 0] == 0)[0])
        raise InputError(f"{label(row)} is zero and has no direction; leave it out")
    scaled = vectors / largest  # so that squares neither overflow nor vanish
    return (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype(np.float32)
