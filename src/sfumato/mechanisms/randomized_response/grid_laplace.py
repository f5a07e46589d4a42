"""Laplace noise for the labels of a regression, on a public grid: rounded, moved into the range, and exact.

A label is one of n evenly spaced values. Discrete Laplace noise of rate epsilon / (n - 1) is added to its place, since
a replaced label moves it by n - 1 at most, and what falls outside is reported as the nearest end. That is one table of
probabilities, which is turned into whole numbers of 64-bit words. Where rounding would make the ratio of two of a
report's weights exceed e^epsilon, the smaller one is raised, at the cost of the true report's; the table is then
checked.

- **Event.** `PureDP(epsilon, "replace")` for one label.

>>> response = GridLaplace(epsilon=1.0, low=0.0, high=4.0, count=5)
>>> (response.weights()[0] / 2.0**64).astype(float).round(3).tolist()
[0.562, 0.097, 0.075, 0.059, 0.207]
"""

import functools
from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import PureDP
from sfumato.mechanisms.randomized_response.bins import MOST_VALUES
from sfumato.mechanisms.randomized_response.response import require_labels
from sfumato.mechanisms.randomized_response.words import WORDS, most_ratio, require_epsilon


@dataclass(frozen=True, kw_only=True)
class GridLaplace:
    """The response to a number.

    Attributes:
        epsilon: of one label, in [1e-6, 40]; beyond, 64 bits do not hold the tails.
        low, high: the range.
        count: of values, both ends included, in [2, 2048].
    """

    epsilon: float
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _check.between(0, 40, epsilon=self.epsilon, remedy="beyond, 64 bits do not hold the tails")
        _check.whole(at_least=2, count=self.count)
        _check.between(2, MOST_VALUES, count=self.count)
        if not -np.inf < self.low < self.high < np.inf:
            raise InputError(f"low must be below high, and both finite, got {self.low:g} and {self.high:g}")

    @property
    def values(self) -> np.ndarray:
        """The grid, float64 [count]."""
        return np.linspace(self.low, self.high, self.count)

    def event(self) -> PureDP:
        """What the report costs one label."""
        return PureDP(float(self.epsilon), "replace")

    def draw(self, labels: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The reports, float64 [n].

        Args:
            labels: int64 [n], places in `values`.
            words: uint64 [n], uniform and used for nothing else.
        """
        require_labels(labels, self.count)
        ends = _ends(self.epsilon, self.count)
        low, high = np.zeros(len(labels), np.int64), np.full(len(labels), self.count - 1)
        for _ in range((self.count - 1).bit_length()):  # the first report whose words end behind this one
            middle = (low + high) // 2
            found = (low < high) & (ends[labels, np.minimum(middle, self.count - 2)] <= words)
            low, high = np.where(found, middle + 1, low), np.where(found | (low == high), high, middle)
        return self.values[low]

    def weights(self) -> np.ndarray:
        """How many of the 2^64 words turn each value into each report: whole numbers [n, n], as objects."""
        ends = _ends(self.epsilon, self.count).astype(object)
        bounds = np.concatenate([np.zeros((self.count, 1), object), ends, np.full((self.count, 1), WORDS)], axis=1)
        return np.diff(bounds, axis=1)


@functools.lru_cache(maxsize=1)
def _ends(epsilon: float, count: int) -> np.ndarray:
    """Where the words of each report but the last one end, for each value: uint64 [n, n-1]."""
    rate = epsilon / (count - 1)
    place = np.arange(count)
    shape = np.full(count, np.tanh(rate / 2))  # (1 - q) / (1 + q)
    shape[[0, -1]] = 1 / (1 + np.exp(-rate))  # and all that lies beyond the ends
    chances = np.exp(-rate * np.abs(place[:, None] - place)) * shape
    np.fill_diagonal(chances, 0.0)
    weights = (chances * float(WORDS)).astype(np.uint64)
    np.fill_diagonal(weights, _rest(weights))
    ratio = most_ratio(epsilon)
    least = [-(-int(most) * ratio.denominator // ratio.numerator) for most in weights.max(axis=0)]
    weights = np.maximum(weights, np.array(least, np.uint64))
    np.fill_diagonal(weights, 0)
    np.fill_diagonal(weights, _rest(weights))
    for most, smallest in zip(weights.max(axis=0).tolist(), weights.min(axis=0).tolist(), strict=True):
        if most > ratio * smallest:
            raise InputError(f"{count} values are too many for epsilon {epsilon:g}; take fewer")
    return np.cumsum(weights[:, :-1], axis=1, dtype=np.uint64)


def _rest(weights: np.ndarray) -> np.ndarray:
    """What is left of the 2^64 words in each row: uint64, which counts modulo 2^64."""
    return np.uint64(0) - weights.sum(axis=1, dtype=np.uint64)
