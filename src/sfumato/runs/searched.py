"""Numbers of a plan that a search found: a run that goes on keeps those it began with.

Searches end where the last digits of their steps say, and these differ from one processor to another, and with the
number of threads that share a product of matrices. A script that calibrates its noise again before it resumes would
come with another plan in the twelfth digit. What is accounted is what the run's own plan.json says.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Plan:
...     noise_multiplier: float
>>> as_begun(Plan(0.55871709799), {"noise_multiplier": 0.55871709783}, "noise_multiplier")
Plan(noise_multiplier=0.55871709783)
>>> as_begun(Plan(0.56), {"noise_multiplier": 0.55871709783}, "noise_multiplier")  # another setting: as it is
Plan(noise_multiplier=0.56)
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

_Plan = TypeVar("_Plan", bound=Any)

_SEARCHED = 1e-6  # how much of a number may be the rounding of its calibration


def as_begun(plan: _Plan, recorded: Mapping[str, Any], *fields: str) -> _Plan:
    """The plan with the numbers of the run that it goes on with, if all of them are the same but for the search.

    Args:
        plan: a dataclass.
        recorded: what plan.json holds.
        fields: that a calibration may have found, each a number or None.

    Returns:
        the plan itself where one differs by more: `RunFolder.refuse_another` tells of it.
    """
    begun = {name: recorded.get(name) for name in fields}
    if not all(alike(getattr(plan, name), begun[name]) for name in fields):
        return plan
    return dataclasses.replace(plan, **begun)


def alike(now: Any, then: Any, tolerance: float = _SEARCHED) -> bool:
    """Whether two numbers are the same up to so much of the first, as calibrated ones are, or both are None."""
    if now is None or then is None:
        return now is then
    return is_number(then) and abs(now - then) <= tolerance * abs(now)


def is_number(value: Any) -> bool:
    """Whether this is a finite number of JSON, as a plan.json that nobody changed has it."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
