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
    result = np.empty(len(orders))
    step = min(0.5, 0.45 * noise_multiplier)
    if (2 * REACH + orders.max(initial=1) / noise_multiplier) > MOST_POINTS * step:
        return _between_whole(orders, rate, noise_multiplier)
    u = np.arange(-REACH, REACH + orders.max(initial=1) / noise_multiplier, step)
    log_ratio = log_mix(u / noise_multiplier - 1 / (2 * noise_multiplier**2), rate)
    log_weight = -u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
    for index, order in enumerate(orders):
        points = int((2 * REACH + order / noise_multiplier) / step) + 1
        result[index] = log_sum(log_bregman(log_ratio[:points], order) + log_weight[:points])
    return result


def _between_whole(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """An upper bound: the log of a moment is convex in its order, so its chords between whole orders lie above."""
    below = np.floor(orders)
    ends = []
    for whole in (below, below + 1):
        log_excess = np.full(len(orders), -np.inf)  # the first moment of a ratio is one
        log_excess[whole > 1] = _binomial(whole[whole > 1].astype(int), rate, noise_multiplier)
        ends.append(np.logaddexp(0.0, log_excess))
    return log_expm1(ends[0] + (orders - below) * (ends[1] - ends[0])) if np.isfinite(ends[1]).all() else ends[1]


def log_excess_replace(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1) for P = (1-q) N(0, z^2) + q N(1, z^2) and Q = (1-q) N(0, z^2) + q N(-1, z^2).

    The pair dominates a Poisson-sampled Gaussian under replacement of one unit. Orders that would need more
    than 200,000 points are returned as +inf; they are never the best ones.
    """
    result = np.full(len(orders), np.inf)
    if noise_multiplier < 1e-3:
        return result
    noise_multiplier = min(noise_multiplier, 1e100)
    for index, order in enumerate(orders):
        narrow = 1.0 / np.sqrt(1.0 + order / (4 * noise_multiplier**2))
        step = min(0.4, 0.2 * noise_multiplier, 0.4 * narrow)
        if (2 * REACH + order / noise_multiplier) / step > MOST_POINTS:
            continue
        u = np.arange(-REACH - 1 / noise_multiplier, REACH + (order + 1) / noise_multiplier, step)
        half = 1 / (2 * noise_multiplier**2)
        log_base = log_mix(-u / noise_multiplier - half, rate)
        log_ratio = log_mix(u / noise_multiplier - half, rate) - log_base
        log_terms = log_bregman(log_ratio, order) + log_base - u * u / 2 - 0.5 * np.log(2 * np.pi)
        result[index] = log_sum(log_terms) + np.log(step)
    return result
