"""What a row of the metrics holds, as named numbers: the public ones, and the private ones under "private/".

>>> row = {"round": 3, "epsilon": 0.5, "clip_norm": None, "learning_rate": [0.1, 0.2], "not_private": {"loss": 2.0}}
>>> of_round(row, private=False)
{'epsilon': 0.5, 'learning_rate/0': 0.1, 'learning_rate/1': 0.2}
>>> of_round(row, private=True)["private/loss"]
2.0
"""

import json
from collections.abc import Mapping
from typing import Any

PRIVATE = "private/"
"""How the names begin of what was computed from private records without noise."""

_NOT_SHOWN = ("round", "not_private")


def of_round(row: Mapping[str, Any], *, private: bool) -> dict[str, float]:
    """The numbers of a round; with `private` also those without noise."""
    public = {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    if isinstance(rates := row.get("learning_rate"), list):
        public["learning_rate"] = dict(enumerate(rates))
    found = _numbers(public)
    return {**found, **_numbers(row.get("not_private") or {}, PRIVATE)} if private else found


def of_evaluation(row: Mapping[str, Any], data: str, *, private: bool, public: bool) -> dict[str, float]:
    """What was measured.

    Args:
        row: measures by name.
        data: what on: "validation" or "test".
        private: whether it may be told where it is private.
        public: whether the data are public.
    """
    if not (private or public):
        return {}
    measures = {name: value for name, value in row.items() if name not in _NOT_SHOWN}
    return _numbers(measures, f"{'' if public else PRIVATE}{data}/")


def of_plan(plan: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The fields of a plan, those that are no plain values as text; those that are None are left out."""
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in plan.items()
        if value is not None
    }


def _numbers(values: Mapping[Any, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = float(value)
    return found
