"""Rounding to a number of digits towards the safe side: an upper bound up, a lower bound down.

>>> rounded_up(18.810239, 4), rounded_down(1.99997, 4)
(18.82, 1.999)
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def rounded_up(value: float, digits: int) -> float:
    """The smallest number of so many digits that is not below the value."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> float:
    """The largest number of so many digits that is not above the value."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> float:
    if not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))
