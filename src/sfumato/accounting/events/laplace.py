"""Releases of bounded loss: Laplace noise on the reals and on the integers, and the exponential mechanism.

**Pair of bounded range,** of the exponential mechanism and its kin (Durfee and Rogers 2019). The losses of two
neighbouring data sets lie in an interval of length epsilon, wherever it is. The worst curve over all such mechanisms is
delta(x) = (1 - e^((x - epsilon)/2))^2 / (1 - e^-epsilon) for |x| <= epsilon; it is the curve of P with density e^((x -
epsilon)/2) / (2 (1 - e^-epsilon)) of the loss x in (-epsilon, epsilon), and Q = P e^-x. See
docs/explanation/exponential-mechanism.md for the derivation. The pair is symmetric.

>>> upper, lower, error = BoundedRange(1.0).cells(np.array([-1.0, 0.0, 1.0]))
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.3775, 0.6225], [0.6225, 0.3775])

**Pair of a Laplace release:** Lap(0, b) against Lap(s, b), with epsilon = s / b. An observation at or below 0 has loss
epsilon, one at or above s has loss -epsilon; in between the loss falls linearly. So half of P is an atom at epsilon,
half of e^-epsilon an atom at -epsilon, and the rest has density e^((x - epsilon)/2) / 4 of the loss x. The pair is
symmetric.

>>> upper, lower, error = LaplacePair(1.0).cells(np.array([-1.0, 0.0, 1.0]))      # without the atom at -1
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.1193, 0.6967], [0.1967, 0.3033])

**Pair of a discrete Laplace release:** X against X + s on the integers, P(X = x) proportional to e^(-a |x|). With t =
e^-a, the loss a (s - 2n) for n = 0..s has mass 1/(1+t), t^n (1-t)/(1+t) or t^s/(1+t) under P: the first for n = 0, the
last for n = s. The pair is symmetric, and its losses lie on a lattice of distance 2a.

>>> pair = DiscreteLaplacePair(rate=math.log(2), shift=1)
>>> pair.table().upper.round(4).tolist()
[0.3333, 0.6667]

**Laplace noise** on numbers and vectors. The unit is the one that the scale was computed for: adding, removing or
blanking it moves the numbers by at most one sensitivity in L1 norm, replacing it by at most two. For one number the
pair of the largest move is tight; for a vector it dominates, however the move is spread over the coordinates
(docs/explanation/laplace.md has the proof).

The Renyi divergence has a closed form (Mironov 2017, Table II); the loss is bounded (Dwork and Roth 2014, Theorem 3.6).

>>> from sfumato.accounting.guarantees import guarantee
>>> forty = Laplace(scale=3.0) * 40
>>> f"{guarantee(forty, method='pld').delta(10.0):.2e}"
'1.79e-06'
>>> round(Laplace(3.0).largest_loss("replace"), 6)
0.666667

**The exponential mechanism** and others of bounded range choose one of many by a noisy score. The unit and the
adjacency are those for which epsilon was computed: between two neighbouring data sets, the privacy losses of any two
outcomes differ by at most epsilon (Durfee and Rogers 2019, Definition 3.1). The exponential mechanism with weights
e^(epsilon score / (2 sensitivity)) has this range, so has report-noisy-max with Gumbel noise; where a score can move in
one direction only, e^(epsilon score / sensitivity) does. Bounded range implies epsilon-differential privacy, and about
a quarter of its rho.

Renyi divergences are the largest over all mechanisms of that range, in closed form, and zCDP is epsilon^2 / 8
(Cesar and Rogers 2021, Lemma 3.4); docs/explanation/exponential-mechanism.md derives both and the pair.

>>> from sfumato.accounting.guarantees import guarantee
>>> hundred = ExponentialMechanism(0.5) * 100
>>> round(guarantee(hundred, method="rdp_usual_orders").epsilon(1e-6), 4)
15.0955
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import between, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.events.claims import BoundedLoss, Claim, group_size, require_adjacency
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.loss.renyi import renyi_from_log_excess, renyi_of_pure
from sfumato.accounting.numerics import EPS, divided, log_expm1, round_off, round_up
from sfumato.accounting.pair import Pair, Table, TabledPair


@dataclass(frozen=True)
class BoundedRange:
    """Losses that differ by at most `epsilon` between any two outcomes; 0 < epsilon <= 700."""

    epsilon: float

    def span(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def bulk(self) -> float:
        return 0.0

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        upper, lower = tilted_uniform(edges, self.epsilon)
        return upper, lower, round_off(upper, lower, edges[1:])


def tilted_uniform(edges: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Masses on (edge_i, edge_i+1] of the densities proportional to e^(x/2) and e^(-x/2) on (-epsilon, epsilon)."""
    inside = np.clip(edges, -epsilon, epsilon)
    grown = np.expm1(np.diff(inside) / 2) / -np.expm1(-epsilon)
    return np.exp((inside[:-1] - epsilon) / 2) * grown, np.exp((-inside[1:] - epsilon) / 2) * grown


@dataclass(frozen=True)
class LaplacePair:
    """A number with Laplace noise; `epsilon` is the largest loss, 0 < epsilon <= 700."""

    epsilon: float

    def span(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def bulk(self) -> float:
        return self.epsilon

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        upper, lower = tilted_uniform(edges, self.epsilon)
        between = -math.expm1(-self.epsilon) / 2
        small = math.exp(-self.epsilon) / 2
        top, bottom = _holds(edges, self.epsilon), _holds(edges, -self.epsilon)
        upper = between * upper + 0.5 * top + small * bottom
        lower = between * lower + small * top + 0.5 * bottom
        return upper, lower, round_off(upper, lower, edges[1:])


def _holds(edges: np.ndarray, loss: float) -> np.ndarray:
    return (edges[:-1] < loss) & (loss <= edges[1:])


@dataclass(frozen=True)
class DiscreteLaplacePair(TabledPair):
    """An integer with discrete Laplace noise; `rate` is a > 0, `shift` is s >= 1."""

    rate: float
    shift: int

    def lattice(self) -> tuple[float, float]:
        return -self.rate * self.shift, 2 * self.rate

    def make_table(self) -> Table:
        n = np.arange(self.shift, -1, -1, dtype=np.float64)
        share = 1.0 / (1.0 + math.exp(-self.rate))
        upper = share * -math.expm1(-self.rate) * np.exp(-self.rate * n)
        upper[0], upper[-1] = share * math.exp(-self.rate * self.shift), share
        return Table(
            self.rate * (self.shift - 2 * n), upper, upper[::-1].copy(), 4 * EPS * (1 + self.rate * self.shift)
        )


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
