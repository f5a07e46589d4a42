"""Measurements of models, as a table on the terminal."""

from pathlib import Path
from typing import Any

from sfumato.accounting import Statement
from sfumato.cli.console import say, say_json, table
from sfumato.training import Task
from sfumato.training.told.learned import not_finite
from sfumato.training.told.seen import SEEN


def tell(task: Task, evaluation: dict[str, Any]) -> None:
    """What evaluation.json holds."""
    models = [name for name in ("untrained", "trained") if name in evaluation]
    if not models:
        say("no test data, so nothing was measured")
        return
    stages = [f"stage {number}" for number in range(1, len(evaluation)) if f"stage {number}" in evaluation]
    models[1:1] = stages[:-1]  # the model of the last one is the trained one
    models += [SEEN] if SEEN in evaluation else []
    names, keys, told = task.table(evaluation)
    table(["model", *names], [[name, *(_cell(evaluation[name], key) for key in keys)] for name in models])
    say(f"\n{told}")
    if SEEN in evaluation:
        count = evaluation[SEEN]["users"]
        say(f"seen: the trained model on {count:,} people who took part; no guarantee covers this row")
    unmeasured = not_finite(evaluation)
    if unmeasured:
        say(unmeasured)


def tell_by_records(task: Task, evaluation: dict[str, Any]) -> None:
    """The trained model on some people: on all of them, and by how many records they have."""
    row = evaluation["trained"]
    names, keys, _ = task.table(evaluation)
    groups = list(row["by_records"])
    groups.append({**row, "records": "all", "users": sum(each["users"] for each in groups)})  # who had some to measure
    table(
        ["records", "people", *names],
        [[each["records"], f"{each['users']:,}", *(_cell(each, key) for key in keys)] for each in groups],
    )
    say("\neach own part was rebuilt from some of the person's records, and measured on the others")


def without_curve(row: dict[str, Any]) -> dict[str, Any]:
    """The row without what takes much room."""
    return {name: value for name, value in row.items() if name not in ("roc", "confusion", "nearest")}


def say_outcome(out: Path, page: Path, statement: Statement, evaluation: dict[str, Any], *, already: bool) -> None:
    """What a run brought, as one JSON object.

    Args:
        out: its folder.
        page: its page.
        statement: its statement.
        evaluation: what evaluation.json holds.
        already: the run was finished before.
    """
    rows = {name: without_curve(row) if isinstance(row, dict) else row for name, row in evaluation.items()}
    say_json({"run": out, "report": page, "statement": statement.to_json(), "evaluation": rows, "already": already})


def _cell(row: dict[str, Any], key: str) -> str:
    """One measurement; a run that was resumed with other rates has not measured all of them twice."""
    value: Any = row
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 1e-2 <= abs(value) < 1e6 else f"{value:.4g}"
