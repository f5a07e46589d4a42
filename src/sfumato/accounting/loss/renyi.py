"""Renyi divergences of a dominating pair whose loss is bounded, from above.

The pair is put on a grid by chords (see `loss.discretise`), which lie above its curve. A Renyi divergence is an
integral of the curve with positive weights, so that of the grid lies above, too. A pair that is a short table of atoms
needs no grid. Moments are sums of positive terms, so a tiny divergence keeps its digits.

>>> from sfumato.accounting.events.laplace import LaplacePair
>>> renyi_of_pairs((LaplacePair(1.0),), np.array([2.0]), 1.0).round(3)       # log((2 e + e^-2) / 3) = 0.619
array([0.619])
"""

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from sfumato.accounting.loss.grid import from_above
from sfumato.accounting.numerics import EPS, log_bregman, log_sum
from sfumato.accounting.pair import Pair, TabledPair

_CELLS = 4096
_RATIO, _PARTS = 0.05, 10  # distance of neighbouring orders on a logarithmic scale, and parts where it matters
_LAST = 1e9  # order
_NEAR = 1.002  # times the truth, that is near enough


def renyi_of_pairs(pairs: Iterable[Pair], orders: np.ndarray, largest_loss: float) -> np.ndarray:
    """Renyi divergence at each order, the largest over the pairs.

    Args:
        pairs: dominating pairs with a bounded loss.
        orders: float [k], each > 1.
        largest_loss: a bound on all losses from both sides, finite.

    Returns:
        float [k], in nats, never below the truth.
    """
    worst = np.max([renyi_from_log_excess(_log_excess(pair, orders), orders) for pair in pairs], axis=0)
    return np.minimum(worst, renyi_of_pure(orders, largest_loss))


def renyi_of_pure(orders: np.ndarray, largest_loss: float) -> np.ndarray:
    """The most that pure differential privacy with this epsilon allows (Bun and Steinke 2016, Proposition 3.3)."""
    return np.minimum(largest_loss, orders * rho_of_pure(largest_loss))


def rho_of_pure(largest_loss: float) -> float:
    """rho of zCDP that pure differential privacy implies: epsilon^2/2, or epsilon where that is less.

    The second one holds because a Renyi divergence is at most epsilon and an order is at least one.
    """
    return min(max(largest_loss * largest_loss / 2, 1e-200), largest_loss)


@lru_cache(maxsize=256)
def rho_of_pairs(pairs: tuple[Pair, ...], largest_loss: float) -> float:
    """rho of zCDP: the largest ratio of the Renyi divergence to the order, over all orders above one.

    A divergence does not fall with the order, so that between orders a and b its ratio to them is at most that of the
    divergence at b to a. Beyond the last order it is at most the largest loss over that order.

    Args:
        pairs: dominating pairs with a bounded loss.
        largest_loss: a bound on all losses from both sides, finite, > 0.

    Returns:
        An upper bound, about 1 % above the ratio at most, and never above `rho_of_pure`.
    """
    limit = rho_of_pure(largest_loss)
    reached = float(renyi_of_pairs(pairs, np.array([2.0]), largest_loss)[0]) / 2
    if limit <= _NEAR * reached:
        return limit
    last = min(max(4.0, largest_loss / max(reached, 1e-300)), _LAST)
    orders = np.geomspace(1.0, last, math.ceil(math.log(last) / _RATIO) + 1)
    divergences = renyi_of_pairs(pairs, orders[1:], largest_loss)
    bounds, reached = divergences / orders[:-1], max(reached, float((divergences / orders[1:]).max()))
    worst = max(_NEAR * reached, largest_loss / last)
    for cell in np.flatnonzero(bounds > worst):
        finer = np.geomspace(orders[cell], orders[cell + 1], _PARTS + 1)
        worst = max(worst, float((renyi_of_pairs(pairs, finer[1:], largest_loss) / finer[:-1]).max()))
    return min(limit, worst)


def renyi_from_log_excess(log_excess: np.ndarray, orders: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Renyi divergence from log(E_Q[(P/Q)^a] - 1), rounded up.

    Args:
        log_excess: float [k], exact to about 1e-13 per order and to a few units in the last place of its exponents.
        orders: float [k], each > 1.
        shift: largest distance of the means of P and Q in units of the noise, where they are Gaussian or mixtures
            of such: exponents are as large as (order * shift)^2.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        rounding = 1e-12 * (1.0 + orders) + 8 * EPS * (orders * shift) ** 2
        values = np.logaddexp(0.0, log_excess + rounding) / (orders - 1)
    return np.where(np.isposinf(log_excess), np.inf, values)


def _log_excess(pair: Pair, orders: np.ndarray) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1), as the mean under Q of r^a - 1 - a (r - 1) >= 0."""
    if pair.infinity() > 0:
        return np.full(len(orders), np.inf)
    if isinstance(pair, TabledPair) and len(pair.finite()) <= _CELLS:
        losses, _, lower, _ = pair.table()
        some = np.isfinite(losses) & (lower > 0)
        losses, log_lower = losses[some], np.log(lower[some])
    else:
        low, high = pair.span()
        atoms = from_above(pair, (high - low) / _CELLS, 0.0 if pair.atom() else pair.bulk())
        if atoms.infinity > 0:
            return np.full(len(orders), np.inf)
        some = atoms.masses > 0
        losses = atoms.losses[some]
        log_lower = np.log(atoms.masses[some]) - losses
    return np.array([log_sum(log_bregman(losses, order) + log_lower) for order in orders.tolist()])
