"""Budgets: how much all releases in a ledger may cost each unit, and the meters that check it before each.

A budget: how much all releases in a ledger may cost each unit. `ledger.meter` checks it before each release.

A budget is kept whatever was released decides, about the noise of the next step too. That allows fewer accountants than
a plan that was fixed beforehand, so the second one has to be asked for (docs/explanation/budgets.md):

- in rho: the rho of all releases add up (Feldman and Zrnic 2021, "Individual Privacy Accounting via a Renyi Filter");
- in epsilon at delta: Renyi costs add up at one order that is fixed before the second release (ibid.);
- in epsilon at delta 0: the largest losses add up (Rogers, Roth, Ullman and Vadhan 2016, "Privacy Odometers and
  Filters");
- in epsilon at delta, with `fixed_plan=True`: by the tightest accountant. It holds where the releases were fixed before
  the first one, and what was released decides at most when to stop.

>>> Budget(epsilon=1.0, delta=1e-6).settled(Gaussian(2.0).poisson(0.001)).order
22.0

Meters: whether a budget allows the next release, asked before each.

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
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of
from sfumato._types import Adjacency
from sfumato.accounting.accountants import (
    ORDERS,
    PureAccountant,
    RdpAccountant,
    ZcdpAccountant,
    epsilon_above_renyi,
    rdp,
)
from sfumato.accounting.events import Event, Gaussian, compose, terms
from sfumato.accounting.guarantees import guarantee

ROUNDING = 1.0 + 1e-9
"""Covers the round-off of ten million additions of Renyi costs."""


class BudgetExceeded(InputError):
    """A release would cost more than the budget allows; it was not recorded and must not happen."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent in all.

    Attributes:
        epsilon: >= 0 and finite; with delta. Or None, with rho.
        delta: in [0, 1); with epsilon.
        rho: of zCDP, >= 0 and finite. A sampled release costs what it costs without sampling, as zCDP does not
            profit from it.
        adjacency: "add_remove", "replace" or "zero_out".
        fixed_plan: with epsilon; all releases were fixed before the first one, so any accountant may count them.
        order: with epsilon, > 1; the Renyi order at which costs add up where the plan is not fixed. None for the one
            that allows most of the first release in the ledger.
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    adjacency: Adjacency = "add_remove"
    fixed_plan: bool = False
    order: float | None = None

    def __post_init__(self) -> None:
        one_of(("add_remove", "replace", "zero_out"), adjacency=self.adjacency)
        in_rho, in_epsilon = self.rho is not None, (self.epsilon is not None, self.delta is not None)
        if (in_rho and any(in_epsilon)) or not (in_rho or all(in_epsilon)):
            raise InputError("a budget is epsilon and delta, or rho alone; give one of the two")
        if in_rho:
            non_negative(rho=self.rho)
        else:
            non_negative(epsilon=self.epsilon)
            between(0, 1, ends="[)", delta=self.delta, remedy="choose it well below 1 / population")
        one_of((True, False), fixed_plan=self.fixed_plan)
        if (self.fixed_plan or self.order is not None) and in_rho:
            raise InputError("fixed_plan and order belong to a budget in epsilon; rho adds up in any case")
        if self.order is not None:
            between(1, math.inf, ends="()", order=self.order)
            if self.fixed_plan or self.delta == 0:
                raise InputError("order is for a plan that is not fixed, and for delta > 0; leave it out")
        for name in ("epsilon", "delta", "rho", "order"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))

    def cost(self, event: Event) -> float:
        """What an event costs in the budget's currency: epsilon at its delta, or rho.

        Raises:
            Unknown: no accountant that may count it knows the event.
        """
        if self.rho is not None:
            return ZcdpAccountant(event, self.adjacency).rho()
        assert self.delta is not None
        if self.fixed_plan:
            return guarantee(event, self.adjacency).epsilon(self.delta)
        if self.delta == 0:
            return PureAccountant(event, self.adjacency).largest_loss
        orders = ORDERS if self.order is None else (self.order,)
        return RdpAccountant(event, self.adjacency, orders).epsilon(self.delta)

    def settled(self, first: Event) -> "Budget":
        """The same with an order: where none is given, the one that allows most repetitions of the first release.

        Nothing was released before it, so its noise, and with it the order, cannot depend on a release.
        """
        if self.rho is not None or self.fixed_plan or self.order is not None or not self.delta:
            return self
        try:
            costs = sum((count * rdp(single, self.adjacency) for single, count in terms(first)), np.zeros(len(ORDERS)))
        except InputError:
            costs = rdp(Gaussian(1.0), self.adjacency)  # it will not be admitted anyway
        allowed = self._allowed(np.asarray(ORDERS))
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(allowed > 0, allowed / np.maximum(costs, 1e-300), allowed)
        return replace(self, order=ORDERS[int(np.argmax(times))])

    def price(self, single: Event) -> float:
        """What one single event adds to the sum that must stay within `allowance`; of a budget that is `settled`.

        Raises:
            Unknown: nothing is known that adds up.
        """
        if self.rho is not None:
            return single.rho(self.adjacency)
        if self.delta == 0:
            return single.largest_loss(self.adjacency)
        assert self.order is not None
        return ROUNDING * float(rdp(single, self.adjacency, (self.order,))[0])

    @property
    def allowance(self) -> float:
        """The most that the prices may add up to."""
        return self.limit if self.order is None else float(self._allowed(np.array([self.order]))[0])

    def _allowed(self, orders: np.ndarray) -> np.ndarray:
        """The Renyi cost at each order that implies epsilon at delta."""
        assert self.delta is not None
        return self.limit - epsilon_above_renyi(orders, self.delta)

    @property
    def limit(self) -> float:
        """The most that `cost` may be."""
        limit = self.epsilon if self.rho is None else self.rho
        assert limit is not None
        return limit

    @property
    def currency(self) -> str:
        """What is counted: epsilon or rho."""
        return "epsilon" if self.rho is None else "rho"

    def within(self, other: "Budget") -> bool:
        """Whether this budget is at most the other one; False where the two cannot be compared."""
        if self.adjacency != other.adjacency or self.currency != other.currency:
            return False
        if (self.fixed_plan and not other.fixed_plan) or other.order not in (None, self.order):
            return False  # it would count by a rule that the other one forbids
        return self.limit <= other.limit and (self.delta or 0.0) <= (other.delta or 0.0)

    def describe(self) -> str:
        """As in "epsilon 2 at delta 1e-06 (add_remove)"."""
        delta = "" if self.delta is None else f" at delta {self.delta:g}"
        plan = ", for a fixed plan" if self.fixed_plan else ""
        return f"{self.currency} {self.limit:g}{delta} ({self.adjacency}){plan}"

    def to_json(self) -> dict[str, Any]:
        """A dictionary that JSON can write."""
        if self.rho is not None:
            return {"rho": self.rho, "adjacency": self.adjacency}
        rule = {"fixed_plan": True} if self.fixed_plan else {} if self.order is None else {"order": self.order}
        return {"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency, **rule}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Budget":
        """The budget that `to_json` wrote.

        Raises:
            InputError: it is none.
        """
        try:
            return cls(**value)
        except TypeError:
            raise InputError(f"not a budget: {value!r}") from None


_MOST = 10**9  # `remaining` looks no further
_RECENT = 16  # steps from which the next ones are predicted


class Meter(Protocol):
    """Counts releases against a budget."""

    def admit(self, step: Event) -> None:
        """Pass if the budget allows this release after everything so far; it is not counted yet.

        Raises:
            BudgetExceeded: the budget does not allow it, or no accountant knows the cost.
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
            BudgetExceeded: the budget does not allow it, or no accountant knows the cost.
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
        """The same by Renyi accounting; None also where it has no answer."""
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
    """Enough digits to distinguish a number from the limit."""
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
