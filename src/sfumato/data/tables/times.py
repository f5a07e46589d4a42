"""Dates of a table as microseconds, and the dates that stand for a missing one in most exports.

>>> microseconds_of(pa.array(["1970-01-02"]).cast(pa.date32()), "the time", str).tolist()
[86400000000]
>>> microseconds_of(pa.array(["9999-12-31"]).cast(pa.timestamp("ms")), "the time", "line {}".format)
Traceback (most recent call last):
...
sfumato._check.InputError: the time at line 0 is 9999-12-31 00:00:00, after 2249, as a missing date is written in some
exports; correct or drop the row, or give times as numbers
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from sfumato._check import InputError

FIRST_YEAR, LAST_YEAR = 1900, 2249
"""Dates outside of these years stand for a missing one in most exports: year 1, 1753, 1858 or 9999. Those of MIMIC-IV,
which were moved into the future, are within them."""

DATES = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
"""Dates in texts: all without a time zone, or all with one."""

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # in a second
_DAY = 86_400


def parsed(texts: pa.Array, kinds: Sequence[pa.DataType]) -> pa.Array | None:
    """Texts as the first of some types that all of them can be read as; None where there is none."""
    for kind in kinds:
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def microseconds_of(array: pa.Array, told: str, where: Callable[[int], str]) -> np.ndarray:
    """A block of dates in microseconds since 1970, int64 [rows], 0 where one is missing.

    Args:
        array: timestamps in any unit and zone, or days.
        told: what messages call the column.
        where: gives what messages call a row.

    Raises:
        InputError: a date is before 1900, or after 2249.
    """
    if pa.types.is_date32(array.type):
        ticks, second = array.cast(pa.int32()).cast(pa.int64()), 1
    else:
        ticks = array.cast(pa.int64())
        second = _TICKS["ms" if pa.types.is_date64(array.type) else array.type.unit]
    missing = array.is_null().to_numpy(zero_copy_only=False)
    found = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    day = second if pa.types.is_date32(array.type) else _DAY * second
    first, beyond = (
        int(np.datetime64(f"{year}-01-01", "D").astype(np.int64)) * day for year in (FIRST_YEAR, LAST_YEAR + 1)
    )
    wrong = ~missing & ((found < first) | (found >= beyond))
    if wrong.any():
        row = int(wrong.argmax())
        end = f"before {FIRST_YEAR}" if found[row] < first else f"after {LAST_YEAR}"
        raise InputError(
            f"{told} at {where(row)} is {_shown(array[row])}, {end}, as a missing date is written in some exports; "
            "correct or drop the row, or give times as numbers"
        )
    per_day = _DAY * _TICKS["us"]
    return found * (per_day // day) if day <= per_day else found // (day // per_day)


def _shown(date: pa.Scalar) -> str:
    """A date in a message; pandas and Python have no name for those far away."""
    try:
        return str(np.datetime64(date.cast(pa.timestamp("s"), safe=False).value, "s")).replace("T", " ")
    except (pa.ArrowException, OverflowError, ValueError):
        return "beyond all calendars"
