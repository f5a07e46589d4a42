"""Renyi differential privacy: the cost at many orders at once, and its conversion to (epsilon, delta).

Guarantees an upper bound on epsilon for the unit that the events were made for. Costs at each order add up
under adaptive composition (Mironov 2017), so a run's cost is a count times a memoised vector; each event says its own
curve (see `events`). Conversion: Canonne, Kamath and Steinke 2020, Proposition 12.

>>> from sfumato.accounting.events import Gaussian
>>> run = Gaussian(4.0).poisson(0.01) * 10_000
>>> round(RdpAccountant(run).epsilon(1e-5), 3)
1.035
"""

from functools import lru_cache

import numpy as np

from sfumato._check import InputError, between
from sfumato._types import Adjacency
from sfumato.accounting.events import Event, terms


def _default_orders() -> tuple[float, ...]:
    near_one = np.concatenate([1.0 + np.geomspace(1e-4, 0.1, 30), np.arange(45, 80) / 40.0])
    fine = np.arange(20, 101) / 10.0
    middle = np.arange(21, 65) / 2.0
    large = np.unique(np.concatenate([np.arange(33, 65), np.round(np.geomspace(64, 32_768, 130))]))
    return tuple(float(order) for order in np.unique(np.concatenate([near_one, fine, middle, large])))


ORDERS: tuple[float, ...] = _default_orders()
"""Orders from 1.0001 (for huge epsilons) to 32,768 (for tiny ones); neighbours differ by 5 % or less above 2.
"""


USUAL_ORDERS: tuple[float, ...] = (
    *(1.0 + tenth / 10.0 for tenth in range(1, 100)),
    *(float(order) for order in range(11, 64)),
    128.0,
    256.0,
    512.0,
    1024.0,
)
"""The orders behind most published figures: dp-accounting's default."""


class RdpAccountant:
    """The Renyi curve of an event.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        orders: the orders to use, each > 1, in any order; the default suits all sizes of epsilon.

    Raises:
        InputError: an order is <= 1, or no Renyi bound is known for an event.
    """

    method = "rdp"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove", orders: tuple[float, ...] = ORDERS) -> None:
        self.orders = _orders(orders)
        self.values = np.zeros(len(self.orders))
        for single, count in terms(event):
            self.values = self.values + count * rdp(single, adjacency, orders)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon for this delta over all orders; 0 <= epsilon <= inf."""
        between(0, 1, delta=delta)
        if delta >= 1.0 or delta >= self._total_variation():
            return 0.0
        if delta <= 0.0:
            return float("inf")
        return max(0.0, float((self.values + epsilon_above_renyi(self.orders, delta)).min()))

    def delta(self, epsilon: float) -> float:
        """The smallest delta for this epsilon over all orders; 0 <= delta <= 1."""
        if np.isinf(epsilon):
            return 0.0 if np.isfinite(self.values).any() else 1.0
        a = self.orders
        exponents = (a - 1) * (self.values - epsilon + np.log1p(-1 / a)) - np.log(a)
        return float(min(np.exp(min(0.0, exponents.min())), self._total_variation()))

    def _total_variation(self) -> float:
        """Bretagnolle-Huber: the two outputs differ by at most this in total variation, so delta(0) is below
        it.
        """
        return float(np.sqrt(-np.expm1(-self.values.min())))


def epsilon_above_renyi(orders: np.ndarray, delta: float) -> np.ndarray:
    """By how much epsilon at delta is above the Renyi divergence at an order: Canonne et al. 2020, Proposition 12.

    Args:
        orders: float [k], each > 1.
        delta: in (0, 1].

    Returns:
        float [k], positive where delta is small.
    """
    return np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)


def rdp(event: Event, adjacency: Adjacency = "add_remove", orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Renyi divergence of one single event at each order, in nats; memoised, so treat it as read-only.

    Args:
        event: a single event (no sum, no repetition).
        adjacency: "add_remove", "replace" or "zero_out".
        orders: k orders, each > 1.

    Returns:
        float [k], >= 0, inf where there is no bound.
    """
    return _rdp(event, adjacency, tuple(orders))


@lru_cache(maxsize=256)
def _rdp(event: Event, adjacency: Adjacency, orders: tuple[float, ...]) -> np.ndarray:
    values = event.renyi(_orders(orders), adjacency)
    values.setflags(write=False)
    return values


@lru_cache(maxsize=16)
def _orders(orders: tuple[float, ...]) -> np.ndarray:
    values = np.asarray(orders, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not (values > 1).all() or not np.isfinite(values).all():
        raise InputError(f"orders must all be > 1 and finite, got {orders}; leave them out for the default ones")
    values.setflags(write=False)
    return values
