"""What a run will state, and what it brought: measurements as a table, the statement, and where all is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato._check import InputError
from sfumato._files import read_json
from sfumato._parts import flat
from sfumato.cli.console import Answer, Table, bar, leads

if TYPE_CHECKING:
    from sfumato.statement import Statement
    from sfumato.training import Task

_MOST_SHOWN = 16  # numbers of a setting


def dry_run(plan: Any, statement: Statement, done: str, *, above: Iterable[str | Table] = (), **more: Any) -> Answer:
    """A plan, and what its run would state.

    Args:
        plan: with all its noise.
        statement: of the whole run.
        done: what was done in place of the run.
        above: lines for people before those of the plan.
        more: for --json; the words of a "forecast" are shown before the last line.
    """
    rows = [[name, _setting(value)] for name, value in flat(plan.to_json()) if value is not None]
    forecast = f"\n\nforecast: {more['forecast']['words']}" if "forecast" in more else ""
    end = f"\nat its end the run would state:\n\n{statement.text()}{forecast}\n\ndry run: {done}"
    data = {"plan": plan.to_json(), "statement": statement.to_json(), **more}
    return Answer(data, [*above, Table(["setting", "value"], rows), end])


def _setting(value: Any) -> str:
    """A setting; long lists by their length and range."""
    if isinstance(value, tuple) and len(value) > _MOST_SHOWN:
        return f"{len(value)} numbers, {min(value):.6g} to {max(value):.6g}"
    return str(value)


def outcome(
    out: Path,
    statement: Statement,
    *,
    already: bool,
    above: Iterable[str | Table] = (),
    below: Iterable[str] = (),
    again: bool = True,
    **more: Any,
) -> Answer:
    """What a run brought; its page is written.

    Args:
        out: its folder.
        statement: its statement.
        already: the run was finished before.
        above: lines for people before the verdict, its measurements.
        below: lines after the run's folder.
        again: show the verdict of a run that was finished before, too.
        more: for --json.
    """
    if not leads():  # the leader has written it
        return Answer()
    from sfumato.report import write_report  # late: plots take a while to load

    try:
        with bar("page"):
            page = write_report([out])
    except InputError as error:
        raise InputError(f"the run in {out} is whole, but not its page ({error}); sfumato report {out}") from None
    data = {"run": out, "report": page, "statement": statement.to_json(), "already": already, **more}
    return Answer(data, _lines(out, page, above, below, short=already and not again))


def _lines(
    out: Path, page: Path, above: Iterable[str | Table], below: Iterable[str], *, short: bool
) -> Iterator[str | Table]:
    from sfumato.report import summary

    yield from above
    if short:
        yield f"\nthe run was finished before, so these are its measurements; sfumato report {out} says its verdict"
        return
    yield "\n" + "\n".join([*summary(out, page), "", f"run: {out}", *below])


def measured(statement: Statement, out: Path, task: Task, *, already: bool) -> Answer:
    """What a training run brought, with the measurements of its models."""
    if not leads():
        return Answer()
    evaluation = evaluation_of(out)
    table = measurements(task, evaluation)
    return outcome(out, statement, already=already, above=table, again=False, evaluation=without_curves(evaluation))


def evaluation_of(out: Path) -> dict[str, Any]:
    """What was measured in a run, by model."""
    file = out / "evaluation.json"
    return read_json(file) if file.exists() else {}


def measurements(task: Task, evaluation: dict[str, Any]) -> list[str | Table]:
    """What evaluation.json holds."""
    from sfumato.training.monitoring import MONITORED, not_finite

    models = [name for name in ("untrained", "trained") if name in evaluation]
    if not models:
        return ["no test data, so nothing was measured"]
    stages = [f"stage {number}" for number in range(1, len(evaluation)) if f"stage {number}" in evaluation]
    models[1:1] = stages[:-1]  # the model of the last one is the trained one
    models += [MONITORED] if MONITORED in evaluation else []
    names, keys, about = task.table(evaluation)
    rows = [[name, *(_cell(evaluation[name], key) for key in keys)] for name in models]
    rows += baseline_rows(evaluation.get("trained") or evaluation[models[0]], keys)
    lines: list[str | Table] = [Table(["model", *names], rows), f"\n{about}"]
    if MONITORED in evaluation:
        count = evaluation[MONITORED]["users"]
        lines.append(f"seen: the trained model on {count:,} people who took part; no guarantee covers this row")
    unmeasured = not_finite(evaluation)
    return [*lines, *([unmeasured] if unmeasured else [])]


def baseline_rows(row: dict[str, Any], keys: Sequence[str], *between: str) -> list[list[str]]:
    """A line of a table for each trivial baseline of a measurement."""
    found = row.get("baselines") or {}
    return [[f"baseline: {name}", *between, *(_cell(each, key) for key in keys)] for name, each in found.items()]


def by_records(task: Task, evaluation: dict[str, Any]) -> list[str | Table]:
    """The trained model on some people: on all of them, and by how many records they have."""
    row = evaluation["trained"]
    names, keys, _ = task.table(evaluation)
    groups = list(row["by_records"])
    groups.append({**row, "records": "all", "users": sum(each["users"] for each in groups)})  # who had some to measure
    rows = [[each["records"], f"{each['users']:,}", *(_cell(each, key) for key in keys)] for each in groups]
    rows += baseline_rows(row, keys, "")
    rebuilt = "\neach own part was rebuilt from some of the person's records, and measured on the others"
    return [Table(["records", "people", *names], rows), rebuilt]


def without_curves(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The measurements without what takes much room."""
    long = ("roc", "confusion", "nearest")
    return {
        model: {name: value for name, value in row.items() if name not in long} if isinstance(row, dict) else row
        for model, row in evaluation.items()
    }


def _cell(row: dict[str, Any], key: str) -> str:
    """One measurement; a run that was resumed with other rates has not measured all of them twice."""
    value: Any = row
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 1e-2 <= abs(value) < 1e6 else f"{value:.4g}"
