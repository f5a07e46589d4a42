"""JSON lines: one value of each line is exchanged, every other character stays.

>>> line = '{"a": 1.50, "label": "x",  "b": [1, 2]}'
>>> found = values(line)
>>> found["label"], line[: found["label"].start] + '"y"' + line[found["label"].end :]
(Value(value='x', start=21, end=24), '{"a": 1.50, "label": "y",  "b": [1, 2]}')
"""

import json
import json.decoder
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.tables.open import LINES
from sfumato.labels.files.label_file import Cells, Exchange

_ROWS = 1 << 12
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_KINDS = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


class Value(NamedTuple):
    """A value of an object and where it stands in the text."""

    value: Any
    start: int
    end: int


class LineLabels:
    """A file of JSON objects, one a line.

    Args:
        path: of it.
    """

    suffixes: tuple[str, ...] = LINES

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kinds: dict[str, pa.DataType] = {}

    def kind(self, column: str) -> pa.DataType:
        if column not in self._kinds:
            self._kinds[column] = self._found_kind(column)
        return self._kinds[column]

    def _found_kind(self, column: str) -> pa.DataType:
        seen: dict[type, int] = {}
        for number, _, found in self._objects():
            if column not in found:
                raise InputError(f"{self.path} line {number} has no {column!r}; fill it in or drop the line")
            if found[column].value is not None:
                seen.setdefault(type(found[column].value), number)
        if {int, float} == seen.keys():
            return pa.float64()
        if len(seen) > 1:
            told = " and ".join(f"{kind.__name__} (line {number})" for kind, number in seen.items())
            raise InputError(f"{self.path}: the values of {column!r} are of several types, {told}; make them one")
        kind = next(iter(seen), str)
        if kind not in _KINDS:
            raise InputError(f"{self.path}: {column!r} must be a text or a number, got a {kind.__name__}; convert it")
        return _KINDS[kind]

    def cells(self, columns: list[str]) -> Iterator[Cells]:
        kinds = {name: self.kind(name) for name in columns}
        for rows in self._blocks():
            yield self._cells(rows, kinds)

    def flat(self) -> Iterator[Cells]:
        for rows in self._blocks():
            names = dict.fromkeys(name for *_, found in rows for name in found)
            yield {name: pa.array([_text(found.get(name)) for *_, found in rows], pa.string()) for name in names}

    def copy(
        self, out: Path, columns: list[str], label: str, exchange: Exchange, *, order: np.ndarray | None = None
    ) -> None:
        kinds = {name: self.kind(name) for name in columns}
        held: list[str] = []
        with open(out, "w", encoding="utf-8", newline="") as file:
            for rows in self._blocks():
                reports = exchange(self._cells(rows, kinds)).to_pylist()
                for (_, line, found), report in zip(rows, reports, strict=True):
                    _, start, end = found[label]
                    held.append(f"{line[:start]}{json.dumps(report, ensure_ascii=False)}{line[end:]}")
                if order is None:
                    file.writelines(held)
                    held.clear()
            if order is not None:  # the last line of a file may be without an end
                file.writelines(held[place].rstrip("\r\n") + "\n" for place in order.tolist())

    def _cells(self, rows: list[tuple[int, str, dict[str, Value]]], kinds: dict[str, pa.DataType]) -> Cells:
        try:
            return {name: pa.array([found[name].value for *_, found in rows], kind) for name, kind in kinds.items()}
        except (KeyError, pa.ArrowException, OverflowError) as error:
            where = f"{self.path}, lines {rows[0][0]} to {rows[-1][0]}"
            raise InputError(f"{where}: a value cannot be read: {' '.join(str(error).split())[:200]}") from None

    def _blocks(self) -> Iterator[list[tuple[int, str, dict[str, Value]]]]:
        held = []
        for row in self._objects():
            held.append(row)
            if len(held) == _ROWS:
                yield held
                held = []
        if held:
            yield held

    def _objects(self) -> Iterator[tuple[int, str, dict[str, Value]]]:
        number = 0
        try:
            with open(self.path, encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield number, line, values(line)
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is not UTF-8 behind line {number} ({error.reason}); convert it") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path} line {number} is no JSON object: {error}") from None


def values(line: str) -> dict[str, Value]:
    """The values of an object, by name, each with its place in the line.

    Raises:
        ValueError: the line is no object, or has a name twice.
    """
    found: dict[str, Value] = {}
    place = _skip(line, 0)
    if line[place : place + 1] != "{":
        raise ValueError("it does not begin with {")
    place = _skip(line, place + 1)
    more = line[place : place + 1] != "}"
    while more:
        if line[place : place + 1] != '"':
            raise ValueError(f"a name is wanted at character {place + 1}")
        name, place = json.decoder.scanstring(line, place + 1, True)  # type: ignore[attr-defined]  # since Python 2.7
        place = _skip(line, place)
        if line[place : place + 1] != ":":
            raise ValueError(f"a colon is wanted at character {place + 1}")
        start = _skip(line, place + 1)
        value, end = _DECODER.raw_decode(line, start)
        if name in found:
            raise ValueError(f"{name[:200]!r} is there twice")
        found[name] = Value(value, start, end)
        place = _skip(line, end)
        more = line[place : place + 1] == ","
        place = _skip(line, place + 1) if more else place
    if line[place : place + 1] != "}" or _skip(line, place + 1) != len(line):
        raise ValueError(f"the object ends at character {place + 1}")
    return found


def _text(value: Value | None) -> str | None:
    if value is None or value.value is None:
        return None
    return value.value if isinstance(value.value, str) else json.dumps(value.value)


def _skip(line: str, place: int) -> int:
    match = _BLANK.match(line, place)
    return match.end() if match else place
