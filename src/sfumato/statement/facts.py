"""From a run to its statement: what was promised to whom, under which assumptions.

What whoever runs tells a run at its end, so that the statement can be written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sfumato._types import Adjacency, Assumption, Unit
from sfumato.accounting import Event, NonPrivate, guarantee, terms
from sfumato.statement.sentences import say
from sfumato.statement.statement import NOT_STATED, Statement
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


_COVERED, _ROUNDING = Assumption("covers_model"), Assumption("rounding_floats")


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
        disclosure: answers to the questions of `sfumato.statement.QUESTIONS` that follow from what ran, beside
            those of every run.
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


KEY_DELETED = "Yes: AES-256 under a key from the operating system, deleted when the run ends."
"""The answer to "cryptographic_noise" of a run that has ended, or of a plan that will run to its end."""


KEY_CLOSED = (
    "Yes: AES-256 under a key from the operating system. The run was stopped before its end and then closed, which "
    "deleted the key."
)
"""The answer to "cryptographic_noise" of a run that was closed before its end."""


NO_LEDGER = "Nothing: the run was kept in memory, without a ledger. That the code ran as it stands has to be believed."
"""The answer to "verification" of a run without a folder."""


_KEY_KEPT = (
    "Yes: AES-256 under a key from the operating system. The run was stopped and can go on, so checkpoint/ holds the "
    "key still, and who has it can take the noise away; sfumato close deletes it."
)


def make_statement(
    event: Event, facts: Facts, *, noise_source: str, ledger: Mapping[str, Any] | None = None, key_kept: bool = False
) -> Statement:
    """The statement of everything that was released.

    Args:
        event: all of it, from the ledger; for one unit.
        facts: what cannot be read off the ledger.
        noise_source: "os" or "seeded".
        ledger: its entries and its head; None without one.
        key_kept: the run was stopped, and its key is still there.
    """
    cost = guarantee(event, adjacency=facts.adjacency)
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
        noise_source=say(Assumption("randomness_os" if noise_source == "os" else "randomness_seeded")),
        assumptions=tuple(map(say, _assumptions(facts, noise_source) if private else _NO_GUARANTEE)),
        population=facts.population,
        alternatives=(*_alternatives(event, facts), *map(dict, facts.released)) if private else (),
        disclosure=_disclosure(facts, noise_source, key_kept=key_kept) if private else _NOT_COVERED,
        tpr_at_1_percent_fpr=float(cost.tpr(FPR)),
        ledger=ledger,
    )


_NO_GUARANTEE = (Assumption("no_noise"),)
_NOT_COVERED = {
    "released": "The model, the ledger and the plan; nothing is covered, as no noise was added.",
    "verification": "That no guarantee is claimed.",
}


def _assumptions(facts: Facts, noise_source: str) -> tuple[Assumption | str, ...]:
    units = _word(facts.unit, several=True)
    return (
        Assumption("public_settings", {"units": units, "population": facts.population}),
        _person(facts.unit),
        prepared_alone(facts.unit),
        facts.covered,
        Assumption("one_run"),
        facts.rounding,
        *([Assumption("seeded_run")] if noise_source == "seeded" else []),
        *facts.assumptions,
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
    return f"{say(_person(unit))} Whether anybody {several} is {NOT_STATED}."


def _word(unit: Unit, *, several: bool = False) -> str:
    """A unit as people say it."""
    word = unit.replace("_", " ")
    return word if not several else "identities" if unit == "identity" else f"{word}s"


def _disclosure(facts: Facts, noise_source: str, *, key_kept: bool) -> dict[str, str]:
    """Answers that follow from what ran; what only the author of the run knows is left open."""
    return {
        "trust_model": "Whoever runs the training sees the records, or each client's contribution, and is trusted: "
        "noise is added to the sum, in one place.",
        "released": "The model after every round, the ledger and the plan; all three are covered. Metrics, evaluations "
        "on private data and the folder checkpoint/ are not, and are marked as not private.",
        "several_units": _several(facts.unit),
        "hyperparameter_tuning": "One run is counted. Whether settings were chosen by other runs on the same records "
        f"is {NOT_STATED}.",
        "evaluation": "What was measured on the training, validation or test records has no noise and is not covered; "
        f"whether it served to choose what is released is {NOT_STATED}.",
        "other_releases": f"None is counted here; whether there are others is {NOT_STATED}.",
        "cryptographic_noise": (_KEY_KEPT if key_kept else KEY_DELETED)
        if noise_source == "os"
        else "No: seeded, for simulation only. Whoever knows the seed can take the noise away.",
        "floating_point": "No: sums and noise are rounded to floating-point numbers, and attacks on their last bits "
        "(Mironov 2012) are not ruled out.",
        "verification": "ledger.jsonl holds every release in a chain of hashes that ends with the digests of the "
        "statement, the plan and the model; sfumato ledger verify checks it and sfumato ledger show accounts it anew. "
        "The answers to these questions can be added to later and are not under the statement's digest, and that the "
        "code ran as it stands has to be believed.",
        **facts.disclosure,
    }


def _alternatives(event: Event, facts: Facts) -> list[dict[str, Any]]:
    """The same run under other conventions; each with its own numbers. One that knows of fewer releases than there are,
    as a loop does of what came before it, tells of another run and is left out."""
    rows = []
    for other in facts.alternatives:
        if other.event is not None and not other.whole and _releases(other.event) < _releases(event):
            continue
        cost = guarantee(event if other.event is None else other.event, adjacency=facts.adjacency, method=other.method)
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
