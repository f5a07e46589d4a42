"""Cells of a table as the values of health records; a cell that is wrong is named by its row.

Null, NaN, an empty text and what else stands for nothing (NA, ?) are one and the same: a missing value.

>>> from sfumato.data.ehr.schema import categorical
>>> numbers_of(pa.array(["1.5", "", "NA", None]), "bili", str).tolist()
[1.5, nan, nan, nan]
>>> codes_of(pa.array([1.0, None, float("nan"), 2.0]), categorical("stage", ["1", "2"]), str).tolist()
[0, -1, -1, 1]
>>> codes_of(pa.array(["f", "x"]), categorical("sex", ["f", "m"]), "table.csv line {}".format)
Traceback (most recent call last):
...
sfumato._check.InputError: 'sex' at table.csv line 1 is 'x', which is none of its 2 categories f, m; correct it, or add
it to the schema
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, guess
from sfumato.data.ehr.schema import Column
from sfumato.data.examples.schema import as_text
from sfumato.data.tables.cell_texts import as_number, is_missing
from sfumato.data.tables.kinds import flags_as_texts, is_date, is_number, is_text, remedy_of
from sfumato.data.tables.source import listed
from sfumato.data.tables.times import DATES, microseconds_of, parsed

Where = Callable[[int], str]
"""What messages call a row of a block."""


def widened(values: np.ndarray) -> np.ndarray:
    """Numbers in double precision; those of single precision as they were written down: 35.1, not 35.0999984.

    >>> widened(np.array([35.1, np.nan], np.float32)).tolist()
    [35.1, nan]
    """
    if values.dtype not in (np.float32, np.float16):
        return values.astype(np.float64)
    found, places = np.unique(values, return_inverse=True)
    return found.astype(str).astype(np.float64)[places]


def numbers_of(array: pa.Array, name: str, where: Where) -> np.ndarray:
    """A block of a numeric column, float64 [rows], NaN where it is missing.

    Raises:
        InputError: a value is no number, or not finite.
    """
    if is_text(array.type):
        coded = array.dictionary_encode()
        texts = [text.strip() for text in coded.dictionary.to_pylist()]
        rows = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        found = np.array([*map(as_number, texts), np.nan])
        wrong = np.array([not is_missing(text) and not np.isfinite(as_number(text)) for text in texts] + [False])[rows]
        values = found[rows]
    elif is_number(array.type):
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.float64())
        values = widened(array.to_numpy(zero_copy_only=False))
        wrong = np.isinf(values)
    elif pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    else:
        raise InputError(f"{name!r} must be numbers, but has {array.type} at {where(0)}; {remedy_of(array.type)}")
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"{name!r} at {where(row)} is {array[row].as_py()!r}, which is not a finite number; correct it or empty "
            "the cell, or make the column categorical"
        )
    return values


def codes_of(array: pa.Array, column: Column, where: Where) -> np.ndarray:
    """A block of a categorical column, int32 [rows], -1 where it is missing.

    Raises:
        InputError: a value is none of the categories.
    """
    texts, rows = texts_of(array, column.name, where)
    codes = np.array([-1 if is_missing(text) else _code(column, text) for text in texts] + [-1], np.int32)[rows]
    wrong = codes == _UNKNOWN
    if wrong.any():
        row = int(wrong.argmax())
        text = texts[rows[row]]
        raise InputError(
            f"{column.name!r} at {where(row)} is {text!r}, which is none of its {len(column.categories):,} categories "
            f"{listed(column.categories)}{guess(text, column.categories)}; correct it, or add it to the schema"
        )
    return codes


_UNKNOWN = -2


def _code(column: Column, text: str) -> int:
    found = column.code(text)
    return _UNKNOWN if found is None else found


def texts_of(array: pa.Array, name: str, where: Where) -> tuple[list[str], np.ndarray]:
    """The distinct values of a block as texts, and the place of each row's among them; a null is one behind the last.

    Raises:
        InputError: they are neither texts nor numbers.
    """
    if pa.types.is_null(array.type):
        return [], np.zeros(len(array), np.int64)
    if pa.types.is_boolean(array.type):
        array = flags_as_texts(array)
    elif pa.types.is_floating(array.type):
        array = pa.array(numbers_of(array, name, where))
    elif not is_text(array.type) and not is_number(array.type):
        raise InputError(
            f"{name!r} must be texts or numbers, but has {array.type} at {where(0)}; {remedy_of(array.type)}"
        )
    coded = array.dictionary_encode()
    texts = [as_text(value).strip() for value in coded.dictionary.to_pylist()]
    return texts, coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)


def is_absent(array: pa.Array) -> np.ndarray:
    """Which cells of a block are missing, bool [rows]."""
    if not is_text(array.type):
        return array.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    coded = array.dictionary_encode()
    blank = np.array([*map(is_missing, coded.dictionary.to_pylist()), True])
    return blank[coded.indices.fill_null(len(blank) - 1).to_numpy(zero_copy_only=False)]


def times_of(array: pa.Array, name: str, where: Where) -> tuple[np.ndarray, bool | None]:
    """A block of times.

    Args:
        array: numbers, or dates; in text as 2026-01-31 or 2026-01-31T12:30:00, all with a time zone or all without.
        name: the column.
        where: tells of a row.

    Returns:
        times float64 [rows], NaN where they are missing; dates in microseconds. Whether they are dates; None where all
        are missing.

    Raises:
        InputError: one is neither a number nor a date, is not finite, or is not from 1900 to 2249.
    """
    missing = is_absent(array)
    if is_text(array.type):
        texts, rows = texts_of(array, name, where)
        kept = pa.array([None if is_missing(text) else text for text in texts], pa.string())
        distinct = parsed(kept, _KINDS)
        if distinct is None:
            kinds = np.array([*(_kind_of_time(kept, place) for place in range(len(kept))), 0])[rows]
            usual = kinds[~missing][0]
            row = int((~missing & (kinds != usual if (kinds[~missing] != 0).all() else kinds == 0)).argmax())
            raise InputError(
                f"the time {name!r} at {where(row)} is {array[row].as_py()!r}; times must be all numbers, all dates as "
                "2026-01-31T12:30:00, or all dates with a zone as 2026-01-31T12:30:00+01:00; write them in one way"
            )
        array = distinct.take(pa.array(np.where(missing, 0, rows))) if len(kept) else pa.nulls(len(rows), pa.float64())
    if missing.all():
        return np.full(len(array), np.nan), None
    if is_date(array.type):
        found = microseconds_of(array, f"the time {name!r}", where)
        return np.where(missing, np.nan, found.astype(np.float64)), True
    if pa.types.is_boolean(array.type) or not is_number(array.type):
        raise InputError(f"the time {name!r} must be numbers or dates, got {array.type}; {remedy_of(array.type)}")
    times = widened(array.to_numpy(zero_copy_only=False))
    times[missing] = np.nan
    if (wrong := np.isinf(times) | (times < 0)).any():
        row = int(wrong.argmax())
        raise InputError(
            f"the time {name!r} at {where(row)} is {times[row]:g}; times count from the patient's origin, finite and "
            "≥ 0: correct the row, or move the origin"
        )
    return times, False


_KINDS = (pa.float64(), *DATES)


def _kind_of_time(texts: pa.Array, place: int) -> int:
    """Which kind a text is of, from 1; 0 for none."""
    found = parsed(texts.slice(place, 1), _KINDS)
    return 0 if found is None else 1 + _KINDS.index(found.type)
