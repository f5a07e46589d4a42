"""Numbers and vectors released with Laplace noise, on the reals and on the integers.

The unit is whoever the scale was computed for: adding, removing or blanking it moves the numbers by at most one
sensitivity in L1 norm, replacing it by at most two. For one number the pair of the largest move is tight; for a vector
it dominates, however the move is spread over the coordinates (docs/explanation/laplace.md has the proof).

The Renyi divergence has a closed form (Mironov 2017, Table II); the loss is bounded (Dwork and Roth 2014, Theorem 3.6).

>>> from sfumato.accounting.guarantee import guarantee
>>> forty = Laplace(scale=3.0) * 40
>>> f"{guarantee(forty, method='pld').delta(10.0):.2e}"
'1.79e-06'
>>> round(Laplace(3.0).largest_loss("replace"), 6)
0.666667
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import between, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.doubles import divided, round_up
from sfumato.accounting.events.bounded import BoundedLoss
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.moments.bounded_pair import renyi_from_log_excess, renyi_of_pure
from sfumato.accounting.moments.logs import log_expm1
from sfumato.accounting.pairs.discrete_laplace import DiscreteLaplacePair
from sfumato.accounting.pairs.laplace import LaplacePair
from sfumato.accounting.pairs.pair import Pair

MOST_ATOMS = 1 << 20
"""Losses of a discrete pair; more would need more than 100 MB."""

MOST_SENSITIVITY = 1 << 53
"""Of integers; a double holds every whole number up to it."""

_LEAST_SCALE = 1e-300  # the loss of less noise is beyond the range of a double


@event_kind("laplace")
@dataclass(frozen=True, slots=True)
class Laplace(BoundedLoss):
    """Numbers released with Laplace noise.

    Attributes:
        scale: scale b of the noise, with density proportional to e^(-|x| / b), divided by the most that adding or
            removing one unit can move the numbers in L1 norm, > 0.
    """

    scale: float

    ranked: ClassVar[Mapping[str, int]] = {"scale": -1}

    def __post_init__(self) -> None:
        positive(scale=self.scale, remedy="for a run without noise use NonPrivate()")
        between(_LEAST_SCALE, math.inf, scale=self.scale, remedy="for a run without noise use NonPrivate()")
        object.__setattr__(self, "scale", float(self.scale))

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        loss = self.largest_loss(adjacency)
        # E_Q[(P/Q)^a] = (a e^x + (a-1) e^-y) / (2a-1); the linear terms of its two exponentials cancel
        x, y = (orders - 1) * loss, orders * loss
        falling = np.log((orders - 1) / (2 * orders - 1)) + _log_above_tangent(-y)
        log_excess = np.logaddexp(np.log(orders / (2 * orders - 1)) + _log_above_tangent(x), falling)
        return np.minimum(renyi_from_log_excess(log_excess, orders), renyi_of_pure(orders, loss))

    def largest_loss(self, adjacency: Adjacency) -> float:
        inverse = 1.0 / self.scale
        return (2.0 if adjacency == "replace" else 1.0) * (inverse if inverse * self.scale == 1 else round_up(inverse))

    def _of_group(self, units: int) -> Event:
        return Laplace(divided(self.scale, units))

    def _pair(self, adjacency: Adjacency) -> Pair:
        return LaplacePair(self.largest_loss(adjacency))


@event_kind("discrete_laplace")
@dataclass(frozen=True, slots=True)
class DiscreteLaplace(BoundedLoss):
    """Integers released with discrete Laplace (two-sided geometric) noise.

    Attributes:
        rate: a > 0; an integer x is drawn with a probability proportional to e^(-a |x|).
        sensitivity: the most that adding or removing one unit can move the integers in L1 norm, a whole number >= 1.
            Replacing a unit moves them twice as far; accountants take care of that.
    """

    rate: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive(rate=self.rate, remedy="for a run without noise use NonPrivate()")
        whole(sensitivity=self.sensitivity)
        between(1, MOST_SENSITIVITY, sensitivity=self.sensitivity)
        object.__setattr__(self, "rate", float(self.rate))
        object.__setattr__(self, "sensitivity", int(self.sensitivity))

    def largest_loss(self, adjacency: Adjacency) -> float:
        shift = self._shift(adjacency)
        return self.rate if shift == 1 else round_up(self.rate * shift)

    def _pair(self, adjacency: Adjacency) -> Pair:
        shift = self._shift(adjacency)
        if shift > MOST_ATOMS:
            raise Unknown(f'a sensitivity of {shift} integers is too much for method="pld"; use "pure" or "zcdp"')
        return DiscreteLaplacePair(self.rate, shift)

    def _of_group(self, units: int) -> Event:
        return DiscreteLaplace(self.rate, self.sensitivity * units)

    def _shift(self, adjacency: Adjacency) -> int:
        return (2 if adjacency == "replace" else 1) * self.sensitivity


def _log_above_tangent(x: np.ndarray) -> np.ndarray:
    """log(e^x - 1 - x) for any x, without cancellation."""
    near = np.abs(x) < 0.3
    t = np.where(near, x, 0.0)
    series = np.zeros_like(t)
    for k in range(16, 2, -1):  # x^2/2 (1 + x/3 (1 + x/4 (...)))
        series = (1.0 + series) * t / k
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        small = 2 * np.log(np.abs(x)) - math.log(2) + np.log1p(series)
        below = np.log(np.expm1(np.minimum(x, 0.0)) - np.minimum(x, 0.0))
        above = log_expm1(np.maximum(x, 1e-3))
        above = above + np.log1p(-np.maximum(x, 1e-3) * np.exp(-above))
    return np.where(near, small, np.where(x < 0, below, above))
