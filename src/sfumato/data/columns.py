"""Columns of a table as arrays: numbers, texts, dates, pictures, labels, and who a row belongs to.

**Texts:** which stand for nothing, which for a number, and which for the same as another one.

>>> [text for text in ("", "NA", " ? ", "+NaN", "0", "none") if is_missing(text)]
['', 'NA', ' ? ', '+NaN']
>>> as_number("1e3"), as_number("05"), as_number("1_000"), as_number("high")
(1000.0, 5.0, nan, nan)
>>> [canonical(text) for text in ("1", "1.0", "1e0", "2.50", "007", "late")]
['1', '1', '1', '2.5', '007', 'late']

**Dates** as microseconds, and those that stand for a missing one in most exports.

>>> microseconds_of(pa.array(["1970-01-02"]).cast(pa.date32()), "the time", str).tolist()
[86400000000]
>>> microseconds_of(pa.array(["9999-12-31"]).cast(pa.timestamp("ms")), "the time", "line {}".format)
Traceback (most recent call last):
...
sfumato._check.InputError: the time at line 0 is 9999-12-31 00:00:00, after 2249, as a missing date is written in some
exports; correct or drop the row, or give times as numbers

**A column** as an array: numbers and lists of numbers, texts, and who a row belongs to. A row where a value is missing
is refused by its position. NaN is a number: it passes, and the example that holds it counts as zero in training.

>>> import pyarrow as pa
>>> numbers(pa.array([[1.5, 2.0], [0.0, 1.0]]), "column x").tolist()
[[1.5, 2.0], [0.0, 1.0]]
>>> numbers(pa.array([[1, 2], [3]]), "column x")
Traceback (most recent call last):
...
sfumato._check.InputError: column x at position 1 has 1 values, those before it have 2; pad or cut them to one length

**Names** as codes, and their order; rows of one pair.

>>> codes = Codes("user")
>>> codes.add(pa.array(["bo", "al", "bo"]), str).tolist(), codes.names
([0, 1, 0], ['bo', 'al'])
>>> sorted_names(["10", "9", "2"]), sorted_names(["10", "9", "007"])
([2, 1, 0], [2, 0, 1])
>>> users, items, values = np.array([0, 0, 0]), np.array([5, 7, 5]), np.array([1, 2, 4], np.float32)
>>> pairs = repeated(users, items, 8)
>>> kept, values = merged(pairs, values, "mean")
>>> kept.tolist(), values.tolist()
([False, True, True], [1.0, 2.0, 2.5])

**Token ids** of texts, by `Tokenizer` or by a function such as a Hugging Face tokenizer's.

>>> import pyarrow as pa
>>> Texts(Tokenizer(vocabulary=1000, length=4), "column note").ids(pa.array(["it rains", "no"]), 0).tolist()
[[935, 304, 0, 0], [988, 0, 0, 0]]
>>> Texts(lambda texts: [[1] * len(text) for text in texts], "column note").ids(pa.array(["it", "rains"]), 0)
Traceback (most recent call last):
...
sfumato._check.InputError: column note: tokenize gave 2 ids at position 0 and 5 at position 1; pad or cut to one ...
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data.records import (
    Records,
    flags_as_texts,
    is_list,
    is_number,
    is_text,
    plain,
    position,
    refuse_missing,
    remedy_of,
)
from sfumato.data.safeguards import MISSING, Where, names_in
from sfumato.data.schema import as_text
from sfumato.data.text import Tokenizer

_COMMA = re.compile(r"[+-]?\d+(,\d+)+(\.\d*)?|[+-]?\d+(\.\d+)*,\d+")


def is_missing(text: str) -> bool:
    """Whether a text stands for a missing value, as NA, ? and nothing at all do."""
    text = text.strip()
    return text in MISSING or text.lstrip("+-").lower() == "nan"  # which programs read as a number that is none


def as_number(text: str) -> float:
    """A text as a number, NaN if it is none."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def is_number_text(text: str) -> bool:
    """Whether a text is a finite number, and no name with zeros in front: 7 and 0.7 are, 007 is not."""
    digits = text.lstrip("+-")
    return math.isfinite(as_number(text)) and not (digits[:1] == "0" and digits[1:2].isdigit())


