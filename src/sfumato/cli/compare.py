"""`sfumato compare`: what runs cost under one convention, and which of them cannot be compared."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from sfumato import accounting as acc
from sfumato._check import InputError, between
from sfumato._files import read_json
from sfumato._types import Adjacency
from sfumato.cli.account import UNCHOSEN_DELTA, in_words
from sfumato.cli.console import Answer, Table
from sfumato.cli.parse import CommonOptions
from sfumato.ledger import Ledger
from sfumato.statement import Statement

if TYPE_CHECKING:
    from sfumato.statement.verdict import Verdict

_FPRS = (0.01, 0.001)  # the first is that of verdicts
_WIDTH = 80
_COLUMNS = (
    "epsilon: certified bounds, the truth is between them; ≤ where only one is known",
    "rho: of zCDP; sampling does not make it smaller, so it can be large",
    "mu: of the Gaussian mechanism that is at most as private",
    "advantage: by how much a test's TPR exceeds its FPR, at most",
    "TPR: share of the units in the data that a test finds, at most, where it",
    f"     suspects the share FPR of the others; the words below take {_FPRS[0]:g}",
)
"""What the columns state, for the last lines."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions(CommonOptions):
    """What runs cost under one convention: the same delta and the same neighbouring data sets for all.

    Attributes:
        runs: two or more of: folders of runs, statement.json, ledger.jsonl, events in JSON (as `sfumato account
            --json` prints).
        delta: in (0, 1), for all; without it, the largest of the statements, or 1e-5.
        adjacency: how two neighbouring data sets differ, for all; without it, that of the first statement, or
            add_remove.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN RUN [RUN ...]")]
    delta: float | None = None
    adjacency: Adjacency | None = None


@dataclass(frozen=True)
class Source:
    """What is known of one run.

    Attributes:
        path: where it was read.
        event: what was released; None where only a statement is left.
        statement: what was promised; None for a ledger or an event by itself.
    """

    path: Path
    event: acc.Event | None
    statement: Statement | None


@dataclass
class Row:
    """One run under the common convention; None where nothing is known.

    Attributes:
        epsilon: (lower or None, upper).
        rho: of zCDP, without amplification by sampling.
        mu: of the Gaussian mechanism that is at most as private.
        advantage: the most by which a test's true positive rate exceeds its false positive rate.
        tpr: true positive rate at each of `_FPRS`, at most.
        verdict: what an attacker gains, in the words of the page and the statement.
        obstacles: why the row cannot be compared with the others.
        remarks: what else to know.
    """

    epsilon: tuple[float | None, float] | None = None
    rho: float | None = None
    mu: float | None = None
    advantage: float | None = None
    tpr: tuple[float, ...] | None = None
    verdict: Verdict | None = None
    obstacles: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def compare(options: CompareOptions) -> Answer:
    """Read the runs and bring them to one convention."""
    if options.delta is not None:
        between(0, 1, ends="()", delta=options.delta, remedy="choose it well below 1 / population")
    if len(options.runs) < 2:
        raise InputError("which runs? give two or more: sfumato compare RUN RUN; for one, sfumato account or report")
    sources = [read_source(path) for path in options.runs]
    stated = [source.statement for source in sources if source.statement]
    delta = options.delta or max((s.delta for s in stated if 0 < s.delta < 1), default=UNCHOSEN_DELTA)
    adjacency = options.adjacency or cast(Adjacency, next((s.adjacency for s in stated), "add_remove"))
    unit = next((s.unit for s in stated), None)
    rows = [(source, _row(source, delta, adjacency, unit)) for source in sources]
    convention = {"delta": delta, "adjacency": adjacency, "unit": unit}
    above = f"all at delta {delta:g}, neighbours: {adjacency}; unit: {unit or 'not stated'}\n"
    lines = chain([above], _lines(rows, delta, adjacency))
    return Answer({**convention, "runs": [_as_json(source, row) for source, row in rows]}, lines)


def _lines(rows: Sequence[tuple[Source, Row]], delta: float, adjacency: Adjacency) -> Iterator[str | Table]:
    header = ["run", "epsilon", "rho", "mu", "advantage", *(f"TPR at FPR {fpr:g}" for fpr in _FPRS), "verdict"]
    yield Table(header, [_cells(source, row) for source, row in rows])
    yield "\n" + "\n".join(_COLUMNS)
    for source, row in rows:
        yield f"\n{_folded(f'{source.path}: {_what_ran(source)}')}\n{_folded(_convention(source, delta, adjacency))}"
        if row.verdict:
            sentences = [f"{row.verdict.title}.", row.verdict.sentence, row.verdict.delta_too_large]
            yield _folded(" ".join(filter(None, sentences)))
    for source, row in rows:
        yield from (f"\n{source.path} cannot be compared: {line}" for line in row.obstacles)
        yield from (f"\n{source.path}: {line}" for line in row.remarks)


def read_source(path: Path) -> Source:
    """What a folder or a file states of a run.

    Raises:
        InputError: it is none of those that are understood, or it is damaged.
    """
    from sfumato.ledger import ledger as binding

    if path.is_dir():
        ledger, statement = path / "ledger.jsonl", path / "statement.json"
        if not ledger.exists() and not statement.exists():
            raise InputError(f"{path} holds neither statement.json nor ledger.jsonl: it is not the folder of a run")
        totals = Ledger.read(ledger) if ledger.exists() else None
        stated = Statement.load(statement) if statement.exists() else None
        if totals is not None and stated is not None:
            binding.compare(totals, stated, path)
        return Source(path, None if totals is None else totals.event(), stated)
    if path.suffix == ".jsonl":
        return Source(path, Ledger.read(path).event(), None)
    value = _json(path)
    if isinstance(value, dict) and "unit" in value:
        return Source(path, None, Statement.load(path))
    if isinstance(value, dict) and isinstance(value.get("event"), dict):
        value = value["event"]  # as `sfumato account --json` prints it
    if not isinstance(value, dict) or "event" not in value:
        raise InputError(
            f"{path} is neither a statement nor an event; give a run's folder, statement.json, ledger.jsonl, or what "
            "sfumato account --json printed"
        )
    try:
        return Source(path, acc.event_from_json(value), None)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except FileNotFoundError:
        raise InputError(f"there is nothing at {path}; give the folder of a run, or a file of it") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); a ledger's name ends in .jsonl") from None


def _row(source: Source, delta: float, adjacency: Adjacency, unit: str | None) -> Row:
    statement = source.statement
    if source.event is not None:
        row = _from_event(source.event, delta, adjacency)
        if row.epsilon and statement and statement.epsilon_lower is None:
            row.epsilon = None, row.epsilon[1]  # what costs the groups so much need not cost one unit as much
        if statement and statement.adjacency != adjacency:
            row.remarks.append(f"stated under {statement.adjacency}, accounted here under {adjacency}")
    else:
        assert statement is not None
        row = _from_statement(statement, delta, adjacency)
    row.verdict = _verdict(source, row, delta, adjacency)
    if statement and source.event and statement.verdict(source.event).contradicted:
        row.obstacles.append("its ledger costs more than its statement says")
    if statement is None:
        row.remarks.append("no statement, so its unit is not known; compare it only if you know that it is the same")
    elif statement.unit != unit:
        row.obstacles.append(f"its unit is {statement.unit}, not {unit}")
    return row


def _verdict(source: Source, row: Row, delta: float, adjacency: Adjacency) -> Verdict | None:
    """That of the statement; under the common convention where there is none, or where it is for other neighbours."""
    from sfumato.statement.verdict import judge

    statement = source.statement
    if statement and statement.adjacency == adjacency:
        return statement.verdict(source.event)
    if source.event is None or row.epsilon is None:
        return None
    return judge(
        unit=statement.unit if statement else "unit",
        adjacency=adjacency,
        epsilon=row.epsilon[1],
        delta=delta,
        population=statement.population if statement else None,
        seeded=statement is not None and statement.seeded,
        event=source.event,
    )


def _from_event(event: acc.Event, delta: float, adjacency: Adjacency) -> Row:
    try:
        cost = acc.guarantee(event, adjacency=adjacency)
        low, high = cost.epsilon_interval(delta)
    except InputError as error:
        return Row(obstacles=[f"nothing is known of it under {adjacency}: {error}"])
    return Row(
        epsilon=(low or None, high),
        rho=_known(cost.rho),
        mu=_known(lambda: cost.gdp().mu),
        advantage=cost.advantage(),
        tpr=tuple(float(cost.tpr(fpr)) for fpr in _FPRS),
    )


def _known(number: Callable[[], float | None]) -> float | None:
    """A number that some events do not have."""
    try:
        return number()
    except InputError:
        return None


def _from_statement(statement: Statement, delta: float, adjacency: Adjacency) -> Row:
    """What a promise at one (epsilon, delta) implies; looser than what the events would show."""
    from sfumato.accounting.accountants import rho_to_epsilon
    from sfumato.statement.verdict import promised

    if statement.adjacency != adjacency:
        return Row(obstacles=[f"it is stated under {statement.adjacency} only, not {adjacency}"])
    bounds = [rho_to_epsilon(statement.rho, delta)] if statement.rho is not None else []
    if statement.delta <= delta:
        bounds.append(statement.epsilon)
    alone = promised(statement.epsilon, statement.delta, adjacency)
    kept = statement.tpr_at_1_percent_fpr
    row = Row(
        epsilon=(None, min(bounds)) if bounds else None,
        rho=statement.rho,
        advantage=alone.advantage(),
        tpr=tuple(
            min(float(alone.tpr(fpr)), kept if fpr <= _FPRS[0] and kept is not None else 1.0)  # it rises with the fpr
            for fpr in _FPRS
        ),
        remarks=["from its statement alone, which shows less than a ledger; its bounds are looser"],
    )
    if not bounds:
        row.obstacles.append(f"it is stated at delta {statement.delta:g} only; --delta {statement.delta:g} compares it")
    return row


def _cells(source: Source, row: Row) -> list[str]:
    rates = [_short(rate) for rate in row.tpr] if row.tpr else ["–"] * len(_FPRS)
    compared = "not comparable" if row.obstacles else row.verdict.title if row.verdict else "–"
    numbers = [_short(row.rho), _short(row.mu), _short(row.advantage)]
    return [str(source.path), _interval(row.epsilon), *numbers, *rates, compared]


def _what_ran(source: Source) -> str:
    if source.event is not None:
        return in_words(source.event)
    return f"{source.statement.mechanism}; {source.statement.sampling}" if source.statement else ""


def _convention(source: Source, delta: float, adjacency: Adjacency) -> str:
    """Unit, neighbours and delta of a row, as it was stated and as it is shown here."""
    here, stated = f"neighbours {adjacency}, delta {delta:g}", source.statement
    if stated is None:
        return f"Unit not stated; {here}."
    there = f"neighbours {stated.adjacency}, delta {stated.delta:g}"
    return f"Unit {stated.unit}; {here}" + ("." if here == there else f"; stated for {there}.")


def _folded(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _interval(epsilon: tuple[float | None, float] | None) -> str:
    if epsilon is None:
        return "–"
    low, high = epsilon
    if math.isinf(high):
        return "infinite"
    return f"≤ {high:.5g}" if low is None else f"{low:.5g} – {high:.5g}"


def _short(value: float | None) -> str:
    return "–" if value is None else "infinite" if math.isinf(value) else f"{value:.4g}"


def _as_json(source: Source, row: Row) -> dict[str, Any]:
    statement = source.statement
    return {
        "run": source.path,
        "event": None if source.event is None else source.event.to_json(),
        "unit": statement.unit if statement else None,
        "stated_adjacency": statement.adjacency if statement else None,
        "epsilon": row.epsilon[1] if row.epsilon else None,
        "epsilon_lower": row.epsilon[0] if row.epsilon else None,
        "rho": row.rho,
        "mu": row.mu,
        "advantage": row.advantage,
        "tpr_at_fpr": {f"{fpr:g}": rate for fpr, rate in zip(_FPRS, row.tpr, strict=True)} if row.tpr else None,
        "verdict": None
        if row.verdict is None
        else {
            "protection": row.verdict.word,
            "sentence": row.verdict.sentence,
            "delta": row.verdict.delta_too_large,
        },
        "comparable": not row.obstacles,
        "obstacles": row.obstacles,
        "remarks": row.remarks,
    }
