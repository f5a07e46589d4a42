"""Numbers of a plan that a search found: a run that goes on keeps those it began with.

Searches end where the last digits of their steps say, and these differ from one processor to another, and with the
number of threads that share a product of matrices. A script that calibrates its noise again before it resumes would
come with another plan in the twelfth digit. What is accounted is what the run's own plan.json says.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Plan:
...     noise_multiplier: float
>>> as_begun(Plan(0.55871709799), {"noise_multiplier": 0.55871709783}, noise_multiplier=1e-6)
Plan(noise_multiplier=0.55871709783)
>>> as_begun(Plan(0.56), {"noise_multiplier": 0.55871709783}, noise_multiplier=1e-6)  # another setting: as it is
Plan(noise_multiplier=0.56)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

_Plan = TypeVar("_Plan", bound=Any)


def as_begun(plan: _Plan, recorded: Mapping[str, Any], **tolerances: float) -> _Plan:
    """The plan with the numbers of the run that it goes on with, if all of them are the same but for the search.

    Args:
        plan: a dataclass.
        recorded: what plan.json holds.
        tolerances: for each field that a search may have found, a number or a tuple of numbers, how much it may differ,
            relative to its largest.

    Returns:
        the plan itself where a field differs by more: `RunFolder.refuse_another` tells of it.
    """
    begun = {name: recorded.get(name) for name in tolerances}
    if not all(_alike(getattr(plan, name), begun[name], tolerance) for name, tolerance in tolerances.items()):
        return plan
    return dataclasses.replace(
        plan, **{name: tuple(value) if isinstance(value, list) else value for name, value in begun.items()}
    )


def _alike(now: Any, then: Any, tolerance: float) -> bool:
    if now is None or then is None:
        return now is then
    try:
        first, second = np.asarray(now, np.float64), np.asarray(then, np.float64)
    except (TypeError, ValueError):  # a plan.json that somebody edited
        return False
    if first.shape != second.shape or not np.isfinite(second).all():
        return False
    return bool(np.all(np.abs(first - second) <= tolerance * np.abs(first).max(initial=0.0)))
