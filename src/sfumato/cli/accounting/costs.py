"""What an event costs by every accountant that knows it, and how a command shows it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._types import Adjacency
from sfumato.accounting.guarantee import Guarantee, Method
from sfumato.accounting.statement.verdict import percent
from sfumato.cli.accounting.batches import ChosenDelta
from sfumato.cli.console import number, say, table

METHODS: tuple[Method, ...] = ("pld", "rdp", "zcdp", "gaussian", "pure")
"""The accountants by name."""

COMPARED: tuple[Method, ...] = ("rdp_usual_orders",)
"""Those that are there for comparison, and are never the tightest."""

_TWO_SIDED: tuple[Method, ...] = ("pld", "gaussian")  # whose lower bound costs next to nothing
_FPR = 0.01


@dataclass(frozen=True)
class Cost:
    """What one accountant says.

    Attributes:
        method: its name.
        lower, upper: bounds on epsilon; lower is None where it gives none, both are None where it does not know.
        reason: why it does not know; empty where it does.
    """

    method: Method
    lower: float | None = None
    upper: float | None = None
    reason: str = ""


def cost_by(event: acc.Event, adjacency: Adjacency, delta: float, method: Method) -> Cost:
    try:
        promise = acc.guarantee(event, adjacency=adjacency, method=method)
        high = promise.epsilon(delta)
        low = promise.epsilon_interval(delta)[0] if method in _TWO_SIDED else 0.0
    except InputError as error:
        return Cost(method, reason=str(error))
    return Cost(method, low if low > 0 or high == 0 else None, high)


def attack(best: Guarantee) -> dict[str, float]:
    """What the guarantee means for somebody who wants to know whether a unit took part."""
    gdp = best.gdp()
    caught = float(best.tpr(_FPR))
    return {"mu": gdp.mu, "regret": gdp.regret, "advantage": best.advantage(), "tpr_at_1_percent_fpr": caught}


def rho_name(promise: Guarantee) -> str:
    """What rho of an event is called: where losses are unbounded, zCDP has no amplification by sampling."""
    ignored = any(
        single.sampled and math.isinf(single.largest_loss(promise.adjacency)) for single, _ in acc.terms(promise.event)
    )
    return "rho_without_sampling" if ignored else "rho"


def by_method(costs: Sequence[Cost]) -> dict[str, Any]:
    return {
        "methods": {cost.method: cost.upper for cost in costs if not cost.reason},
        "lower": {cost.method: cost.lower for cost in costs if cost.lower is not None},
        "unknown": {cost.method: cost.reason for cost in costs if cost.reason},
    }


def show(costs: Sequence[Cost], best: Guarantee, delta: ChosenDelta, told: dict[str, float]) -> None:
    """The accountants' table, the best of them, and what an attack can do.

    Args:
        costs: by method.
        best: the guarantee.
        delta: where epsilon is read.
        told: by `attack`.
    """

    def cell(value: float | None) -> str:
        return "-" if value is None else number(value)

    some = [cost for cost in costs if cost.upper is not None and math.isfinite(cost.upper)]
    rows = [[cost.method, cell(cost.lower), cell(cost.upper)] for cost in some]
    if rows:
        table(["method", "lower", f"epsilon at delta {delta.value:.4g}"], rows)
        say()
    epsilon, rho = best.epsilon(delta.value), best.rho() if rho_name(best) == "rho" else None
    say(f"best: epsilon {number(epsilon)}" + ("" if rho is None else f"; rho {rho:.4g} (zCDP)"))
    if math.isinf(told["mu"]):
        say(f"an attack can be right about one unit with an advantage of {told['advantage']:.3g}")
    else:
        say(f"no easier to attack than one Gaussian sum with mu = {told['mu']:.4g} (Gaussian DP)")
        say(
            f"an attack with a false positive rate of {percent(_FPR)} finds at most "
            f"{percent(told['tpr_at_1_percent_fpr'])} of those that took part; its advantage is at most "
            f"{told['advantage']:.3g} (by the whole trade-off curve)"
        )
    if delta.note:
        say(delta.note)
