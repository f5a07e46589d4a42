"""Calibration: the one number of an event (noise, steps, sampling rate) that meets a target.

What a run may cost at most: one number that can be read off a guarantee, and its limit.

Guarantees that a target is met only by a certified bound: each number is an upper bound for the unit of the guarantee.

>>> from sfumato.accounting.events import Gaussian
>>> from sfumato.accounting.guarantees import guarantee
>>> goal = Target(tpr=0.05, fpr=0.01)
>>> str(goal), goal.is_met(guarantee(Gaussian(1.0))), goal.is_met(guarantee(Gaussian(2.0)))
('tpr 0.05 at fpr 0.01', False, True)

The search for the last number whose cost is within a limit, on a bracket where the cost is monotone.

Guarantees that the cost of the number that is returned was computed and is within the limit; the number that was
computed next to it, a tolerance or one whole number away, is not, unless the bracket ends there.

>>> search = Search(lambda x: 1 / x, limit=0.25, low=1e-3, high=1e3, integer=False, tolerance=1e-9)
>>> good, bad = search.between(*search.ends())
>>> round(good.number, 6), good.cost <= 0.25 < bad.cost
(4.0, True)

Calibration: the one number of an event (noise, steps, sampling rate) that meets a target.

Guarantees that the returned number meets the target by the accountant that was asked, for the unit of the event: the
search keeps one end that does and one that does not, and returns the one that does. The cost may fall with the number
(noise multiplier) or rise with it (steps, sampling rate); both ends of the bracket show which. Renyi costs, which take
a millisecond and little memory, first find the place; the tight accountant is asked a few times around it.

>>> from sfumato.accounting.events import Gaussian
>>> round(calibrate(lambda z: Gaussian(z), epsilon=1.0, delta=1e-5), 4)
3.7306
>>> calibrate(lambda n: Gaussian(10.0) * n, epsilon=2.0, delta=1e-5, bracket=(1, 10_000), integer=True)
25
>>> round(calibrate(lambda z: Gaussian(z).poisson(0.01) * 1000, tpr=0.02, fpr=0.01), 2)
1.37
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency, Method
from sfumato.accounting.accountants import RdpAccountant
from sfumato.accounting.events import Event, Unknown
from sfumato.accounting.guarantees import Guarantee, guarantee


@dataclass(frozen=True, kw_only=True)
class Target:
    """A limit for one number of a guarantee: exactly one of epsilon, rho, mu, advantage, tpr and success.

    Attributes:
        epsilon: the budget, >= 0, at `delta` in (0, 1).
        delta: see `epsilon`.
        rho: of zCDP, > 0. Sampling does not amplify it.
        mu: of the Gaussian mechanism that is at most as private (`Guarantee.gdp`), > 0.
        advantage: the most by which a test's true positive rate may exceed its false positive rate, in (0, 1).
        tpr: the largest true positive rate that a test may reach at the false positive rate `fpr`, both in (0, 1).
        fpr: see `tpr`.
        success: the largest probability, in (0, 1), that an attacker who holds a unit's participation for `prior`
            likely is right about it.
        prior: in (0, 1), 0.5 if left out; see `success`.

    Raises:
        InputError: none or several are given, one lacks its companion, or a value is outside its range.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    advantage: float | None = None
    tpr: float | None = None
    fpr: float | None = None
    success: float | None = None
    prior: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"got {' and '.join(given)}" if given else "got none"
            raise InputError(f"give exactly one target, {_CHOICES}; {what}")
        (name,) = given
        for companion, owner in (("delta", "epsilon"), ("fpr", "tpr"), ("prior", "success")):
            if getattr(self, companion) is not None and name != owner:
                raise InputError(f"{companion} belongs to the target {owner}, got it with {name}; leave it out")
        match name:
            case "epsilon":
                non_negative(epsilon=self.epsilon)
                _needed(name, delta=self.delta)
                between(0, 1, ends="()", delta=self.delta, remedy="choose it well below 1 / population")
            case "rho" | "mu":
                positive(**{name: getattr(self, name)})
            case "tpr":
                _needed(name, fpr=self.fpr)
                between(0, 1, ends="()", fpr=self.fpr)
                between(0, 1, ends="()", tpr=self.tpr)
            case "success":
                between(0, 1, ends="()", prior=0.5 if self.prior is None else self.prior)
                between(0, 1, ends="()", success=self.success)
            case _:
                between(0, 1, ends="()", advantage=self.advantage)

    @property
    def name(self) -> str:
        """Of the number. Epsilon 0 is asked as delta at epsilon 0, which is cheaper and more precise to answer."""
        if self.epsilon == 0:
            return "delta"
        return next(name for name in _KINDS if getattr(self, name) is not None)

    @property
    def limit(self) -> float:
        """The largest value allowed."""
        return float(getattr(self, self.name))

    @property
    def where(self) -> str:
        """At what the number is read, for messages; "" where nothing is to be said."""
        places = {"epsilon": "delta", "delta": "epsilon", "tpr": "fpr", "success": "prior"}
        return f" at {places[self.name]} {self._at:g}" if self.name in places else ""

    @property
    def floor(self) -> float:
        """The number where nothing was released."""
        return {"tpr": self._at, "success": max(self._at, 1 - self._at)}.get(self.name, 0.0)

    @property
    def _at(self) -> float:
        """At what the number is read; 0 where it is read at nothing else."""
        at = {"epsilon": self.delta, "tpr": self.fpr, "success": 0.5 if self.prior is None else self.prior}
        return float(at.get(self.name) or 0.0)

    def read(self, promise: Guarantee) -> float:
        """The number of a guarantee, an upper bound; inf where there is none."""
        found = _NUMBERS[self.name](promise, self._at)
        return math.inf if found is None else found

    def is_met(self, promise: Guarantee) -> bool:
        """Whether a guarantee stays within the limit."""
        return self.read(promise) <= self.limit

    def __str__(self) -> str:
        return f"{self.name} {self.limit:g}{self.where}"


