"""Cells of a table as the values of health records, and what a column holds where no schema says it.

A cell that is wrong is named by its row.
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

**Times:** whether numbers can be times since a patient's origin, or are dates that were written as numbers.

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

**Profile:** what a column holds, found from its cells where no schema says it. Numbers are numeric, unless there are
only one or two different ones, which are a flag and thus categories. Texts are categories. Some texts among numbers are
a mistake more often than not, and are refused with the first such row.

>>> seen = Profile("stage")
>>> seen.add(pa.array(["1", "2", "", "1"]), str)
>>> seen.column()
Column(name='stage', kind='categorical', categories=('1', '2'), whole=False, range=None)
>>> seen.add(pa.array([3.5]), str)
>>> seen.column().kind
'numeric'
>>> seen.add(pa.array(["late"]), "table.csv line {}".format)
>>> seen.column()
Traceback (most recent call last):
...
sfumato._check.InputError: 'stage' is 'late' at table.csv line 0, but a number in 4 rows; correct it or empty the cell,
or name the column in categorical= or drop=
"""

from collections.abc import Sequence
from datetime import date, timedelta

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, guess
from sfumato.data.columns import (
    DATES,
    FIRST_YEAR,
    LAST_YEAR,
    as_number,
    is_comma_number,
    is_missing,
    is_number_text,
    microseconds_of,
    parsed,
)
from sfumato.data.ehr.dataset import LARGEST_WHOLE, EHRDataset
from sfumato.data.ehr.schema import MICROSECONDS, MOST_CATEGORIES, Column, TimeUnit, categorical, numeric
from sfumato.data.records import flags_as_texts, is_date, is_number, is_text, listed, remedy_of
from sfumato.data.safeguards import Where
from sfumato.data.schema import as_text


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


def values_of(array: pa.Array, column: Column, where: Where) -> np.ndarray:
    """A block of a column, as `numbers_of` or `codes_of` has it."""
    return numbers_of(array, column.name, where) if column.kind == "numeric" else codes_of(array, column, where)


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
        where: describes a row.

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
                f"the time {name!r} at {where(row)} is {array[row].as_py()!r}; write all times as numbers, as "
                "2026-01-31T12:30:00, or with a zone as 2026-01-31T12:30:00+01:00"
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


_YEAR = 365.25 * MICROSECONDS["days"]
_LIFE = 120  # years that a patient's times last at most
_LATE = 5  # years after the origin at which a first visit is reported
_UNIX = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}  # in a second
_EXCEL = date(1899, 12, 30)


