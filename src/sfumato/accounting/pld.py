"""Privacy loss distributions: epsilon and delta from above and from below, both certified.

Guarantees that the truth lies between the two ends: the grid errs upward or downward on purpose (see
`loss.discretise`), and what the composition leaves out is added or subtracted (see `loss.compose`). Add and remove are
two distributions that are composed separately; the larger epsilon counts. Replacement is one symmetric pair.
A single release is read off its pair, without a grid.

The gap of the grid follows from the moments of a sketch: chords over cells of a gap add at most gap^2 / 4 to
the variance of a step, which costs (order / 2) times that in epsilon. It is refined until the interval is
narrow enough, as measured.

>>> from sfumato.accounting.events import Gaussian
>>> account = PldAccountant(Gaussian(1.0).poisson(0.01) * 10_000)
>>> low, high = account.epsilon_interval(1e-5)
>>> low < 6.1877 < high, (high - low) / high < 1e-4
(True, True)

**Schedules.** In runs of very many different steps similar ones count as equal, from both sides. Steps are put into at
most 128 groups. With each step replaced by the worst of its group the run costs at least as much, with the mildest at
most as much (`Event.ranked`). Groups are split where that makes the largest difference, by Renyi costs at one order.

>>> from sfumato.accounting.events import Composition, Gaussian
>>> run = sum((Gaussian(1 + step / 500).poisson(0.01) for step in range(500)), Composition(()))
>>> low, high = ScheduleAccountant(run).epsilon_interval(1e-5)
>>> low < high < 1.02 * low
True
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from sfumato._check import InputError, between, non_negative
from sfumato._types import Adjacency
from sfumato.accounting.accountants import Accountant, RdpAccountant
from sfumato.accounting.events import Event, Joint, Unknown, compose, terms
from sfumato.accounting.loss.curve import Curve, crossing, profile
from sfumato.accounting.loss.grid import TooFine
from sfumato.accounting.numerics import EPS
from sfumato.accounting.pair import Pair
from sfumato.accounting.sampled_pair import SampledGaussian

_Bound = TypeVar("_Bound")
_WIDTH = 1e-6  # of the interval aimed at where it is quick, relative to epsilon
_MOST_WIDTH = 4e-4  # and where it is not
_ROUGH_WIDTH = 1e-3  # and where that will do
_ROUGH_DELTA = 1.1  # ratio of the bounds on delta that will do then
_NEAR = 0.98  # of the sketch's epsilon: a rough lower bound that is near enough
_COARSE = 4.0  # how much wider the gap is with which a direction is ruled out
_MOST_DOUBLINGS = 12  # of the gap, until a grid fits
_LEAST_NOISE = 0.05
_MOST_NOISE = 1e7
_LEAST_DELTA = 1e-30  # a grid ends 13 standard deviations out; below this, the Renyi bound is the better one
_SAME = 1e-14  # relative difference of deltas that comes from rounding what they were computed from
_FARTHEST = 1e9  # epsilon up to which compositions are read off
_SUBNORMAL = 1e-290  # masses below it have lost digits
_REMEMBERED = 64  # answers
_ORDERS = (*(1 + np.geomspace(1e-3, 1, 16)).tolist(), *sorted({*np.round(np.geomspace(3, 4096, 48)).tolist()}))
Parts = list[tuple[Pair, int]]


class PldAccountant(Accountant):
    """Two-sided bounds for an event.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        rough: aim at intervals of epsilon that are a thousandth wide, and leave out the Renyi bounds that hold, too.

    Raises:
        InputError: the pair of an event is not known, or its noise is too small for a grid.
    """

    method = "pld"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove", *, rough: bool = False) -> None:
        self._event, self._width = event, _ROUGH_WIDTH if rough else _WIDTH
        self._adjacency: Adjacency = adjacency
        self._curves = [Curve(tuple(parts)) for parts in directions(event, adjacency)]
        self._renyi = None if rough else _renyi(event, adjacency)
        self._largest = math.fsum(count * single.largest_loss(adjacency) for single, count in terms(event))
        if math.isinf(self._largest) and not any(curve.infinity for curve in self._curves):
            self._largest = self._largest_finite()[1]
        self._known: dict[float, tuple[float, float]] = {}
        self._known_deltas: dict[float, tuple[float, float]] = {}

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

    def upper(self, delta: float) -> float:
        """An upper bound on epsilon for less work: without a lower one, so its tightness is planned, not measured."""
        between(0, 1, delta=delta)
        known = self._read_off(float(delta)) if delta not in self._known else self._known[delta]
        if isinstance(known, tuple):
            return known[1]
        worst = 0.0
        for search in self._searches(delta):
            if not worst or search.upper_at(_COARSE * search.gap) > worst:
                worst = max(worst, search.upper_at(search.gap))
        return min(known, worst)

    def lower(self, delta: float) -> float:
        """A lower bound on the smallest epsilon of the pairs, for less work, as `upper`."""
        between(0, 1, delta=delta)
        known = self._read_off(float(delta)) if delta not in self._known else self._known[delta]
        if isinstance(known, tuple):
            return known[0]
        tops = [curve.top_epsilon(delta) for curve in self._curves]
        return min(known, max(*tops, *(search.lower() for search in self._searches(delta))))

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon of the pairs at this delta; remembered.

        The lower one holds for the event where a mechanism attains its pairs (`Event.attained`).

        Args:
            delta: in [0, 1]. At 0, epsilon is the largest loss.
        """
        between(0, 1, delta=delta)
        if delta not in self._known:
            _evict(self._known)
            self._known[delta] = self._find(float(delta))
        return self._known[delta]

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1]."""
        return self.delta_interval(epsilon)[1]

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest delta of the pairs at this epsilon, in [0, inf]; remembered."""
        if not math.isinf(epsilon):
            non_negative(epsilon=epsilon)
        if epsilon not in self._known_deltas:
            _evict(self._known_deltas)
            self._known_deltas[epsilon] = self._find_delta(epsilon)
        return self._known_deltas[epsilon]

    def _find_delta(self, epsilon: float) -> tuple[float, float]:
        least = max((curve.infinity for curve in self._curves), default=0.0)
        if epsilon >= self._largest or math.isinf(epsilon) or not self._curves:
            return least, least
        if epsilon > _FARTHEST:  # no window reaches there; delta falls with epsilon
            return least, self.delta_interval(_FARTHEST)[1]
        cap = 1.0 if self._renyi is None else self._renyi.delta(epsilon)
        if cap == 0.0:
            return 0.0, 0.0
        bounds = [self._delta(curve, float(epsilon), cap) for curve in self._curves]
        high = min(cap, max(high for _, high in bounds))
        return min(high, max(low for low, _ in bounds)), high

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, at once.

        Returns:
            epsilons, float [k], rising from 0; deltas, float [k].
        """
        if not self._curves:
            return np.zeros(1), np.zeros(1)
        return profile(self._curves, self._largest, lambda pair, epsilon: _single_delta(pair, epsilon)[1])

    def _find(self, delta: float) -> tuple[float, float]:
        known = self._read_off(delta)
        return known if isinstance(known, tuple) else self._compose(delta, known)

    def _read_off(self, delta: float) -> tuple[float, float] | float:
        """Bounds on epsilon where no composition is needed, or else an upper bound that one may improve."""
        if delta >= 1.0 or not self._curves:
            return 0.0, 0.0
        least = max(curve.infinity for curve in self._curves)
        if delta < least * (1 - _SAME):
            return math.inf, math.inf
        cap = self._largest if self._renyi is None else min(self._largest, self._renyi.epsilon(delta))
        if cap == 0.0:
            return 0.0, cap
        if delta < _LEAST_DELTA and delta > 0 and math.isinf(self._largest):
            return 0.0, cap if self._renyi is None else RdpAccountant(self._event, self._adjacency).epsilon(delta)
        if delta <= least * (1 + _SAME):  # all finite losses count
            low, high = self._largest_finite()
            return min(low, cap), min(high, cap)
        if all(curve.count == 1 for curve in self._curves):
            ends = [_single_epsilon(curve.parts[0][0], delta) for curve in self._curves]
            high = min(cap, max(high for _, high in ends))
            return min(high, max(low for low, _ in ends)), high
        return cap

    def _largest_finite(self) -> tuple[float, float]:
        """Bounds on the largest finite loss."""
        largest = max(math.fsum(count * pair.span()[1] for pair, count in curve.parts) for curve in self._curves)
        largest = max(0.0, largest)
        pairs = [pair for curve in self._curves for pair, _ in curve.parts]
        return largest * (1 - 1e-9), largest if all(_ends(pair) for pair in pairs) else math.inf

    def _compose(self, delta: float, cap: float) -> tuple[float, float]:
        """Bounds on epsilon: the worst direction first, and the others only as closely as they matter."""
        worst_low = worst_high = 0.0
        for search in self._searches(delta):
            if worst_high and search.upper_at(_COARSE * search.gap) <= worst_high:
                continue
            low, high = search.interval()
            worst_low, worst_high = max(worst_low, low), max(worst_high, high)
        worst_low = max(worst_low, *(curve.top_epsilon(delta) for curve in self._curves))
        if worst_low > cap:  # the pairs dominate the mechanism, but are worse than it
            return 0.0, cap
        high = min(cap, worst_high)
        return min(worst_low, high), high

    def _searches(self, delta: float) -> "list[_Search]":
        return sorted((_Search(curve, delta, self._width) for curve in self._curves), key=lambda search: -search.guess)

    def _delta(self, curve: Curve, epsilon: float, cap: float) -> tuple[float, float]:
        """Bounds on delta of one direction, refined until they are close."""
        if curve.count == 1:
            return _single_delta(curve.parts[0][0], epsilon)
        largest = math.fsum(count * pair.span()[1] for pair, count in curve.parts)
        if epsilon >= largest * (1 + 1e-9) and all(_ends(pair) for pair, _ in curve.parts):
            return curve.infinity, curve.infinity  # beyond all finite losses
        low, high, gap, finer = 0.0, min(cap, 1.0), None, False
        guess = min(high, max(math.exp(curve.sketch.log_delta(epsilon)) + curve.infinity, _LEAST_DELTA))
        for _ in range(6):
            ending = curve.ending(guess)
            if gap is not None:
                gap = max(gap, ending.finest)  # a smaller delta needs a longer grid
            else:
                tilt = ending.sketch.tilt_at(epsilon)
                # a loss that moves by w moves delta by w at most, so that a large delta bears more
                relative = max(1 / max(tilt, 1 / max(epsilon, 1e-3)), 0.1 * guess)
                gap = ending.gap(tilt, 1e-3 * relative, 1e-2 * relative)
                if tilt == 0 and ending.distance is None:  # the bulk decides, of which a wide gap shows nothing
                    narrow = math.sqrt(ending.sketch.moments(0.0)[2]) / 8
                    gap = min(gap, ending.on_lattice(max(narrow, ending.finest)))
            found = coarser(gap, partial(ending.delta, epsilon, guess=guess))
            if found is None:
                break
            (new_low, new_high), used = found
            last = high - low
            low, high = max(low, new_low), min(high, new_high)
            if high <= (_ROUGH_DELTA if self._width == _ROUGH_WIDTH else 1.001) * low or high < _LEAST_DELTA:
                break
            if curve.count * ending.tail <= 1e-3 * high:  # the grid ends late enough, so its gap is too wide
                if used > gap or used <= 1.4 * ending.finest or (finer and high - low > 0.7 * last):
                    break
                gap, finer = ending.on_lattice(used / 3), True
            guess = min(high, max(low, 0.1 * high, _LEAST_DELTA))
        return min(max(low, curve.top_delta(epsilon)), high), high


class _Search:
    """Narrowing the epsilon of one direction at one delta."""

    def __init__(self, curve: Curve, delta: float, width: float) -> None:
        self._curve, self._delta = curve.ending(delta), delta
        tilt, guess = self._curve.sketch.saddle(math.log(max(delta - curve.infinity, 1e-300)))
        self.guess = max(guess, 0.0)
        aim = max(self.guess, 1e-12)
        self.gap = self._curve.gap(tilt, width * aim, max(width, _MOST_WIDTH) * aim)

    def upper_at(self, gap: float) -> float:
        """An upper bound at this gap; inf where it does not fit."""
        try:
            return self._curve.epsilon(self._delta, self._curve.on_lattice(gap), True, self.guess)[0]
        except TooFine:
            return math.inf

    def lower_at(self, gap: float) -> float:
        """A lower bound at this gap; 0 where it does not fit."""
        try:
            return self._curve.epsilon(self._delta, self._curve.on_lattice(gap), False, self.guess)[0]
        except TooFine:
            return 0.0

    def lower(self) -> float:
        """A lower bound, on finer grids while it is far below what the sketch shows and that raises it."""
        best, gap = self.lower_at(self.gap), self.gap
        for _ in range(3):  # where losses end off the grid, the error falls with the gap alone
            if best >= _NEAR * self.guess:
                break
            gap = self._curve.on_lattice(gap / 4)
            last, best = best, max(best, self.lower_at(gap))
            if best <= last * (1 + _ROUGH_WIDTH):
                break
        return best

    def interval(self) -> tuple[float, float]:
        """(lower, upper), refined until it is narrow or the grid cannot be finer."""
        low, high, width = 0.0, math.inf, math.inf
        gap, finest = self.gap, self._curve.finest
        for _ in range(5):
            found = coarser(gap, self._bounds)
            if found is None:
                break
            (new_low, new_high), used = found
            low, high = max(low, new_low), min(high, new_high)
            last, width = width, high - low
            if width <= 2 * _MOST_WIDTH * high or width > 0.8 * last or used > gap or used <= finest:
                break
            wanted = 0.8 * used * math.sqrt(_MOST_WIDTH * high / width)
            gap = self._curve.on_lattice(max(finest, min(wanted, used / 1.5), used / 16))
        return min(low, high), high

    def _bounds(self, gap: float) -> tuple[float, float]:
        high, self.guess = self._curve.epsilon(self._delta, gap, True, self.guess)
        return self._curve.epsilon(self._delta, gap, False, self.guess)[0], high


def _evict(known: dict[float, tuple[float, float]]) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()


def coarser(gap: float, bound: Callable[[float], _Bound]) -> tuple[_Bound, float] | None:
    """The bound at this gap, or at the next wider one that fits, and the gap: a wide one gives a loose bound."""
    for _ in range(_MOST_DOUBLINGS):
        try:
            return bound(gap), gap
        except TooFine:
            gap = 2.0 * gap
    return None


def _renyi(event: Event, adjacency: Adjacency) -> RdpAccountant | None:
    try:
        return RdpAccountant(event, adjacency, _ORDERS)
    except InputError:
        return None


def _ends(pair: Pair) -> bool:
    """Whether the pair has no finite loss above its span."""
    beyond, _, _ = pair.cells(np.array([pair.span()[1], np.inf]))
    return float(beyond[0]) <= pair.infinity()


def _single_bounds(pair: Pair, epsilon: float) -> tuple[float, float]:
    """(lower, upper) bounds on what one release has at epsilon: P(L > epsilon) - e^epsilon Q(L > epsilon)."""
    near = epsilon - 1e-6 * (1 + epsilon)  # the error of a narrow cell is that of the tails at its ends
    upper, lower, error = pair.cells(np.array([-np.inf, near, epsilon, np.inf]))
    discounted = float(np.exp(epsilon + np.log(lower[2]))) if lower[2] > 0 else 0.0
    wrong = float(error[1]) + 4 * EPS * (float(upper[2]) + discounted * (1 + epsilon))
    delta = float(upper[2]) - discounted
    return 0.0 if float(upper[2]) < _SUBNORMAL else delta - wrong, delta + wrong


def _single_delta(pair: Pair, epsilon: float) -> tuple[float, float]:
    low, high = _single_bounds(pair, epsilon)
    return min(max(pair.infinity(), low), 1.0), min(max(pair.infinity(), high), 1.0)


def _single_epsilon(pair: Pair, delta: float) -> tuple[float, float]:
    """Bounds on the epsilon of one release, by search."""
    _, top = pair.span()
    ends = []
    for above in (False, True):

        def excess(epsilon: float, above: bool = above) -> float:
            value = _single_bounds(pair, epsilon)[above]
            return math.log(value / delta) if value > 0 else -math.inf

        if excess(0.0) <= 0:
            ends.append(0.0)
        elif excess(top) > 0:
            ends.append(_beyond(pair, top, delta) if above else top)
        else:
            ends.append(crossing(excess, 0.0, top, 1e-12 * top)[above])
    return ends[0], ends[1]


def _beyond(pair: Pair, top: float, delta: float) -> float:
    """Epsilon where the bound at the end of the span is above delta by round-off alone: P has next to nothing there."""
    beyond, _, _ = pair.cells(np.array([top, np.inf]))
    return top * (1 + 4 * EPS) if 2 * float(beyond[0]) <= delta else math.inf


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


_MOST_EXACT = 64  # different steps that are composed as they are
_MOST_GROUPS = 128
_MOST_FOR_CURVES = 24  # of which five compositions are made in each direction
_MOST_UNRANKED = 256  # different steps that cannot be compared; more of them take minutes
_MOST_ASKED = 64  # steps whose Renyi costs choose the order
_FEW_ORDERS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_DELTA = 1e-6  # at which the order is the best one; any delta gives bounds


class ScheduleAccountant(Accountant):
    """Two-sided bounds for a composition of many different events.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".

    Raises:
        InputError: the pair of an event is not known.
    """

    method = "pld"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        self._event = event
        self._adjacency: Adjacency = adjacency
        worse, milder = grouped(event, adjacency)
        self._worse = PldAccountant(worse, adjacency, rough=True)
        self._milder = PldAccountant(milder, adjacency, rough=True)

    @staticmethod
    def suits(event: Event, adjacency: Adjacency) -> bool:
        """Whether all pairs are known, and not too many steps differ from all others in kind.

        Discrete Gaussians of different sigma do: which of two shows more is not known to follow from sigma. More of
        them than can be composed one by one cost what Renyi divergences say, without a lower bound.
        """
        unranked = sum(Rank.of(single) is None for single, _ in _different(event, adjacency))
        return unranked <= _MOST_UNRANKED and PldAccountant.suits(event, adjacency)

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; 0 <= epsilon <= inf."""
        return self._worse.upper(delta)

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon of the pairs at this delta."""
        high = self.epsilon(delta)
        return min(self._milder.lower(delta), high), high

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1]."""
        return self._worse.delta(epsilon)

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest delta of the pairs at this epsilon."""
        high = self.delta(epsilon)
        return min(self._milder.delta_interval(epsilon)[0], high), high

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, as `PldAccountant.curve`, from fewer groups."""
        worse, _ = grouped(self._event, self._adjacency, _MOST_FOR_CURVES)
        return PldAccountant(worse, self._adjacency, rough=True).curve()


