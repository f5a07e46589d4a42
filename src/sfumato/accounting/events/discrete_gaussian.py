"""Integers released with discrete Gaussian noise: nothing is rounded, so no float betrays anything.

The unit is whoever the sensitivity was computed for: adding, removing or blanking it moves one integer by at most
`sensitivity`, replacing it by at most twice that. For a vector, `renyi` and `rho` hold with the sensitivity in L2 norm
(Canonne, Kamath and Steinke 2020, Theorems 4 and 14): release it as `ZCDP(sensitivity**2 / (2 * sigma**2))`.

>>> from sfumato.accounting.guarantee import guarantee
>>> release = DiscreteGaussian(sigma=2.0)
>>> release.rho("add_remove"), round(guarantee(release, method="pld").epsilon(1e-6), 3)
(0.125, 2.276)
"""

from dataclasses import dataclass

import numpy as np

from sfumato._check import between, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.doubles import inverse_square
from sfumato.accounting.events.bounded import require_range
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.events.laplace import MOST_ATOMS, MOST_SENSITIVITY
from sfumato.accounting.pairs.discrete_gaussian import DiscreteGaussianPair
from sfumato.accounting.pairs.pair import Pair


@event_kind("discrete_gaussian")
@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Event):
    """One integer released with discrete Gaussian noise.

    Attributes:
        sigma: > 0; an integer x is drawn with a probability proportional to e^(-x^2 / (2 sigma^2)).
        sensitivity: the most that adding or removing one unit can move the integer, a whole number >= 1. Replacing a
            unit moves it twice as far; accountants take care of that.
    """

    sigma: float
    sensitivity: int = 1

    unsampled = ""

    def __post_init__(self) -> None:
        positive(sigma=self.sigma, remedy="for a run without noise use NonPrivate()")
        whole(sensitivity=self.sensitivity)
        between(1, MOST_SENSITIVITY, sensitivity=self.sensitivity)
        object.__setattr__(self, "sigma", float(self.sigma))
        object.__setattr__(self, "sensitivity", int(self.sensitivity))

    def _of_group(self, units: int) -> Event:
        return DiscreteGaussian(self.sigma, self.sensitivity * units)

    def shift(self, adjacency: Adjacency) -> int:
        """How far the unit moves the integer."""
        return (2 if adjacency == "replace" else 1) * self.sensitivity

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        pair = DiscreteGaussianPair(self.sigma, self.shift(adjacency))
        if self.sigma < MOST_ATOMS:
            # a loss is at least half a squared shift, which has no square in a double where there is hardly any noise
            shift = min(pair.shift / self.sigma, 1e100)
            require_range(self, max(pair.span()) if shift < 1e3 else shift * shift / 2)
        if self.sigma >= MOST_ATOMS or pair.size > MOST_ATOMS:
            raise Unknown(f'DiscreteGaussian with sigma {self.sigma:g} is too wide for method="pld"; use "rdp"')
        return (pair,)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return orders * self.rho(adjacency)

    def rho(self, adjacency: Adjacency) -> float:
        return inverse_square(self.sigma / self.shift(adjacency)) / 2
