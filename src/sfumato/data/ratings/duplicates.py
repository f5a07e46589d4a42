"""What becomes of a user's values of one and the same item: one of them, or none.

>>> users, items, values = np.array([0, 0, 0]), np.array([5, 7, 5]), np.array([1, 2, 4], np.float32)
>>> pairs = repeated(users, items, 8)
>>> kept, values = merged(pairs, values, "mean")
>>> kept.tolist(), values.tolist()
([False, True, True], [1.0, 2.0, 2.5])
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Duplicates = Literal["refuse", "last", "mean"]


@dataclass(frozen=True)
class Repeated:
    """Rows by their pair of user and item.

    Attributes:
        order: int64 [rows], rows of one pair side by side, in their order.
        first: bool [rows], whether a row of that order is the first of its pair.
    """

    order: np.ndarray
    first: np.ndarray

    @property
    def count(self) -> int:
        """Rows that are not the first of their pair."""
        return int((~self.first).sum())

    def example(self) -> tuple[int, int]:
        """A row whose pair was there before, and the row that had it."""
        again = int((~self.first).argmax())
        return int(self.order[again - 1]), int(self.order[again])


def repeated(users: np.ndarray, items: np.ndarray, count: int) -> Repeated | None:
    """The rows by pair, or None where no pair is there twice.

    Args:
        users: [rows], numbers from 0.
        items: [rows], 0 … count − 1.
        count: of items.
    """
    pairs = users.astype(np.int64) * count + items
    pairs.sort()
    if not (pairs[1:] == pairs[:-1]).any():
        return None
    pairs = users.astype(np.int64) * count + items
    order = np.argsort(pairs, kind="stable")
    held = pairs[order]
    return Repeated(order, np.concatenate([[True], held[1:] != held[:-1]]))


def merged(pairs: Repeated, values: np.ndarray, how: Duplicates) -> tuple[np.ndarray, np.ndarray]:
    """One row for each pair: the last.

    Args:
        pairs: rows by pair.
        values: float32 [rows].
        how: whether it keeps its value ("last") or gets the mean of all.

    Returns:
        which rows are kept, bool [rows], and values [rows].
    """
    starts = np.flatnonzero(pairs.first)
    ends = np.append(starts[1:], len(values))
    last = pairs.order[ends - 1]
    kept = np.zeros(len(values), bool)
    kept[last] = True
    if how == "mean":
        sums = np.add.reduceat(values[pairs.order].astype(np.float64), starts)
        values = values.copy()
        values[last] = sums / (ends - starts)
    return kept, values