def many_different(event: Event, adjacency: Adjacency) -> bool:
    """Whether more steps differ than are composed one by one; Gaussian releases are one, however many they are."""
    return len(_different(event, adjacency)) > _MOST_EXACT


def grouped(event: Event, adjacency: Adjacency, most: int = _MOST_GROUPS) -> tuple[Event, Event]:
    """The event with similar steps made equal: one that costs at least as much, and one that costs at most as much.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        most: groups; what cannot be compared with anything is a group by itself, however many there are.
    """
    found = _different(event, adjacency)
    ranked: dict[object, list[tuple[Rank, int]]] = {}
    kept = dict(terms(event))
    for single, count in found:
        rank = Rank.of(single)
        if rank is not None:
            ranked.setdefault(rank.kind, []).append((rank, count))
            del kept[single]
    order = _order(found, adjacency)
    groups = [_Group(tuple(members), order, adjacency) for members in ranked.values()]
    room = most - sum(single.gaussian_shift(adjacency) is None for single in kept)
    while groups and len(groups) < room:
        groups.sort(key=lambda group: group.difference)
        if not groups[-1].difference > 0:
            break
        groups += groups.pop().halves()
    worse, milder = dict(kept), dict(kept)
    for group in groups:
        for counts, single in ((worse, group.worst), (milder, group.mildest)):
            counts[single] = counts.get(single, 0) + group.count
    return compose(worse), compose(milder)


