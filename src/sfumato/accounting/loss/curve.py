"""One direction of an event, adding or removing a unit: bounds on its curve of epsilon and delta at a given gap."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sfumato.accounting.loss.atoms import Atoms
from sfumato.accounting.loss.compose import Composed, at_least_once, compose
from sfumato.accounting.loss.discretise import grid, lattice, span
from sfumato.accounting.loss.rare_losses import Split, split
from sfumato.accounting.loss.sketch import Sketch
from sfumato.accounting.loss.window import best_tilt
from sfumato.accounting.pairs import Pair

_SHARE = 1e-7  # of delta that the tails of all steps together may have
_LEAST_TAIL = 1e-38  # beyond which pairs do not reach
_ENOUGH = 1e-6  # error of a bound, relative to delta, that needs no better tilt
_TOO_MUCH = 1e-4  # error that calls for a split
_MOST_ATTEMPTS = 12
_SAME_LOSS = 1e-12  # relative; losses that are closer to the largest one are the largest one, up to round-off
_LEAST_LOG = -690.0  # of a mass that has kept its digits
_CELLS, _POINTS = 40_000, 1 << 18  # what a quick answer costs at most: of a step, of a composition
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
        quick = max(longest / _CELLS, 8 * deviation / _POINTS)
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
