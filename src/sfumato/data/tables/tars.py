"""The samples of tar shards as the rows of a table: a column for each extension, and for each field of their JSON.

What a column holds is told by the extension, as in WebDataset, and by the first hundred samples: pictures (`jpg`,
`png`, …), whole numbers (`cls`, `index`, …), arrays (`npy`), the fields of `json` (`json.person`, `json.meta.age`),
text for all else that is UTF-8. `__key__` is a sample's key, `__url__` its shard. Columns are read apart: whoever asks
for users does not read pictures. Memory holds the index and a block of rows.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import parse_json
from sfumato.data.image_files import picture_endings
from sfumato.data.numpy_files import array_in
from sfumato.data.safeguards import refuse_undecodable_name
from sfumato.data.tables.kinds import is_list, lists
from sfumato.data.tables.source import Source
from sfumato.data.tars.index import TarIndex, index_tar
from sfumato.data.tars.shards import shards_of

_JSON = ("json", "jsn")
_WHOLE = ("cls", "cls2", "class", "count", "index", "inx", "id")
_LOOKED_AT = 100  # samples that tell what a column holds
_MOST_BYTES = 1 << 26  # of a block of rows
_LARGEST = 1 << 30  # bytes of one member
_DIGITS = 64  # bytes of a whole number, with blanks

Reading = Callable[[bytes], Any]
"""Turns a member into a value; raises ValueError where it cannot."""


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Where a column's values come from.

    Attributes:
        extension: of the members; "" for the key and the shard.
        value: turns one into a value.
        kind: the values' Arrow type.
    """

    extension: str
    value: Reading
    kind: pa.DataType


@dataclass(frozen=True)
class _Sample:
    """One sample, with the members that were asked for."""

    key: str
    shard: Path
    parts: Mapping[str, bytes | None]

    def __str__(self) -> str:
        return f"the sample {self.key!r} of {self.shard}"


def open_tars(path: Path | str) -> Source:
    """Open tar shards.

    Args:
        path: a tar, a folder of them, or a pattern.

    Raises:
        InputError: there are none, or one is damaged, packed, or not made of samples.
    """
    shards = [index_tar(one) for one in shards_of(path)]
    starts = np.cumsum([0, *(len(one.keys) for one in shards)])
    extensions = list(dict.fromkeys(kind for one in shards for kind in one.extensions))
    if not extensions:
        raise InputError(f"{path} has no samples: no member is named KEY.EXTENSION")
    found = [
        (f"{kind}.{'.'.join(names)}", (kind, names))
        for kind in extensions
        if kind.split(".")[-1] in _JSON
        for names in _fields(shards, kind)
    ]
    fields = dict(found)
    # a name that is there twice is refused where it is asked for
    names = [*extensions, *(name for name, _ in found), "__key__", "__url__"]

    @cache
    def column(name: str) -> _Column:
        if name in ("__key__", "__url__"):
            return _Column(extension="", value=_text, kind=pa.large_string())
        if name in extensions:
            return _by_extension(shards, name)
        kind, inner = fields[name]
        return _with_kind(shards, name, kind, lambda content: _field(content, inner))

    def as_text(name: str) -> _Column:
        found = column(name)
        return replace(found, value=_text, kind=pa.large_string()) if found.value is _whole else found

    def read(chosen: list[str], rows: int, of: Callable[[str], _Column] = column) -> Iterator[pa.Table]:
        columns = {name: of(name) for name in chosen}
        values: dict[str, list] = {name: [] for name in chosen}
        held: list[_Sample] = []
        for sample, size in _samples(shards, {one.extension for one in columns.values()} - {""}, rows):
            held.append(sample)
            for name, one in columns.items():
                values[name].append(_cell(sample, name, one))
            if size:
                yield _table(columns, values, held)
                values, held = {name: [] for name in chosen}, []
        if held:
            yield _table(columns, values, held)

    def place(row: int) -> str:
        shard = int(np.searchsorted(starts, row, side="right")) - 1
        return f"position {row} (sample {shards[shard].keys[row - int(starts[shard])]!r} of {shards[shard].path.name})"

    return Source(
        told=str(path),
        names=tuple(names),
        count=int(starts[-1]),
        kind=lambda name: column(name).kind,
        read=read,
        texts=lambda chosen, rows: read(chosen, rows, as_text),
        place=place,
    )


