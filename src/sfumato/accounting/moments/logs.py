"""Sums and differences on logarithms: moments of likelihood ratios without overflow and without cancellation.

>>> round(log_sum(np.array([1000.0, 1000.0])) - 1000.0, 6), log_expm1(np.array([1e-20])).round(3).tolist()
(0.693147, [-46.052])
"""

import numpy as np


def log_mix(loss: np.ndarray, rate: float) -> np.ndarray:
    """log(1 - q + q e^loss), precise near zero, for large losses, and where little is left beside q."""
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
