"""One direction of an event, adding or removing a unit: bounds on its curve of epsilon and delta at a given gap.

Composition of steps whose rare large losses decide: the steps with such a loss are counted one by one.

Where a single rare loss makes the epsilon in question (small sampling rates, tiny deltas), no tilt makes it likely
without making still larger ones likelier, and the round-off of a transform hides it. So the distribution of a step is
split at a loss into a low and a high part, and T steps are the sum over k of binomial(T, k) times T - k low ones and k
high ones: each term has its own tilt and its own scale, so its error is relative to itself. The terms that are left out
are bounded by the chance of so many high losses.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from sfumato.accounting.loss.compose import Composed, Sketch, at_least_once, best_tilt, compose
from sfumato.accounting.loss.grid import Atoms, TooFine, grid, lattice, span
from sfumato.accounting.numerics import EPS, dot
from sfumato.accounting.pair import Pair
from sfumato.accounting.tradeoff import lower_hull

_SHARE = 1e-7  # of delta that the terms which are left out may have
_MOST_TERMS = 12
_SPREAD = 10.0  # log of the moment generating function that low losses may have at the tilt that delta needs


@dataclass(frozen=True, eq=False)
class Split:
    """A sum of compositions; read like one.

    Attributes:
        terms: log of a factor and a composition, each.
        rest: bound on the mass of what is left out.
        infinity: mass of an infinite loss.
    """

    terms: tuple[tuple[float, Composed], ...]
    rest: float
    infinity: float

    @property
    def start(self) -> float:
        return min(composed.start for _, composed in self.terms)

    @property
    def end(self) -> float:
        return max(composed.end for _, composed in self.terms)

    @property
    def gap(self) -> float:
        return self.terms[0][1].gap

    @property
    def slack(self) -> float:
        return max(composed.slack for _, composed in self.terms)

    def log_delta(self, epsilon: float, above: bool) -> float:
        """log of an upper (or a lower) bound on delta."""
        logs = [log_factor + composed.log_delta(epsilon, above) for log_factor, composed in self.terms]
        total = self.infinity + (self.rest if above else 0.0)
        logs.append(math.log(total) if total > 0 else -math.inf)
        top = max(logs)
        if top == -math.inf:
            return top
        sign = 1e-12 if above else -1e-12
        return min(0.0, top + math.log(math.fsum(math.exp(log - top) for log in logs)) + sign)

    def share_of_error(self, epsilon: float, above: bool) -> float:
        """The error bound relative to delta at an epsilon, about."""
        high, low = self.log_delta(epsilon, True), self.log_delta(epsilon, False)
        return math.inf if low == -math.inf else math.expm1(min(high - low, 700.0))


def split(parts: Sequence[tuple[Atoms, int]], epsilon: float, log_delta: float, infinity: float) -> Split | None:
    """The composition around one epsilon; None if no split is of use.

    Args:
        parts: distributions on grids of the same gap, each with its count.
        epsilon: where it will be read, about.
        log_delta: log of the finite part of delta there, about.
        infinity: mass of an infinite loss, of the whole composition.

    Raises:
        TooFine: a term has too many points.
    """
    tilt = 1.2 * -log_delta / epsilon
    cuts = [_cut(atoms, count, tilt) for atoms, count in parts]
    which = max(
        range(len(parts)), key=lambda index: parts[index][1] * float(_above(parts[index][0], cuts[index]).sum())
    )
    (atoms, count), cut = parts[which], cuts[which]
    others = [(replace(own, infinity=0.0), times) for own, times in parts if own is not atoms]
    log_high = math.log(float(_above(atoms, cut).sum()) or 1e-320)
    low = replace(atoms, masses=atoms.masses[:cut], infinity=0.0, memo={})
    high = replace(atoms, first=atoms.first + cut, masses=_above(atoms, cut), infinity=0.0, memo={})
    terms = []
    for times in range(min(count, _MOST_TERMS) + 1):
        log_factor = _log_binomial(count, times)
        if log_factor + times * log_high < log_delta + math.log(_SHARE):
            # the chances of more high losses fall at least as fast as a geometric series
            return Split(tuple(terms), 2 * math.exp(log_factor + times * log_high), infinity) if terms else None
        own = [(low, count - times), (high, times), *others]
        own = [(each, number) for each, number in own if number and each.masses.any()]
        if not own:
            return None
        sketch = Sketch(own)
        target = min(0.0, log_delta - log_factor)
        terms.append((log_factor, compose(own, sketch, best_tilt(own, sketch, epsilon, target), epsilon, target)))
    return Split(tuple(terms), 0.0, infinity) if count <= _MOST_TERMS else None


def _above(atoms: Atoms, cut: int) -> np.ndarray:
    return atoms.masses[cut:]


def _cut(atoms: Atoms, count: int, tilt: float) -> int:
    """How many of the lowest losses are low: at this tilt they do not add up to much."""
    losses = tilt * atoms.losses
    with np.errstate(over="ignore"):
        terms = atoms.masses * (np.expm1(np.minimum(losses, 700.0)) - losses)
    return max(1, int(np.searchsorted(np.cumsum(terms), _SPREAD / count)))


def _log_binomial(count: int, times: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(times + 1) - math.lgamma(count - times + 1)


_SHARE = 1e-7  # of delta that the tails of all steps together may have
_LEAST_TAIL = 1e-38  # beyond which pairs do not reach
_ENOUGH = 1e-6  # error of a bound, relative to delta, that needs no better tilt
_TOO_MUCH = 1e-4  # error that calls for a split
_MOST_ATTEMPTS = 12
_SAME_LOSS = 1e-12  # relative; losses that are closer to the largest one are the largest one, up to round-off
_LEAST_LOG = -690.0  # of a mass that has kept its digits
_CELLS, _CURVE_POINTS = 40_000, 1 << 18  # what a quick answer costs at most: of a step, of a composition
_MOST_CELLS = 1 << 19  # of a single step; bounds the memory to about 100 MB


@dataclass(frozen=True)
class Curve:
    """A composition of dominating pairs.

    Attributes:
        parts: pairs, each with its count >= 1.
        tail: mass of a step beyond each end of its grid.
    """

    parts: tuple[tuple[Pair, int], ...]
    tail: float = field(default=_LEAST_TAIL, kw_only=True)

    @cached_property
    def count(self) -> int:
        """How many steps it has."""
        return sum(count for _, count in self.parts)

    @cached_property
    def infinity(self) -> float:
        """Mass of an infinite loss: no epsilon has a delta below it."""
        return at_least_once([(pair.infinity(), count) for pair, count in self.parts])

    @cached_property
    def _top(self) -> tuple[float, float]:
        """log of a lower bound on the chance that every step has its largest loss, and the sum of these losses."""
        log_mass = loss = 0.0
        for pair, count in self.parts:
            largest = pair.span()[1]
            least = largest - _SAME_LOSS * abs(largest)
            mass = float(pair.cells(np.array([least, np.inf]))[0][0]) - pair.infinity()
            log_mass += count * (math.log(mass) - _SAME_LOSS if mass > 0 else -math.inf)
            loss += count * least
        return log_mass, loss

    def top_delta(self, epsilon: float) -> float:
        """A lower bound on delta: what a test shows that waits for the largest loss in every step.

        It is exact from the second largest loss on, where a grid's point lies above or below the largest one.
        """
        log_mass, loss = self._top
        return self.infinity - math.exp(log_mass) * math.expm1(min(0.0, epsilon - loss))

    def top_epsilon(self, delta: float) -> float:
        """The same seen from delta: a lower bound on epsilon, 0 where such a test shows too little."""
        log_mass, loss = self._top
        share = (delta - self.infinity) / math.exp(log_mass) if log_mass > _LEAST_LOG else math.inf
        return max(0.0, loss + math.log1p(-share)) if 0 <= share < 1 else 0.0

    @cached_property
    def sketch(self) -> Sketch:
        """Moments, without a grid."""
        return Sketch.of_pairs(self.parts, self.tail)

    def ending(self, delta: float) -> "Curve":
        """The same on grids that end where nothing is left that matters at this delta."""
        tail = max(_LEAST_TAIL, _SHARE * max(delta - self.infinity, 1e-300) / self.count)
        # few different ones, so that grids can be reused
        return replace(self, tail=10.0 ** (2 * math.floor(0.5 * math.log10(tail))))

    @property
    def distance(self) -> float | None:
        """The gap at which every loss is on the grid; None where there is none."""
        distances = {own[1] if (own := lattice(pair)) else None for pair, _ in self.parts}
        return distances.pop() or 1.0 if len(distances) == 1 and None not in distances else None

    def gap(self, tilt: float, width: float, quick_width: float) -> float:
        """The gap at which both bounds on epsilon should differ by `width`.

        If that is not quick, by `quick_width` or as little as is quick.
        """
        if self.distance is not None:
            return self.distance
        longest = max(span(pair, self.tail) for pair, _ in self.parts)
        deviation = math.sqrt(self.sketch.moments(tilt)[2])
        gap = _ladder(max(min(longest / 16, 1.0), 1e-300))
        quick = max(longest / _CELLS, 8 * deviation / _CURVE_POINTS)
        while gap > 2 * self.finest:
            error = (1 + tilt) * self.sketch.spread(gap, tilt)
            if error <= width or (error <= quick_width and gap <= quick):
                break
            gap = _ladder(gap / 1.4)
        return self.on_lattice(gap)

    def on_lattice(self, gap: float) -> float:
        """The gap, or a smaller one that divides the lattice of a pair that has one."""
        known = [own[1] for own in (lattice(pair) for pair, _ in self.parts) if own]
        return min(known) / math.ceil(min(known) / gap) if known else gap

    @property
    def finest(self) -> float:
        """The smallest gap that memory allows."""
        return max(span(pair, self.tail) for pair, _ in self.parts) / _MOST_CELLS

    def epsilon(self, delta: float, gap: float, above: bool, guess: float | None = None) -> tuple[float, float]:
        """A bound on epsilon from above or from below, and a guess for the next gap.

        Args:
            delta: > 0, above the mass of an infinite loss for a finite bound.
            gap: of the grid.
            above: which bound.
            guess: about where it is.

        Raises:
            TooFine: the composition has too many points.
        """
        atoms = self._atoms(gap, above)
        finite = delta - at_least_once([(own.infinity, count) for own, count in atoms])
        if finite <= 0:
            return (math.inf if above else guess or 0.0), guess or 0.0
        if not all(own.masses.any() for own, _ in atoms):
            return (math.inf if above else 0.0), guess or 0.0
        sketch = Sketch(atoms)
        if guess is None:
            guess = max(0.0, sketch.saddle(math.log(finite))[1])
        largest = math.fsum(count * (own.largest_loss + own.slack) for own, count in atoms)
        best, rare = max(0.0, largest) if above else 0.0, False  # beyond it, delta is what is infinite
        for attempt in range(_MOST_ATTEMPTS):
            composed = None  # not two of them at a time
            composed = _compose(atoms, sketch, guess, math.log(finite), rare)
            if composed is None:
                break
            found = solve(composed, math.log(delta), above, guess)
            gain = best - found if above else found - best
            best = min(best, found) if above else max(best, found)
            if math.isinf(found) or found >= composed.end:
                guess = 2 * composed.end - guess
                continue
            if above and 0 < found <= composed.start + composed.slack:  # the window begins above the epsilon
                guess = max(0.0, 2 * composed.start - guess)
                continue
            error = composed.share_of_error(found, above)
            if found > 0 and error <= _ENOUGH:
                break
            if found == 0.0 or (attempt and gain <= 1e-6 * best):
                if rare or error <= _TOO_MUCH:
                    break
                rare = True
            if above or error < 0.1:
                guess = found if found > 0 else guess
        return best, best if 0 < best < math.inf else guess

    def delta(self, epsilon: float, gap: float, guess: float | None = None) -> tuple[float, float]:
        """Bounds on delta; `guess` is about what it is.

        Raises:
            TooFine: the composition has too many points.
        """
        logs = []
        for above in (False, True):
            atoms = self._atoms(gap, above)
            infinity = at_least_once([(own.infinity, count) for own, count in atoms])
            if infinity >= 1.0 or not all(own.masses.any() for own, _ in atoms):
                logs.append(0.0 if above or infinity >= 1.0 else -math.inf)
                continue
            sketch = Sketch(atoms)
            target = sketch.log_delta(epsilon) if guess is None else math.log(max(guess - infinity, 1e-6 * guess))
            composed = _compose(atoms, sketch, epsilon, target, False)
            if composed and composed.share_of_error(epsilon, above) > _TOO_MUCH:
                composed = _compose(atoms, sketch, epsilon, target, True) or composed
            logs.append(composed.log_delta(epsilon, above) if composed else 0.0)
        low, high = math.exp(logs[0]), math.exp(logs[1])
        return min(low, high), high

    def _atoms(self, gap: float, above: bool) -> list[tuple[Atoms, int]]:
        return [(grid(pair, gap, self.tail, above), count) for pair, count in self.parts]


def _compose(
    atoms: list[tuple[Atoms, int]], sketch: Sketch, epsilon: float, log_delta: float, rare: bool
) -> Composed | Split | None:
    """The composition around an epsilon, of steps with rare large losses if they are; None if they are not."""
    if not rare:
        return compose(atoms, sketch, best_tilt(atoms, sketch, epsilon, log_delta), epsilon, log_delta)
    infinity = at_least_once([(own.infinity, count) for own, count in atoms])
    return split(atoms, epsilon, log_delta, infinity) if epsilon > 0 else None


def _ladder(gap: float) -> float:
    """A power of the square root of two: few different gaps, so that grids can be reused."""
    return 2.0 ** (0.5 * math.floor(2 * math.log2(gap)))


def solve(composed: Composed | Split, log_delta: float, above: bool, guess: float) -> float:
    """The epsilon >= 0 at which a bound on delta that falls around the guess has this log, rounded to the safe side.

    Returns:
        For a bound from above inf, from below 0, if it is not found within the window.
    """

    def excess(epsilon: float) -> float:
        return composed.log_delta(epsilon, above) - log_delta

    low, high = max(0.0, composed.start + composed.slack), composed.end
    if high <= low:
        return low if above else 0.0
    step = 1e-2 * composed.gap
    point = min(max(guess, low), high)
    value = excess(point)
    other = point
    while (value > 0) == (excess(other) > 0):  # walk towards the crossing
        if other == (high if value > 0 else low):
            if above:
                return math.inf if value > 0 else low
            return high if value > 0 else 0.0
        point, other = other, min(other + step, high) if value > 0 else max(other - step, low)
        step *= 8
    left, right = crossing(excess, min(point, other), max(point, other), 1e-5 * composed.gap + 1e-13 * high)
    return right if above else left


def crossing(function: Callable[[float], float], low: float, high: float, tolerance: float) -> tuple[float, float]:
    """A short interval at whose left end a falling function is positive and at whose right end it is not."""
    at_low, at_high = function(low), function(high)
    halve = False
    while high - low > tolerance:
        width = high - low
        middle = 0.5 * (low + high)
        if not halve and at_high > -50 and at_low < 700:
            middle = low + width * at_low / (at_low - at_high)
            middle = min(max(middle, low + 0.4 * tolerance), high - 0.4 * tolerance)
        if not low < middle < high:
            break
        value = function(middle)
        if value > 0:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
        halve = high - low > 0.5 * width
    return low, high


# The whole curve of delta over epsilon of a composition, for everything that is read off a curve.
#
# Guarantees upper bounds on the larger delta of all directions, from epsilon 0 to where delta is about 1e-16. One
# transform is precise around one delta only, relative to it; so the curve is made of several, each tilted to a delta of
# its own. Their points are upper bounds on a function that is convex in e^epsilon, so the lower hull of all of them is
# one too, and between points its chords are.
#
# At a loss l of the grid, delta(l) = e^(log_scale - tilt l) * sum over losses l + k gap > l of
# weight * e^(-tilt k gap) * (1 - e^(-k gap)): the difference of two sums, each a geometric recursion from the right.


_LOGS = tuple(power * math.log(10) for power in (-1, -4, -8, -12, -16))  # of deltas; the first is for no tilt
_LARGEST = 700.0  # epsilon whose e^epsilon is a double
_POINTS = 300  # of the curve, that are taken from each composition
_WIDTH, _QUICK_WIDTH = 1e-3, 3e-3  # relative error of delta aimed at, and where that takes long
_BLOCK = 300.0  # exponents that are summed at once: e^-300 is still a double
_MOST_DOUBLINGS = 12  # of the gap, until a grid fits
Points = tuple[np.ndarray, np.ndarray]


def profile(curves: Sequence[Curve], largest: float, single: Callable[[Pair, float], float]) -> Points:
    """Upper bounds on delta at many epsilons >= 0.

    Args:
        curves: the directions, at least one.
        largest: the largest finite loss of all, or inf.
        single: an upper bound on delta of a pair at an epsilon.

    Returns:
        epsilons, float [k], rising from 0; deltas, float [k], not rising.
    """
    anchors = [[max(0.0, curve.sketch.saddle(log_delta)[1]) for log_delta in _LOGS] for curve in curves]
    top = min(largest, _LARGEST, max(own[-1] for own in anchors))
    hulls = [_direction(curve, own, top, top == largest, single) for curve, own in zip(curves, anchors)]
    ratios = np.unique(np.concatenate([[1.0], *(own for own, _ in hulls)]))
    ratios = ratios[ratios >= 1.0]
    deltas = np.max([np.interp(ratios, own, values, left=1.0) for own, values in hulls], axis=0)
    return np.log(ratios), np.minimum(1.0, np.where(deltas > 0, deltas * (1 + 1e-12), 0.0))


def _direction(
    curve: Curve, anchors: list[float], top: float, ends: bool, single: Callable[[Pair, float], float]
) -> Points:
    """Corners of the hull of one direction, e^epsilon and delta, up to an epsilon that may be its largest loss."""
    if curve.count == 1:
        ((pair, _),) = curve.parts
        epsilons = np.linspace(0.0, top, 2 * _POINTS)
        points = [(epsilons, np.array([single(pair, epsilon) for epsilon in epsilons.tolist()]))]
    else:
        points = [(np.zeros(1), np.ones(1))]
        lows, highs = [0.0, 0.0, *anchors[1:-1]], [min(high, top) for high in (*anchors[1:], top)]
        pieces = [
            _Piece(epsilon, log_delta, low, max(low, high))
            for epsilon, log_delta, low, high in zip([0.0, *anchors[1:]], _LOGS, lows, highs)
        ]
        points += _composed(curve, pieces[:1]) + _composed(curve, [piece for piece in pieces[1:] if piece.low < top])
    if ends:
        points.append((np.array([top]), np.array([curve.infinity])))
    epsilons, deltas = (np.concatenate(parts) for parts in zip(*points))
    inside = epsilons <= _LARGEST
    epsilons, deltas = epsilons[inside], deltas[inside]
    order = np.argsort(epsilons, kind="stable")
    ratios, deltas = np.exp(epsilons[order]), deltas[order]
    ratios[ratios != 1.0] *= 1 + 4 * EPS
    corners = lower_hull(ratios, deltas)
    return ratios[corners], deltas[corners]


class _Piece(NamedTuple):
    """A part of a curve, from `low` to `high`, that is read off the composition around epsilon and log of delta."""

    epsilon: float
    log_delta: float
    low: float
    high: float


def _composed(curve: Curve, pieces: list[_Piece]) -> list[Points]:
    """The points of each piece, all on one grid, one composition in memory at a time; none where there is no grid."""
    if not pieces:
        return []
    ending = curve.ending(math.exp(pieces[-1].log_delta) * 1e-3 + curve.infinity)
    tilts = [ending.sketch.tilt_at(piece.epsilon) for piece in pieces]
    gap = min(ending.gap(tilt, _WIDTH / (1.0 + tilt), _QUICK_WIDTH / (1.0 + tilt)) for tilt in tilts)
    for _ in range(_MOST_DOUBLINGS):
        atoms: list[tuple[Atoms, int]] = []
        try:
            atoms = ending._atoms(gap, True)
        except TooFine:
            gap = ending.on_lattice(2.0 * gap)
            continue
        if at_least_once([(own.infinity, count) for own, count in atoms]) >= 1.0:
            break
        sketch = Sketch(atoms)
        try:
            return [
                _read(compose(atoms, sketch, sketch.tilt_at(epsilon), None, log_delta), low, high)
                for epsilon, log_delta, low, high in pieces
            ]
        except TooFine:
            gap = ending.on_lattice(2.0 * gap)
        finally:  # grids are remembered for other questions, the transforms of a whole curve need not be
            for own, _ in atoms:
                own.memo.clear()
    return []


def _read(composed: Composed, low: float, high: float) -> Points:
    """Epsilons from about `low` to about `high`, the last one below `low` included, with upper bounds on delta."""
    gap, tilt, size = composed.gap, composed.tilt, len(composed.weights)
    first = max(0, math.floor((low - composed.start) / gap) - 1)
    end = min(size, math.floor((min(high + gap, _LARGEST) - composed.start) / gap) + 1)
    if first >= end:
        return np.zeros(0), np.zeros(0)
    weights = composed.weights[first:]
    slow, fast = _tails(weights, tilt * gap), _tails(weights, (tilt + 1) * gap)
    some = np.unique(np.round(np.linspace(0, end - first - 1, _POINTS)).astype(int))
    values = slow[some] - fast[some] + 4 * (size + 8) * EPS * slow[some]
    losses = composed.start + gap * (first + some)
    values += _noise(composed) + np.exp(
        np.minimum(0.0, composed.tail.log_mass(composed.end) - tilt * np.maximum(0.0, composed.end - losses))
    )
    values = np.where(losses >= composed.largest, 0.0, values + 1e-300)  # what underflowed is below that
    relative = composed.relative + 4 * EPS * (abs(composed.log_scale) + tilt * np.abs(losses) + 4)
    with np.errstate(divide="ignore"):
        logs = np.log(values) + composed.log_scale - tilt * losses + relative
    deltas = np.exp(np.minimum(logs, 0.0)) + composed.infinity * (1 + 1e-13)
    return losses + composed.slack, np.minimum(deltas, 1.0)


def _tails(weights: np.ndarray, rate: float) -> np.ndarray:
    """The sums over i > j of weights_i e^(-rate (i - j)), float [n]."""
    size = len(weights)
    length = int(min(size, max(1.0, _BLOCK / max(rate, 1e-9))))
    result, carry = np.empty(size), 0.0
    falling = np.exp(-rate * np.arange(length + 1))
    for end in range(size, 0, -length):
        start = max(0, end - length)
        own = weights[start:end][::-1]  # from the right
        sums = np.cumsum(own / falling[: len(own)])
        sums = np.concatenate([[0.0], sums])
        part = (carry + sums[:-1] / falling[0]) * falling[: len(own)]
        result[start:end] = part[::-1]
        carry = (carry + sums[-1]) * falling[len(own)]
    return result


def _noise(composed: Composed) -> float:
    """Bound on what the weights' errors add to a tilted sum, at any loss of the grid."""
    each, root = composed.noise
    steps = composed.gap * np.arange(1, len(composed.weights) + 1)
    kernel = np.exp(-composed.tilt * steps) * -np.expm1(-steps)
    return min(each * float(kernel.sum()), root * math.sqrt(dot(kernel, kernel)))