_NUMBERS: dict[str, Callable[[Guarantee, float], float | None]] = {
    "epsilon": Guarantee.epsilon,
    "delta": Guarantee.delta,
    "rho": lambda promise, _: promise.rho(),
    "mu": lambda promise, _: promise.gdp().mu,
    "advantage": lambda promise, _: promise.advantage(),
    "tpr": lambda promise, fpr: float(promise.tpr(fpr)),
    "success": Guarantee.bayes_success,
}
_KINDS = ("epsilon", "rho", "mu", "advantage", "tpr", "success")
_CHOICES = "epsilon with delta, rho, mu, advantage, tpr with fpr, or success"


def _needed(owner: str, **companion: float | None) -> None:
    ((name, value),) = companion.items()
    if value is None:
        raise InputError(f"the target {owner} needs {name} too; give both")


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
            bad, good, step = good, self._shifted(good.number, step, cheap), 4 * step
        step = _STEP
        while bad is None and good.number != dear:
            away = step
            if exponent and math.isfinite(self._log(good)):
                away = abs(self._log(good) / exponent) * (1 + _OVERSHOOT) + _OVERSHOOT
            at = self._shifted(good.number, min(away, 100 * step), dear)
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
        """By which power of the number the cost changes between two points; 0 where that is unknown."""
        change = self._log(two) - self._log(one)
        return change / math.log(two.number / one.number) if math.isfinite(change) and one.number != two.number else 0.0

    def _log(self, point: Point) -> float:
        """log of a point's cost over the limit, both without what nothing costs; infinite where that is unknown."""
        excess, allowed = point.cost - self.floor, self.limit - self.floor
        return math.log(excess / allowed) if 0 < excess < math.inf and allowed > 0 else math.inf

    def _at(self, number: float) -> Point:
        return Point(number, self.cost(number))

    def _shifted(self, number: float, log_step: float, end: float) -> Point:
        """The number that is this far away in log scale towards an end of the bracket, and not beyond it."""
        if end > number:
            moved = number * math.exp(log_step)
            return self._at(min(max(math.ceil(moved), number + 1) if self.integer else moved, end))
        moved = number * math.exp(-log_step)
        return self._at(max(min(math.floor(moved), number - 1) if self.integer else moved, end))


_CHEAP: tuple[Method, ...] = ("rdp", "rdp_usual_orders", "zcdp", "pure", "gaussian")
_ROUGH_ORDERS = (1.001, 1.01, 1.05, 1.2, 1.5, *map(float, (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96)))
_ROUGH_ORDERS += (128.0, 256.0, 512.0, 1024.0, 4096.0)
_ROUGH_TOLERANCE = 1e-3  # relative width at which the search by Renyi costs ends


