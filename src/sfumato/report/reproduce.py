"""How to repeat a run: the command, the fields of its plan, and what will be equal."""

from dataclasses import dataclass
from typing import Any

from sfumato.algorithms import ALGORITHMS, command_of
from sfumato.report import numbers
from sfumato.report.record import RunRecord


@dataclass(frozen=True)
class Reproduction:
    """What to type, and what to expect.

    Attributes:
        sentence: whether a repetition is equal.
        code: a command, or Python where the run was started from Python; "" for a plan of another kind.
        language: "shell" or "Python".
        fields: names and values of the plan.
        about: names and values of what the plan says of the data and the model.
        version: sfumato's version that ran, if it was kept.
    """

    sentence: str
    code: str
    language: str
    fields: list[tuple[str, str]]
    about: list[tuple[str, str]]
    version: str | None


def reproduction(run: RunRecord, name: str) -> Reproduction:
    """For one run; `name` is that of its folder."""
    # The command line keeps the data's path under "about", which is all that --config needs to go on.
    by_command = any(run.about.get(name) for name in _PATHS)
    if run.plan_name not in ALGORITHMS:
        code = ""
    elif by_command:
        code = f"sfumato {command_of(run.plan_name)} --config {_quoted(name)}/plan.json --out {_quoted(name)}-again"
    else:
        code = _python(run, name)
    if run.seeded:
        sentence = "Seeded, for simulation only: the same data, plan and version give the same bytes."
    elif run.guaranteed:
        sentence = (
            "Not seeded: a repetition draws other people and other noise. It makes the same promise and reaches "
            "similar figures, not the same ones. On the same records it costs as much again."
        )
    else:
        sentence = "Not seeded: a repetition draws other samples, and reaches similar figures, not the same ones."
    if code:
        sentence += f" What is below runs in the folder that holds {name}."
    version = run.about.get("version")
    return Reproduction(
        sentence=sentence,
        code=code,
        language="shell" if by_command else "Python",
        fields=_flat(run.plan),
        about=_flat(run.about),
        version=str(version) if version else None,
    )


def _python(run: RunRecord, name: str) -> str:
    algorithm = ALGORITHMS[run.plan_name]
    return "\n".join(
        [
            "import json",
            "from pathlib import Path",
            "",
            f"from {algorithm.package} import {algorithm.plan}",
            "",
            f"fields = json.loads(Path({name + '/plan.json'!r}).read_text())",
            'del fields["plan"], fields["about"]',
            f"plan = {algorithm.plan}(**fields)",
            f"plan.fit({_GIVEN[algorithm.records]}, out={name + '-again'!r})",
        ]
    )


_PATHS = ("data", "agents", "events", "physionet2012", "mimic_iv")
"""What a command may keep of where its records are."""

_GIVEN = {
    "users": "model, users",
    "examples": "model, examples",
    "agents": "agents, pool, model, student=student",
    "labels": "model, examples",
    "ehr": "records",
}
"""What a plan is given, by its kind of records."""


def _flat(items: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Names with dots for what is nested."""
    rows: list[tuple[str, str]] = []
    for name, item in sorted(items.items()):
        if isinstance(item, dict):
            rows += _flat(item, f"{before}{name}.")
        else:
            rows.append((before + name, numbers.value(item)))
    return rows


def _quoted(name: str) -> str:
    return name if all(c.isalnum() or c in "-_./" for c in name) else "'" + name.replace("'", "'\\''") + "'"
