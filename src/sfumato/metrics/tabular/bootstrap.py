"""Bootstrap intervals by percentiles: how far a figure would move with other records of the same kind.

Guarantees the same interval for the same generator. The level is approximate: a few dozen records make it too narrow.

>>> found = bootstrap_mean(np.r_[np.zeros(60), np.ones(40)], np.random.default_rng(0))
>>> found.value, round(found.low, 2), round(found.high, 2)
(0.4, 0.3, 0.49)

References:
    Efron, Tibshirani: An Introduction to the Bootstrap. 1993, ch. 13 (percentile intervals).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato._check import InputError

LEVEL = 0.95
REPLICATES = 500
_NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Interval:
    """A figure with its bootstrap interval.

    Attributes:
        value: the figure on the records as they are.
        low, high: ends of the interval of level 95 %; equal to `value` where it is known exactly.
    """

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Interval":
        """A figure that is known and not estimated."""
        return cls(value, value, value)

    def to_json(self) -> dict[str, Any]:
        """The three numbers by their names."""
        return asdict(self)


def bootstrap(
    statistic: Callable[..., float],
    sizes: Sequence[int],
    rng: np.random.Generator,
    *,
    replicates: int = REPLICATES,
) -> Interval:
    """Interval of a statistic of one group of records or several, each drawn again by itself.

    Args:
        statistic: takes an int64 array of rows for each group and gives a number; NaN is left out of the percentiles.
        sizes: records in each group, ≥ 1.
        rng: draws the rows.
        replicates: how often to draw.

    Raises:
        InputError: a group has no records.
    """
    if min(sizes) < 1:
        raise InputError(f"an interval needs at least one record in each group, got {list(sizes)}")
    value = statistic(*(np.arange(size) for size in sizes))
    drawn = [statistic(*(rng.integers(0, size, size) for size in sizes)) for _ in range(replicates)]
    return _percentiles(value, np.array(drawn))


def bootstrap_mean(scores: np.ndarray, rng: np.random.Generator, *, replicates: int = REPLICATES) -> Interval:
    """Interval of the mean of finite numbers [n], n ≥ 1.

    Raises:
        InputError: there are no numbers.
    """
    scores = np.asarray(scores, np.float64)
    if len(scores) == 0:
        raise InputError("an interval needs at least one record, got none")
    at_once = max(1, _NUMBERS_AT_ONCE // len(scores))
    means = [
        scores[rng.integers(0, len(scores), (min(at_once, replicates - done), len(scores)))].mean(1)
        for done in range(0, replicates, at_once)
    ]
    return _percentiles(float(scores.mean()), np.concatenate(means))


def centred(value: float, drawn: np.ndarray) -> Interval:
    """Interval of a figure whose draws are shifted, as a vote of records that were drawn twice is: around the value.

    Args:
        value: the figure on the records as they are.
        drawn: of records that were drawn again, float [replicates].
    """
    return _percentiles(value, value + drawn - np.mean(drawn))


def _percentiles(value: float, drawn: np.ndarray) -> Interval:
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return Interval.exact(float(value))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(value), float(low), float(high))
