"""Privacy buckets: losses rounded to a grid, up for an upper bound and down for a lower one.

The first accountant that followed whole distributions (Meiser and Mohammadi 2018, "Tight on Budget?", here without
their correction terms; Koskela, Jalko, Prediger and Honkela 2021, Section 4). A step may add up to one gap of the
grid, so the two bounds are steps * gap apart, where connecting the dots errs by about steps * gap^2.

Kept for comparison: the accountant `pld` is tighter for the same work. Guarantees that the truth lies between the
two ends, for the unit that the events were made for; what the composition leaves out is added or subtracted.

>>> from sfumato.accounting.events import Gaussian
>>> account = BucketsAccountant(Gaussian(1.0).poisson(0.01) * 100, gap=1e-4)
>>> low, high = account.epsilon_interval(1e-5)
>>> round(low, 3), round(high, 3)
(0.713, 0.723)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency
from sfumato.accounting.accountants.comparison.prv import finite_directions, reach
from sfumato.accounting.accountants.pld import Curve, Parts
from sfumato.accounting.accountants.rdp import RdpAccountant
from sfumato.accounting.doubles import EPS
from sfumato.accounting.events import Event, Unknown
from sfumato.accounting.loss.compose import TooFine
from sfumato.accounting.loss.discretise import Atoms
from sfumato.accounting.pairs import Pair

_Bound = TypeVar("_Bound")
_TOLERANCE = 0.01  # distance of the bounds aimed at, relative to epsilon
_SHARE = 1e-3  # of delta that may be cut from the upper ends of the steps and counted as infinite
_LEAST_DELTA = 1e-30  # grids end 13 standard deviations out
_MOST_CELLS = 1 << 20  # of a single step
_MOST_DOUBLINGS = 60  # of the gap, until a grid fits


class BucketsAccountant:
    """Two-sided bounds from rounded losses.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        gap: distance of the buckets, > 0; None chooses one that keeps the bounds within 1 % of epsilon, as far as the
            buckets fit into memory.

    Raises:
        InputError: the pair of an event is not known.
    """

    method = "buckets"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove", *, gap: float | None = None) -> None:
        if gap is not None:
            positive(gap=gap)
        self._event = event
        self._adjacency: Adjacency = adjacency
        self._directions = finite_directions(event, adjacency)
        self._gap = gap
        self._known: dict[float, tuple[float, float]] = {}
        self._lower: dict[float, float] = {}

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; 0 <= epsilon <= inf."""
        return self._upper(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon at this delta.

        Args:
            delta: in (0, 1).

        Raises:
            InputError: the given gap needs more buckets than fit into memory.
        """
        gap, high = self._upper(delta)
        if delta not in self._lower:

            def lower(gap: float) -> float:
                return max(curve.epsilon(delta, gap, False)[0] for curve in self._curves(delta))

            self._lower = {delta: self._fitting(gap, lower, 0.0)[1]}
        return min(self._lower[delta], high), high

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1]."""
        non_negative(epsilon=epsilon)
        size = self._size(lambda account: account.delta(epsilon), 1e-5)
        delta = min(max(size, 1e-30), 0.5)

        def upper(gap: float) -> float:
            return max(curve.delta(epsilon, gap)[1] for curve in self._curves(delta))

        return self._fitting(self._wanted(max(epsilon, 0.1)), upper, 0.0)[1]

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, at once.

        Returns:
            epsilons, float [k], rising from 0; deltas, float [k].
        """
        scale = self._size(lambda account: account.epsilon(1e-6), 1.0)
        nothing: list[tuple[np.ndarray, np.ndarray]] = []
        gap = self._wanted(scale)
        both = self._fitting(gap, lambda gap: [curve.curve(gap) for curve in self._curves(1e-6)], nothing)[1]
        longest = max((epsilons for epsilons, _ in both), key=len, default=np.zeros(0))
        epsilons = np.concatenate([[0.0], longest[:: max(1, len(longest) // 20_000)]])
        at_zero = self.delta(0.0)
        deltas = np.zeros(len(epsilons))
        for own, values in both:  # delta falls with epsilon: the value at the next smaller epsilon is a bound
            at = np.searchsorted(own, epsilons, side="right") - 1
            deltas = np.maximum(deltas, np.where(at >= 0, values[np.maximum(at, 0)], at_zero) if len(own) else at_zero)
        return epsilons, np.minimum.accumulate(deltas)

    def _upper(self, delta: float) -> tuple[float, float]:
        """The gap, and the upper bound on epsilon with it; remembered for one delta."""
        between(0, 1, ends="()", delta=delta)
        if self._directions and delta < _LEAST_DELTA:
            raise InputError(f'method "buckets" has a grid for delta >= {_LEAST_DELTA:g}, got {delta:g}; use "pld"')
        if delta not in self._known:

            def upper(gap: float) -> float:
                return max(curve.epsilon(delta, gap, True)[0] for curve in self._curves(delta))

            scale = self._size(lambda account: account.epsilon(delta), 1.0)
            gap, high = self._fitting(self._wanted(scale), upper, 0.0)
            if 0 < high < 0.9 * scale and self._gap is None:  # the scale was too rough a guess
                gap, high = self._fitting(self._wanted(high), upper, 0.0)
            self._known = {delta: (gap, high)}
        return self._known[delta]

    def _wanted(self, epsilon: float) -> float:
        """The gap for an epsilon of about this size."""
        steps = max((sum(count for _, count in parts) for parts in self._directions), default=1)
        return self._gap or 0.9 * _TOLERANCE * epsilon / steps

    def _size(self, ask: Callable[[RdpAccountant], float], otherwise: float) -> float:
        """What to expect, by the Renyi accountant."""
        try:
            found = ask(RdpAccountant(self._event, self._adjacency))
        except Unknown:
            return otherwise
        return found if 0 < found < math.inf else otherwise

    def _fitting(self, gap: float, bound: Callable[[float], _Bound], nothing: _Bound) -> tuple[float, _Bound]:
        """This gap, or the next wider one that fits, and the bound with it."""
        if not self._directions:
            return gap, nothing
        for _ in range(_MOST_DOUBLINGS):
            try:
                return gap, bound(gap)
            except TooFine as error:
                if self._gap:
                    raise InputError(f"a gap of {gap:g} needs {error}, which is too many; choose a wider one") from None
                gap *= 2.0
        raise InputError('method "buckets" has no grid for this event; use "rdp"')

    def _curves(self, delta: float) -> "list[_Curve]":
        return [_curve(parts, delta) for parts in self._directions]


@dataclass(frozen=True)
class _Curve(Curve):
    """One direction of an event, on buckets.

    Attributes:
        outside: mass of a step that may be cut from each side.
    """

    outside: float

    def _atoms(self, gap: float, above: bool) -> list[tuple[Atoms, int]]:
        return [(_rounded(pair, gap, self.outside, above), count) for pair, count in self.parts]


def _curve(parts: Parts, delta: float) -> _Curve:
    return _Curve(tuple(parts), _SHARE * delta / sum(count for _, count in parts))


def _rounded(pair: Pair, gap: float, outside: float, above: bool) -> Atoms:
    """Losses on multiples of the gap: each bucket's mass at its upper end, or at its lower one.

    The losses that are cut off count as infinite, or as the last one.
    """
    low, high, _ = reach(pair, outside)
    first, last = math.floor(low / gap), math.ceil(high / gap)
    if last - first > _MOST_CELLS:
        raise TooFine(f"{last - first} buckets")
    knots = gap * np.arange(first, last + 1)
    cells = pair.cells(np.concatenate([[-np.inf], knots, [np.inf]]))[0]
    infinity = min(pair.infinity(), float(cells[-1]))
    beyond = max(0.0, float(cells[-1]) - infinity)
    if above:
        masses, infinity = cells[:-1].copy(), infinity + beyond
    else:
        masses = np.append(cells[1:-1], beyond)
    if pair.atom():
        masses[min(max(-first, 0), len(masses) - 1)] += pair.atom()
    return Atoms(gap, 0.0, first, masses, infinity, 8 * EPS * (max(abs(low), abs(high)) + 1.0))