def is_comma_number(text: str) -> bool:
    """Whether a text is a number with commas, in front of its decimals or of each thousand: 1,4 and 1,000."""
    return _COMMA.fullmatch(text.strip()) is not None


def canonical(text: str) -> str:
    """A text as a table with numbers would write it: 7.0 becomes 7; names with zeros in front stay."""
    return as_text(as_number(text)) if is_number_text(text) else text


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


def microseconds_of(array: pa.Array, title: str, where: Where) -> np.ndarray:
    """A block of dates in microseconds since 1970, int64 [rows], 0 where one is missing.

    Args:
        array: timestamps in any unit and zone, or days.
        title: what messages call the column.
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
            f"{title} at {where(row)} is {_shown(array[row])}, {end}, as a missing date is written in some exports; "
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


_ROWS = 1 << 16  # rows of numbers and names read in one go


def numbers(array: pa.Array, title: str, start: int = 0, place: Callable[[int], str] = position) -> np.ndarray:
    """A column of numbers, or of lists of equal lengths of them, [rows, …].

    Args:
        array: the column.
        title: what messages call it.
        start: the number of its first row in the table.
        place: what messages call a row.

    Raises:
        InputError: a value is missing, lists are of different lengths or empty, or these are no numbers.
    """
    shape = [len(array)]
    while is_list(array.type):
        refuse_missing(array, title, start, math.prod(shape[1:]), place)
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
        else:
            lengths = array.value_lengths().to_numpy(zero_copy_only=False)
            size = int(lengths[0]) if len(lengths) else 0
            if (lengths != size).any():
                odd = int((lengths != size).argmax())
                row = start + odd // max(math.prod(shape[1:]), 1)
                raise InputError(
                    f"{title} at {place(row)} has {int(lengths[odd])} values, those before it have {size}; "
                    "pad or cut them to one length"
                )
        if size == 0 and len(array):
            raise InputError(f"{title} at {place(start)} is an empty list; give numbers, or drop the column")
        shape.append(size)
        array = plain(array.flatten())
    refuse_missing(array, title, start, math.prod(shape[1:]), place)
    if not is_number(array.type):
        raise InputError(f"{title} must be numbers or lists of them, got {array.type}; {remedy_of(array.type)}")
    rows = array.to_numpy(zero_copy_only=False)
    return (rows.astype(np.float32) if rows.dtype == np.float16 else rows).reshape(shape)


def refuse_stray_text(source: Records, role: str, column: str, *, names: bool = False) -> None:
    """Refuse a column of texts most of which are numbers: one that is none is a mistake, and makes the column texts.

    Args:
        source: the table.
        role: what the column is named for.
        column: of texts.
        names: whether the texts may be names, of which some are whole numbers, as those of houses, 3 and 3a.

    Raises:
        InputError: with the first cell that is no number. A column that has more texts than numbers at the end of a
            block of rows is one of texts.
    """
    usual = odd = 0
    word = missing = ""  # the first of either kind
    commas = whole = True
    for block in source.blocks([column], _ROWS):
        coded = block[column].dictionary_encode()
        present = coded.indices.drop_null().to_numpy()
        often = np.bincount(present, minlength=len(coded.dictionary)).tolist()
        for text, count in zip(map(str.strip, coded.dictionary.to_pylist()), often, strict=True):
            if is_number_text(text):
                usual += count
                whole &= text.lstrip("+-").isdigit()
                continue
            if is_missing(text):
                missing = missing or text
                continue
            word = word or text
            odd += count
            commas &= is_comma_number(text)
        if odd > usual and not commas:
            return
    cell = (missing if names and whole else "") or word or missing
    commas &= odd > 0
    if not cell or not (commas or usual) or (names and whole and not commas and not missing):
        return
    found = f"{source.title}: {role}={column!r} is {cell!r} at {source.place(_first_row(source, column, cell))}"
    if commas:
        raise InputError(f"{found}, a number with a comma; write numbers with a point and without commas")
    raise InputError(f"{found}, but a number in {usual:,} rows; correct it or drop the row")


def _first_row(source: Records, column: str, text: str) -> int:
    """The first row of a column of texts that is this one, blanks around it aside."""
    start = 0
    for block in source.blocks([column], _ROWS):
        for row, cell in enumerate(block[column].to_pylist()):
            if cell is not None and cell.strip() == text:
                return start + row
        start += len(block[column])
    return 0


def labels_of(source: Records, column: str, *, declared: bool) -> np.ndarray:
    """The labels of all rows: text, or numbers [rows] or [rows, k].

    Args:
        source: the table.
        column: of labels.
        declared: whether the classes have names that were given, so that no text is a mistake that goes unseen.

    Raises:
        InputError: one is missing, they are neither, or texts among numbers.
    """
    if is_text(source.kind(column)) and not declared:
        refuse_stray_text(source, "label", column, names=True)
    title, blocks, start = f"{source.title}: the label {column!r}", [], 0
    for block in source.blocks([column], _ROWS):
        array = block[column]
        if pa.types.is_boolean(array.type):  # the classes that a text file of the same table has
            array = flags_as_texts(array)
        if is_text(array.type):
            refuse_missing(array, title, start, place=source.place)
            blocks.append(np.asarray(array.to_pylist(), str))
        else:
            blocks.append(numbers(array, title, start, source.place))
            if blocks[0].shape[1:] != blocks[-1].shape[1:]:
                before, here = (math.prod(one.shape[1:]) for one in (blocks[0], blocks[-1]))
                raise InputError(f"{title} at {source.place(start)} has {here} values, those before it have {before}")
        start += len(array)
    return np.concatenate(blocks)


def users_of(source: Records, column: str) -> tuple[list[str], np.ndarray]:
    """The users in sorted order, and which of them each row belongs to, int64 [rows].

    Raises:
        InputError: a row has no user, or they are neither whole numbers nor text.
    """
    title, start, codes = f"{source.title}: the user {column!r}", 0, []
    found: dict[str | int, int] = {}
    for array in source.names_of(column, _ROWS):
        names, rows = names_in(
            array, title, lambda row, first=start: source.place(first + row), kind=source.kind(column)
        )
        numbered = [found.setdefault(name, len(found)) for name in names]
        codes.append(np.array(numbered, np.int64)[rows])
        start += len(array)
    if source.texts is not None and all(_is_whole(str(name)) for name in found):
        found = {int(name): number for name, number in found.items()}
    listed = source.classes.get(column)
    if listed is not None and all(isinstance(one, int) for one in found):
        if wrong := [one for one in found if not 0 <= int(one) < len(listed)]:
            raise InputError(f"{title} has the number {wrong[0]}, but the table lists {len(listed)} names; correct it")
        named: list[str | int] = [listed[int(one)] for one in found]
    else:
        named = list(found)
    held = sorted(set(named))  # type: ignore[type-var]  # of one column: all are numbers, or all are texts
    number = {name: i for i, name in enumerate(held)}
    return list(map(str, held)), np.array([number[name] for name in named])[np.concatenate(codes)]


def _is_whole(name: str) -> bool:
    """Whether a text is a whole number as it is written down, so that no other text is the same number."""
    try:
        return str(int(name)) == name
    except ValueError:
        return False


class Codes:
    """Names as they come, numbered from 0.

    Args:
        role: what they are of, for messages.
        exact: whether names are taken as they are, as those of users; else blanks around a name do not count.
    """

    def __init__(self, role: str, *, exact: bool = False) -> None:
        self._role, self._exact = role, exact
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """All names, by their numbers."""
        return list(self._numbers)

    def add(self, array: pa.Array, where: Where) -> np.ndarray:
        """The numbers of a block's names, int32 [rows].

        Args:
            array: texts or whole numbers.
            where: describes a row.

        Raises:
            InputError: a name is missing, or they are neither.
        """
        found, rows = names_in(array, f"the {self._role}", where)
        texts = [str(name) if self._exact else str(name).strip() for name in found]
        return np.array([self._numbers.setdefault(text, len(self._numbers)) for text in texts], np.int32)[rows]


def sorted_names(names: Sequence[str]) -> list[int]:
    """The order of names: by their number if all are whole numbers without zeros in front, else as text."""
    if all(name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") for name in names):
        return sorted(range(len(names)), key=lambda place: int(names[place]))
    return sorted(range(len(names)), key=names.__getitem__)


Duplicates = Literal["refuse", "last", "mean"]


@dataclass(frozen=True)
class Repeated:
    """Rows by their pair of user and item.

    Attributes:
        order: int64 [rows], rows of one pair side by side, in their order.
        first: bool [rows], whether a row of that order is the first of its pair.
    """

    order: np.ndarray
    first: np.ndarray

    @property
    def count(self) -> int:
        """Rows that are not the first of their pair."""
        return int((~self.first).sum())

    def example(self) -> tuple[int, int]:
        """A row whose pair was there before, and the row that had it."""
        again = int((~self.first).argmax())
        return int(self.order[again - 1]), int(self.order[again])


def repeated(users: np.ndarray, items: np.ndarray, count: int) -> Repeated | None:
    """The rows by pair, or None where no pair is there twice.

    Args:
        users: [rows], numbers from 0.
        items: [rows], 0 … count − 1.
        count: of items.
    """
    pairs = users.astype(np.int64) * count + items
    pairs.sort()
    if not (pairs[1:] == pairs[:-1]).any():
        return None
    pairs = users.astype(np.int64) * count + items
    order = np.argsort(pairs, kind="stable")
    held = pairs[order]
    return Repeated(order, np.concatenate([[True], held[1:] != held[:-1]]))


def merged(pairs: Repeated, values: np.ndarray, how: Duplicates) -> tuple[np.ndarray, np.ndarray]:
    """One row for each pair: the last.

    Args:
        pairs: rows by pair.
        values: float32 [rows].
        how: whether it keeps its value ("last") or gets the mean of all.

    Returns:
        which rows are kept, bool [rows], and values [rows].
    """
    starts = np.flatnonzero(pairs.first)
    ends = np.append(starts[1:], len(values))
    last = pairs.order[ends - 1]
    kept = np.zeros(len(values), bool)
    kept[last] = True
    if how == "mean":
        sums = np.add.reduceat(values[pairs.order].astype(np.float64), starts)
        values = values.copy()
        values[last] = sums / (ends - starts)
    return kept, values


Tokenize = Tokenizer | Callable[[list[str]], Any]
"""A `Tokenizer`, or a function from texts to equally many lists of ids, all of one length."""


PAD = "pad or cut to one length, as tokenizer(texts, padding='max_length', truncation=True, max_length=128) does"


class Texts:
    """Turns the texts of a column into ids.

    Args:
        tokenize: the rule; it must look at each text by itself.
        title: what messages call the column.
        place: what messages call a row.

    Raises:
        InputError: `tokenize` is no such thing.
    """

    def __init__(self, tokenize: Tokenize, title: str, place: Callable[[int], str] = position) -> None:
        self._rule = tokenize.ids if isinstance(tokenize, Tokenizer) else tokenize
        if not callable(self._rule):
            raise InputError(
                f"tokenize must be a data.Tokenizer or a function from texts to ids, got {type(tokenize).__name__}"
            )
        self._title, self._place = title, place

    def ids(self, array: pa.Array, start: int) -> np.ndarray:
        """The ids of some rows, integers [rows, length].

        Args:
            array: the rows.
            start: the number of the first one in the table.

        Raises:
            InputError: a text is missing, or the rule gave no ids, or not equally many for each.
        """
        refuse_missing(array, self._title, start, place=self._place)
        given = self._rule(array.to_pylist())
        if len(given) != len(array):
            raise InputError(
                f"{self._title}: tokenize gave {len(given)} lists of ids for {len(array)} texts; give one a text "
                "(of a Hugging Face tokenizer's answer, its 'input_ids')"
            )
        self._refuse_ragged(given, start)
        ids = np.asarray(given)
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise InputError(f"{self._title}: tokenize must give whole numbers [texts, length], got {_kind(ids)}")
        return ids.astype(np.int64, copy=False)

    def _refuse_ragged(self, given: Any, start: int) -> None:
        lengths = [len(one) for one in given if hasattr(one, "__len__")]
        odd = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is not None:
            raise InputError(
                f"{self._title}: tokenize gave {lengths[0]} ids at {self._place(start)} and {lengths[odd]} at "
                f"{self._place(start + odd)}; {PAD}"
            )


def assumptions(tokenize: Tokenize) -> tuple[Assumption, ...]:
    """What a guarantee rests on where texts were turned into ids so."""
    if isinstance(tokenize, Tokenizer):
        return tokenize.assumptions
    return (Assumption("tokenizer_public"),)


def _kind(ids: np.ndarray) -> str:
    return f"{ids.dtype} {ids.shape}"
