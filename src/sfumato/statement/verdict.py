"""The verdict on a release: what an attacker gains from it, in one number, and the words that follow from it.

The number is the largest share of the members that any test finds which suspects 1 % of the outsiders: its true
positive rate at a false positive rate of 0.01, whatever the attacker knows, for the worst data. Guarantees an upper
bound, for the unit and the adjacency of the statement: from the trade-off curve of what was released where that is
known, and from (epsilon, delta) alone where it is not. The latter is true and says little: it rules out only rates
above e^epsilon FPR + delta and above 1 - e^-epsilon (1 - delta - FPR) (Kairouz, Oh and Viswanath 2015, Theorem 2.1),
which is hardly any for an epsilon of 5 or more.

Page, terminal, `sfumato compare` and the statement's text take their words from here, so that they cannot disagree. The
words for the size of the protection follow from this number alone:

| protection   | such a test finds at most          |
| ------------ | ---------------------------------- |
| strong       | 2 %, twice what guessing finds     |
| moderate     | 10 %                               |
| weak         | 50 %                               |
| hardly any   | more                               |
| no           | nothing is promised, or it is void |

>>> from sfumato.accounting.events import Gaussian
>>> verdict = judge(unit="user", adjacency="add_remove", epsilon=8.0, delta=1e-6, event=Gaussian(0.6787))
>>> verdict.title
'Weak protection'
>>> print(verdict.attacker)
At 1 % false positives, any membership test finds at most 19.7 % of members.
>>> judge(unit="user", adjacency="add_remove", epsilon=8.0, delta=1e-6).word   # the curve is not known
'hardly any'

How large delta may be: well below one over the number of units. A mechanism that publishes each unit's record in full
with probability delta, and nothing otherwise, is (0, delta)-differentially private. Of N units it publishes delta N on
average, so no delta protects everybody unless that product is far below 1 (Dwork and Roth 2014, section 2.3).

>>> f"{default_delta(2_250):.3g}", round(published(default_delta(2_250), 2_250), 3)
('4.44e-06', 0.01)
>>> is_too_large(2_250**-1.1, 2_250)   # N^-1.1 is above 0.1 / N for every N below 10^10
True

Numbers are rounded to some digits towards the safe side: an upper bound up, a lower bound down.

>>> rounded_up(18.810239, 4), rounded_down(1.99997, 4)
(18.82, 1.999)
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TYPE_CHECKING, cast

from sfumato import accounting
from sfumato._check import InputError, whole
from sfumato._types import Adjacency, Assumption
from sfumato.statement.sentences import render

if TYPE_CHECKING:
    from sfumato.accounting import Event, Guarantee

DEFAULT = 0.01
"""Records that may be published in full, on average, where no delta was chosen."""


MOST = 0.1
"""Above this many, delta is called too large."""


def default_delta(population: int) -> float:
    """A delta well below 1 / population: a hundredth of it.

    Args:
        population: public number of units, >= 1.
    """
    whole(population=population)
    return DEFAULT / population


def published(delta: float, population: int) -> float:
    """Records that such a mechanism publishes in full, on average; (0, delta) allows it."""
    return delta * population


def is_too_large(delta: float, population: int) -> bool:
    """Whether that is more than a tenth of a record."""
    return published(delta, population) > MOST * (1 + 1e-12)


def warn_if_too_large(delta: float, population: int) -> None:
    """Warn of such a delta, and name a smaller one."""
    if is_too_large(delta, population):
        remedy = f"leave it out for {default_delta(population):g}"
        warnings.warn(f"delta {delta:g} is not well below 1/{population}; {remedy}", stacklevel=3)


FPR = 0.01
"""The share of the outsiders that the test suspects wrongly."""


SCALE = ((0.02, "strong"), (0.1, "moderate"), (0.5, "weak"), (1.0, "hardly any"))
"""Words by the largest share of the members that is found."""


_LEAST = 1e-9  # epsilon; smaller ones are rounded up to it, as accountants work on grids
_UNITS = {
    "example": "examples",
    "user": "users",
    "virtual_client": "virtual clients",
    "agent": "agents",
    "identity": "identities",
    "patient": "patients",
    "stay": "stays",
    "admission": "admissions",
    "record": "records",
    "label": "examples",
    "unit": "units",  # of an event that no statement goes with
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an attacker gains; made by `judge`.

    Attributes:
        unit, adjacency, epsilon, delta, population: of the statement.
        tpr: the largest true positive rate of a test at a false positive rate of `FPR`, an upper bound.
        advantage: the most by which a true positive rate exceeds its false positive rate, an upper bound.
        void: why the promise cannot be relied on, a sentence; "" if nothing speaks against it.
        contradicted: whether the ledger costs more than was stated.
    """

    unit: str
    adjacency: str
    epsilon: float
    delta: float
    population: int | None
    tpr: float
    advantage: float
    void: str = ""
    contradicted: bool = False

    @property
    def word(self) -> str:
        """The size of the protection: strong, moderate, weak, hardly any, or no."""
        return "no" if self.void else self.if_it_held

    @property
    def if_it_held(self) -> str:
        """The word by the number alone, also where the promise is void."""
        return next(word for most, word in SCALE if self.tpr <= most or most == 1.0)

    @property
    def title(self) -> str:
        """The protection in two or three words."""
        return f"{self.word.capitalize()} protection"

    @property
    def attacker(self) -> str:
        """What an attacker gains, a sentence."""
        return membership(self.unit, FPR, self.tpr)

    @property
    def sentence(self) -> str:
        """What an attacker gains, or why nothing is promised."""
        return self.void or self.attacker

    @property
    def delta_too_large(self) -> str:
        """A sentence where delta is not well below 1 / population; "" where it is, or where the number is unknown."""
        warnings = large_delta(self.epsilon, self.delta, self.unit, self.population)
        return "".join(render(each).removeprefix("Warning: ").capitalize() for each in warnings)