def _samples(shards: Sequence[TarIndex], extensions: set[str], rows: int) -> Iterator[tuple[_Sample, bool]]:
    """The samples with some of their members, and whether a block should end with each."""
    count = size = 0
    for shard in shards:
        places = {kind: shard.column(kind) for kind in extensions}
        with shard.open() as file:
            for row, key in enumerate(shard.keys):
                parts: dict[str, bytes | None] = {}
                for kind, where in places.items():
                    offset, length = map(int, where[row])
                    if length > _LARGEST:
                        raise InputError(
                            f"{kind} of {_Sample(key, shard.path, {})} has {length:,} bytes; 1 GiB is most"
                        )
                    parts[kind] = None if offset < 0 else os.pread(file.fileno(), length, offset)
                    size += max(length, 0)
                count += 1
                full = count == rows or size >= _MOST_BYTES
                if full:
                    count = size = 0
                    shard.refuse_changed(file)
                yield _Sample(key, shard.path, parts), full
            shard.refuse_changed(file)


def _cell(sample: _Sample, name: str, column: _Column) -> Any:
    if not column.extension:
        refuse_undecodable_name(sample.key, "sample", str(sample.shard))
        return sample.key if name == "__key__" else str(sample.shard)
    content = sample.parts[column.extension]
    try:
        return None if content is None else column.value(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} of {sample} is no {_word(column)}: {_short(error)}; correct it") from None


def _table(columns: Mapping[str, _Column], values: Mapping[str, list], samples: Sequence[_Sample]) -> pa.Table:
    return pa.table({name: _array(one, name, values[name], samples) for name, one in columns.items()})


