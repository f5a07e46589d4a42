"""`sfumato ledger show`, `verify` and `merge`: what was released, what it cost, whether it is whole, several as one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import tyro

from sfumato import accounting as acc
from sfumato._check import InputError, between
from sfumato._types import Adjacency
from sfumato.cli.account import UNCHOSEN_DELTA, single_in_words
from sfumato.cli.console import Answer, Table, bar, notify
from sfumato.cli.parse import CommonOptions
from sfumato.ledger import Budget, Ledger, Totals
from sfumato.statement import Statement

_MOST_ROWS = 50  # rows that are accounted one by one
_MIB = 1 << 20
_ARGUMENTS = {
    "same_run=True": "--same-run",
    "unrelated=True": "--unrelated",
    "budget=": "--epsilon and --delta, or --rho,",
}


@dataclass(frozen=True, kw_only=True)
class ShowOptions(CommonOptions):
    """Show what a ledger holds and costs, by phase and event, and what is left of its budget.

    Attributes:
        path: the ledger, or the folder of a run.
        delta: in (0, 1); without it, that of the budget, of the run's statement, or 1e-5.
        adjacency: how two neighbouring data sets differ; without it, that of the budget, of the run's statement, or
            add_remove.
        phase: show this phase only.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    delta: float | None = None
    adjacency: Adjacency | None = None
    phase: str | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CommonOptions):
    """Check that no line of a ledger was changed, removed, inserted or moved, and name the first bad one. A run's
    ledger and its statement have to name each other.

    Attributes:
        path: the ledger, or the folder of a run.
        head: a head that was noted before; it has to be in the chain still. Without one, it is not known whether
            whole lines are missing at the end.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    head: str | None = None


@dataclass(frozen=True, kw_only=True)
class MergeOptions(CommonOptions):
    """Join ledgers of the same records, of a copied run or of several phases. Each release counts once.

    Attributes:
        paths: two or more ledgers, or folders of runs; they are not changed.
        out: the new ledger, which must not exist.
        same_run: one file is a copy of the other, so equal lines of a writer without identity are one release.
        unrelated: the ledgers are different work on the same records, so what they hold adds up.
        epsilon: budget of the new ledger, with --delta; without it, the tightest of theirs.
        delta: in [0, 1); see --epsilon.
        rho: budget of the new ledger in zCDP, instead of --epsilon.
        adjacency: how two neighbouring data sets differ, for a budget that is given here.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH PATH [PATH ...]")]
    out: Path
    same_run: bool = False
    unrelated: bool = False
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    adjacency: Adjacency = "add_remove"


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        phase: "" for none.
        event: one single event.
        count: how often it happened in the phase.
        cost: epsilon of all of them by themselves, and of everything down to this row; None where no accountant knows
            the events. Nothing for rows beyond the first fifty.
    """

    phase: str
    event: acc.Event
    count: int
    cost: tuple[float | None, float | None] | None


def ledger_show(options: ShowOptions) -> Answer:
    """Read the ledger."""
    if options.delta is not None:
        between(0, 1, ends="()", delta=options.delta, remedy="choose it well below 1 / population")
    path = ledger_path(options.path)
    totals = _read(path, torn=True)
    if totals.torn:
        notify(f"the last line of {path} was torn by a crash and is left out; what it recorded was not released")
    delta, adjacency = _convention(options, totals)
    rows = _rows(totals, options.phase, delta, adjacency)
    whole = epsilon(totals.event(), delta, adjacency)
    budget = totals.budget
    spent = _spent(totals)
    shown = [
        {"phase": row.phase or None, "event": row.event.to_json(), "count": row.count}
        | (dict(zip(("epsilon", "epsilon_so_far"), row.cost, strict=True)) if row.cost else {})
        for row in rows
    ]
    left = None if budget is None or totals.last == {} else _left(totals)
    data = {
        "ledger": path,
        "entries": totals.entries,
        "releases": totals.releases,
        "head": totals.head,
        "torn": totals.torn,
        "delta": delta,
        "adjacency": adjacency,
        "rows": shown,
        "epsilon": whole,
        "budget": None if budget is None else {**budget.to_json(), "spent": spent, "more_of_the_last": left},
    }
    header = ["phase", "event", "count", "epsilon by itself", "epsilon so far"]
    cells = [
        [row.phase or "–", single_in_words(row.event), f"{row.count:,}", *map(_number, row.cost)]
        for row in rows
        if row.cost
    ]
    lines: list[str | Table] = [
        f"ledger: {path}, {_many(totals.entries, 'entry', 'entries')}, head {totals.head}\n",
        Table(header, cells),
    ]
    if len(rows) > _MOST_ROWS:
        lines.append(f"… and {len(rows) - _MOST_ROWS:,} rows more; --json lists all")
    phases = "" if options.phase is None else " over all phases"
    lines.append(f"\nin all{phases}: epsilon {_number(whole)} at delta {delta:g} ({adjacency})")
    if budget is not None:
        lines.append(f"budget: {budget.describe()}; spent {_number(spent)}{_left_in_words(left, totals)}")
    return Answer(data, lines)


def ledger_verify(options: VerifyOptions) -> Answer:
    """Read the ledger."""
    path = ledger_path(options.path)
    totals = _read(path, torn=False)
    if options.head is not None:
        _find(options.head, path)
    bound = _stated(totals, path.parent)
    lines = [f"{path}: {_many(totals.entries, 'entry', 'entries')}, chain unbroken, head {totals.head}"]
    if bound:
        lines.append(
            "its statement is the one that was made of it; the answers under disclosure in statement.json can be added "
            "to later, so no hash covers them"
        )
    elif bound is False and not options.json:
        notify(f"the statement in {path.parent} names no ledger, so lines that are missing at the end would not show")
    data = {"entries": totals.entries, "releases": totals.releases, "head": totals.head, "statement": bound}
    return Answer({"ledger": path, **data}, lines)


def _stated(totals: Totals, folder: Path) -> bool | None:
    """Whether the statement in the ledger's folder and the ledger name each other; None if there is none.

    Raises:
        InputError: they do not belong together.
    """
    from sfumato.ledger import ledger

    file = folder / "statement.json"
    if file.exists():
        return ledger.compare(totals, Statement.load(file), folder)
    if totals.seals:
        notify(f"{folder} holds no statement.json, and the ledger names one")
    return None


def ledger_merge(options: MergeOptions) -> Answer:
    """Read them all."""
    if len(options.paths) < 2:
        raise InputError("which ledgers? give two or more: sfumato ledger merge PATH PATH --out NEW.jsonl")
    budget = None
    if (options.epsilon, options.delta, options.rho) != (None, None, None):
        budget = Budget(epsilon=options.epsilon, delta=options.delta, rho=options.rho, adjacency=options.adjacency)
    files = [ledger_path(path) for path in options.paths]
    try:
        totals = Ledger.merge(files, options.out, same_run=options.same_run, unrelated=options.unrelated, budget=budget)
    except InputError as error:
        raise InputError(_as_options(str(error))) from None
    held = None if totals.budget is None else totals.budget.to_json()
    data = {"entries": totals.entries, "releases": totals.releases, "head": totals.head, "budget": held}
    lines = [
        f"{options.out}: {_many(totals.entries, 'entry', 'entries')}, "
        f"{_many(totals.releases, 'release', 'releases')} from {len(files)} ledgers, head {totals.head}"
    ]
    if totals.budget is not None:
        lines.append(f"budget: {totals.budget.describe()}; spent {_number(_spent(totals))}")
    return Answer({"ledger": options.out, "merged": files, **data}, lines)


def _as_options(message: str) -> str:
    """A refusal of `Ledger.merge` with the command's options in the place of the function's arguments."""
    for argument, option in _ARGUMENTS.items():
        message = message.replace(argument, option)
    return message


def ledger_path(path: Path) -> Path:
    """The ledger's file; a run's folder holds one.

    Raises:
        InputError: there is none.
    """
    if not path.is_dir():
        return path
    if not (path / "ledger.jsonl").exists():
        raise InputError(f"{path} holds no ledger.jsonl; give the folder of a run, or the file itself")
    return path / "ledger.jsonl"


def epsilon(event: acc.Event, delta: float, adjacency: Adjacency) -> float | None:
    """Epsilon of an event; None where no accountant knows it."""
    try:
        return acc.guarantee(event, adjacency=adjacency).epsilon(delta)
    except InputError:
        return None


def _read(path: Path, *, torn: bool) -> Totals:
    with bar("reading, MiB") as progress:
        totals = Ledger.read(path, torn=torn, show=lambda done, total: progress(done // _MIB, total // _MIB))
    if not totals.entries:
        raise InputError(f"{path} is empty: nothing was recorded in it, or it was cut; compare it with a copy")
    return totals


def _convention(options: ShowOptions, totals: Totals) -> tuple[float, Adjacency]:
    """Delta and adjacency: as asked for, or else as the budget or the statement has them."""
    delta, adjacency = options.delta, options.adjacency
    budget, statement = totals.budget, options.path / "statement.json"
    if budget is not None:
        delta, adjacency = delta or budget.delta, adjacency or budget.adjacency
    if not (delta and adjacency) and statement.exists():
        stated = Statement.load(statement)
        delta = delta or (stated.delta if stated.delta < 1 else None)
        adjacency = adjacency or cast(Adjacency, stated.adjacency)  # a statement has checked it
    return delta or UNCHOSEN_DELTA, adjacency or "add_remove"


def _rows(totals: Totals, phase: str | None, delta: float, adjacency: Adjacency) -> list[Row]:
    rows: list[Row] = []
    so_far: acc.Event = acc.Composition(())
    for name in totals.phases() if phase is None else (phase,):
        for event, count in acc.terms(totals.event(name)):
            cost = None
            if len(rows) < _MOST_ROWS:
                so_far = so_far + event * count
                cost = epsilon(event * count, delta, adjacency), epsilon(so_far, delta, adjacency)
            rows.append(Row(name, event, count, cost))
    return rows


def _spent(totals: Totals) -> float | None:
    try:
        return totals.spent()
    except InputError:
        return None


def _left(totals: Totals) -> int | float | None:
    """How many more like the last release the budget allows."""
    try:
        return totals.remaining(acc.event_from_json(totals.last["event"]))
    except InputError:
        return None


def _left_in_words(left: int | float | None, totals: Totals) -> str:
    if not totals.last:
        return ""
    if left is None:
        return "; what is left is not known, as no accountant knows the events"
    return "" if math.isinf(left) else f"; left for {left:,} more like the last release"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return "infinite" if math.isinf(value) else f"{value:.4g}"


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _find(head: str, path: Path) -> None:
    """Refuse a chain that does not hold a hash."""
    from sfumato.ledger import entries

    if any(entry["hash"] == head for entry, _ in entries.entries(path)):
        return
    raise InputError(f"{path} does not hold the head {head[:16]}…: lines were cut off or written anew; use a backup")
