"""Whether numbers can be times since a patient's origin, or are dates that were written as numbers.

>>> refuse_dates_in_numbers(np.array([20240131.0]), "days", "the time 'day'", "line {}".format)
Traceback (most recent call last):
...
sfumato._check.InputError: the time 'day' at line 0 is 20240131 days, which is longer than a life: 2024-01-31 written as
a number? Write dates as 2024-01-31, or count times from each patient's origin
>>> refuse_dates_in_numbers(np.array([45322.0]), "days", "the time 'day'", "line {}".format)
Traceback (most recent call last):
...
sfumato._check.InputError: the time 'day' at line 0 is 45322 days, which is longer than a life: 2024-01-31, as Excel
counts days? Write dates as 2024-01-31, or count times from each patient's origin
"""

from collections.abc import Callable
from datetime import date, timedelta

import numpy as np

from sfumato._check import InputError
from sfumato.data.ehr.schema import MICROSECONDS, TimeUnit
from sfumato.data.examples.schema import as_text
from sfumato.data.tables.times import FIRST_YEAR, LAST_YEAR

_YEAR = 365.25 * MICROSECONDS["days"]
_LIFE = 120  # years that a patient's times last at most
_LATE = 5  # years after the origin at which a first visit is reported
_UNIX = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}  # in a second
_EXCEL = date(1899, 12, 30)


def refuse_dates_in_numbers(times: np.ndarray, unit: TimeUnit, told: str, where: Callable[[int], str]) -> None:
    """Refuse times that are longer than a life, or that all read as a date such as 20240131.

    Args:
        times: float64 [rows], NaN where there is none.
        unit: what they are counted in.
        told: what messages call the column.
        where: gives what messages call a row.

    Raises:
        InputError: with the first such row, and the date that may be meant.
    """
    present = times[~np.isnan(times)]
    long = times * MICROSECONDS[unit] > _LIFE * _YEAR
    dates = len(present) > 0 and all(_written(value) for value in np.unique(present)[:1000].tolist())
    if not long.any() and not dates:
        return
    row = int(long.argmax()) if long.any() else int((~np.isnan(times)).argmax())
    meant = _meant(float(times[row]))
    why = "which is longer than a life" if long.any() else "and every other time reads as a date, too"
    raise InputError(
        f"{told} at {where(row)} is {as_text(float(times[row]))} {unit}, {why}{f': {meant}?' if meant else '.'} Write "
        "dates as 2024-01-31, or count times from each patient's origin"
    )


def late_start(first: np.ndarray, unit: TimeUnit) -> list[str]:
    """A line for people where the first visit of every patient is years after the origin; first: float64 [patients]."""
    if first.min() * MICROSECONDS[unit] <= _LATE * _YEAR:
        return []
    return [
        f"the first visit of every patient is {first.min():,.10g} {unit} or more after the patient's origin; where "
        "these numbers are dates (days since 1970, or as Excel counts them, or years), write them as 2024-01-31"
    ]


def _meant(value: float) -> str:
    """The date that a number may stand for, and how; "" for none."""
    if written := _written(value):
        return f"{written} written as a number"
    for name, second in _UNIX.items():
        days = value / second / 86_400
        if 3_650 < days < 36_500:  # 1980 to 2069
            return f"{date(1970, 1, 1) + timedelta(days=int(days))}, in {name} since 1970"
    if value > 0 and (found := _EXCEL + timedelta(days=min(int(value), 200_000))).year <= LAST_YEAR:
        return f"{found}, as Excel counts days"
    return ""


def _written(value: float) -> date | None:
    """The date that a number such as 20240131, or 202401311230, spells."""
    digits = as_text(value)
    if not digits.isdigit() or len(digits) not in (8, 10, 12, 14):
        return None
    try:
        found = date(int(digits[:4]), int(digits[4:6]), int(digits[6:8]))
    except ValueError:
        return None
    return found if FIRST_YEAR <= found.year <= LAST_YEAR and int(digits[8:10] or 0) < 24 else None