def refuse_dates_in_numbers(times: np.ndarray, unit: TimeUnit, title: str, where: Where) -> None:
    """Refuse times that are longer than a life, or that all read as a date such as 20240131.

    Args:
        times: float64 [rows], NaN where there is none.
        unit: what they are counted in.
        title: what messages call the column.
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
        f"{title} at {where(row)} is {as_text(float(times[row]))} {unit}, {why}{f': {meant}?' if meant else '.'} Write "
        "dates as 2024-01-31, or count times from each patient's origin"
    )


def late_start(first: np.ndarray, unit: TimeUnit) -> list[str]:
    """A line for people where the first visit of every patient is years after the origin; first: float64 [patients]."""
    if first.min() * MICROSECONDS[unit] <= _LATE * _YEAR:
        return []
    return [
        f"the first visit of every patient is {first.min():,.10g} {unit} or more after the patient's origin; write "
        "numbers that are dates as 2024-01-31"
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


_FLAG = 2  # different numbers at most of a column that is taken for categories
_AMONG = "name the column in categorical= or drop="


class Profile:
    """What has been seen of a column, block by block, in memory for at most so many values as it may have categories.

    Args:
        name: of the column.
        categorical: whether it is declared to hold categories.
        constant: whether one value in all rows may stand.
    """

    def __init__(self, name: str, *, categorical: bool = False, constant: bool = False) -> None:
        self._name, self._categorical, self._constant = name, categorical, constant
        self._found: set[str] = set()
        self._numbers = self._others = self._missing = 0
        self._whole = True
        self._commas = True  # in all texts that are no numbers, as if they were
        self._odd = ""  # where the first text is that is no number, and what it is

    def add(self, array: pa.Array, where: Where) -> None:
        """Look at a block.

        Args:
            array: its cells.
            where: describes a row.

        Raises:
            InputError: they are neither numbers nor texts, or a number is not finite.
        """
        if is_number(array.type) and not pa.types.is_boolean(array.type):
            values = numbers_of(array, self._name, where)
            present = values[~np.isnan(values)]
            self._count(present)
            self._missing += len(values) - len(present)
            return
        texts, rows = texts_of(array, self._name, where)
        counts = np.bincount(rows, minlength=len(texts) + 1)
        blank = np.array([*map(is_missing, texts), True])
        self._missing += int(counts[blank].sum())
        numbers = np.array([*map(is_number_text, texts), False])
        self._count(np.array([*map(as_number, texts), 0.0])[rows[numbers[rows]]])
        others = ~(blank | numbers)
        for place in np.flatnonzero(others).tolist():
            self._add(texts[place])
            self._commas &= is_comma_number(texts[place])
            self._odd = self._odd or f"{texts[place]!r} at {where(int((rows == place).argmax()))}"
        self._others += int(counts[others].sum())

    def _count(self, values: np.ndarray) -> None:
        distinct = np.unique(values)
        self._numbers += len(values)
        self._whole &= bool((np.floor(distinct) == distinct).all() and (np.abs(distinct) <= LARGEST_WHOLE).all())
        for value in distinct[: MOST_CATEGORIES + 1].tolist():
            self._add(as_text(value))

    def _add(self, text: str) -> None:
        if len(self._found) <= MOST_CATEGORIES:
            self._found.add(text)

    def column(self) -> Column:
        """The column.

        Raises:
            InputError: it has no value, one value in every row, too many categories, numbers with commas, or texts
                among numbers.
        """
        name = self._name
        if not self._found:
            raise InputError(f"{name!r} has no value in {self._missing:,} rows; name it in drop=")
        if len(self._found) == 1 and not self._missing and not self._constant and self._numbers + self._others > 1:
            (only,) = self._found
            raise InputError(
                f"{name!r} is {only!r} in all {self._numbers + self._others:,} rows, of which there is nothing to "
                "learn; name it in drop="
            )
        if self._others and self._commas and not self._categorical:
            raise InputError(
                f"{name!r} is {self._odd}, a number with a comma; write numbers with a point and without commas, or "
                f"{_AMONG}"
            )
        if self._others and self._numbers >= self._others and not self._categorical:
            raise InputError(
                f"{name!r} is {self._odd}, but a number in {self._numbers:,} rows; correct it or empty the cell, or "
                f"{_AMONG}"
            )
        if not self._others and len(self._found) > _FLAG and not self._categorical:
            return numeric(name, whole=self._whole)
        if len(self._found) > MOST_CATEGORIES:
            first = f", {self._odd} for example" if self._odd else ""
            raise InputError(
                f"{name!r} has more than {MOST_CATEGORIES:,} different texts{first}; group them, or name the column in "
                "drop="
            )
        return categorical(name, in_order(self._found))


def in_order(texts: set[str]) -> Sequence[str]:
    """Categories by number where all are numbers, else as text."""
    values = {text: as_number(text) for text in texts}
    if np.isnan(list(values.values())).any():
        return sorted(texts)
    return sorted(texts, key=lambda text: values[text])


# Records that can be read but of which a column is of no use: nothing can be learned from it, or it names people.


FEW = 20
"""Categories, up to which a column is not taken for one of names, ids or free text."""


def refuse_unlearnable(records: EHRDataset) -> None:
    """Refuse a single patient, a column without a value, one with the same in every row, an outcome with one class.

    A column with one value that is missing in some rows passes: whether it is there is informative.

    Raises:
        InputError: with the column and the remedy.
    """
    if len(records) < 2:
        raise InputError(f"there is one patient, {records.ids[0]!r}; what several have in common needs at least two")
    schema = records.schema
    for part, columns, values in (
        ("patients", schema.static_numeric, records.static_numbers),
        ("patients", schema.static_categorical, records.static_codes),
        ("visits", schema.temporal_numeric, records.numbers),
        ("visits", schema.temporal_categorical, records.codes),
    ):
        for place, column in enumerate(columns):
            cells = values[:, place]
            present = cells[~np.isnan(cells)] if cells.dtype.kind == "f" else cells[cells >= 0]
            if not len(present):
                raise InputError(f"{column.name!r} has no value in {len(cells):,} {part}; leave the column out")
            if (present != present[0]).any():
                continue
            value = column.categories[int(present[0])] if column.kind == "categorical" else f"{present[0]:g}"
            if column.name == schema.outcome:
                raise InputError(
                    f"the outcome {column.name!r} is {value!r} for all {len(present):,} patients; take records with "
                    "both outcomes, or name no outcome"
                )
            if len(present) == len(cells) > 1:
                raise InputError(
                    f"{column.name!r} is {value!r} in all {len(cells):,} {part}, of which there is nothing to learn; "
                    "leave the column out"
                )


def refuse_nearly_unique(records: EHRDataset) -> None:
    """Refuse a column of names, ids or free text: one in which most categories are of one patient each.

    Raises:
        InputError: with the column and the remedy.
    """
    names = records.ids if records.subjects is None else records.subjects
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    whose = np.array([number[name] for name in names], np.int64)
    schema = records.schema
    for columns, codes, people in (
        (schema.static_categorical, records.static_codes, whose),
        (schema.temporal_categorical, records.codes, whose[records.owners]),
    ):
        for place, column in enumerate(columns):
            there = codes[:, place] >= 0
            pairs = np.unique(np.stack([codes[there, place], people[there]]), axis=1)
            single = int((np.bincount(pairs[0]) == 1).sum()) if pairs.size else 0
            if len(column.categories) > FEW and 2 * single > len(column.categories):
                raise InputError(
                    f"{column.name!r} has {len(column.categories):,} different texts, {single:,} of them of one "
                    "patient each, as names and ids are; name it in drop=, or group the texts"
                )