def promised(epsilon: float, delta: float, adjacency: Adjacency) -> Guarantee:
    """What (epsilon, delta) alone promises, as if nothing else were known of the release.

    Args:
        epsilon: >= 0, inf for nothing.
        delta: in [0, 1].
        adjacency: as stated.
    """
    if math.isinf(epsilon) or delta >= 1:
        return accounting.guarantee(accounting.NonPrivate(), adjacency)
    epsilon = max(epsilon, _LEAST)
    approximate, pure = accounting.ApproximateDP, accounting.PureDP
    claim = approximate(epsilon, delta, adjacency) if delta else pure(epsilon, adjacency)
    return accounting.guarantee(claim, adjacency)


def judge(
    *,
    unit: str,
    adjacency: str,
    epsilon: float,
    delta: float,
    population: int | None = None,
    seeded: bool = False,
    tpr: float | None = None,
    event: Event | None = None,
) -> Verdict:
    """The verdict on a promise.

    Args:
        unit, adjacency, epsilon, delta, population: of the statement; population None where it is not public.
        seeded: whether the randomness can be repeated.
        tpr: the bound at `FPR` that a statement has kept of its trade-off curve, or None.
        event: what was released, from the ledger; None where only the statement is left.

    Returns:
        The smallest of the bounds that are known. Void where epsilon is infinite, where the randomness can be
        repeated, or where the event costs more than epsilon; of the latter, the numbers are those of the event.
    """
    neighbours = cast(Adjacency, adjacency)
    alone = promised(epsilon, delta, neighbours)
    finds, advantage = float(alone.tpr(FPR)), alone.advantage()
    if tpr is not None:
        finds = min(finds, tpr)
    spent = 0.0
    if event is not None:
        try:
            cost = accounting.guarantee(event, neighbours)
            spent = cost.epsilon(delta) if delta < 1 else 0.0
            shown = float(cost.tpr(FPR)), cost.advantage()
        except InputError:  # no accountant knows it under this adjacency: the promise stands alone
            shown, spent = (finds, advantage), 0.0
        if _exceeds(spent, epsilon):
            finds, advantage = shown
        else:
            finds, advantage = min(finds, shown[0]), min(advantage, shown[1])
    return Verdict(
        unit=unit,
        adjacency=adjacency,
        epsilon=epsilon,
        delta=delta,
        population=population,
        tpr=finds,
        advantage=advantage,
        void=_void(epsilon, spent, seeded=seeded),
        contradicted=_exceeds(spent, epsilon),
    )


def _exceeds(spent: float, epsilon: float) -> bool:
    """Whether a cost is above what was stated, by more than rounding."""
    return spent > epsilon * (1 + 1e-6) + 1e-9


def membership(unit: str, fpr: float, tpr: float) -> str:
    """The bound on a test of membership, or of one label, in a sentence."""
    whole = percent(tpr) == "100 %"
    name = ("label_test" if unit == "label" else "membership") + ("_all" if whole else "")
    return render(Assumption(name, {"fpr": percent(fpr)} if whole else {"fpr": percent(fpr), "tpr": percent(tpr)}))


def scale_in_words() -> str:
    """What the verdict goes by, a sentence."""
    scale = ", ".join(f"{word} up to {percent(most)}" if most < 1 else f"{word} above" for most, word in SCALE)
    return render(Assumption("verdict_scale", {"fpr": percent(FPR), "scale": scale}))


def large_delta(epsilon: float, delta: float, unit: str, population: int | None) -> list[Assumption]:
    """A warning where delta is not well below 1 / population; none where epsilon is infinite."""
    if math.isinf(epsilon) or not population or not is_too_large(delta, population):
        return []
    expected = f"{rounded_up(published(delta, population), 2):.2g}"
    return [Assumption("delta_too_large", {"units": _UNITS[unit], "expected": expected, "most": MOST})]


def percent(share: float) -> str:
    """A share in percent, three digits, rounded up: `percent(0.19664) == "19.7 %"`."""
    return f"{rounded_up(100 * share, 3):.3g} %"


def _void(epsilon: float, spent: float, *, seeded: bool) -> str:
    if math.isinf(epsilon):
        return render(Assumption("void_infinite"))
    if _exceeds(spent, epsilon):
        return render(Assumption("void_ledger", {"epsilon": f"{rounded_up(spent, 4):.4g}"}))
    if seeded:
        return render(Assumption("void_seeded"))
    return ""


def rounded_up(value: float, digits: int) -> float:
    """The smallest number of so many digits that is not below the value."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> float:
    """The largest number of so many digits that is not above the value."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> float:
    if not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))
