"""Calibration: the one number of an event (noise, steps, sampling rate) that meets a target.

Guarantees that the returned number meets the target by the accountant that was asked, for the unit of the event: the
search keeps one end that does and one that does not, and returns the one that does. The cost may fall with the number
(noise multiplier) or rise with it (steps, sampling rate); both ends of the bracket tell which. Renyi costs, which take
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

from sfumato._check import InputError, positive
from sfumato._types import Adjacency
from sfumato.accounting.accountants.rdp import RdpAccountant
from sfumato.accounting.calibration.search import Point, Search
from sfumato.accounting.calibration.target import target
from sfumato.accounting.events import Event, Unknown
from sfumato.accounting.guarantee import Guarantee, Method, guarantee

_CHEAP: tuple[Method, ...] = ("rdp", "rdp_usual_orders", "zcdp", "pure", "gaussian")
_ROUGH_ORDERS = tuple(
    float(a)
    for a in (
        1.001,
        1.01,
        1.05,
        1.2,
        1.5,
        2,
        3,
        4,
        5,
        6,
        8,
        10,
        12,
        16,
        20,
        24,
        32,
        48,
        64,
        96,
        128,
        256,
        512,
        1024,
        4096,
    )
)
_ROUGH_TOLERANCE = 1e-3  # relative width at which the search by Renyi costs ends


def calibrate(
    make_event: Callable[[float], Event],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    success: float | None = None,
    prior: float | None = None,
    adjacency: Adjacency = "add_remove",
    method: Method = "auto",
    bracket: tuple[float, float] = (0.05, 1e4),
    integer: bool = False,
    tolerance: float = 1e-6,
) -> float:
    """The cheapest number in the bracket whose event meets exactly one target.

    Args:
        make_event: event for a number, for instance `lambda z: Gaussian(z).poisson(0.01) * 1000`. Its cost
            must be monotone in the number.
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
        adjacency: how two neighbouring data sets differ.
        method: the accountant, as in `guarantee`.
        bracket: smallest and largest number to consider, 0 < low < high. The default suits noise multipliers.
        integer: search whole numbers (steps); the event gets an int.
        tolerance: relative width at which the search ends. The tight accountant's bounds are about 1e-4 wide, so
            a neighbour that is closer may meet the target too.

    Returns:
        The smallest number that meets the target where more of it costs less (noise); the largest where more
        of it costs more (steps, sampling rate).

    Raises:
        InputError: not exactly one target, or no number in the bracket meets it; names the best value that one reaches.
    """
    if not callable(make_event):
        raise InputError(f"make_event must be a function of one number that returns an event, got {make_event!r}")
    goal = target(
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mu=mu,
        advantage=advantage,
        tpr=tpr,
        fpr=fpr,
        success=success,
        prior=prior,
    )
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
    """The same, where bounds that cost little tell where to look for it; None where both ends cost the same by them."""
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