@dataclass(frozen=True)
class Rank:
    """Where an event stands among those that it can be compared with (`Event.ranked`).

    One event costs at least as much as another one of its kind if each of its numbers is at least as large.

    Attributes:
        event: the event.
        kind: all that is not compared: events of the same kind can be.
        numbers: larger ones cost more; as many for all of a kind.
    """

    event: Event
    kind: Hashable
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, event: Event) -> "Rank | None":
        """The rank of an event; None where no order is known."""
        if isinstance(event, Joint):
            event = event.gaussian
        if not event.ranked:
            return None
        kind: list[Hashable] = [type(event)]
        numbers = [float(sign * getattr(event, name)) for name, sign in event.ranked.items()]
        for name in _others(event):
            value = getattr(event, name)
            if isinstance(value, Event):
                inner = cls.of(value)
                if inner is None:
                    return None
                value, numbers = inner.kind, [*numbers, *inner.numbers]
            kind.append(value)
        return cls(event, tuple(kind), tuple(numbers))


def worst(ranks: Iterable[Rank]) -> Event:
    """An event that costs at least as much as each of these, all of one kind."""
    ranks = list(ranks)
    return _with_numbers(ranks[0].event, map(max, zip(*(rank.numbers for rank in ranks))))


def mildest(ranks: Iterable[Rank]) -> Event:
    """An event that costs at most as much as each of these, all of one kind."""
    ranks = list(ranks)
    return _with_numbers(ranks[0].event, map(min, zip(*(rank.numbers for rank in ranks))))


