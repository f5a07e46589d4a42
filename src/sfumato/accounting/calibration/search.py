"""The search for the last number whose cost is within a limit, on a bracket where the cost is monotone.

Guarantees that the cost of the number that is returned was computed and is within the limit; the number that was
computed beside it, a tolerance or one whole number away, is not, unless the bracket ends there.

>>> search = Search(lambda x: 1 / x, limit=0.25, low=1e-3, high=1e3, integer=False, tolerance=1e-9)
>>> good, bad = search.between(*search.ends())
>>> round(good.number, 6), good.cost <= 0.25 < bad.cost
(4.0, True)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

_OVERSHOOT = 1e-3  # relative: how far beyond the expected answer to look, so as to have it between two points
_PATIENCE = 3  # secant steps that may gain too little before a halving
_STEP = 0.02  # relative: the first step where nothing is expected; later ones are four times as long


class Point(NamedTuple):
    """A number and what it costs."""

    number: float
    cost: float


@dataclass(frozen=True)
class Search:
    """The search for the last good number, seen from the end of the bracket that costs less.

    Attributes:
        cost: of a number, monotone, >= 0, may be inf.
        limit: a number is good if its cost is at most this.
        low: smallest number, > 0.
        high: largest number.
        integer: whether only whole numbers are asked for.
        tolerance: relative distance of a good and a bad number at which the search ends.
        floor: what is left of the cost where the number costs nothing; steps look at what is above it.
    """

    cost: Callable[[float], float]
    limit: float
    low: float
    high: float
    integer: bool
    tolerance: float
    floor: float = 0.0

    def ends(self) -> tuple[Point, Point]:
        """The end of the bracket that costs less, and the other one."""
        low, high = self._at(self.low), self._at(self.high)
        return (high, low) if high.cost <= low.cost else (low, high)

    def near(self, number: float, exponent: float, cheap: float) -> Point:
        """The last good number, found from a place near to it; the cheap end, which is not good, if there is none.

        Args:
            number: where to begin.
            exponent: by which power of the number the cost changes there; 0 where that is not known.
            cheap: the end of the bracket that costs less.
        """
        dear = self.low if cheap == self.high else self.high
        good, bad, step = self._at(number), None, _STEP
        while good.cost > self.limit:
            if good.number == cheap:
                return good
            bad, good, step = good, self._moved(good.number, step, cheap), 4 * step
        step = _STEP
        while bad is None and good.number != dear:
            away = step
            if exponent and math.isfinite(self._log(good)):
                away = abs(self._log(good) / exponent) * (1 + _OVERSHOOT) + _OVERSHOOT
            at = self._moved(good.number, min(away, 100 * step), dear)
            if at.cost > self.limit:
                bad = at
            else:
                good, exponent, step = at, self.power(good, at), 4 * step
        return good if bad is None else self.between(good, bad)[0]

    def between(self, good: Point, bad: Point) -> tuple[Point, Point]:
        """Narrow to neighbours: secant steps in log-log scale, where an end that stays counts half (Illinois' method),
        and a halving after steps that gained too little.
        """
        weights, moved, poor = [1.0, 1.0], -1, 0  # of the good end and the bad one
        while True:
            width = abs(math.log(bad.number / good.number))
            if width <= self.tolerance or (self.integer and abs(bad.number - good.number) <= 1):
                return good, bad
            below, above = (weight * abs(self._log(point)) for weight, point in zip(weights, (good, bad)))
            share = 0.5
            if poor < _PATIENCE and 0 < below + above < math.inf:
                least = min(0.5, 0.5 * self.tolerance / width)  # just past the root, so that both ends move in
                share = min(max(below / (below + above), least), 1 - least)
            number = good.number * math.exp(share * math.log(bad.number / good.number))
            if self.integer:
                ends = sorted((good.number, bad.number))
                number = min(max(round(number), ends[0] + 1), ends[1] - 1)
            if number in (good.number, bad.number):
                return good, bad
            at = self._at(number)
            side = 0 if at.cost <= self.limit else 1
            good, bad = (at, bad) if side == 0 else (good, at)
            weights[side], weights[1 - side] = 1.0, 0.5 * weights[1 - side] if side == moved else weights[1 - side]
            moved = side
            poor = 0 if abs(math.log(bad.number / good.number)) <= 0.5 * width else (poor + 1) % (_PATIENCE + 1)

    def power(self, one: Point, two: Point) -> float:
        """By which power of the number the cost changes between two points; 0 where that cannot be told."""
        change = self._log(two) - self._log(one)
        return change / math.log(two.number / one.number) if math.isfinite(change) and one.number != two.number else 0.0

    def _log(self, point: Point) -> float:
        """log of a point's cost over the limit, both without what nothing costs; infinite where that cannot be told."""
        excess, allowed = point.cost - self.floor, self.limit - self.floor
        return math.log(excess / allowed) if 0 < excess < math.inf and allowed > 0 else math.inf

    def _at(self, number: float) -> Point:
        return Point(number, self.cost(number))

    def _moved(self, number: float, log_step: float, end: float) -> Point:
        """The number that is this far away in log scale towards an end of the bracket, and not beyond it."""
        if end > number:
            moved = number * math.exp(log_step)
            return self._at(min(max(math.ceil(moved), number + 1) if self.integer else moved, end))
        moved = number * math.exp(-log_step)
        return self._at(max(min(math.floor(moved), number - 1) if self.integer else moved, end))
