"""Calibration: the one number of an event (noise, steps, sampling rate) that meets a budget.

Guarantees that the returned number meets the budget: the search keeps one end that does and one that does
not, and returns the one that does. The cost may fall with the number (noise multiplier) or rise with it
(steps, sampling rate); both ends of the bracket tell which.

>>> from sfumato.accounting.events import Gaussian
>>> round(calibrate(lambda z: Gaussian(z), epsilon=1.0, delta=1e-5), 4)
3.7306
>>> calibrate(lambda n: Gaussian(10.0) * n, epsilon=2.0, delta=1e-5, bracket=(1, 10_000), integer=True)
25
"""

import math
from collections.abc import Callable, Sequence

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency
from sfumato.accounting.events import Event
from sfumato.accounting.guarantee import Method, guarantee


def calibrate(
    make_event: Callable[[float], Event],
    *,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "add_remove",
    method: Method = "auto",
    bracket: tuple[float, float] = (0.05, 1e4),
    integer: bool = False,
    tolerance: float = 1e-6,
) -> float:
    """The cheapest number in the bracket whose event stays within (epsilon, delta).

    Args:
        make_event: event for a number, for instance `lambda z: Gaussian(z).poisson(0.01) * 1000`. Its cost
            must be monotone in the number.
        epsilon: the budget, >= 0.
        delta: in (0, 1).
        adjacency: how two neighbouring data sets differ.
        method: the accountant, as in `guarantee`.
        bracket: smallest and largest number to consider, 0 < low < high. The default suits noise multipliers.
        integer: search whole numbers (steps); the event gets an int.
        tolerance: relative width at which the search ends.

    Returns:
        The smallest number that meets the budget where more of it costs less (noise); the largest where more
        of it costs more (steps, sampling rate).

    Raises:
        InputError: no number in the bracket meets the budget; names the smallest epsilon that one does reach.
    """
    non_negative(epsilon=epsilon)
    between(0, 1, ends="()", delta=delta)
    positive(tolerance=tolerance)
    if not isinstance(bracket, Sequence) or isinstance(bracket, str) or len(bracket) != 2:
        raise InputError(f"bracket must be two numbers (low, high), got {bracket!r}")
    low, high = bracket
    positive(bracket_low=low, bracket_high=high)
    low, high, epsilon, delta = float(low), float(high), float(epsilon), float(delta)
    if not low < high:
        raise InputError(f"bracket must be (low, high) with low < high, got {bracket}")

    def cost(number: float) -> float:
        event = make_event(int(number) if integer else number)
        return guarantee(event, adjacency, method).epsilon(delta)

    if integer:
        low, high = math.ceil(low), math.floor(high)
        if low > high:
            raise InputError(f"bracket {bracket} holds no whole number; widen it, or leave integer=True out")
    cost_low, cost_high = cost(low), cost(high)
    falling = cost_high <= cost_low
    good, bad, cost_good, cost_bad = (high, low, cost_high, cost_low) if falling else (low, high, cost_low, cost_high)
    if not cost_good <= epsilon:
        raise InputError(
            f"epsilon {epsilon:g} at delta {delta:g} is out of reach: the smallest between {low:g} and "
            f"{high:g} is {cost_good:.6g}; allow more epsilon, take fewer rounds or a larger population"
        )
    if cost_bad <= epsilon:
        return bad
    return _search(cost, epsilon, (good, cost_good), (bad, cost_bad), integer, tolerance)


def _search(
    cost: Callable[[float], float],
    epsilon: float,
    good: tuple[float, float],
    bad: tuple[float, float],
    integer: bool,
    tolerance: float,
) -> float:
    """Narrow [good, bad] by secant steps in log-log scale, halving whenever a step gains too little."""
    halve = True
    while True:
        (x_good, y_good), (x_bad, y_bad) = good, bad
        width = abs(math.log(x_bad / x_good))
        if width <= tolerance or (integer and abs(x_bad - x_good) <= 1):
            return x_good
        share = 0.5
        if not halve and 0 < y_good <= epsilon < y_bad < math.inf and y_good < y_bad:
            share = math.log(epsilon / y_good) / math.log(y_bad / y_good)
            margin = 0.5 * tolerance / width  # step just past the root, so that both ends move in
            share = min(0.999, share + margin) if share < 0.5 else max(0.001, share - margin)
        x = x_good * math.exp(share * math.log(x_bad / x_good))
        if integer:
            x = min(max(round(x), min(x_good, x_bad) + 1), max(x_good, x_bad) - 1)
        if x in (x_good, x_bad):
            return x_good
        y = cost(x)
        if y <= epsilon:
            good = (x, y)
        else:
            bad = (x, y)
        halve = abs(math.log(bad[0] / good[0])) > 0.5 * width
