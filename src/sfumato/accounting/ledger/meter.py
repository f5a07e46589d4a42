"""Meters: whether a budget allows the next release, asked before each.

Guarantees that no release is admitted whose composition with everything before it could cost more than the budget, by
the rule of the budget (`ledger.budget`); for the unit that the events were made for, under the budget's adjacency.

>>> from sfumato.accounting.events import Gaussian
>>> step = Gaussian(2.0).poisson(0.001)
>>> meter(Budget(epsilon=1.0, delta=1e-6), {}).remaining(step) // 1000
170
>>> meter(Budget(epsilon=1.0, delta=1e-6, fixed_plan=True), {}).remaining(step) // 1000
196
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from sfumato._check import InputError
from sfumato.accounting.accountants.rdp import ORDERS, epsilon_above_renyi, rdp
from sfumato.accounting.events import Event, compose, terms
from sfumato.accounting.ledger.budget import ROUNDING, Budget, BudgetExceeded

_MOST = 10**9  # `remaining` looks no further
_RECENT = 16  # steps that tell what the next ones will be like


class Meter(Protocol):
    """Counts releases against a budget."""

    def admit(self, step: Event) -> None:
        """Pass if the budget allows this release after everything so far; it is not counted yet.

        Raises:
            BudgetExceeded: the budget does not allow it, or no accountant can tell.
        """
        ...

    def spend(self, step: Event) -> None:
        """Count a release."""
        ...

    def remaining(self, step: Event) -> int | float:
        """How many more of this event the budget allows: exact up to 10^9, inf for an event that costs nothing."""
        ...

    def spent(self) -> float:
        """What everything so far costs, in the budget's currency."""
        ...


def meter(budget: Budget, counts: Mapping[Event, int]) -> Meter:
    """The meter of a budget.

    Args:
        budget: what may be spent.
        counts: single events released so far, with how often, in the order of their first release.
    """
    return PlanMeter(budget, counts) if budget.fixed_plan else FilterMeter(budget, counts)


class FilterMeter:
    """Checks releases that may have been chosen by what was released before: prices that add up.

    Args:
        budget: what may be spent.
        counts: single events released so far, with how often, in the order of their first release.
    """

    def __init__(self, budget: Budget, counts: Mapping[Event, int]) -> None:
        self._budget = budget
        self._counts = dict(counts)

    def admit(self, step: Event) -> None:
        budget, added = self._settled(step), dict(terms(step))
        try:
            if not self._fits(budget, _sum(self._counts, added)):
                raise _refusal(budget, self._counts, step)
        except BudgetExceeded:
            raise
        except InputError as error:
            raise _unknown(budget, error) from None

    def spend(self, step: Event) -> None:
        for event, count in terms(step):
            self._counts[event] = self._counts.get(event, 0) + count

    def remaining(self, step: Event) -> int | float:
        added = dict(terms(step))
        if not added:
            return math.inf
        budget = self._settled(step)
        return _largest(lambda times: self._fits(budget, _sum(self._counts, _times(added, times))))

    def spent(self) -> float:
        return self._settled(None).cost(compose(self._counts))

    def _settled(self, step: Event | None) -> Budget:
        first = next(iter(self._counts), None) or (next((single for single, _ in terms(step)), None) if step else None)
        return self._budget if first is None else self._budget.settled(first)

    def _fits(self, budget: Budget, counts: Mapping[Event, int]) -> bool:
        return math.fsum(count * budget.price(single) for single, count in counts.items()) <= budget.allowance


