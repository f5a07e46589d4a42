"""The exponential mechanism and others of bounded range: choose one of many by a noisy score.

The unit and the adjacency are those for which epsilon was computed: between two neighbouring data sets, the privacy
losses of any two outcomes differ by at most epsilon (Durfee and Rogers 2019, Definition 3.1). The exponential mechanism
with weights e^(epsilon score / (2 sensitivity)) has this range, so has report-noisy-max with Gumbel noise; where a
score can move in one direction only, e^(epsilon score / sensitivity) does. Bounded range implies epsilon-differential
privacy, and about a quarter of its rho.

Renyi divergences are the largest over all mechanisms of that range, in closed form, and zCDP is epsilon^2 / 8
(Cesar and Rogers 2021, Lemma 3.4); docs/explanation/exponential-mechanism.md derives both and the pair.

>>> from sfumato.accounting.guarantee import guarantee
>>> hundred = ExponentialMechanism(0.5) * 100
>>> round(guarantee(hundred, method="rdp_usual_orders").epsilon(1e-6), 4)
15.0955
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import positive
from sfumato._types import Adjacency
from sfumato.accounting.doubles import EPS
from sfumato.accounting.events.bounded import BoundedLoss
from sfumato.accounting.events.claims import Claim, group_size, require_adjacency
from sfumato.accounting.events.event import Event, event_kind
from sfumato.accounting.pairs.exponential import BoundedRange
from sfumato.accounting.pairs.pair import Pair

_HUGE = 1e100  # lengths whose multiples may be beyond the largest double


@event_kind("exponential_mechanism")
@dataclass(frozen=True, slots=True)
class ExponentialMechanism(Claim, BoundedLoss):
    """A choice whose privacy losses lie in an interval of length epsilon.

    Attributes:
        epsilon: length of the interval, > 0.
        adjacency: the one for which it was computed. One for add_remove is twice as long for replace.
    """

    epsilon: float
    adjacency: Adjacency = "add_remove"

    ranked: ClassVar[Mapping[str, int]] = {"epsilon": 1}

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon, remedy="leave out what costs nothing; for no guarantee use NonPrivate()")
        require_adjacency(self.adjacency)
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        loss = self.largest_loss(adjacency)
        if loss > _HUGE:
            return np.full(len(orders), loss)
        at_order, before = _log_sinhc(orders * loss), _log_sinhc((orders - 1) * loss)
        values = at_order - before + (at_order - _log_sinhc(np.full(len(orders), loss))) / (orders - 1)
        rounding = 64 * EPS * at_order * (2 + 1 / (orders - 1))
        return np.minimum(np.minimum(values + rounding, loss), orders * self.rho(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        loss = self.largest_loss(adjacency)
        return min(max(loss * loss / 8, 1e-200), loss)

    def largest_loss(self, adjacency: Adjacency) -> float:
        return group_size(self, self.adjacency, adjacency) * self.epsilon

    def attained(self, adjacency: Adjacency) -> bool:
        return False  # each point of the pair's curve belongs to another mechanism of this range

    def _of_group(self, units: int) -> Event:
        return ExponentialMechanism(self.epsilon * units, self.adjacency)

    def _pair(self, adjacency: Adjacency) -> Pair:
        return BoundedRange(self.largest_loss(adjacency))


def _log_sinhc(x: np.ndarray) -> np.ndarray:
    """log(sinh(x/2) / (x/2)) for x > 0."""
    half = x / 2
    small = np.minimum(half, 0.5) ** 2
    series = np.zeros_like(small)
    for k in range(9, 0, -1):  # sinh(h)/h - 1 = h^2/6 (1 + h^2/20 (1 + ...))
        series = (1.0 + series) * small / (2 * k * (2 * k + 1))
    with np.errstate(divide="ignore"):
        large = half + np.log(-np.expm1(-x) / x)
    return np.where(half < 0.5, np.log1p(series), large)
