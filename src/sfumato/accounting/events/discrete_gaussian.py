"""Integers released with discrete Gaussian noise: nothing is rounded, so no float betrays anything.

The pair of a discrete Gaussian release: X against X + s on the integers, with P(x) ~ e^(-x^2 / (2 sigma^2)).

An observation x has loss s (s - 2x) / (2 sigma^2), so the losses lie on a lattice (Canonne, Kamath and Steinke 2020).
Masses are summed, not approximated: all x within 13.3 sigma of either centre are in the table, and a bound on the mass
beyond (below 1e-38) is added at an infinite loss. The pair is symmetric.

>>> pair = DiscreteGaussianPair(sigma=1.0, shift=1)
>>> upper, _, _ = pair.cells(np.array([0.0, 0.5, 1.5, np.inf]))
>>> upper.round(6).tolist()                          # x = 0, x = -1, and everything below
[0.398942, 0.241971, 0.058558]

Log moments of the sampled discrete Gaussian, the quantity under its Renyi bound.

E_Q[(P/Q)^k] of two shifted discrete Gaussians is, for whole k, a sum over a whole shift of the integers, hence exactly
that of the Gaussian, and so is the binomial sum over who was drawn. Other orders are summed outcome by outcome; where
these are too many, a bound holds that needs whole orders only.
Removing a unit is the worse direction, because a reflection exchanges P and Q (Mironov, Talwar and Zhang 2019,
Theorem 5).

>>> log_excess_sampled_integers(np.array([2.0]), rate=0.01, sigma=3.0, shift=3).round(6)     # as the Gaussian of z = 1
array([-8.669016])

Integers released with discrete Gaussian noise: nothing is rounded, so no float betrays anything.

The unit is the one that the sensitivity was computed for: adding, removing or blanking it moves one integer by at most
`sensitivity`, replacing it by at most twice that. For a vector, `renyi` and `rho` hold with the sensitivity in L2 norm
(Canonne, Kamath and Steinke 2020, Theorems 4 and 14): release it as `ZCDP(sensitivity**2 / (2 * sigma**2))`.

>>> from sfumato.accounting.guarantees import guarantee
>>> release = DiscreteGaussian(sigma=2.0)
>>> release.rho("add_remove"), round(guarantee(release, method="pld").epsilon(1e-6), 3)
(0.125, 2.276)
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato._check import between, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.events.claims import require_range
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.events.laplace import MOST_ATOMS, MOST_SENSITIVITY
from sfumato.accounting.numerics import EPS, inverse_square, log_bregman, log_mix, log_sum
from sfumato.accounting.pair import Pair, Table, TabledPair
from sfumato.accounting.sampled_pair import from_above, log_excess_sampled_gaussian

_REACH = 13.3  # standard deviations; the mass beyond is below 1e-38


@dataclass(frozen=True)
class DiscreteGaussianPair(TabledPair):
    """An integer with discrete Gaussian noise; `sigma` > 0, `shift` is s >= 1."""

    sigma: float
    shift: int

    @property
    def size(self) -> int:
        """Number of atoms."""
        return 2 * self._reach() + self.shift + 3

    def span(self) -> tuple[float, float]:
        reach = self._reach()
        return self._unit() * (self.shift - 2 * reach), self._unit() * (self.shift + 2 * reach)

    def lattice(self) -> tuple[float, float]:
        return self._unit() * self.shift, 2 * self._unit()

    def infinity(self) -> float:
        return 0.0  # what the table has at infinity is a bound on finite losses beyond its end

    def make_table(self) -> Table:
        reach = self._reach()
        x = np.arange(self.shift + reach, -reach - 1, -1, dtype=np.float64)
        weights = np.exp(-((x / self.sigma) ** 2) / 2)
        slope = reach / self.sigma**2  # beyond the table, each weight is at most e^-slope times the one before
        beyond = math.exp(-((reach / self.sigma) ** 2) / 2 - slope) / -math.expm1(-slope)
        total = float(weights.sum())
        upper = np.concatenate([[0.0], weights, [beyond]]) / total
        losses = np.concatenate([[-np.inf], self._unit() * (self.shift - 2 * x), [np.inf]])
        return Table(losses, upper, upper[::-1].copy(), 256 * EPS)

    def _reach(self) -> int:
        return math.ceil(_REACH * self.sigma)

    def _unit(self) -> float:
        return self.shift / (2 * self.sigma**2)


_MOMENTS_REACH = 13.5  # standard deviations around the tilted distribution; the rest is below 1e-39 of the sum
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
    outcomes = 2 * _MOMENTS_REACH * sigma + shift * orders
    summed = ~is_whole & (outcomes <= _MOST_OUTCOMES)
    result[is_whole] = log_excess_sampled_gaussian(orders[is_whole], rate, sigma / shift)
    result[summed] = [_sum(order, rate, sigma, shift) for order in orders[summed].tolist()]
    rest = ~is_whole & ~summed
    result[rest] = from_above(orders[rest], rate, sigma / shift)
    return result


def _sum(order: float, rate: float, sigma: float, shift: int) -> float:
    reach = math.ceil(_MOMENTS_REACH * sigma) + 1
    x = np.arange(-reach, reach + math.ceil(order * shift) + 1, dtype=np.float64)  # Q has its centre at 0
    log_lower = -((x / sigma) ** 2) / 2
    near = np.arange(-reach, reach + 1, dtype=np.float64)
    log_lower -= math.log(float(np.exp(-((near / sigma) ** 2) / 2).sum()))
    log_ratio = log_mix(shift * (2 * x - shift) / (2 * sigma**2), rate)
    return log_sum(log_bregman(log_ratio, order) + log_lower)


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
