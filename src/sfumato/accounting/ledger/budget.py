"""A budget: how much all releases in a ledger may cost each unit. `ledger.meter` checks it before each release.

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
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of
from sfumato._types import Adjacency
from sfumato.accounting.accountants.pure import PureAccountant
from sfumato.accounting.accountants.rdp import ORDERS, RdpAccountant, epsilon_above_renyi, rdp
from sfumato.accounting.accountants.zcdp import ZcdpAccountant
from sfumato.accounting.events import Event, Gaussian, terms
from sfumato.accounting.guarantee import guarantee

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
