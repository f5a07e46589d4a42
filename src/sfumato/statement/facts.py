"""From a run to its statement: what was promised to whom, under which assumptions.

What a run knows at its end, so that the statement can be written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sfumato import accounting
from sfumato._types import Adjacency, Assumption, Unit
from sfumato.accounting.events import Event, MixtureOfGaussians, NonPrivate, PrivateSelection, terms
from sfumato.statement.sentences import render
from sfumato.statement.statement import Statement
from sfumato.statement.verdict import FPR


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """The same run under another convention.

    Attributes:
        name: what differs.
        unit: whom the other convention protects.
        event: what the run cost that unit; None for what it cost the statement's own.
        method: the accountant.
        whole: the event stands for everything that the run released, however many releases that were.
    """

    name: str
    unit: Unit
    event: Event | None = None
    method: Literal["auto", "rdp", "zcdp", "pld"] = "auto"
    whole: bool = False


_COVERED, _ROUNDING, _NO_NOISE = Assumption("covers_model"), Assumption("rounding_floats"), Assumption("no_noise")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What cannot be read off the ledger.

    Attributes:
        unit: whom the statement protects.
        adjacency: how neighbours differ.
        population: public number of units.
        delta: δ.
        sampling, mechanism: phrases.
        attained: whether some records make the run cost as much as its events say; if not, they are upper bounds on
            what ran, and nothing is known from below.
        covered: which of what was released is covered.
        rounding: how exact the noise is.
        assumptions: what the guarantee rests on, besides the sentences of every run; by id, or in the author's words.
        alternatives: the run under other conventions.
        seeded: somebody else's noise in this run can be repeated, which is for simulation only.
        released: alternatives that the run released itself, as a statement holds them.
        disclosure: answers to the questions of `sfumato.statement.QUESTIONS` that follow from what ran, besides
            those of every run.
        no_guarantee: the sentence of a run that promises nothing.
        covered_part: of such a run, what has a guarantee by itself: the sentence on what has none, and the answer to
            "released"; None where nothing has one.
    """

    unit: Unit
    adjacency: Adjacency
    population: int
    delta: float
    sampling: str
    mechanism: str
    attained: bool = True
    covered: Assumption | str = _COVERED
    rounding: Assumption | str = _ROUNDING
    assumptions: tuple[Assumption | str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    seeded: bool = False
    released: tuple[Mapping[str, Any], ...] = ()
    disclosure: dict[str, str] = field(default_factory=dict)
    no_guarantee: Assumption = _NO_NOISE
    covered_part: tuple[Assumption, Assumption] | None = None


KEY_DELETED = render(Assumption("key_deleted"))
"""The answer to "cryptographic_noise" of a run that has ended, or of a plan that will run to its end."""


KEY_CLOSED = render(Assumption("key_closed"))
"""The answer to "cryptographic_noise" of a run that was closed before its end."""


NO_LEDGER = render(Assumption("verified_by_nothing"))
"""The answer to "verification" of a run without a folder."""


def make_statement(
    event: Event, facts: Facts, *, noise_source: str, ledger: Mapping[str, Any] | None = None, key_on_disk: bool = False
) -> Statement:
    """The statement of everything that was released.

    Args:
        event: all of it, from the ledger; for one unit.
        facts: what cannot be read off the ledger.
        noise_source: "os" or "seeded".
        ledger: its entries and its head; None without one.
        key_on_disk: the run was stopped, and its key is still there.
    """
    cost = accounting.guarantee(event, adjacency=facts.adjacency)
    lower, upper = cost.epsilon_interval(facts.delta)
    private = not any(isinstance(part, NonPrivate) for part, _ in terms(event))
    return Statement(
        unit=facts.unit,
        adjacency=facts.adjacency,
        epsilon=upper,
        delta=facts.delta,
        epsilon_lower=lower if facts.attained and lower > 0 else None,
        rho=cost.rho(),
        sampling=facts.sampling,
        mechanism=facts.mechanism,
        noise_source=render(Assumption("randomness_os" if noise_source == "os" else "randomness_seeded")),
        assumptions=tuple(map(render, _assumptions(event, facts, noise_source) if private else _no_guarantee(facts))),
        population=facts.population,
        alternatives=(*_alternatives(event, facts), *map(dict, facts.released)) if private else (),
        disclosure=_disclosure(facts, noise_source, key_on_disk=key_on_disk) if private else _not_covered(facts),
        tpr_at_1_percent_fpr=float(cost.tpr(FPR)),
        ledger=ledger,
    )


_NOT_COVERED: dict[str, str] = {
    "released": render(Assumption("released_without_noise")),
    "verification": render(Assumption("verified_no_claim")),
}


def _no_guarantee(facts: Facts) -> tuple[Assumption, ...]:
    return (facts.no_guarantee, *(() if facts.covered_part is None else facts.covered_part[:1]))


def _not_covered(facts: Facts) -> dict[str, str]:
    return _NOT_COVERED if facts.covered_part is None else {**_NOT_COVERED, "released": render(facts.covered_part[1])}


_OF_PERSONS = frozenset({"examples_of_users", "one_patient", "one_record_of_patient"})
"""Sentences on a person who is more than one unit, in place of the general one."""


def _assumptions(event: Event, facts: Facts, noise_source: str) -> tuple[Assumption | str, ...]:
    units = _word(facts.unit, several=True)
    particular = any(isinstance(each, Assumption) and each.id in _OF_PERSONS for each in facts.assumptions)
    return (
        Assumption("public_settings", {"units": units, "population": facts.population}),
        *([] if particular else [_person(facts.unit)]),
        prepared_alone(facts.unit),
        facts.covered,
        Assumption("one_run"),
        facts.rounding,
        *([Assumption("draw_secret", {"units": units})] if _amplified(event) else []),
        *([Assumption("seeded_run")] if noise_source == "seeded" else []),
        *facts.assumptions,
    )


def _amplified(event: Event) -> bool:
    """Whether the cost is as low as it is because no one knows who was drawn."""
    return any(
        part.sampled
        or isinstance(part, MixtureOfGaussians)
        or (isinstance(part, PrivateSelection) and _amplified(part.event))
        for part, _ in terms(event)
    )


def _person(unit: Unit) -> Assumption:
    """Who is covered, where a person may be more than one unit."""
    known = {"example": Assumption("one_example"), "user": Assumption("one_user")}
    return known.get(unit, Assumption("one_unit", {"unit": _word(unit)}))


def prepared_alone(unit: Unit) -> Assumption:
    """What no run can see: whether records were changed by other records before it was given them.

    It stands in every statement, also where files were read: they may have been written after such a change.
    """
    if unit == "label":
        return Assumption("labels_prepared_alone")
    return Assumption("prepared_alone", {"unit": _word(unit)})


def _several(unit: Unit) -> str:
    several = "appears under several users" if unit == "user" else f"is behind several {_word(unit, several=True)}"
    return render(Assumption("several_units", {"person": str(render(_person(unit))), "several": several}))


def _word(unit: Unit, *, several: bool = False) -> str:
    """A unit in words."""
    word = unit.replace("_", " ")
    return word if not several else "identities" if unit == "identity" else f"{word}s"


def _disclosure(facts: Facts, noise_source: str, *, key_on_disk: bool) -> dict[str, str]:
    """Answers that follow from what ran; what only the author of the run knows is left open."""
    key = "key_seeded" if noise_source != "os" else "key_on_disk" if key_on_disk else "key_deleted"
    usual = {
        "trust_model": "trust_operator",
        "released": "released_model",
        "hyperparameter_tuning": "tuning_not_stated",
        "evaluation": "evaluation_not_covered",
        "other_releases": "other_releases_not_stated",
        "cryptographic_noise": key,
        "floating_point": "rounded_sums",
        "verification": "verified_by_ledger",
    }
    answers = {question: render(Assumption(id)) for question, id in usual.items()}
    return {**answers, "several_units": _several(facts.unit), **facts.disclosure}


def _alternatives(event: Event, facts: Facts) -> list[dict[str, Any]]:
    """The same run under other conventions; each with its own numbers. One that knows of fewer releases than there are,
    as a loop does of what came before it, belongs to another run and is left out."""
    rows = []
    for other in facts.alternatives:
        if other.event is not None and not other.whole and _releases(other.event) < _releases(event):
            continue
        cost = accounting.guarantee(
            event if other.event is None else other.event, adjacency=facts.adjacency, method=other.method
        )
        rows.append(
            {
                "name": other.name,
                "unit": other.unit,
                "adjacency": facts.adjacency,
                "accountant": cost.tightest(facts.delta),
                "epsilon": cost.epsilon(facts.delta),
                "delta": facts.delta,
            }
        )
    return rows


def _releases(event: Event) -> int:
    return sum(count for _, count in terms(event))
