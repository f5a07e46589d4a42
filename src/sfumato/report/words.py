"""A statement in plain words: what is promised, what it means, for whom, and what is not promised.

Written for a privacy officer: no symbol without its meaning, the promise to one unit first, and where there is no
promise, the first sentence says so.

References:
    Ponomareva et al.: How to DP-fy ML. JAIR 77, 2023 (tiers of ε).
    Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy. 2015 (tests and their power).
"""

import math
from dataclasses import dataclass
from typing import Any

from sfumato.accounting import Statement
from sfumato.accounting.statement.disclosure import NOT_STATED, QUESTIONS
from sfumato.algorithms import ALGORITHMS
from sfumato.report.numbers import near, odds_factor, up
from sfumato.report.record import RunRecord

_UNITS = {
    "example": ("one example", "A person with many examples has a weaker promise."),
    "user": ("one user", "A user is a person with all of their examples, as long as they are one user of the data."),
    "virtual_client": ("one virtual client", "A virtual client is a group of people, so this is no promise to one."),
    "agent": ("one agent", "An agent takes part with all of its data."),
    "identity": ("one identity", "An identity takes part with all of its examples."),
    "label": ("one label", "Everything about an example but its label is unprotected."),
}
_TOOK_PART = {
    "add_remove": "whether {unit} took part or not",
    "replace": "whether {unit} took part or another one in its place",
    "zero_out": "whether {unit} contributed or contributed nothing",
}
_SOLVED_FPR = 1e-3


@dataclass(frozen=True)
class Convention:
    """A number under a convention.

    Attributes:
        epsilon, delta: as shown.
        unit: "one user".
    """

    epsilon: str
    delta: str
    unit: str


def unit_name(unit: object) -> str:
    """As in "one user"."""
    return _UNITS[unit][0] if isinstance(unit, str) and unit in _UNITS else str(unit)


def plan_title(run: RunRecord) -> str:
    """The method, with DP in front where there is a guarantee."""
    if run.plan_name not in ALGORITHMS:
        return run.plan_name
    title = ALGORITHMS[run.plan_name].title
    return f"DP-{title}" if run.guaranteed else title


def headline(statement: Statement) -> Convention:
    """The statement's own numbers."""
    return Convention(up(statement.epsilon), up(statement.delta, 3), unit_name(statement.unit))


def papers_convention(statement: Statement) -> Convention | None:
    """The smallest ε that the same run has for another, weaker unit; None if there is none."""
    others = [other for other in statement.alternatives if other.get("unit") not in (None, statement.unit)]
    others = [other for other in others if isinstance(other.get("epsilon"), int | float)]
    if not others:
        return None
    least = min(others, key=lambda other: other["epsilon"])
    return Convention(up(least["epsilon"]), up(least.get("delta", statement.delta), 3), unit_name(least["unit"]))


def promise(run: RunRecord) -> list[str]:
    """Paragraphs: what is promised, to whom."""
    statement = run.statement
    if not run.guaranteed:
        return [
            "There is no differential privacy guarantee: ε is infinite. What was released may reveal who took part, "
            "and what their records are. Treat the model as if it were the data itself."
        ]
    unit, explained = _UNITS[statement.unit]
    hidden = _TOOK_PART[statement.adjacency].format(unit=unit)
    would = "would promise" if run.seeded else "promises"
    told = (
        f"The released model {would} to hide {hidden}. Whatever anyone sees in it, they would have seen about as "
        f"likely in either case: the odds between the two change by a factor of at most "
        f"{odds_factor(statement.epsilon)} (e to the power of ε), except with a probability of about "
        f"{up(statement.delta, 3)}."
    )
    return [told, explained, strength(statement.epsilon)]


def strength(epsilon: float) -> str:
    """Where ε stands in the tiers of Ponomareva et al. (2023)."""
    tiers = "in the tiers of Ponomareva et al. (2023)"
    if epsilon <= 1:
        return f"ε is at most 1: a strong formal guarantee, {tiers}."
    if epsilon <= 10:
        return f"ε is between 1 and 10: a reasonable formal guarantee, {tiers}."
    return (
        f"ε is above 10: weak to no formal guarantee, {tiers}. The model may still resist the attacks that are known, "
        "but this statement does not show it: a determined attacker may well succeed."
    )


