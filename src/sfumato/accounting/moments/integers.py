"""Log moments of the sampled discrete Gaussian, the quantity under its Renyi bound.

E_Q[(P/Q)^k] of two shifted discrete Gaussians is, for whole k, a sum over a whole shift of the integers, hence exactly
that of the Gaussian, and so is the binomial sum over who was drawn. Other orders are summed outcome by outcome; where
these are too many, a bound holds that needs whole orders only.
Removing a unit is the worse direction, because a reflection exchanges P and Q (Mironov, Talwar and Zhang 2019,
Theorem 5).

>>> log_excess_sampled_integers(np.array([2.0]), rate=0.01, sigma=3.0, shift=3).round(6)     # as the Gaussian of z = 1
array([-8.669016])
"""

import math

import numpy as np

from sfumato.accounting.moments.logs import log_bregman, log_mix, log_sum
from sfumato.accounting.moments.sampled_gaussian import from_above, log_excess_sampled_gaussian

_REACH = 13.5  # standard deviations around the tilted distribution; the rest is below 1e-39 of the sum
_MOST_OUTCOMES = 20_000


def log_excess_sampled_integers(orders: np.ndarray, rate: float, sigma: float, shift: int) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1) for Q a discrete Gaussian and P the mixture of it, with 1 - rate, and of it moved.

    Args:
        orders: float [k], each > 1.
        rate: q in (0, 1].
        sigma: width of the discrete Gaussian, > 0.
        shift: how far a unit moves it, a whole number >= 1.

    Returns:
        float [k], never below the truth by more than round-off.
    """
    result = np.empty(len(orders))
    is_whole = orders == np.floor(orders)
    outcomes = 2 * _REACH * sigma + shift * orders
    summed = ~is_whole & (outcomes <= _MOST_OUTCOMES)
    result[is_whole] = log_excess_sampled_gaussian(orders[is_whole], rate, sigma / shift)
    result[summed] = [_sum(order, rate, sigma, shift) for order in orders[summed].tolist()]
    rest = ~is_whole & ~summed
    result[rest] = from_above(orders[rest], rate, sigma / shift)
    return result


def _sum(order: float, rate: float, sigma: float, shift: int) -> float:
    reach = math.ceil(_REACH * sigma) + 1
    x = np.arange(-reach, reach + math.ceil(order * shift) + 1, dtype=np.float64)  # Q has its centre at 0
    log_lower = -((x / sigma) ** 2) / 2
    near = np.arange(-reach, reach + 1, dtype=np.float64)
    log_lower -= math.log(float(np.exp(-((near / sigma) ** 2) / 2).sum()))
    log_ratio = log_mix(shift * (2 * x - shift) / (2 * sigma**2), rate)
    return log_sum(log_bregman(log_ratio, order) + log_lower)
