"""Numbers as people read them; upper bounds are rounded up, so that no figure promises more than was proved.

>>> up(18.810239), up(0.0000123), up(float("inf")), near(0.0417)
('18.82', '1.23 × 10⁻⁵', '∞', '0.0417')
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def up(value: float, digits: int = 4) -> str:
    """An upper bound to so many digits, rounded up."""
    return _written(value, Context(prec=digits, rounding=ROUND_CEILING))


def down(value: float, digits: int = 4) -> str:
    """A lower bound to so many digits, rounded down."""
    return _written(value, Context(prec=digits, rounding=ROUND_FLOOR))


def near(value: float, digits: int = 4) -> str:
    """The nearest number of so many digits."""
    return _written(value, Context(prec=digits, rounding=ROUND_HALF_EVEN))


def count(value: float) -> str:
    """A whole number with separators."""
    return f"{round(value):,}"


def power_of_ten(exponent: int) -> str:
    """10⁻³, and so on."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def odds_factor(epsilon: float) -> str:
    """e to the power of ε, rounded up."""
    if epsilon < 700:
        return up(math.exp(epsilon), 4 if epsilon < math.log(1e4) else 2)
    return power_of_ten(math.ceil(epsilon / math.log(10)))


def value(item: object) -> str:
    """Any JSON value in a table."""
    match item:
        case None:
            return "none"
        case bool():
            return "yes" if item else "no"
        case float():
            return near(item, 6)
        case list() | tuple():
            return ", ".join(map(value, item)) or "none"
    return str(item)


def _written(number: float, context: Context) -> str:
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    short = context.create_decimal(repr(float(number)))
    if short == 0:
        return "0"
    if -4 <= short.adjusted() < 6:
        return format(_trimmed(short), "f")
    mantissa = _trimmed(short.scaleb(-short.adjusted()))
    times = "" if mantissa == 1 else f"{mantissa:f} × "
    return times + power_of_ten(short.adjusted())


def _trimmed(number: Decimal) -> Decimal:
    whole = number.to_integral_value()
    return whole if number == whole else number.normalize()


def finite(value: Any) -> float | None:
    """A number of a file; None where it is missing, infinite or not a number."""
    number = None if value is None else float(value)
    return number if number is not None and math.isfinite(number) else None