def meaning(statement: Statement) -> list[tuple[str, str]]:
    """(question, answer) pairs that put the numbers into an attacker's hands; empty without a guarantee."""
    epsilon, delta = statement.epsilon, statement.delta
    if math.isinf(epsilon):
        return []
    unit = unit_name(statement.unit)
    found = min(
        1.0,
        math.exp(min(epsilon, 700.0)) * _SOLVED_FPR + delta,
        1 - math.exp(-epsilon) * max(0.0, 1 - delta - _SOLVED_FPR),
    )
    rows = [
        (
            f"An attacker thinks it even odds that {unit} took part. How sure can the model make them?",
            _at_most(1 / (1 + math.exp(-epsilon)), "as good as certain") + ", except with the probability δ",
        ),
        (
            "A test for membership accuses 1 in 1,000 outsiders wrongly. What share of the members can it find?",
            _at_most(found, "all of them"),
        ),
    ]
    if statement.population:
        expected = delta * statement.population
        remark = "well below 1, as it should be" if expected < 0.1 else "should be well below 1"
        rows.append(
            (
                f"δ is the chance that the promise fails. How does it compare with 1 in {statement.population:,}?",
                f"δ times the number of {statement.unit}s is {up(expected, 3)}: {remark}",
            )
        )
    if statement.rho is not None:
        rows.append(("The same run in zero-concentrated differential privacy:", f"ρ = {up(statement.rho)}"))
    if statement.epsilon_lower is not None:
        rows.append(
            ("No accounting of the same mechanism can show an ε below:", near(statement.epsilon_lower)),
        )
    return rows


def not_covered(run: RunRecord) -> list[str]:
    """What the statement says nothing about."""
    if not run.guaranteed:
        return ["Nothing is covered: neither the model, nor anything else that was computed from the records."]
    unit = unit_name(run.statement.unit)
    epsilon = run.statement.epsilon
    lines = [
        "Whoever ran the training. They saw the records. The promise is about what leaves: the model after any round, "
        "the ledger and the plan.",
        "What was computed without noise: the losses, the clipping figures and the timings in metrics.jsonl, and the "
        "folder checkpoint/.",
        "What can be learned about everybody. A model may tell something of a person who never took part.",
        f"Several together. Where {unit} is covered with ε = {up(epsilon)}, two that always come together "
        f"are covered with {up(2 * epsilon)}, and with a larger δ.",
        "Other releases from the same records. Their costs add up, those of runs that were thrown away included.",
    ]
    if run.evaluation or (run.metrics and run.metrics.measured):
        lines.append("The people in the validation and test data. The measurements on them have no noise.")
    return lines


def disclosure(statement: Statement) -> list[tuple[str, str]]:
    """(question, answer) pairs beyond the numbers, unit, sampling and mechanism, which stand above."""
    return [(question, statement.disclosure[name]) for name, question in QUESTIONS.items()]


def unanswered(statement: Statement) -> str:
    """How many of the questions the author of the run has left open."""
    open_ones = sum(NOT_STATED in answer for answer in statement.disclosure.values())
    if not open_ones:
        return "The author of the run, or the run itself, has answered all of them."
    return (
        f"{open_ones} of {len(QUESTIONS)} are left open, wholly or in part: only the author of the run can answer them."
    )


def alternatives(statement: Statement) -> tuple[list[str], list[list[str]]]:
    """A table of the same run under all conventions, the statement first."""
    fixed = ("name", "unit", "adjacency", "accountant", "epsilon", "delta")
    first: dict[str, Any] = {
        "name": "this statement",
        "unit": statement.unit,
        "adjacency": statement.adjacency,
        "accountant": "tightest valid",
        "epsilon": statement.epsilon,
        "delta": statement.delta,
    }
    rows = [first, *statement.alternatives]
    extra = sorted({name for row in rows for name in row} - set(fixed))
    names = {"name": "Convention", "epsilon": "ε", "delta": "δ"}
    header = [names.get(name, name.capitalize()) for name in (*fixed, *extra)]
    return header, [[_cell(name, row.get(name)) for name in (*fixed, *extra)] for row in rows]


def _cell(name: str, item: Any) -> str:
    if item is None:
        return "–"
    if name == "unit":
        return unit_name(item)
    if name == "accountant":
        return {"auto": "tightest valid", "rdp": "Rényi", "zcdp": "zCDP", "pld": "privacy loss"}.get(item, str(item))
    if isinstance(item, int | float) and not isinstance(item, bool):
        return up(item, 3 if name == "delta" else 4) if name in ("epsilon", "delta") else near(item, 6)
    return str(item).replace("_", " / " if name == "adjacency" else " ")


def _at_most(share: float, otherwise: str) -> str:
    return f"{otherwise} (no useful bound)" if share > 0.9999 else f"at most {up(100 * share, 3)} %"