class PlanMeter:
    """Checks the releases of a fixed plan by the tightest accountant, in microseconds as long as they repeat.

    It remembers a composition that is certainly within the budget and contains everything so far. A release that stays
    inside costs a comparison. Where one does not, the composition is extended by as many steps like the last ones as
    the budget allows, found by bisection: by Renyi accounting (vectors that add up) while that suffices, by the
    tightest accountant after that. A run of equal steps asks the tightest accountant some thirty times in all.

    Args:
        budget: what may be spent.
        counts: single events released so far, with how often.
    """

    def __init__(self, budget: Budget, counts: Mapping[Event, int]) -> None:
        self.budget = budget
        self.questions = 0
        self._counts = dict(counts)
        self._safe: dict[Event, int] = {}
        self._recent: deque[Event] = deque(maxlen=_RECENT)
        self._renyi: np.ndarray | None = np.zeros(len(ORDERS))
        self._unsummed = dict(counts)
        self._conversion = epsilon_above_renyi(np.asarray(ORDERS), budget.delta or 1.0)

    def admit(self, step: Event) -> None:
        """Pass if the budget allows this release after everything so far; it is not counted yet.

        Raises:
            BudgetExceeded: the budget does not allow it, or no accountant can tell.
        """
        added = dict(terms(step))
        counts, safe = self._counts, self._safe
        if all(counts.get(event, 0) + count <= safe.get(event, 0) for event, count in added.items()):
            return
        mix = _sum(*(dict(terms(recent)) for recent in (*self._recent, step)))
        found = self._more_by_renyi(added, mix)
        if found is None:
            try:
                found = self._more(added, mix)
            except InputError as error:
                raise _unknown(self.budget, error) from None
        if found is None:
            raise _refusal(self.budget, counts, step)
        more = _sum(added, found)
        # Nothing else can be spent before this is asked anew, so other events need no place here.
        self._safe = {event: counts.get(event, 0) + count for event, count in more.items()}

    def spend(self, step: Event) -> None:
        """Count a release."""
        for event, count in terms(step):
            self._counts[event] = self._counts.get(event, 0) + count
            self._unsummed[event] = self._unsummed.get(event, 0) + count
        self._recent.append(step)

    def remaining(self, step: Event) -> int | float:
        """How many more of this event the budget allows: exact up to 10^9, inf for an event that costs nothing."""
        added = dict(terms(step))
        if not added:
            return math.inf
        known = self._vector(added)
        least = 0 if known is None else _largest(lambda times: self._fits_by_renyi(times * known))
        if not least and not self._fits({}):
            return 0
        return least + _largest(lambda times: self._fits(_times(added, least + times)), _MOST - least)

    def spent(self) -> float:
        """What everything so far costs."""
        return self.budget.cost(compose(self._counts))

    def _more(self, added: dict[Event, int], mix: dict[Event, int]) -> dict[Event, int] | None:
        """After `added`, what else like `mix` the tightest accountant allows; None if not even `added`."""
        if not self._fits(added):
            return None
        for kind in (mix, added):
            if times := _largest(lambda times, kind=kind: self._fits(_sum(added, _times(kind, times)))):
                return _times(kind, times)
        return {}

    def _more_by_renyi(self, added: dict[Event, int], mix: dict[Event, int]) -> dict[Event, int] | None:
        """The same by Renyi accounting; None also where it cannot tell."""
        first = self._vector(added)
        if first is None or not self._fits_by_renyi(first):
            return None
        for kind in (mix, added):
            each = self._vector(kind)
            if each is not None and (
                times := _largest(lambda times, each=each: self._fits_by_renyi(first + times * each))
            ):
                return _times(kind, times)
        return {}

    def _fits(self, added: Mapping[Event, int]) -> bool:
        self.questions += 1
        return self.budget.cost(compose(_sum(self._counts, added))) <= self.budget.limit

    def _vector(self, counts: Mapping[Event, int]) -> np.ndarray | None:
        """Renyi costs at `ORDERS`; None where the budget or an event knows none."""
        if self._renyi is None or not self.budget.delta:
            return None
        adjacency = self.budget.adjacency
        try:
            for event, count in self._unsummed.items():
                self._renyi = self._renyi + count * rdp(event, adjacency)
            self._unsummed = {}
            return sum((count * rdp(event, adjacency) for event, count in counts.items()), np.zeros(len(ORDERS)))
        except InputError:
            self._renyi = None  # the tightest accountant has to do alone
            return None

    def _fits_by_renyi(self, added: np.ndarray) -> bool:
        assert self._renyi is not None
        return float(((self._renyi + added) * ROUNDING + self._conversion).min()) <= self.budget.limit


def _largest(fits: Callable[[int], bool], most: int = _MOST) -> int:
    """The largest number up to `most` that fits; 0 if 1 does not. What fits is assumed to be without gaps."""
    low, high = 0, 1
    while high < most and fits(high):
        low, high = high, 2 * high
    if high >= most:
        high = most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _sum(*parts: Mapping[Event, int]) -> dict[Event, int]:
    total: dict[Event, int] = {}
    for part in parts:
        for event, count in part.items():
            total[event] = total.get(event, 0) + count
    return total


def _times(counts: Mapping[Event, int], times: int) -> dict[Event, int]:
    return {event: count * times for event, count in counts.items()} if times else {}


def _close(value: float, limit: float) -> str:
    """Enough digits to tell a number from the limit."""
    short = f"{value:.6g}"
    return short if short != f"{limit:.6g}" or value == limit else f"{value:.12g}"


def _refusal(budget: Budget, counts: Mapping[Event, int], step: Event) -> BudgetExceeded:
    spent, after = (budget.cost(compose(total)) for total in (counts, _sum(counts, dict(terms(step)))))
    limit = budget.limit
    over = "is spent already" if spent >= limit else "does not allow this step"
    return BudgetExceeded(
        f"the budget of {budget.describe()} {over}: {budget.currency} is {_close(spent, limit)} and would become "
        f"{_close(after, limit)}; stop here, add more noise, or replace the budget (replace_budget)"
    )


def _unknown(budget: Budget, error: InputError) -> BudgetExceeded:
    return BudgetExceeded(f"cannot be shown to stay within {budget.describe()}: {error}")
