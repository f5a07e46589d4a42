"""Columns of ratings as numbers: names as codes, values, times; a row that is wrong is named by its place.

>>> codes = Codes("user")
>>> codes.add(pa.array(["bo", "al", "bo"]), str).tolist(), codes.names
([0, 1, 0], ['bo', 'al'])
>>> sorted_names(["10", "9", "2"]), sorted_names(["10", "9", "007"])
([2, 1, 0], [2, 0, 1])
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError
from sfumato.data.safeguards import names_in
from sfumato.data.tables.kinds import is_date, is_number, is_text, remedy_of
from sfumato.data.tables.times import DATES, microseconds_of, parsed

Where = Callable[[int], str]
"""What messages call a row of a block."""


class Codes:
    """Names as they come, numbered from 0.

    Args:
        role: what they are of, for messages.
        people: whether they are of users, whose names are taken as they are; else blanks around a name do not count.
    """

    def __init__(self, role: str, *, people: bool = False) -> None:
        self._role, self._people = role, people
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """All names, by their numbers."""
        return list(self._numbers)

    def add(self, array: pa.Array, where: Where) -> np.ndarray:
        """The numbers of a block's names, int32 [rows].

        Args:
            array: texts or whole numbers.
            where: tells of a row.

        Raises:
            InputError: a name is missing, or they are neither.
        """
        found, rows = names_in(array, f"the {self._role}", where)
        texts = [str(name) if self._people else str(name).strip() for name in found]
        return np.array([self._numbers.setdefault(text, len(self._numbers)) for text in texts], np.int32)[rows]


def values_of(array: pa.Array, where: Where, low: float | None, high: float | None) -> np.ndarray:
    """A block of values, float32 [rows].

    Raises:
        InputError: one is missing, not a number, not finite, or outside of [low, high].
    """
    if is_text(array.type):
        coded = array.dictionary_encode()
        texts = pc.utf8_trim_whitespace(coded.dictionary)  # pyright: ignore[reportAttributeAccessIssue]
        numbers = _numbers(texts)
        numbers = np.append(numbers, np.nan)
        rows = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        values = numbers[rows]
    elif is_number(array.type):
        values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        raise InputError(f"the values must be numbers, got {array.type}; {remedy_of(array.type)}")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    wrong = ~np.isfinite(single)
    if low is not None:
        wrong |= values < low
    if high is not None:
        wrong |= values > high
    if wrong.any():
        row = int(wrong.argmax())
        told = array[row].as_py()
        if not np.isfinite(single[row]):
            raise InputError(f"the value {told!r} at {where(row)} is not a finite number; correct or drop the row")
        raise InputError(
            f"the value {told} at {where(row)} is outside of {_interval(low, high)}; correct or drop the row, or "
            "widen the range"
        )
    return single


def times_of(array: pa.Array, where: Where) -> tuple[np.ndarray, bool]:
    """A block of times, int64 where they are whole numbers or dates, else float64, [rows]; and whether they are dates.

    Raises:
        InputError: one is missing, neither a number nor a date, or a date that is not from 1900 to 2249.
    """
    if is_text(array.type):
        texts = pc.utf8_trim_whitespace(array)  # pyright: ignore[reportAttributeAccessIssue]
        array = parsed(texts, _KINDS)
        if array is None:
            row = next((row for row, text in enumerate(texts.to_pylist()) if not _is_time(text)), 0)
            raise InputError(
                f"the time {texts[row].as_py()!r} at {where(row)} is neither a number nor a date as 2026-01-31, all "
                "with a time zone or all without; correct or drop the row"
            )
    dates = is_date(array.type)
    if not (dates or is_number(array.type) or pa.types.is_null(array.type)):
        raise InputError(f"the times must be numbers or dates, got {array.type}; {remedy_of(array.type)}")
    if array.null_count:
        row = array.is_null().to_pylist().index(True)
        raise InputError(f"the time is missing at {where(row)}; fill it in or drop the row")
    times = microseconds_of(array, "the time", where) if dates else array.to_numpy(zero_copy_only=False)
    if times.dtype.kind == "f" and (wrong := np.isnan(times)).any():
        raise InputError(f"the time is missing (NaN) at {where(int(wrong.argmax()))}; fill it in or drop the row")
    return times if times.dtype.kind == "f" else times.astype(np.int64), dates


def sorted_names(names: Sequence[str]) -> list[int]:
    """The order of names: by their number if all are whole numbers without zeros in front, else as text."""
    if all(name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") for name in names):
        return sorted(range(len(names)), key=lambda place: int(names[place]))
    return sorted(range(len(names)), key=names.__getitem__)


def _numbers(texts: pa.Array) -> np.ndarray:
    """Texts as numbers, NaN for those that are none."""
    try:
        return texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return np.array([_number(text) for text in texts.to_pylist()], np.float64)


def _number(text: str) -> float:
    try:
        return pa.scalar(text).cast(pa.float64()).as_py()
    except pa.ArrowInvalid:
        return np.nan


_KINDS = (pa.int64(), pa.float64(), *DATES)


def _is_time(text: str | None) -> bool:
    return parsed(pa.array([text], pa.string()), _KINDS) is not None


def _interval(low: float | None, high: float | None) -> str:
    return f"[{'-inf' if low is None else f'{low:g}'}, {'inf' if high is None else f'{high:g}'}]"
