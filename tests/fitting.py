"""Fit a plan where the options of the run come one by one, as the options of a test do."""

import dataclasses
from typing import Any

from sfumato.training import RunOptions

_FIELDS = {field.name for field in dataclasses.fields(RunOptions)}


def run_options(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `Plan.fit`: those that are fields of `RunOptions` in its options."""
    fields = {name: value for name, value in given.items() if name in _FIELDS}
    rest = {name: value for name, value in given.items() if name not in _FIELDS}
    return {**rest, "options": dataclasses.replace(rest.get("options") or RunOptions(), **fields)}


def fit_plan(plan: Any, *given: Any, **options: Any) -> Any:
    """`plan.fit`."""
    return plan.fit(*given, **run_options(options))


def local_training(**given: Any) -> Any:
    """What a client does, by flat names; its head is its own unless told otherwise."""
    from sfumato.federated import ClientTraining, PartlyLocalTraining

    flat = {"head": "local", "max_examples": None, "learning_rate": 0.01, "momentum": 0.0, **given}
    dotted = {"head_start": "head.start", "reconstruction_steps": "head.steps_alone", "reconstruction": "local"}
    kind = PartlyLocalTraining if given.get("reconstruction") is not None else ClientTraining
    return kind(**{dotted.get(name, name): value for name, value in flat.items()})
