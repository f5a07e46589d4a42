"""A column of a table as an array: numbers and lists of numbers, texts, and who a row belongs to.

A row where a value is missing is refused by its position. NaN is a number: it passes, and the example that holds it
counts as zero in training.

>>> import pyarrow as pa
>>> numbers(pa.array([[1.5, 2.0], [0.0, 1.0]]), "column x").tolist()
[[1.5, 2.0], [0.0, 1.0]]
>>> numbers(pa.array([[1, 2], [3]]), "column x")
Traceback (most recent call last):
...
sfumato._check.InputError: column x at position 1 has 1 values, those before it have 2; pad or cut them to one length
"""

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.safeguards import names_in
from sfumato.data.tables.cell_texts import is_comma_number, is_missing, is_number_text
from sfumato.data.tables.kinds import flags_as_texts, is_list, is_number, is_text, plain, remedy_of
from sfumato.data.tables.source import Source, position

_ROWS = 1 << 16  # rows of numbers and names read in one go


def numbers(array: pa.Array, told: str, start: int = 0, place: Callable[[int], str] = position) -> np.ndarray:
    """A column of numbers, or of lists of equal lengths of them, [rows, …].

    Args:
        array: the column.
        told: what messages call it.
        start: the number of its first row in the table.
        place: what messages call a row.

    Raises:
        InputError: a value is missing, lists are of different lengths or empty, or these are no numbers.
    """
    shape = [len(array)]
    while is_list(array.type):
        refuse_missing(array, told, start, math.prod(shape[1:]), place)
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
        else:
            lengths = array.value_lengths().to_numpy(zero_copy_only=False)
            size = int(lengths[0]) if len(lengths) else 0
            if (lengths != size).any():
                odd = int((lengths != size).argmax())
                row = start + odd // max(math.prod(shape[1:]), 1)
                raise InputError(
                    f"{told} at {place(row)} has {int(lengths[odd])} values, those before it have {size}; "
                    "pad or cut them to one length"
                )
        if size == 0 and len(array):
            raise InputError(f"{told} at {place(start)} is an empty list; give numbers, or drop the column")
        shape.append(size)
        array = plain(array.flatten())
    refuse_missing(array, told, start, math.prod(shape[1:]), place)
    if not is_number(array.type):
        raise InputError(f"{told} must be numbers or lists of them, got {array.type}; {remedy_of(array.type)}")
    rows = array.to_numpy(zero_copy_only=False)
    return (rows.astype(np.float32) if rows.dtype == np.float16 else rows).reshape(shape)


def refuse_missing(
    array: pa.Array, told: str, start: int, each: int = 1, place: Callable[[int], str] = position
) -> None:
    """Refuse a column with a null.

    Args:
        array: its values.
        told: what messages call it.
        start: the number of the first row in the table.
        each: how many values a row has.
        place: what messages call a row.
    """
    if array.null_count:
        row = start + int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // max(each, 1)
        raise InputError(f"{told} is missing (null) at {place(row)}; fill it in or drop the row")


def refuse_stray_text(source: Source, role: str, column: str, *, names: bool = False) -> None:
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
    told = f"{source.told}: {role}={column!r} is {cell!r} at {source.place(_first_row(source, column, cell))}"
    if commas:
        raise InputError(f"{told}, a number with a comma; write numbers with a point and without commas")
    raise InputError(f"{told}, but a number in {usual:,} rows; correct it or drop the row")


def _first_row(source: Source, column: str, text: str) -> int:
    """The first row of a column of texts that is this one, blanks around it aside."""
    start = 0
    for block in source.blocks([column], _ROWS):
        for row, cell in enumerate(block[column].to_pylist()):
            if cell is not None and cell.strip() == text:
                return start + row
        start += len(block[column])
    return 0


def labels_of(source: Source, column: str, *, declared: bool) -> np.ndarray:
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
    told, blocks, start = f"{source.told}: the label {column!r}", [], 0
    for block in source.blocks([column], _ROWS):
        array = block[column]
        if pa.types.is_boolean(array.type):  # the classes that a text file of the same table has
            array = flags_as_texts(array)
        if is_text(array.type):
            refuse_missing(array, told, start, place=source.place)
            blocks.append(np.asarray(array.to_pylist(), str))
        else:
            blocks.append(numbers(array, told, start, source.place))
            if blocks[0].shape[1:] != blocks[-1].shape[1:]:
                before, here = (math.prod(one.shape[1:]) for one in (blocks[0], blocks[-1]))
                raise InputError(f"{told} at {source.place(start)} has {here} values, those before it have {before}")
        start += len(array)
    return np.concatenate(blocks)


def users_of(source: Source, column: str) -> tuple[list[str], np.ndarray]:
    """The users in sorted order, and which of them each row belongs to, int64 [rows].

    Raises:
        InputError: a row has no user, or they are neither whole numbers nor text.
    """
    told, start, codes = f"{source.told}: the user {column!r}", 0, []
    found: dict[str | int, int] = {}
    for array in source.names_of(column, _ROWS):
        names, rows = names_in(
            array, told, lambda row, first=start: source.place(first + row), kind=source.kind(column)
        )
        own = [found.setdefault(name, len(found)) for name in names]
        codes.append(np.array(own, np.int64)[rows])
        start += len(array)
    if source.texts is not None and all(_is_whole(str(name)) for name in found):
        found = {int(name): number for name, number in found.items()}
    people = source.classes.get(column)
    if people is not None and all(isinstance(one, int) for one in found):
        if wrong := [one for one in found if not 0 <= int(one) < len(people)]:
            raise InputError(
                f"{told} has the number {wrong[0]}, but {len(people)} names are kept beside it; correct it"
            )
        told_by: list[str | int] = [people[int(one)] for one in found]
    else:
        told_by = list(found)
    held = sorted(set(told_by))  # type: ignore[type-var]  # of one column: all are numbers, or all are texts
    number = {name: i for i, name in enumerate(held)}
    return list(map(str, held)), np.array([number[name] for name in told_by])[np.concatenate(codes)]


def _is_whole(name: str) -> bool:
    """Whether a text is a whole number as it is written down, so that no other text is the same number."""
    try:
        return str(int(name)) == name
    except ValueError:
        return False
