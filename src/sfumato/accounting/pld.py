"""Privacy loss distributions: epsilon and delta from above and from below, both certified.

Guarantees that the truth lies between the two ends: the grid errs upward or downward on purpose (see
`_discrete`), and what the composition leaves out is added or subtracted (see `_compose`). Add and remove are
two distributions that are composed separately; the larger epsilon counts. Replacement is one symmetric pair.

The grid's gap follows from the number of steps: the error in epsilon is about steps * gap^2 * order / 8,
where order is the best Renyi order, so a gap is chosen that keeps the interval below 0.1 % of epsilon, and
refined if it does not.

>>> from sfumato.accounting.events import Gaussian
>>> account = PldAccountant(Gaussian(1.0).poisson(0.01) * 10_000)
>>> low, high = account.epsilon_interval(1e-5)
>>> low < 6.188 < high, (high - low) / high < 1e-3
(True, True)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from sfumato._check import InputError, between
from sfumato._types import Adjacency
from sfumato.accounting._compose import Composed, Sketch, TooFine, compose
from sfumato.accounting._discrete import Atoms, best_offset, from_above, from_below
from sfumato.accounting.events import Event, Unknown, terms
from sfumato.accounting.pairs import Pair, SampledGaussian
from sfumato.accounting.rdp import RdpAccountant

_Bound = TypeVar("_Bound")
_TOLERANCE = 4e-4  # width of the interval aimed at, relative to epsilon
_MOST_CELLS = 1 << 21  # of a single step; bounds the memory to about 200 MB
_MOST_DOUBLINGS = 12  # of the gap, until a grid fits
_LEAST_NOISE = 0.05
_MOST_NOISE = 1e7
_LEAST_DELTA = 1e-30  # a grid ends 13 standard deviations out; below this, the Renyi bound is the better one
_ORDERS = tuple(float(a) for a in 1 + np.geomspace(1e-3, 1, 16)) + tuple(
    float(a) for a in np.unique(np.round(np.geomspace(3, 4096, 48)))
)

Parts = list[tuple[Pair, int]]


class PldAccountant:
    """Two-sided bounds for an event.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".

    Raises:
        InputError: the pair of an event is not known, or its noise is too small for a grid.
    """

    method = "pld"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        self._event = event
        self._adjacency: Adjacency = adjacency
        self._renyi = RdpAccountant(event, adjacency, _ORDERS)
        self._curves = [Curve(tuple(parts)) for parts in directions(event, adjacency)]
        self._known: dict[float, tuple[float, float]] = {}

    @staticmethod
    def suits(event: Event, adjacency: Adjacency) -> bool:
        """Whether the pairs of all its events are known and their noise is large enough for a grid."""
        try:
            directions(event, adjacency)
        except InputError:
            return False
        return True

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; 0 <= epsilon <= inf."""
        return self.epsilon_interval(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon at this delta; remembered."""
        between(0, 1, delta=delta)
        if delta not in self._known:
            if len(self._known) >= 64:
                self._known.clear()
            self._known[delta] = self._find(delta)
        return self._known[delta]

    def _find(self, delta: float) -> tuple[float, float]:
        cap = self._renyi.epsilon(delta)
        if cap == 0.0 or not self._curves:
            return 0.0, cap
        if delta < _LEAST_DELTA:
            return 0.0, RdpAccountant(self._event, self._adjacency).epsilon(delta)
        gap = self._gap(delta, cap)
        low, high = 0.0, cap
        hints: list[float | None] = [None] * len(self._curves)
        for _ in range(4):
            try:
                new_low, new_high = self._interval(delta, cap, gap, hints)
            except TooFine:
                if high < cap:
                    break  # an earlier gap did fit
                gap *= 2
                continue
            low, high = max(low, new_low), min(high, new_high)
            width = high - low
            if width <= 2 * _TOLERANCE * high or gap <= self._finest():
                break
            gap = max(self._finest(), gap * min(0.7, 0.9 * math.sqrt(2 * _TOLERANCE * high / width)))
        return low, high

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1]."""
        return self.delta_interval(epsilon)[1]

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest delta at this epsilon."""
        cap = self._renyi.delta(epsilon)
        if math.isinf(epsilon) or cap == 0.0 or not self._curves:
            return 0.0, cap
        gap = self._gap(max(cap, 1e-300), max(epsilon, 1e-3))
        bounds = coarser(gap, lambda gap: [curve.delta(epsilon, gap) for curve in self._curves])
        if bounds is None:
            return 0.0, cap
        high = min(cap, max(high for _, high in bounds))
        return min(high, max(low for low, _ in bounds)), high

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, at once.

        Returns:
            epsilons, float [k], rising from 0; deltas, float [k].
        """
        if not self._curves:
            return np.zeros(1), np.zeros(1)
        delta = 1e-6
        gap = self._gap(delta, max(self._renyi.epsilon(delta), 1e-6))
        at_zero = self.delta(0.0)
        both = coarser(gap, lambda gap: [curve.curve(gap) for curve in self._curves])
        if both is None:
            epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 500)])
            return epsilons, np.array([self._renyi.delta(epsilon) for epsilon in epsilons.tolist()])
        longest = max((epsilons for epsilons, _ in both), key=len, default=np.zeros(1))
        epsilons = longest[:: max(1, len(longest) // 20_000)]
        deltas = np.zeros(len(epsilons))
        for own, values in both:  # delta falls with epsilon: the value at the next smaller epsilon is a bound
            at = np.searchsorted(own, epsilons, side="right") - 1
            deltas = np.maximum(deltas, np.where(at >= 0, values[np.maximum(at, 0)], at_zero) if len(own) else 0.0)
        caps = [self._renyi.delta(epsilon) for epsilon in epsilons.tolist()]  # better in the far tail
        deltas = np.minimum(deltas, caps)
        return np.concatenate([[0.0], epsilons]), np.concatenate([[at_zero], deltas])

    def _interval(self, delta: float, cap: float, gap: float, hints: list[float | None]) -> tuple[float, float]:
        found = [curve.epsilon(delta, gap, True, hint) for curve, hint in zip(self._curves, hints)]
        hints[:] = [tilt for _, tilt in found]
        worst = max(range(len(found)), key=lambda index: found[index][0])
        high = min(cap, found[worst][0])
        try:
            low, _ = self._curves[worst].epsilon(delta, gap, False, hints[worst])
        except TooFine:
            low = 0.0
        return min(high, low), high

    def _gap(self, delta: float, epsilon: float) -> float:
        """The gap at which the two bounds should differ by half of `_TOLERANCE` of epsilon."""
        a = self._renyi.orders
        order = float(a[np.argmin(self._renyi.values + np.log1p(-1 / a) - np.log(delta * a) / (a - 1))])
        steps = sum(count for _, count in self._curves[0].parts)
        return max(self._finest(), math.sqrt(4 * _TOLERANCE * epsilon / (steps * order)))

    def _finest(self) -> float:
        return max(curve.span for curve in self._curves) / _MOST_CELLS


def coarser(gap: float, bound: Callable[[float], _Bound]) -> _Bound | None:
    """The bound at this gap, or at the next wider one that fits: every gap gives a bound, a wide one a loose one."""
    for _ in range(_MOST_DOUBLINGS):
        try:
            return bound(gap)
        except TooFine:
            gap *= 2.0
    return None


@dataclass(frozen=True)
class Curve:
    """One direction of an event: pairs with counts."""

    parts: tuple[tuple[Pair, int], ...]

    @property
    def span(self) -> float:
        ends = [pair.span() for pair, _ in self.parts]
        return max(high - low for low, high in ends)

    def epsilon(self, delta: float, gap: float, above: bool, tilt: float | None = None) -> tuple[float, float]:
        """A bound on epsilon from above or from below, and the tilt that gave it (a hint for the next gap)."""
        atoms = self._atoms(gap, above)
        sketch = Sketch(atoms)
        trial = min(_tilt(sketch, delta=delta), math.inf if tilt is None else 1.2 * tilt)
        best, best_tilt = (math.inf if above else 0.0), trial
        for _ in range(12):
            composed = compose(atoms, sketch, trial)
            if above and delta <= composed.infinity:
                return math.inf, trial
            found, reached, precise = _solve(composed, delta, above)
            found = max(0.0, found + composed.slack if above else found - composed.slack)
            gain = best - found if above else found - best
            if gain > 0:
                best, best_tilt = found, trial
            if precise or trial == 0.0 or best == 0.0 or (reached and 0 <= gain < 1e-4 * best):
                break
            trial = 0.5 * trial if trial > 1e-3 else 0.0
        return best, best_tilt

    def delta(self, epsilon: float, gap: float) -> tuple[float, float]:
        """Bounds on delta."""
        ends = []
        for above in (True, False):
            atoms = self._atoms(gap, above)
            sketch = Sketch(atoms)
            composed = compose(atoms, sketch, _tilt(sketch, epsilon=epsilon))
            ends.append(composed.delta(epsilon - composed.slack if above else epsilon + composed.slack))
        (high, high_error), (low, low_error) = ends
        return max(0.0, low - low_error), min(1.0, high + high_error)

    def curve(self, gap: float) -> tuple[np.ndarray, np.ndarray]:
        """Epsilons in [0, 600] with upper bounds on delta."""
        atoms = self._atoms(gap, True)
        return compose(atoms, Sketch(atoms), 0.0).curve()

    def _atoms(self, gap: float, above: bool) -> list[tuple[Atoms, int]]:
        return [(_atoms(pair, gap, above), count) for pair, count in self.parts]


@lru_cache(maxsize=16)
def _atoms(pair: Pair, gap: float, above: bool) -> Atoms:
    offset = _offset(pair, gap)
    return from_above(pair, gap, offset) if above else from_below(pair, gap, offset)


@lru_cache(maxsize=64)
def _offset(pair: Pair, gap: float) -> float:
    return best_offset(pair, gap)


def _tilt(sketch: Sketch, *, delta: float = 1.0, epsilon: float | None = None) -> float:
    """The tilt that puts the mean where epsilon is: given, or the one that the saddle point gives for delta."""

    def too_far(tilt: float) -> bool:
        log_mgf, mean, variance = sketch.moments(tilt)
        if epsilon is not None:
            return mean > epsilon
        log_delta = log_mgf - tilt * mean - math.log(tilt * (tilt + 1) * math.sqrt(2 * math.pi * variance) + 1)
        return log_delta < math.log(delta)

    low, high = 0.0, 1.0
    while not too_far(high) and high < 1e5:
        low, high = high, 2 * high
    for _ in range(12):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if too_far(middle) else (middle, high)
    return low


def _solve(composed: Composed, delta: float, above: bool) -> tuple[float, bool, bool]:
    """The epsilon >= 0 at which delta, with its error added (above) or subtracted, crosses the given one.

    Also tells whether the window reached down to it, and whether the error was small there.
    """

    def log_ratio(epsilon: float) -> float:
        value, error = composed.delta(epsilon)
        value += error if above else 0.0
        return math.log(value / delta) if value > 0 else -math.inf

    low, high = max(0.0, composed.start), composed.start + composed.gap * len(composed.weights)
    if high <= low or log_ratio(low) <= 0:
        return (low if above else 0.0), low == 0.0, low == 0.0
    if log_ratio(high) > 0:
        return (math.inf if above else 0.0), False, False
    low, high = _crossing(log_ratio, low, high, 1e-6 * composed.gap + 1e-12 * high)
    _, error = composed.delta(low)
    precise = error < 1e-4 * delta
    if above:
        return high, True, precise
    step = composed.gap * 1e-3
    for _ in range(30):  # to the left until the error is paid for
        value, error = composed.delta(low)
        if value - error >= delta:
            return low, True, precise
        low -= step
        step *= 2
    return 0.0, False, False


def _crossing(function: Callable[[float], float], low: float, high: float, tolerance: float) -> tuple[float, float]:
    """A short interval at whose left end a falling function is positive and at whose right end it is not."""
    at_low, at_high = function(low), function(high)
    halve = True
    while high - low > tolerance:
        width = high - low
        middle = 0.5 * (low + high)
        if not halve and at_high > -50 and at_low < 700:
            middle = low + width * at_low / (at_low - at_high)
            middle = min(max(middle, low + 0.4 * tolerance), high - 0.4 * tolerance)
        value = function(middle)
        if value > 0:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
        halve = high - low > 0.5 * width
    return low, high


def directions(event: Event, adjacency: Adjacency) -> list[Parts]:
    """The dominating pairs with counts: for add and for remove, or one symmetric list."""
    shifts: list[float] = []
    both: list[tuple[tuple[Pair, ...], int]] = []
    for single, count in terms(event):
        shift = single.gaussian_shift(adjacency)
        if shift is None:
            both.append((single.pairs(adjacency), count))
        else:
            shifts.append(math.sqrt(count) * shift)
    if shifts:
        both.append(((SampledGaussian("remove", 1.0, math.hypot(*shifts)),), 1))
    for pairs, _ in both:
        _require_grid(pairs[0])
    longest = max((len(pairs) for pairs, _ in both), default=0)
    return [[(pairs[min(index, len(pairs) - 1)], count) for pairs, count in both] for index in range(longest)]


def _require_grid(pair: Pair) -> None:
    if not isinstance(pair, SampledGaussian):
        return
    if pair.shift < 1 / _MOST_NOISE:
        raise Unknown(f'noise of {1 / pair.shift:g} sensitivities is too much for method="pld"; use "rdp"')
    if pair.shift > 1 / _LEAST_NOISE:
        raise Unknown(f'noise of {1 / pair.shift:g} times the sensitivity is too small for method="pld"; use "rdp"')
