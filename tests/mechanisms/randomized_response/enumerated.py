"""What a table of weights costs, by enumeration in whole numbers."""

from fractions import Fraction

import numpy as np

from sfumato.labels.response import WORDS, most_ratio


def require_within(weights: np.ndarray, epsilon: float) -> None:
    """Rows are all of the 2^64 words, and no report is likelier by more than e^epsilon for one label than another."""
    for row in weights.tolist():
        assert sum(row) == WORDS
        assert min(row) >= 0
    for column in weights.T.tolist():
        assert max(column) <= most_ratio(epsilon) * min(column)


def largest_ratio(weights: np.ndarray) -> Fraction:
    """The largest ratio of two labels' weights for one report; reports that nobody makes do not count."""
    columns = [column for column in weights.T.tolist() if any(column)]
    return max(Fraction(max(column), min(column)) for column in columns)
