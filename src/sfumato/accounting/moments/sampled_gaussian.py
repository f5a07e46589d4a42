"""Log moments of the subsampled Gaussian, the quantity under every Renyi bound, for any rate and noise.

For a pair (P, Q), `excess` is E_Q[(P/Q)^a] - 1. It is computed as a sum of positive terms, never as a
difference from one, so it keeps its relative precision when it is 1e-18 (rates of 1e-9) and works on
logarithms, so it does not overflow when it is e^1e8 (noise multipliers of 0.1). Integer orders use the
binomial sum of Mironov, Talwar and Zhang 2019 (Section 3.3); fractional orders a trapezoid rule, which
converges exponentially because the integrand is analytic in a strip of half-width pi * z.

>>> log_excess_sampled_gaussian(np.array([2.0]), 0.01, 1.0).round(6)   # log(q^2 (e - 1))
array([-8.669016])
"""

import numpy as np
import scipy

from sfumato.accounting.doubles import inverse_square
from sfumato.accounting.moments.logs import log_bregman, log_expm1, log_mix, log_sum

REACH = 39.0
"""Standard deviations beyond which the normal density is below the smallest double."""

MOST_POINTS = 200_000
"""Of a trapezoid rule."""


def log_excess_sampled_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1) for P = (1-q) N(0, z^2) + q N(1, z^2) and Q = N(0, z^2).

    Args:
        orders: float [k], each > 1.
        rate: q in (0, 1].
        noise_multiplier: z > 0.

    Returns:
        float [k].
    """
    noise_multiplier = min(noise_multiplier, 1e100)  # less noise costs more, and nothing underflows
    result = np.empty(len(orders))
    is_whole = orders == np.floor(orders)
    result[is_whole] = _binomial(orders[is_whole].astype(int), rate, noise_multiplier)
    result[~is_whole] = _trapezoid(orders[~is_whole], rate, noise_multiplier)
    return result


def _binomial(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    if rate == 1.0:
        return log_expm1(orders * (orders - 1.0) * (inverse_square(noise_multiplier) / 2))
    result = np.empty(len(orders))
    k = np.arange(orders.max(initial=2) + 1, dtype=np.float64)
    log_factorial = scipy.special.gammaln(k + 1)
    drawn = k[2:] * np.log(rate) - log_factorial[2:]
    drawn += log_expm1((k[2:] - 1) * k[2:] * (inverse_square(noise_multiplier) / 2))
    absent = (k * np.log1p(-rate) - log_factorial)[::-1]
    for index, order in enumerate(orders):
        log_terms = drawn[: order - 1] + absent[len(k) - order + 1 :]
        result[index] = log_sum(log_terms) + log_factorial[order]
    return result


def _trapezoid(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    step = min(0.5, 0.45 * noise_multiplier)
    with np.errstate(over="ignore"):  # inf where the noise is next to nothing
        points = (2 * REACH + orders / noise_multiplier) / step + 1
    feasible = points <= MOST_POINTS  # of each order by itself: a large one must not cost the small ones their digits
    result = np.empty(len(orders))
    result[~feasible] = from_above(orders[~feasible], rate, noise_multiplier)
    if not feasible.any():
        return result
    u = -REACH + step * np.arange(int(points[feasible].max()))
    log_ratio = log_mix(u / noise_multiplier - 1 / (2 * noise_multiplier**2), rate)
    log_weight = -u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
    for index in np.flatnonzero(feasible):
        used = int(points[index])
        result[index] = log_sum(log_bregman(log_ratio[:used], float(orders[index])) + log_weight[:used])
    return result


def from_above(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """Upper bounds on the same without an integral, the smaller of two; also for discrete Gaussian noise.

    The log of a moment is convex in its order, so its chords between whole orders lie above. And x^a is convex, so
    the moment of (1-q) + q r is at most (1-q) + q times that of r. With little noise everybody can tell whether the
    unit was drawn, and this one is all but exact at orders next to one.
    """
    below = np.floor(orders)
    ends = []
    for whole in (below, below + 1):
        log_excess = np.full(len(orders), -np.inf)  # the first moment of a ratio is one
        log_excess[whole > 1] = _binomial(whole[whole > 1].astype(int), rate, noise_multiplier)
        ends.append(np.logaddexp(0.0, log_excess))
    with np.errstate(invalid="ignore"):
        chords = ends[0] + (orders - below) * (ends[1] - ends[0])
    chords = log_expm1(np.maximum(np.where(np.isfinite(ends[1]), chords, np.inf), 1e-300))
    return np.minimum(chords, _told(orders, rate, noise_multiplier, shift=1.0))


def _told(orders: np.ndarray, rate: float, noise_multiplier: float, shift: float) -> np.ndarray:
    """log of q times the Gaussian excess: an upper bound, the cost to whoever is told that the unit was drawn."""
    gaussian = orders * (orders - 1.0) * (shift * shift * inverse_square(noise_multiplier) / 2)
    return np.log(rate) + log_expm1(gaussian)


def log_excess_replace(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1) for P = (1-q) N(0, z^2) + q N(1, z^2) and Q = (1-q) N(0, z^2) + q N(-1, z^2).

    The pair dominates a Poisson-sampled Gaussian under replacement of one unit. Orders that would need more
    than 200,000 points have an upper bound, the smaller of two: the moment is jointly convex in P and Q, so at most
    (1-q) + q times that of N(1, z^2) against N(-1, z^2); and Q is at least (1-q) N(0, z^2), so the moment is at most
    (1-q)^(1-a) times that of P against N(0, z^2).
    """
    noise_multiplier = min(noise_multiplier, 1e100)
    result = _told(orders, rate, noise_multiplier, shift=2.0)
    if rate < 1.0:
        removed = np.logaddexp(0.0, log_excess_sampled_gaussian(orders, rate, noise_multiplier))
        result = np.minimum(result, log_expm1(removed + (1.0 - orders) * np.log1p(-rate)))
    if noise_multiplier < 1e-3:
        return result
    for index, order in enumerate(orders):
        narrow = 1.0 / np.sqrt(1.0 + order / (4 * noise_multiplier**2))
        step = min(0.4, 0.2 * noise_multiplier, 0.4 * narrow)
        low, high = -REACH - 1 / noise_multiplier, REACH + _falls_from(float(order), rate, noise_multiplier)
        if (high - low) / step > MOST_POINTS:
            continue
        u = np.arange(low, high, step)
        half = 1 / (2 * noise_multiplier**2)
        log_base = log_mix(-u / noise_multiplier - half, rate)
        log_ratio = log_mix(u / noise_multiplier - half, rate) - log_base
        log_terms = log_bregman(log_ratio, order) + log_base - u * u / 2 - 0.5 * np.log(2 * np.pi)
        result[index] = log_sum(log_terms) + np.log(step)
    return result


def _falls_from(order: float, rate: float, noise_multiplier: float) -> float:
    """A point from which (P/Q)^a Q of `log_excess_replace` falls at least as fast as a normal density from its mean.

    In units of the noise, log (P/Q)^a Q has the slope -u + (a p + (a-1) s) / z, where p and s <= 1 are the shares of
    N(1, z^2) in P and of N(-1, z^2) in Q at u. From u* + z log a on, (a-1) s <= 1, where N(-1, z^2) and N(0, z^2) weigh
    alike in Q at u*.
    """
    z = noise_multiplier
    alike = z * (np.log(rate) - np.log1p(-rate)) - 1 / (2 * z) if rate < 1.0 else np.inf
    return min((2 * order - 1) / z, max((order + 1) / z, alike + z * np.log(order)))
