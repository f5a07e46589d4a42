"""A flat table as numbers for classifiers: its numbers as they are, and a column of 0 and 1 for each common category.

The categories that get a column are the twenty most frequent ones of a reference; the others share none, which a column
of ten thousand categories would drown in. What is missing stays NaN among the numbers, and is −1 among categories, so
that it has a column where it is common.
"""

import numpy as np

from sfumato.audit.ehr.flatten import Flat

_MOST = 20


class Features:
    """The columns that a reference decides.

    Args:
        reference: the table to learn from.
    """

    def __init__(self, reference: Flat) -> None:
        self._kept: list[np.ndarray] = []
        for codes in reference.codes.T:
            found, counts = np.unique(codes, return_counts=True)
            self._kept.append(np.sort(found[np.argsort(-counts, kind="stable")[:_MOST]]))

    def of(self, flat: Flat) -> np.ndarray:
        """Float64 [n, features]; NaN = missing number."""
        hot = [codes[:, None] == kept for codes, kept in zip(flat.codes.T, self._kept, strict=True)]
        return np.concatenate([flat.numbers, *hot], 1, dtype=np.float64)