def _with_numbers(event: Event, numbers: Iterator[float]) -> Event:
    """An event of this kind, with other numbers in the order of `Rank.numbers`."""
    if isinstance(event, Joint):
        event = event.gaussian
    changed: dict[str, Any] = {}
    for name, sign in event.ranked.items():
        changed[name] = type(getattr(event, name))(sign * next(numbers))
    for name in _others(event):
        value = getattr(event, name)
        if isinstance(value, Event):
            changed[name] = _with_numbers(value, numbers)
    return replace(event, **changed)  # pyright: ignore[reportArgumentType]


def _others(event: Event) -> list[str]:
    """Names of the fields that are not compared."""
    return [field.name for field in fields(event) if field.name not in event.ranked]  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _Group:
    """Steps of one kind, with counts."""

    members: tuple[tuple[Rank, int], ...]
    order: float
    adjacency: Adjacency

    @cached_property
    def worst(self) -> Event:
        return worst(rank for rank, _ in self.members)

    @cached_property
    def mildest(self) -> Event:
        return mildest(rank for rank, _ in self.members)

    @cached_property
    def count(self) -> int:
        return sum(count for _, count in self.members)

    @cached_property
    def difference(self) -> float:
        """What it matters, in Renyi costs, that the steps of the group are counted as equal."""
        if len(self.members) == 1:
            return 0.0
        order = np.array([self.order])
        both = [_renyi_of(single, order, self.adjacency)[0] for single in (self.worst, self.mildest)]
        return self.count * (both[0] - both[1] if math.isfinite(both[0]) else max(self._spreads))

    @cached_property
    def _spreads(self) -> list[float]:
        """How much the steps differ in each number, on a logarithmic scale."""
        columns = np.log(np.abs([rank.numbers for rank, _ in self.members]) + 1e-300)
        return np.ptp(columns, axis=0).tolist()

    def halves(self) -> "list[_Group]":
        """Two groups, parted at the middle of the number in which the steps differ most."""
        axis = int(np.argmax(self._spreads))
        numbers = np.abs([rank.numbers[axis] for rank, _ in self.members])
        least, most = float(numbers.min()), float(numbers.max())
        middle = min(math.sqrt(least) * math.sqrt(most), math.nextafter(most, 0.0))
        parts = ([], [])
        for member, number in zip(self.members, numbers):
            parts[int(number > middle)].append(member)
        return [_Group(tuple(part), self.order, self.adjacency) for part in parts if part]


def _different(event: Event, adjacency: Adjacency) -> list[tuple[Event, int]]:
    return [(single, count) for single, count in terms(event) if single.gaussian_shift(adjacency) is None]


def _order(found: list[tuple[Event, int]], adjacency: Adjacency) -> float:
    """About the order at which the Renyi cost of all steps gives the smallest epsilon; from some of them."""
    ordered = sorted(found, key=lambda one: rank.numbers if (rank := Rank.of(one[0])) else ())
    shown = [ordered[index] for index in np.unique(np.linspace(0, len(found) - 1, _MOST_ASKED).astype(int))]
    share = sum(count for _, count in found) / sum(count for _, count in shown)
    total = sum(
        (share * count * _renyi_of(single, _FEW_ORDERS, adjacency) for single, count in shown),
        np.zeros(len(_FEW_ORDERS)),
    )
    epsilons = total - (math.log(_DELTA) + np.log(_FEW_ORDERS)) / (_FEW_ORDERS - 1)
    return float(_FEW_ORDERS[np.argmin(epsilons)])


def _renyi_of(single: Event, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
    try:
        return single.renyi(orders, adjacency)
    except InputError:
        return np.full(len(orders), np.inf)
