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
from sfumato.data.tables.source import Source, position

_ROWS = 1 << 16  # rows of numbers and names read in one go


def is_list(kind: pa.DataType) -> bool:
    """Whether a column has a list in each row."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has a text in each row, written out or by its number in a list of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view"


def is_number(kind: pa.DataType) -> bool:
    """Whether a column has a number in each row."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


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
        array = array.flatten()
    if not is_number(array.type):
        raise InputError(f"{told} must be numbers or lists of them, got {array.type}; convert it")
    refuse_missing(array, told, start, math.prod(shape[1:]), place)
    return array.to_numpy(zero_copy_only=False).reshape(shape)


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


def labels_of(source: Source, column: str) -> np.ndarray:
    """The labels of all rows: text, or numbers [rows] or [rows, k].

    Raises:
        InputError: one is missing, or they are neither.
    """
    told, blocks, start = f"{source.told}: the label {column!r}", [], 0
    for block in source.blocks([column], _ROWS):
        array = block[column]
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
    for block in source.blocks([column], _ROWS):
        array = block[column]
        if pa.types.is_floating(array.type):  # as pandas keeps whole numbers of which one is missing
            missing = array.is_nan().fill_null(True).to_numpy(zero_copy_only=False)
            if missing.any():
                row = source.place(start + int(missing.argmax()))
                raise InputError(f"{told} is missing (NaN) at {row}; fill it in or drop the row")
        refuse_missing(array, told, start, place=source.place)
        if not (is_text(array.type) or pa.types.is_integer(array.type)):
            raise InputError(f"{told} must be whole numbers or text, got {array.type}; cast it to text")
        coded = array.dictionary_encode()
        names = coded.dictionary.to_pylist()
        if blank := [i for i, name in enumerate(names) if isinstance(name, str) and not name.strip()]:
            row = start + int((coded.indices.to_numpy(zero_copy_only=False) == blank[0]).argmax())
            raise InputError(f"{told} is empty at {source.place(row)}; say whose the row is, or drop it")
        own = [found.setdefault(name, len(found)) for name in names]
        codes.append(np.array(own, np.int64)[coded.indices.to_numpy(zero_copy_only=False)])
        start += len(array)
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
