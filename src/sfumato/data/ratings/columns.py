"""Columns of ratings as numbers: names as codes, values, times; a row that is wrong is named by its place.

>>> codes = Codes("user")
>>> codes.add(pa.array(["bo", "al", " bo"]), str).tolist(), codes.names
([0, 1, 0], ['bo', 'al'])
>>> sorted_names(["10", "9", "2"]), sorted_names(["10", "9", "007"])
([2, 1, 0], [2, 0, 1])
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError
from sfumato.data.tables.cells import is_number, is_text

Where = Callable[[int], str]
"""What messages call a row of a block."""


class Codes:
    """Names as they come, numbered from 0.

    Args:
        role: what they are of, for messages.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """All names, by their numbers."""
        return list(self._numbers)

    def add(self, array: pa.Array, where: Where) -> np.ndarray:
        """The numbers of a block's names, int32 [rows].

        Args:
            array: texts or whole numbers; blanks around a text do not count.
            where: tells of a row.

        Raises:
            InputError: a name is missing, or they are neither.
        """
        if not (is_text(array.type) or pa.types.is_integer(array.type)):
            raise InputError(f"the {self._role} must be whole numbers or text, got {array.type}; cast it to text")
        coded = array.dictionary_encode()
        found = coded.dictionary.to_pylist()
        places = coded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        own = np.empty(len(found) + 1, np.int32)
        own[-1] = -1
        for place, name in enumerate(found):
            text = str(name).strip()
            own[place] = self._numbers.setdefault(text, len(self._numbers)) if text else -1
        codes = own[places]
        if (wrong := codes < 0).any():
            raise InputError(f"the {self._role} is missing at {where(int(wrong.argmax()))}; fill it in or drop the row")
        return codes


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
        raise InputError(f"the values must be numbers, got {array.type}; convert them")
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
        InputError: one is missing, or neither a number nor a date.
    """
    if is_text(array.type):
        array = pc.utf8_trim_whitespace(array)  # pyright: ignore[reportAttributeAccessIssue]
        for kind in (pa.int64(), pa.float64(), pa.timestamp("us")):
            try:
                array = array.cast(kind)
                break
            except pa.ArrowInvalid:
                continue
        else:
            row = next((row for row, text in enumerate(array.to_pylist()) if not _is_time(text)), 0)
            raise InputError(
                f"the time {array[row].as_py()!r} at {where(row)} is neither a number nor a date as 2026-01-31; "
                "correct or drop the row"
            )
    dates = pa.types.is_temporal(array.type)
    if dates:
        array = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise InputError(f"the times must be numbers or dates, got {array.type}; convert them")
    if array.null_count:
        row = array.is_null().to_pylist().index(True)
        raise InputError(f"the time is missing at {where(row)}; fill it in or drop the row")
    times = array.to_numpy(zero_copy_only=False)
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


def _is_time(text: str | None) -> bool:
    for kind in (pa.float64(), pa.timestamp("us")):
        try:
            pa.scalar(text, pa.string()).cast(kind)
            return True
        except pa.ArrowInvalid:
            continue
    return False


def _interval(low: float | None, high: float | None) -> str:
    return f"[{'-inf' if low is None else f'{low:g}'}, {'inf' if high is None else f'{high:g}'}]"
