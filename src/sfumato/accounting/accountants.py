"""Accountants that add up one number or one curve: pure, zero-concentrated and Rényi differential privacy.

Pure differential privacy: the largest privacy loss adds up, and bounds epsilon at every delta, zero included.

Guarantees an upper bound for the unit that the events were made for (basic composition, Dwork and Roth 2014,
Theorem 3.16).

>>> from sfumato.accounting.events import NonPrivate
>>> PureAccountant(NonPrivate()).epsilon(0.0)
inf

Zero-concentrated differential privacy: one number, rho, that adds up and converts to (epsilon, delta).

Guarantees an upper bound for the unit that the events were made for. A Gaussian costs rho = 1/(2 z^2) (Bun
and Steinke 2016, Proposition 1.6), four times that under replacement. Amplification by sampling is not
claimed, because zCDP has none; a sampled event costs what it costs without sampling. Conversion: Canonne,
Kamath and Steinke 2020, Proposition 12, at the best real order.

>>> from sfumato.accounting.events import Gaussian
>>> account = ZcdpAccountant(Gaussian(2.0) * 8)
>>> account.rho(), round(account.epsilon(1e-6), 4)
(1.0, 7.7662)

Renyi differential privacy: the cost at many orders at once, and its conversion to (epsilon, delta).

Guarantees an upper bound on epsilon for the unit that the events were made for. Costs at each order add up
under adaptive composition (Mironov 2017), so a run's cost is a count times a memoised vector; each event says its own
curve (see `events`). Conversion: Canonne, Kamath and Steinke 2020, Proposition 12.

>>> from sfumato.accounting.events import Gaussian
>>> run = Gaussian(4.0).poisson(0.01) * 10_000
>>> round(RdpAccountant(run).epsilon(1e-5), 3)
1.035
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import numpy as np

from sfumato._check import InputError, between
from sfumato._types import Adjacency
from sfumato.accounting.events import Event, terms
from sfumato.accounting.numerics import total

_SAMPLES = 500  # of a curve that is asked for point by point


class Accountant(ABC):
    """One way to bound the cost of an event.

    Attributes:
        method: its name, as in `guarantee`.
        mu: where the event equals one Gaussian release of this shift; None elsewhere.
    """

    method: ClassVar[str]
    mu: float | None = None

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon at a delta in [0, 1]."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """An upper bound on delta at an epsilon >= 0."""

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon; the lower one is 0 where none is known."""
        return 0.0, self.epsilon(delta)

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest delta; the lower one is 0 where none is known."""
        return 0.0, self.delta(epsilon)

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, up to where it hardly matters any more.

        Returns:
            epsilons, float [k], rising from 0; deltas, float [k].
        """
        epsilons = np.linspace(0.0, min(self.epsilon(1e-15), 600.0), _SAMPLES)
        return epsilons, np.array([self.delta(epsilon) for epsilon in epsilons.tolist()])


class NoGuarantee(Accountant):
    """The accountant of a run that promises nothing."""

    method = "none"

    def epsilon(self, delta: float) -> float:
        return math.inf if delta < 1 else 0.0

    def delta(self, epsilon: float) -> float:
        return 1.0


class PureAccountant(Accountant):
    """The largest loss of an event.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
    """

    method = "pure"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        self.largest_loss = total(count * single.largest_loss(adjacency) for single, count in terms(event))

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; inf where the loss is unbounded."""
        return self.largest_loss

    def delta(self, epsilon: float) -> float:
        """0 from the largest loss on; below it what one worst outcome could show (Kairouz et al. 2015)."""
        if epsilon >= self.largest_loss:
            return 0.0
        if math.isinf(self.largest_loss):
            return 1.0
        return -math.expm1(epsilon - self.largest_loss) / (1.0 + math.exp(-self.largest_loss))


class ZcdpAccountant(Accountant):
    """The rho of an event.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
    """

    method = "zcdp"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        parts = [(single.concentrated(adjacency), count) for single, count in terms(event)]
        self._xi = total(count * xi for (xi, _), count in parts)
        self._rho = total(count * rho for (_, rho), count in parts)

    def rho(self) -> float:
        """The total rho, >= 0; inf where there is no guarantee, or none by rho alone."""
        return self._rho if self._xi == 0 else math.inf

    def epsilon(self, delta: float) -> float:
        """Epsilon for this delta; 0 <= epsilon <= inf."""
        return rho_to_epsilon(self._rho, delta, self._xi)

    def delta(self, epsilon: float) -> float:
        """Delta for this epsilon; 0 <= delta <= 1."""
        rho, xi = self._rho, self._xi
        if rho == xi == 0.0:
            return 0.0
        if math.isinf(rho):
            return 1.0
        if math.isinf(epsilon):
            return 0.0

        def log_delta(log_excess: float) -> float:
            excess = math.exp(log_excess)  # the order is 1 + excess
            return excess * (xi + rho * (1 + excess) - epsilon - math.log1p(1 / excess)) - math.log1p(excess)

        return min(math.exp(min(0.0, _minimum(log_delta))), math.sqrt(-math.expm1(-rho - xi)))


def rho_to_epsilon(rho: float, delta: float, xi: float = 0.0) -> float:
    """The smallest epsilon that (xi, rho)-zCDP implies at this delta (Proposition 12, order optimised over the reals).

    >>> round(rho_to_epsilon(0.81, 1e-10), 4)
    8.9222
    """
    if rho == xi == 0.0 or delta >= 1.0 or delta >= math.sqrt(-math.expm1(-rho - xi)):
        return 0.0
    if delta <= 0.0 or math.isinf(rho):
        return math.inf

    def candidate(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return xi + rho * (1 + excess) - math.log1p(1 / excess) - (math.log(delta) + math.log1p(excess)) / excess

    return max(0.0, _minimum(candidate))


def _minimum(function: Callable[[float], float], low: float = -30.0, high: float = 30.0) -> float:
    """Least value found on a grid that is refined eight times; every value is a valid bound by itself."""
    for _ in range(8):
        width = (high - low) / 24
        points = [low + width * i for i in range(25)]
        values = [function(point) for point in points]
        best = min(range(25), key=values.__getitem__)
        low, high = points[max(0, best - 1)], points[min(24, best + 1)]
    return min(values)  # pyright: ignore[reportPossiblyUnboundVariable]


def _default_orders() -> tuple[float, ...]:
    near_one = np.concatenate([1.0 + np.geomspace(1e-4, 0.1, 30), np.arange(45, 80) / 40.0])
    fine = np.arange(20, 101) / 10.0
    middle = np.arange(21, 65) / 2.0
    large = np.concatenate([np.arange(33, 65), np.round(np.geomspace(64, 32_768, 130))])
    return tuple(sorted(set(np.concatenate([near_one, fine, middle, large]).tolist())))


ORDERS: tuple[float, ...] = _default_orders()
"""Orders from 1.0001 (for huge epsilons) to 32,768 (for tiny ones); neighbours differ by 5 % or less above 2."""


USUAL_ORDERS: tuple[float, ...] = (
    *(1.0 + tenth / 10.0 for tenth in range(1, 100)),
    *(float(order) for order in range(11, 64)),
    128.0,
    256.0,
    512.0,
    1024.0,
)
"""The orders behind most published figures: dp-accounting's default."""


class RdpAccountant(Accountant):
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
        """Bretagnolle-Huber: the two outputs differ by at most this in total variation, so delta(0) is below it."""
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
