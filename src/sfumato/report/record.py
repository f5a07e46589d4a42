"""A run's folder as a report needs it: read whole, checked, never changed.

Guarantees that what is shown is what the files say: a missing or damaged file is refused by name, the ledger's
chain is verified line by line, and its events are accounted again beside the statement.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from sfumato._check import InputError
from sfumato._files import parse_json, read_json
from sfumato._types import Adjacency
from sfumato.accounting import Event, Guarantee, Ledger, Statement, guarantee
from sfumato.accounting.ledger import binding
from sfumato.accounting.statement.verdict import Verdict, promised
from sfumato.algorithms import SYNTHETIC
from sfumato.models.weights import read_metadata
from sfumato.report.evaluation import Evaluation, evaluation
from sfumato.report.rounds import Metrics

T = TypeVar("T")

_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError)  # of reading what nobody should have written


@dataclass(frozen=True)
class LedgerCheck:
    """What the ledger says.

    Attributes:
        entries: lines of the ledger; their chain of hashes is whole.
        head: hash of the last entry, "" for an empty ledger.
        rounds: rounds recorded; those that ran, where one entry stands for the whole run and there are metrics.
        event: what was released, all together.
        epsilon: what it costs at the statement's δ, accounted anew; None if there is no telling.
        cost: the guarantee that follows from it, or from the statement alone where there is no telling.
        bound: whether statement and ledger name each other, so that lines that are missing at the end would show.
        whole: whether one entry stands for all rounds, as where they share noise.
    """

    entries: int
    head: str
    rounds: int
    event: Event
    epsilon: float | None
    cost: Guarantee
    bound: bool
    whole: bool


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        path: its folder.
        plan: the fields of plan.json without "plan" and "about".
        plan_name: "fedemb", "fedavg" …
        about: what plan.json says of the data and the model.
        statement: what was promised.
        ledger: what was released.
        metrics: None if there is no metrics.jsonl, as in a released bundle.
        evaluation: None if there was no test data.
    """

    path: Path
    plan: dict[str, Any]
    plan_name: str
    about: dict[str, Any]
    statement: Statement
    ledger: LedgerCheck
    metrics: Metrics | None
    evaluation: Evaluation | None

    @property
    def rounds_planned(self) -> int:
        """Rounds or steps that the plan has as a number; else those that the ledger counts."""
        stages = len(self.plan.get("stages") or ())
        return int(self.plan.get("rounds") or self.plan.get("steps") or stages or self.ledger.rounds)

    @property
    def counted(self) -> str:
        """What a run is made of, several: rounds, steps, stages, or the queries of a vote."""
        return next((name for name in ("queries", "steps", "stages") if name in self.plan), "rounds")

    @property
    def makes_records(self) -> bool:
        """Whether it learned to make records, in stages that have steps of their own and no rounds."""
        return self.plan_name in SYNTHETIC

    @cached_property
    def finished(self) -> bool:
        """Whether all that was planned has run; what makes records is written when it has."""
        if self.makes_records:
            model = self.path / "model.safetensors"
            return not model.exists() or bool(read_metadata(model))
        return self.ledger.rounds >= self.rounds_planned

    @property
    def seeded(self) -> bool:
        """Whether its randomness can be repeated, which is for simulation only."""
        return self.plan.get("seed") is not None or self.statement.seeded

    @cached_property
    def verdict(self) -> Verdict:
        """What an attacker gains, by the ledger; the statement is held against it."""
        statement = self.statement
        if self.seeded and not statement.seeded:  # plan.json knows the seed that the statement keeps silent about
            statement = replace(statement, noise_source="seeded: simulation only")
        return statement.verdict(self.ledger.event)

    @property
    def covered(self) -> bool:
        """Whether noise that nobody can repeat stands between the records and what was released."""
        return self.guaranteed and not self.seeded

    @property
    def guaranteed(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.statement.epsilon)


def read_run(path: Path | str) -> RunRecord:
    """Read the folder of a run.

    Raises:
        InputError: it is not the folder of a run, the run has not ended, or a file is damaged; names the file.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path} is not the folder of a run; give the folder that a run wrote (--out)")
    if not (path / "plan.json").exists():
        raise InputError(f"{path} holds no plan.json: it is not the folder of a run")
    if not (path / "statement.json").exists():
        raise InputError(f"{path} holds no statement.json: the run has not ended; resume it, or wait for it")
    plan = _load(path / "plan.json", _plan)
    statement = _load(path / "statement.json", Statement.from_json)
    about = plan.pop("about", None) or {}
    measured = path / "evaluation.json"
    metrics = _metrics(path / "metrics.jsonl") if (path / "metrics.jsonl").exists() else None
    ledger = _ledger(path / "ledger.jsonl", statement)
    if ledger.whole and metrics is not None and metrics.rounds:
        ledger = replace(ledger, rounds=min(ledger.rounds, metrics.rounds[-1]))  # it was written before the first one
    return RunRecord(
        path=path,
        plan_name=str(plan.pop("plan", "unknown")),
        plan=plan,
        about=about if isinstance(about, dict) else {"about": about},
        statement=statement,
        ledger=ledger,
        metrics=metrics,
        evaluation=_load(measured, evaluation) if measured.exists() else None,
    )


def _load(path: Path, build: Callable[[Any], T]) -> T:
    try:
        return build(read_json(path))
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged ({_reason(error):.500}); take a whole copy") from None


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _plan(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("it holds no fields")
    rounds = value.get("rounds", value.get("steps", 1))
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds is {rounds!r}")
    return value


def _ledger(path: Path, statement: Statement) -> LedgerCheck:
    if not path.exists():
        raise InputError(f"{path.parent} holds no ledger.jsonl, so nothing backs its statement; take a whole copy")
    totals = Ledger.read(path)
    bound = binding.compare(totals, statement, path.parent)
    adjacency = cast(Adjacency, statement.adjacency)  # the statement has checked it
    try:
        cost = guarantee(totals.event(), adjacency)
        epsilon = cost.epsilon(statement.delta) if statement.delta < 1 else None
    except InputError:
        cost, epsilon = promised(statement.epsilon, statement.delta, adjacency), None
    whole = "rounds" in totals.last
    rounds = next(
        (totals.last[name] for name in ("rounds", "round", "stage", "queries") if name in totals.last), totals.releases
    )
    if not isinstance(rounds, int):
        raise InputError(f"{path}, its last release is in round {rounds!r:.80}, which is no number; take a whole copy")
    head = totals.head if totals.entries else ""
    return LedgerCheck(totals.entries, head, rounds, totals.event(), epsilon, cost, bound, whole)


def _metrics(path: Path) -> Metrics:
    metrics = Metrics()
    for line, row in enumerate(_lines(path), start=1):
        try:
            metrics.add(row)
        except _DAMAGE as error:
            raise InputError(f"{path}, line {line} is damaged ({_reason(error):.500}); take a whole copy") from None
    return metrics


def _lines(path: Path) -> Iterator[Any]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield parse_json(line)
            except ValueError as error:
                raise InputError(f"{path}, line {number} is damaged ({error!s:.500}); take a whole copy") from None
