"""What whoever runs tells a run at its end, so that the statement can be written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sfumato._types import Adjacency, Unit
from sfumato.accounting import Event


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
        covered: a sentence that says which of what was released is covered.
        rounding: a sentence on how exact the noise is.
        assumptions: sentences that the guarantee rests on, beside those of every run.
        alternatives: the run under other conventions.
        seeded: somebody else's noise in this run can be repeated, which is for simulation only.
        released: alternatives that the run released itself, as a statement holds them.
        disclosure: answers to the questions of `accounting.statement.disclosure` that follow from what ran, beside
            those of every run.
    """

    unit: Unit
    adjacency: Adjacency
    population: int
    delta: float
    sampling: str
    mechanism: str
    attained: bool = True
    covered: str = (
        "The model after every round, the ledger and the plan are covered. Metrics, evaluations on private data and "
        "checkpoints are not."
    )
    rounding: str = "Sums and noise are exact up to floating-point rounding."
    assumptions: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    seeded: bool = False
    released: tuple[Mapping[str, Any], ...] = ()
    disclosure: dict[str, str] = field(default_factory=dict)
