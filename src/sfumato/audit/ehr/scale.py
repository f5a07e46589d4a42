"""The one distance between patients of a flat table, in which numbers, categories and what is missing count alike.

A number is its rank among the values of a reference (mean rank of ties, divided by their count: in [0, 1], whatever
its unit and its outliers). The squared distance of two rows is the sum, over all columns, of

- the squared difference of the two ranks, where a missing number has the rank ½;
- 1 where a number is missing in one of the two and not in the other;
- 1 where two categories differ; missing is a category of its own.

The last is what one-hot vectors of length 1/√2 give, without ever having them in memory. The reference is to hold those
alike that an attack compares, members and outsiders, or the scale would tell them apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfumato.audit.ehr.flatten import Flat

_BLOCK = 1 << 22  # distances at once
_DECIMALS = 9  # of a squared distance: what is below is rounding, and copies are at 0


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows on the scale.

    Attributes:
        numbers: float64 [n, 2p]: ranks, and then 1 where a number is missing.
        codes: int32 [n, q].
    """

    numbers: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        """Rows."""
        return len(self.numbers)

    def take(self, rows: np.ndarray) -> "Placed":
        """These rows."""
        return Placed(self.numbers[rows], self.codes[rows])


class Scale:
    """Ranks among the values of a reference.

    Args:
        reference: its rows decide the ranks.
    """

    def __init__(self, reference: Flat) -> None:
        self._sorted = [np.sort(column[~np.isnan(column)]) for column in reference.numbers.T]

    def place(self, flat: Flat) -> Placed:
        """Rows of a table with the columns of the reference, on its scale."""
        missing = np.isnan(flat.numbers)
        ranks = np.full(flat.numbers.shape, 0.5)
        for place, known in enumerate(self._sorted):
            there = ~missing[:, place]
            if len(known):
                values = flat.numbers[there, place]
                below, up_to = (np.searchsorted(known, values, side) for side in ("left", "right"))
                ranks[there, place] = (below + up_to) / (2 * len(known))
        return Placed(np.concatenate([ranks, missing], 1), flat.codes)


def squared_distances(queries: Placed, records: Placed) -> Iterator[tuple[slice, np.ndarray]]:
    """Of each block of queries its place and float64 [queries in it, records]."""
    squares = (records.numbers**2).sum(1)
    step = max(1, _BLOCK // max(len(records), 1))
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        numbers = queries.numbers[rows]
        found = (numbers**2).sum(1)[:, None] + squares - 2 * (numbers @ records.numbers.T)
        for mine, theirs in zip(queries.codes[rows].T, records.codes.T, strict=True):
            found += mine[:, None] != theirs
        yield rows, np.round(np.maximum(found, 0.0, out=found), _DECIMALS, out=found)


def nearest_distances(queries: Placed, records: Placed) -> np.ndarray:
    """Squared distance of each query to the record next to it, float64 [queries]."""
    found = np.empty(len(queries))
    for rows, distances in squared_distances(queries, records):
        found[rows] = distances.min(1)
    return found
