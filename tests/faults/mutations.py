"""Damaged files by the thousand: what disks, editors and attackers do to a file, from a seed.

A reader is registered with whole files of its kind and a function that reads one; `test_mutated_files.py` gives it
damaged ones and lets it answer or refuse in one line. To register: `READERS["csv"] = Reader(make, read)`, in a module
that the test imports (see `readers.py`).
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HUGE = [
    b"1e999",
    b"-1e999",
    b"9" * 400,
    b"9" * 5000,
    b"NaN",
    b"-0",
    b"18446744073709551616",
    b"1e-400",
    b"null",
    b"true",
]
WORDS = [b"\xff\xfe", b"\x00", b"\r\n", b"\xed\xa0\x80", b'"', b"\\", b"{}", b"[]", b"\x1b[2J", "\u202e".encode()]


@dataclass(frozen=True)
class Reader:
    """A kind of file.

    Attributes:
        make: writes whole files of this kind into an empty folder; gives the paths of those to damage.
        read: reads what `make` wrote, with one of the files damaged; takes the folder.
    """

    make: Callable[[Path], list[Path]]
    read: Callable[[Path], Any]


READERS: dict[str, Reader] = {}
"""By name; other rooms of the tests add theirs."""


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The file with one to three damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        content = rng.choice(MUTATIONS)(content, rng)
    return content


def _place(content: bytes, rng: random.Random) -> int:
    return rng.randrange(len(content) + 1)


def truncate(content: bytes, rng: random.Random) -> bytes:
    return content[: _place(content, rng)]


def flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def insert(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + rng.choice((*WORDS, rng.randbytes(rng.randrange(1, 40)))) + content[at:]


def remove(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + content[at + rng.randrange(1, 60) :]


def repeat(content: bytes, rng: random.Random) -> bytes:
    at = _place(content, rng)
    end = at + rng.randrange(1, 200)
    return content[:end] + content[at:end] + content[end:]


def swap_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if len(lines) > 1:
        one, two = rng.sample(range(len(lines)), 2)
        lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def zero(content: bytes, rng: random.Random) -> bytes:
    """A block that the disk lost."""
    at = _place(content, rng)
    length = rng.choice((1, 16, 512, 4096))
    return content[:at] + bytes(len(content[at : at + length])) + content[at + length :]


def nest(content: bytes, rng: random.Random) -> bytes:
    depth = rng.choice((50, 900, 5000, 200_000) if rng.random() < 0.02 else (50, 900))
    bracket = rng.choice((b"[", b'{"a":'))
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        at = _place(content, rng)
        return content[:at] + bracket * depth + content[at:]
    return _with(tree, rng, bracket * depth + b"0" + (b"]" if bracket == b"[" else b"}") * depth)


def huge(content: bytes, rng: random.Random) -> bytes:
    """A number or a word in the place of a value of JSON, or anywhere in other files."""
    value = rng.choice(HUGE)
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        lines = content.splitlines(keepends=True)
        if lines and b"{" in content:
            at = rng.randrange(len(lines))
            try:
                lines[at] = _with(json.loads(lines[at]), rng, value) + b"\n"
                return b"".join(lines)
            except (ValueError, RecursionError):
                pass
        at = _place(content, rng)
        return content[:at] + value + content[at + len(value) :]
    return _with(tree, rng, value)


def other_kind(content: bytes, rng: random.Random) -> bytes:
    """A value of JSON that became one of another kind."""
    kinds = (
        b"[]",
        b"{}",
        b'""',
        b'"x"',
        b"-1",
        b"0",
        b"1.5",
        b"null",
        b"true",
        b'[[1,"a"],{}]',
        b'{"event":"gaussian"}',
    )
    try:
        return _with(json.loads(content), rng, rng.choice(kinds))
    except (ValueError, RecursionError):
        return huge(content, rng)


def _with(tree: Any, rng: random.Random, value: bytes) -> bytes:
    """The tree with `value` in the place of one of its parts."""
    places: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack and len(places) < 500:
        part = stack.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            places.append((part, key))
            stack.append(part[key])
    if not places:
        return value
    part, key = rng.choice(places)
    if isinstance(part, dict) and rng.random() < 0.2:
        del part[key]
    else:
        part[key] = "\ue000"
    mark = json.dumps("\ue000").encode()
    return json.dumps(tree).encode().replace(mark, value)


MUTATIONS = [truncate, flip, insert, remove, repeat, swap_lines, zero, nest, huge, huge, other_kind, other_kind]
