"""Numbers of JSON, and those that a search found, which may end in other digits on another machine.

>>> is_close(0.55871709799, 0.55871709783), is_close(0.56, 0.55871709783), is_close(None, None)
(True, False, True)
"""

import math
from typing import Any

_SEARCHED = 1e-6  # how much of a number may be the rounding of its calibration


def is_close(now: Any, then: Any, tolerance: float = _SEARCHED) -> bool:
    """Whether two numbers are the same up to so much of the first, as calibrated ones are, or both are None."""
    if now is None or then is None:
        return now is then
    return is_number(then) and abs(now - then) <= tolerance * abs(now)


def is_number(value: Any) -> bool:
    """Whether this is a finite number of JSON, as a plan.json that no one changed has it."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
