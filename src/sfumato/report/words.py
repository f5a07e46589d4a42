"""A statement in plain words: what is promised, what it means, for whom, and what is not promised.

Written for a privacy officer: no symbol without its meaning, the promise to one unit first, and where there is no
promise, the first sentence says so.

How much an attacker gains is said by `sfumato.statement.verdict`, in one scale for page and terminal.

References:
    Kairouz, Oh, Viswanath: The Composition Theorem for Differential Privacy. 2015 (tests and their power).
"""

from dataclasses import dataclass

from sfumato.report.numbers import down, odds_factor, up
from sfumato.report.run_record import RunRecord
from sfumato.statement import Statement
from sfumato.statement.statement import NOT_STATED, QUESTIONS
from sfumato.statement.verdict import FPR, is_too_large, percent, published

_UNITS = {
    "example": ("one example", "A person with many examples has a weaker promise."),
    "user": ("one user", "A user is a person with all of their examples, as long as they are one user of the data."),
    "virtual_client": ("one virtual client", "A virtual client is a group of people, so this is no promise to one."),
    "agent": ("one agent", "An agent takes part with all of its data."),
    "identity": ("one identity", "An identity takes part with all of its examples."),
    "patient": ("one patient", "A patient takes part with the whole record: all visits and what does not change."),
    "stay": ("one stay", "A patient with several stays has a weaker promise."),
    "admission": ("one admission", "A patient with several admissions has a weaker promise."),
    "record": ("one record", "A patient with several records has a weaker promise."),
    "label": ("one label", "Everything about an example but its label is unprotected."),
}
_TOOK_PART = {
    "add_remove": "whether {unit} took part or not",
    "replace": "whether {unit} took part or another one in its place",
    "zero_out": "whether {unit} contributed or contributed nothing",
}
_WHICH = "which of two values a label has"
_FPRS = (0.001, FPR, 0.1)


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
        return [run.verdict.void]
    unit, explained = _UNITS[statement.unit]
    hidden = _WHICH if statement.unit == "label" else _TOOK_PART[statement.adjacency].format(unit=unit)
    would = "would hide" if run.seeded else "hides"
    promised = (
        f"The released model {would} {hidden}. Take any test of this. If it is wrong in one case with probability p, "
        f"it is right in the other one with probability at most {odds_factor(statement.epsilon)} p + "
        f"{up(statement.delta, 3)}: e to the power of ε, times p, plus δ. This holds whatever else its author knows."
    )
    return [promised, explained]


def meaning(run: RunRecord) -> list[tuple[str, str]]:
    """(question, answer) pairs that put the numbers into an attacker's hands; empty without a guarantee."""
    statement, cost = run.statement, run.ledger.cost
    if not run.guaranteed:
        return []
    unit = unit_name(statement.unit)
    guessed = _WHICH if statement.unit == "label" else f"that {unit} took part"
    right = percent((1 + cost.advantage()) / 2)
    rows = [
        (
            f"An attacker gives even odds {guessed}. How often can they be right, with the model?",
            f"at most {right} of the time; without it, 50 %",
        )
    ]
    if statement.population:
        expected = up(published(statement.delta, statement.population), 2)
        large = is_too_large(statement.delta, statement.population)
        remark = "too large, it should be below 0.1" if large else "well below 1, as it should be"
        rows.append(
            (
                f"δ allows each record to be published in full with this probability. Of {statement.population:,}, how "
                "many is that on average?",
                f"{expected}: {remark}",
            )
        )
    if statement.rho is not None:
        rows.append(("The same run in zero-concentrated differential privacy:", f"ρ = {up(statement.rho)}"))
    if statement.epsilon_lower is not None:
        rows.append(
            ("No accounting of the same mechanism can show an ε below:", down(statement.epsilon_lower)),
        )
    return rows


def found(run: RunRecord) -> list[tuple[str, str]]:
    """(share of outsiders that a test suspects, largest share of members that it finds); empty without a guarantee."""
    if not run.guaranteed:
        return []
    return [(percent(fpr), percent(float(run.ledger.cost.tpr(fpr)))) for fpr in _FPRS]


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