def _array(column: _Column, name: str, values: list, samples: Sequence[_Sample]) -> pa.Array:
    """Values as Arrow; what is of another kind than the column is named by its sample."""
    if column.value is array_in:
        if all(value is not None for value in values):
            return _stacked(column, name, values, samples)
        values = [None if value is None else value.tolist() for value in values]  # which is refused further on
    try:
        return _as_kind(values, column.kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for value, sample in zip(values, samples, strict=True):
            try:
                _as_kind([value], column.kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"{name} of {sample} is no {column.kind}, as those before it are: {_short(error)}; convert it"
                ) from None
        raise


def _as_kind(values: list, kind: pa.DataType) -> pa.Array:
    """Values as Arrow, numbers as those of another kind only where that changes none: 2.0 is 2, and 0.5 is refused."""
    found = pa.array(values)
    if not values or pa.types.is_null(found.type):
        return pa.nulls(len(values), kind)
    (depth, inner), (wanted_depth, wanted) = _leaf(found.type), _leaf(kind)
    numbers = all(pa.types.is_integer(one) or pa.types.is_floating(one) for one in (inner, wanted))
    texts = pa.types.is_string(inner) and pa.types.is_large_string(wanted)
    bytes_ = pa.types.is_binary(inner) and pa.types.is_large_binary(wanted)
    if depth != wanted_depth or not (inner == wanted or pa.types.is_null(inner) or numbers or texts or bytes_):
        raise ValueError(f"it is {found.type}")
    return found.cast(kind)


def _leaf(kind: pa.DataType) -> tuple[int, pa.DataType]:
    """How many lists are within each other, and what the innermost one holds."""
    depth = 0
    while is_list(kind):
        kind, depth = kind.value_type, depth + 1
    return depth, kind


def _stacked(column: _Column, name: str, values: list[np.ndarray], samples: Sequence[_Sample]) -> pa.Array:
    for value, sample in zip(values, samples, strict=True):
        if (kind := _array_kind(value)) != column.kind:
            raise InputError(f"{name} of {sample} is {kind}, those before it are {column.kind}; make them equal")
    return lists(np.stack(values))


def _fields(shards: Sequence[TarIndex], extension: str) -> list[tuple[str, ...]]:
    """The names of the fields in the first JSON members, with those of the objects around them."""
    found: dict[tuple[str, ...], None] = {}

    def look(value: Any, names: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                look(inner, (*names, name))
        elif names:
            found.setdefault(names)

    for sample, content in _first(shards, extension):
        try:
            look(parse_json(content), ())
        except ValueError as error:
            raise InputError(f"{extension} of {sample} is no JSON: {_short(error)}; correct it") from None
    return list(found)


def _field(content: bytes, names: Sequence[str]) -> Any:
    value = parse_json(content)
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _by_extension(shards: Sequence[TarIndex], extension: str) -> _Column:
    last = extension.split(".")[-1]
    if f".{last}" in picture_endings():
        return _Column(extension=extension, value=bytes, kind=pa.large_binary())
    if last == "npy":
        return _with_kind(shards, extension, extension, array_in)
    if last in _WHOLE and _all(_whole, shards, extension):
        return _Column(extension=extension, value=_whole, kind=pa.int64())
    if _all(_text, shards, extension):
        return _Column(extension=extension, value=_text, kind=pa.large_string())
    return _Column(extension=extension, value=bytes, kind=pa.large_binary())


def _with_kind(shards: Sequence[TarIndex], name: str, extension: str, value: Reading) -> _Column:
    """A column whose type its first values tell."""
    found: list[Any] = []
    for sample, content in _first(shards, extension):
        found.append(
            _cell(
                _Sample(sample.key, sample.shard, {extension: content}),
                name,
                _Column(extension=extension, value=value, kind=pa.null()),
            )
        )
    if found and isinstance(found[0], np.ndarray):
        return _Column(extension=extension, value=value, kind=_array_kind(found[0]))
    try:
        kind = pa.array(found).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} of the first samples is not of one kind: {_short(error)}; convert it") from None
    return _Column(extension=extension, value=value, kind=kind)


def _first(shards: Sequence[TarIndex], extension: str) -> Iterator[tuple[_Sample, bytes]]:
    """The first members with an extension, and whose they are."""

    def found() -> Iterator[tuple[_Sample, bytes]]:
        for shard in shards:
            where = shard.column(extension)
            if not (where[:, 0] >= 0).any():
                continue
            with shard.open() as file:
                for row in np.flatnonzero(where[:, 0] >= 0)[:_LOOKED_AT]:
                    offset, length = map(int, where[row])
                    content = os.pread(file.fileno(), min(length, _LARGEST), offset)
                    yield _Sample(shard.keys[int(row)], shard.path, {}), content

    return islice(found(), _LOOKED_AT)


def _array_kind(value: np.ndarray) -> pa.DataType:
    try:
        kind = pa.from_numpy_dtype(value.dtype)
    except pa.ArrowException:
        raise InputError(f"an npy of {value.dtype} is no array of numbers; convert it") from None
    if 0 in value.shape:
        raise InputError(f"an npy of the shape {value.shape} holds nothing; give numbers")
    for side in reversed(value.shape):
        kind = pa.list_(kind, side)
    return kind


def _text(content: bytes) -> str:
    text = content.decode("utf-8-sig").strip()
    if "\0" in text:
        raise ValueError("it has a zero byte")
    return text


def _whole(content: bytes) -> int:
    if len(content) > _DIGITS:
        raise ValueError(f"it has {len(content):,} bytes")
    return int(content)


def _all(value: Reading, shards: Sequence[TarIndex], extension: str) -> bool:
    """Whether the first members with an extension can be read so."""
    try:
        for _, content in _first(shards, extension):
            value(content)
    except ValueError:
        return False
    return True


def _word(column: _Column) -> str:
    if column.value is _whole:
        return "whole number"
    if column.value is _text:
        return "text in UTF-8"
    return "array" if column.value is array_in else "JSON"


def _short(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
