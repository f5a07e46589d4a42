"""Zero-concentrated differential privacy: one number, rho, that adds up and converts to (epsilon, delta).

Guarantees an upper bound for the unit that the events were made for. A Gaussian costs rho = 1/(2 z^2) (Bun
and Steinke 2016, Proposition 1.6), four times that under replacement. Amplification by sampling is not
claimed, because zCDP has none; a sampled event costs what it costs without sampling. Conversion: Canonne,
Kamath and Steinke 2020, Proposition 12, at the best real order.

>>> from sfumato.accounting.events import Gaussian
>>> account = ZcdpAccountant(Gaussian(2.0) * 8)
>>> account.rho(), round(account.epsilon(1e-6), 4)
(1.0, 7.7662)
"""

import math
from collections.abc import Callable

from sfumato._types import Adjacency
from sfumato.accounting.doubles import total
from sfumato.accounting.events import Event, terms


class ZcdpAccountant:
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
