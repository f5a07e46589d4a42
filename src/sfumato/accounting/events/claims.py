"""Releases of which only a claim is known: (epsilon, delta), rho, or nothing at all.

A claim is about somebody else's mechanism and true for the unit and the adjacency that it names. A claim for adding or
removing a unit says something about replacing one: that is a removal and an addition, a group of two. Nothing else
follows, so anything else is refused.

The pair of an (epsilon, delta) claim is the worst mechanism that it allows, so compositions are optimal (Kairouz, Oh
and Viswanath 2015, Theorem 3.3).

>>> from sfumato.accounting.guarantees import guarantee
>>> thirty = ApproximateDP(epsilon=1.0, delta=0.001) * 30
>>> round(guarantee(thirty, method="pld").epsilon(0.06), 2), PureDP(1.0).largest_loss("replace")
(21.71, 2.0)
>>> guarantee(PureDP(1.0, adjacency="replace"), "add_remove")
Traceback (most recent call last):
...
sfumato.accounting.events.event.Unknown: PureDP is a claim for replace and says nothing about add_remove; use ...

Events whose privacy loss is bounded and whose pair is symmetric: a kind of them says the bound and the pair.

Renyi divergences follow from the pair, zCDP from the bound (see `Event`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np

from sfumato._check import between, non_negative, one_of, positive
from sfumato._lazy import scipy
from sfumato._types import Adjacency
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.numerics import EPS, round_up
from sfumato.accounting.pair import FinitePair, Pair

# Events whose privacy loss is bounded and whose pair is symmetric: a kind of them says the bound and the pair.
#
# Renyi divergences follow from the pair, zCDP from the bound (see `Event`).


_LARGEST = 500.0  # losses beyond it do not fit into the exponent of a double
_SMALLEST = 1e-13  # a loss that is not much above the rounding of one


class BoundedLoss(Event):
    """An event with a finite `largest_loss` and one symmetric pair."""

    __slots__ = ()

    unsampled = ""

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        require_range(self, min(self.largest_loss(adjacency), 1e300))
        return (self._pair(adjacency),)

    def largest_loss(self, adjacency: Adjacency) -> float:
        raise NotImplementedError

    def _pair(self, adjacency: Adjacency) -> Pair:
        raise NotImplementedError


def require_range(event: Event, largest_loss: float) -> None:
    """Refuse losses that no grid can hold.

    Raises:
        Unknown: the largest loss is too large or too small.
    """
    if math.isfinite(largest_loss) and not _SMALLEST <= largest_loss <= _LARGEST:
        size = "large" if largest_loss > _LARGEST else "small"
        raise Unknown(
            f'a loss of {largest_loss:g} in {type(event).__name__} is too {size} for method="pld"; use "rdp" or "pure"'
        )


_LARGEST_CLAIM = 700.0  # epsilon whose e^epsilon is a double


@event_kind("non_private")
@dataclass(frozen=True, slots=True)
class NonPrivate(Event):
    """A release without any guarantee: epsilon is infinite. For runs without noise."""

    unsampled = ""

    def _of_group(self, units: int) -> Event:
        return self

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return np.full(len(orders), np.inf)

    def rho(self, adjacency: Adjacency) -> float:
        return float("inf")


class Claim(Event):
    """An event that is true for the adjacency that it names, and says nothing about what the mechanism does."""

    __slots__ = ()

    adjacency: Adjacency

    def attained(self, adjacency: Adjacency) -> bool:
        return group_size(self, self.adjacency, adjacency) == 1


@event_kind("pure_dp")
@dataclass(frozen=True, slots=True)
class PureDP(Claim, BoundedLoss):
    """A mechanism that is epsilon-differentially private.

    Attributes:
        epsilon: > 0.
        adjacency: the one for which the claim holds.
    """

    epsilon: float
    adjacency: Adjacency = "add_remove"

    ranked: ClassVar[Mapping[str, int]] = {"epsilon": 1}

    def __post_init__(self) -> None:
        positive(epsilon=self.epsilon, remedy="leave out what costs nothing; for no guarantee use NonPrivate()")
        require_adjacency(self.adjacency)

    def largest_loss(self, adjacency: Adjacency) -> float:
        return group_size(self, self.adjacency, adjacency) * self.epsilon

    def _of_group(self, units: int) -> Event:
        return PureDP(self.epsilon * units, self.adjacency)

    def _pair(self, adjacency: Adjacency) -> Pair:
        return _worst(self.largest_loss(adjacency), 0.0)


@event_kind("approximate_dp")
@dataclass(frozen=True, slots=True)
class ApproximateDP(Claim):
    """A mechanism that is (epsilon, delta)-differentially private.

    Attributes:
        epsilon: >= 0.
        delta: in (0, 1); for delta 0 use `PureDP`.
        adjacency: the one for which the claim holds. A claim for add_remove is (2 epsilon, (1 + e^epsilon) delta) for
            replace.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "add_remove"

    unsampled = ""
    ranked: ClassVar[Mapping[str, int]] = {"epsilon": 1, "delta": 1}

    def __post_init__(self) -> None:
        non_negative(epsilon=self.epsilon, remedy="for no guarantee use NonPrivate()")
        between(0, 1, ends="()", delta=self.delta, remedy="for delta 0 use PureDP, for delta 1 NonPrivate()")
        require_adjacency(self.adjacency)

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        epsilon, delta = self.epsilon, self.delta
        if group_size(self, self.adjacency, adjacency) == 2:
            epsilon, delta = 2 * epsilon, _group_delta(epsilon, delta, 2)
        if delta < 1:
            require_range(self, epsilon or 1.0)
        return (_worst(epsilon, delta),)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return np.full(len(orders), self.rho(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        group_size(self, self.adjacency, adjacency)
        return math.inf

    def largest_loss(self, adjacency: Adjacency) -> float:
        return self.rho(adjacency)

    def _of_group(self, units: int) -> Event:
        """Vadhan 2017, "The Complexity of Differential Privacy", Lemma 2.2: delta grows by the sum of e^(i epsilon)."""
        epsilon, delta = self.epsilon * units, _group_delta(self.epsilon, self.delta, units)
        return ApproximateDP(epsilon, delta, self.adjacency) if delta < 1 else NonPrivate()


@event_kind("zcdp")
@dataclass(frozen=True, slots=True)
class ZCDP(Claim):
    """A mechanism that is (xi, rho)-zero-concentrated differentially private: D_a <= xi + rho a at every order a > 1.

    Attributes:
        claimed_rho: rho > 0.
        adjacency: the one for which the claim holds. A claim for add_remove is (3 xi, 4 rho) for replace (Bun and
            Steinke 2016, Proposition 1.9: k units are (k xi (1 + 1/2 + ... + 1/k), k^2 rho)).
        xi: offset >= 0; 0 for what is called rho-zCDP.
    """

    claimed_rho: float
    adjacency: Adjacency = "add_remove"
    xi: float = 0.0

    unsampled = "zCDP has no amplification by sampling; sample the mechanism itself"

    def __post_init__(self) -> None:
        positive(rho=self.claimed_rho, remedy="leave out what costs nothing; for no guarantee use NonPrivate()")
        require_adjacency(self.adjacency)
        non_negative(xi=self.xi)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        xi, rho = self.concentrated(adjacency)
        return xi + orders * rho

    def rho(self, adjacency: Adjacency) -> float:
        xi, rho = self.concentrated(adjacency)
        return rho if xi == 0 else math.inf  # no rho alone is enough

    def concentrated(self, adjacency: Adjacency) -> tuple[float, float]:
        return _grouped(self, group_size(self, self.adjacency, adjacency))

    def _of_group(self, units: int) -> Event:
        xi, rho = _grouped(self, units)
        return ZCDP(rho, self.adjacency, xi)

    def largest_loss(self, adjacency: Adjacency) -> float:
        group_size(self, self.adjacency, adjacency)
        return math.inf


def _grouped(event: ZCDP, units: int) -> tuple[float, float]:
    """(xi, rho) for so many units at once."""
    harmonic = math.fsum(1 / i for i in range(1, units + 1))
    xi = round_up(units * harmonic * event.xi) if units > 1 else event.xi
    return xi, units**2 * event.claimed_rho


def group_size(event: Event, claimed: Adjacency, asked: Adjacency) -> int:
    """How many neighbours of the claim lie between two neighbours of the question: 1 or 2.

    Raises:
        Unknown: the claim says nothing about the question.
    """
    if claimed == asked:
        return 1
    if claimed == "add_remove" and asked == "replace":
        return 2
    raise Unknown(
        f"{type(event).__name__} is a claim for {claimed} and says nothing about {asked}; "
        f'use adjacency="{claimed}" or a claim for {asked}'
    )


def _group_delta(epsilon: float, delta: float, units: int) -> float:
    """delta * (e^(units epsilon) - 1) / (e^epsilon - 1), rounded up; inf where it is no double."""
    whole = units * epsilon
    if epsilon == 0.0:
        return delta * units * (1 + 8 * EPS) if units > 1 else delta
    if whole <= _LARGEST_CLAIM:
        return delta * (math.expm1(whole) / math.expm1(epsilon)) * (1 + 8 * EPS) if units > 1 else delta
    rest = math.log1p(-math.exp(-whole)) - math.log1p(-math.exp(-epsilon))
    log_delta = math.log(delta) + (units - 1) * epsilon + rest
    log_delta += 8 * EPS * (1 + abs(math.log(delta)) + whole)
    return math.exp(log_delta) if log_delta < _LARGEST_CLAIM else math.inf


def require_adjacency(adjacency: str) -> None:
    """Refuse a word that is no adjacency."""
    one_of(get_args(Adjacency), adjacency=adjacency)


def _worst(epsilon: float, delta: float) -> FinitePair:
    """The pair that is (epsilon, delta)-private with equality everywhere."""
    delta = min(delta, 1.0)
    if epsilon == 0 or delta == 1:
        return FinitePair((0.0,), (1 - delta,), (1 - delta,), delta, delta)
    likely, unlikely = (
        (1 - delta) * float(scipy.special.expit(epsilon)),
        (1 - delta) * float(scipy.special.expit(-epsilon)),
    )
    return FinitePair((-epsilon, epsilon), (unlikely, likely), (likely, unlikely), delta, delta)
