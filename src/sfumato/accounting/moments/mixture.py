"""Log moments of a mixture of normal distributions against one, the quantity under its Renyi bounds.

`excess` is E_Q[(P/Q)^a] - 1, computed as a sum of positive terms on logarithms (see `logs`), by a trapezoid rule. The
likelihood ratio of the mixture has no zero closer to the real line than pi / (largest shift - smallest shift), so
the rule converges exponentially. Orders for which it would need too many points get an upper bound in closed form: the
excess of somebody who is told which shift it was.

>>> orders = np.array([2.0, 3.0])
>>> log_excess_mixture(orders, (0.0, 1.0), (0.99, 0.01), "remove").round(6)      # q = 0.01, see sampled_gaussian
array([-8.669016, -7.543737])
"""

from typing import Literal

import numpy as np

from sfumato.accounting.moments.logs import log_bregman, log_expm1, log_sum
from sfumato.accounting.moments.sampled_gaussian import MOST_POINTS, REACH


def log_excess_mixture(
    orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...], direction: Literal["remove", "add"]
) -> np.ndarray:
    """An upper bound on log(E_Q[(P/Q)^a] - 1), exact up to round-off where the orders are not huge.

    Args:
        orders: float [k], each > 1.
        shifts: different numbers >= 0 in rising order, the last one > 0, in units of the noise.
        weights: their probabilities.
        direction: "remove" for P = sum of w_i N(s_i, 1) and Q = N(0, 1), "add" for the same two exchanged.

    Returns:
        float [k].
    """
    integral = _remove(orders, shifts, weights) if direction == "remove" else _add(orders, shifts, weights)
    return np.minimum(integral, log_excess_revealed(orders, shifts, weights))


def log_excess_revealed(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    """The same for somebody who sees which shift was drawn: the weighted sum of the Gaussian ones."""
    total = np.full(len(orders), -np.inf)
    for shift, weight in zip(shifts, weights):
        if shift > 0:
            total = np.logaddexp(
                total, np.log(weight) + log_expm1(np.maximum(orders * (orders - 1) * shift**2 / 2, 1e-300))
            )
    return total


def _remove(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    top = shifts[-1]
    step = min(0.5, 0.45 / top)
    points = np.minimum((2 * REACH + orders * top) / step, 1e18).astype(int) + 1
    result = np.full(len(orders), np.inf)
    feasible = points <= MOST_POINTS
    u = -REACH + step * np.arange(points[feasible].max(initial=0))
    log_ratio = log_mixture(u, shifts, weights)
    log_weight = -u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
    for index in np.flatnonzero(feasible):
        used = points[index]
        result[index] = log_sum(log_bregman(log_ratio[:used], float(orders[index])) + log_weight[:used])
    return result


def _add(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    top = shifts[-1]
    result = np.full(len(orders), np.inf)
    for index, (order, peak) in enumerate(zip(orders.tolist(), _peaks(orders, shifts, weights).tolist())):
        step = min(0.4, 0.2 / top, 0.4 / np.sqrt(1.0 + order * top**2 / 4))
        low, high = peak - REACH, REACH + top
        if peak < -2 * REACH:  # what lies around zero is nothing beside it
            high = peak + REACH
        if (high - low) / step > MOST_POINTS:
            continue
        u = np.arange(low, high, step)
        log_ratio = log_mixture(u, shifts, weights)
        log_terms = log_bregman(-log_ratio, order) + log_ratio - u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
        result[index] = log_sum(log_terms)
    return result


def _peaks(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    """Where (P/Q)^a Q is largest when the mixture is Q; its logarithm is concave in u, so there is one such point."""
    amounts = np.array(shifts)
    low, high = -orders * shifts[-1], np.zeros(len(orders))
    for _ in range(60):
        middle = 0.5 * (low + high)
        terms = np.log(weights) + np.outer(middle, amounts) - amounts**2 / 2
        shares = np.exp(terms - terms.max(axis=1, keepdims=True))
        rises = -middle - (orders - 1) * (shares @ amounts) / shares.sum(axis=1) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return low


def log_mixture(u: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    """log of the likelihood ratio, sum of w_i e^(s_i u - s_i^2/2); precise where it is near zero."""
    highest, lowest = np.full(len(u), -np.inf), np.full(len(u), np.inf)
    for shift in shifts:  # one at a time, as there may be thousands
        loss = shift * u - shift**2 / 2
        np.maximum(highest, loss, out=highest)
        np.minimum(lowest, loss, out=lowest)
    excess, total = np.zeros((2, len(u)))
    for shift, weight in zip(shifts, weights):
        loss = shift * u - shift**2 / 2
        excess += weight * np.expm1(np.minimum(loss, 1.0))
        total += weight * np.exp(loss - highest)
    idle = weights[0] if shifts[0] == 0.0 else 0.0
    near = (highest < 1.0) & ((lowest > -1.0) | (idle > 0.5))
    return np.where(near, np.log1p(np.maximum(excess, -1.0 + 1e-16)), highest + np.log(total))
