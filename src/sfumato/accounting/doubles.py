"""Numbers near the ends and the precision of a double: squares, sums and products that stay bounds.

>>> inverse_square(1e-200), inverse_square(1e200)        # neither overflows by surprise nor becomes nothing
(inf, 1e-200)
>>> total([1e308, 1e308])
inf
"""

import math
from collections.abc import Iterable

import numpy as np

EPS = math.ulp(1.0)
"""Distance of one to the next double."""


def dot(one: np.ndarray, other: np.ndarray) -> float:
    """The sum of products of two vectors of equal length, added in pairs, so that round-off grows with log n only.

    In this thread alone. BLAS shares long vectors among threads, which wait for each other by spinning: a run of 10,000
    steps then takes twice the processor time and no less time, and its last digits depend on the number of threads.
    """
    return float((one * other).sum())


def inverse_square(noise_multiplier: float) -> float:
    """1/z^2, rounded up to 1e-200 where it is smaller and inf where it would overflow."""
    inverse = 1.0 / max(noise_multiplier, 1e-300)
    return max(inverse * inverse, 1e-200)


def total(costs: Iterable[float]) -> float:
    """The sum of numbers >= 0, rounded once; inf where it is beyond the largest double."""
    try:
        return math.fsum(costs)
    except OverflowError:
        return math.inf


def divided(value: float, count: int) -> float:
    """value / count, rounded down where it is not exact: noise that counts for several."""
    share = value / count
    return share if share * count == value else math.nextafter(share, 0.0)


def round_up(value: float) -> float:
    """A number that is not below what a few operations rounded to `value` >= 0."""
    return value * (1 + 4 * EPS)