def calibrate(
    make_event: Callable[[float], Event],
    *,
    adjacency: Adjacency = "add_remove",
    method: Method = "auto",
    bracket: tuple[float, float] = (0.05, 1e4),
    integer: bool = False,
    tolerance: float = 1e-6,
    **limits: float | None,
) -> float:
    """The cheapest number in the bracket whose event meets exactly one target.

    Args:
        make_event: event for a number, for instance `lambda z: Gaussian(z).poisson(0.01) * 1000`. Its cost
            must be monotone in the number.
        adjacency: how two neighbouring data sets differ.
        method: the accountant, as in `guarantee`.
        bracket: smallest and largest number to consider, 0 < low < high. The default suits noise multipliers.
        integer: search whole numbers (steps); the event gets an int.
        tolerance: relative width at which the search ends. The tight accountant's bounds are about 1e-4 wide, so
            a neighbour that is closer may meet the target too.
        limits: the target, by the names of `Target`: `epsilon` with `delta`, `tpr` with `fpr`, ….

    Returns:
        The smallest number that meets the target where more of it costs less (noise); the largest where more
        of it costs more (steps, sampling rate).

    Raises:
        InputError: not exactly one target, or no number in the bracket meets it; names the best value that one reaches.
    """
    if not callable(make_event):
        raise InputError(f"make_event must be a function of one number that returns an event, got {make_event!r}")
    goal = Target(**limits)
    positive(tolerance=tolerance)
    low, high = _ends(bracket, integer)
    _require_one_argument(make_event)

    def event(number: float) -> Event:
        number = int(number) if integer else number
        happened = make_event(number)
        if not isinstance(happened, Event):
            raise InputError(f"make_event must return an accounting event, got {happened!r} for {number:g}")
        return happened

    def tight(number: float) -> float:
        return goal.read(guarantee(event(number), adjacency, method))

    def rough(number: float) -> float:
        happened = event(number)
        return goal.read(Guarantee(happened, adjacency, (RdpAccountant(happened, adjacency, _ROUGH_ORDERS),)))

    search = Search(tight, goal.limit, low, high, integer, tolerance, goal.floor)
    found = None
    if goal.name != "rho" and method not in _CHEAP:
        with contextlib.suppress(Unknown):
            found = _from_rough(search, Search(rough, goal.limit, low, high, integer, _ROUGH_TOLERANCE, goal.floor))
    found = found or _from_ends(search)
    if found.cost > goal.limit:
        raise InputError(
            f"{goal} is out of reach: the smallest between {low:g} and {high:g} is {found.cost:.6g}; allow more "
            f"{goal.name}, take fewer rounds or a larger population"
        )
    return found.number


def _from_ends(search: Search) -> Point:
    """The last good number, or the end of the bracket that costs less, by the tight accountant alone."""
    good, bad = search.ends()
    if good.cost > search.limit:
        return good
    return bad if bad.cost <= search.limit else search.between(good, bad)[0]


def _from_rough(search: Search, rough: Search) -> Point | None:
    """The same, where bounds that cost little show where to look for it; None where both ends cost the same by them."""
    good, bad = rough.ends()
    if good.cost == bad.cost > search.limit:  # infinite, as a rule: not even the direction is known
        return None
    cheap, exponent = good.number, 0.0
    if bad.cost <= search.limit:
        return bad  # by a bound that is valid too
    if good.cost <= search.limit:
        good, bad = rough.between(good, bad)
        exponent = rough.power(good, bad)
    return search.near(good.number, exponent, cheap)


def _require_one_argument(make_event: Callable[[float], Event]) -> None:
    """Refuse a function that cannot be called with one number; what it raises by itself is its own.

    Raises:
        InputError: it takes none, or needs several.
    """
    try:
        signature = inspect.signature(make_event)
    except (TypeError, ValueError):  # written in C, as a rule
        return
    try:
        signature.bind(1.0)
    except TypeError as error:
        raise InputError(
            f"make_event must take one number, got a function of {signature} ({error}); "
            "write lambda z: Gaussian(z).poisson(0.01) * 1000"
        ) from None


def _ends(bracket: tuple[float, float], integer: bool) -> tuple[float, float]:
    if not isinstance(bracket, Sequence) or isinstance(bracket, str) or len(bracket) != 2:
        raise InputError(f"bracket must be two numbers (low, high), got {bracket!r}")
    low, high = bracket
    positive(bracket_low=low, bracket_high=high)
    low, high = float(low), float(high)
    if not low < high:
        raise InputError(f"bracket must be (low, high) with low < high, got {bracket}")
    if not integer:
        return low, high
    if math.ceil(low) > math.floor(high):
        raise InputError(f"bracket {bracket} holds no whole number; widen it, or leave integer=True out")
    return math.ceil(low), math.floor(high)
