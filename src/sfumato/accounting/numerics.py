"""Numbers near the ends and the precision of a double: sums, logarithms and masses, rounded to the safe side.

**Squares, sums and products** that stay bounds:

>>> inverse_square(1e-200), inverse_square(1e200)        # neither overflows by surprise nor becomes nothing
(inf, 1e-200)
>>> total([1e308, 1e308])
inf

**Logarithms:** moments of likelihood ratios without overflow and without cancellation.

>>> round(log_sum(np.array([1000.0, 1000.0])) - 1000.0, 6), log_expm1(np.array([1e-20])).round(3).tolist()
(0.693147, [-46.052])
"""

import math
from collections.abc import Iterable

import numpy as np

EPS = math.ulp(1.0)
"""Distance of one to the next double."""


LEAST_RATE = 1e-100
"""Smaller sampling rates are rounded up to it, which costs more, so that squares of losses fit into a double."""

NEXT_TO_ONE = 1 - 1e-9
"""Larger sampling rates are rounded up to one, which costs more: what is left of 1 - q has too few digits."""


def grid_rate(rate: float) -> float:
    """The rate, or a larger one that a grid can hold: a pair with a larger rate dominates one with a smaller one."""
    return 1.0 if rate > NEXT_TO_ONE else max(rate, LEAST_RATE)


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


def log_mix(loss: np.ndarray, rate: float) -> np.ndarray:
    """log(1 - q + q e^loss), precise near zero, for large losses, and where little is left next to q."""
    if rate == 1.0:
        return loss
    excess = rate * np.expm1(np.minimum(loss, 1.0))
    far = np.logaddexp(np.log1p(-rate), np.log(rate) + loss)
    return np.where((loss < 1.0) & (excess > -0.5), np.log1p(np.maximum(excess, -0.5)), far)


def log_bregman(log_ratio: np.ndarray, order: float) -> np.ndarray:
    """log(r^a - 1 - a (r - 1)), the non-negative integrand, for r = e^log_ratio, in whichever form does not
    cancel.
    """
    result = np.empty_like(log_ratio)
    near = np.abs(log_ratio) * order < 0.1
    far = ~near & (order * log_ratio > 30.0)
    middle = ~near & ~far
    with np.errstate(divide="ignore"):
        excess = np.expm1(log_ratio[near])
        series = np.zeros_like(excess)
        for k in range(12, 2, -1):  # binomial series of (1 + y)^a from y^2 on, Horner from the end
            series = (1.0 + series) * excess * (order - k + 1) / k
        result[near] = np.log1p(series) + 2 * np.log(np.abs(excess)) + np.log(order * (order - 1) / 2)
        loss = log_ratio[middle]  # both terms have the factor a - 1, so that an order next to one keeps its digits
        positive = np.exp(loss) * np.expm1((order - 1) * loss) - (order - 1) * np.expm1(loss)
        result[middle] = np.log(np.maximum(positive, 0.0))
        loss = log_ratio[far]
        lost = np.expm1(np.log(order) - (order - 1) * loss) - (order - 1) * np.exp(-order * loss)
        result[far] = order * loss + np.log(-lost)
    return result


def log_sum(log_terms: np.ndarray) -> float:
    """log of the sum of e^log_terms."""
    top = float(log_terms.max())
    if np.isposinf(top):
        return top
    return top + float(np.log(np.exp(log_terms - top).sum()))


def log_expm1(x: np.ndarray) -> np.ndarray:
    """log(e^x - 1) for x > 0 without overflow."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(x < 1.0, np.log(np.expm1(np.minimum(x, 1.0))), x + np.log1p(-np.exp(-np.maximum(x, 1e-300))))


# Round-off of the masses in cells: what a grid must allow for, so that rounding never makes a bound too small.


def round_off(upper: np.ndarray, lower: np.ndarray, edges: np.ndarray, relative: float = 4 * EPS) -> np.ndarray:
    """Bound on the error of Q e^edge - P for masses that are right up to a relative error.

    Args:
        upper: masses of P, float [k].
        lower: masses of Q, float [k].
        edges: upper ends of the cells, float [k]; an infinite one has no such difference, and an error of 0.
        relative: relative error of the masses. A unit in the last place of the edge itself is added.
    """
    edges = np.where(np.isfinite(edges), edges, -np.inf)
    with np.errstate(invalid="ignore"):
        scale = np.where(np.isfinite(edges), relative + 4 * EPS * (1 + np.abs(edges)), 0.0)
    return scale * (upper + times_exp(lower, edges))


def times_exp(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """values * e^exponents where a value of zero wins over any exponent, and e^700 stands for what is larger."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.exp(np.minimum(np.log(values) + exponents, 700.0)), 0.0)
