"""The lines of a ledger: one JSON object each, which carries the hash of the line before it.

Guarantees that a line that was changed, removed, inserted or moved is found and named, to the byte: there is one way to
write an entry, so a name that stands twice in it or a space behind it shows. What the chain alone cannot show is that
whole lines are missing at the end: compare the head with one that was noted elsewhere (checkpoints and statements do).

>>> first = seal({"event": {"event": "gaussian", "noise_multiplier": 1.0}}, index=0, previous=ORIGIN)
>>> problem(first, 0, ORIGIN), problem({**first, "round": 7}, 0, ORIGIN)
('', 'was changed after it was written (its hash does not fit)')
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sfumato._check import InputError

ORIGIN = "0" * 64
"""What the first entry follows."""


RESERVED = ("index", "hash", "previous", "event", "kind", "budget", "statement", "run", "origin", "format")
"""Fields that the ledger writes itself."""


_FORMAT = 1  # a later format that changes what a line means writes its number into the field "format"
_LONGEST = 1 << 24  # bytes of a line; a file without line ends is no ledger and shall not fill the memory
Show = Callable[[int, int], None]


def seal(fields: dict[str, Any], *, index: int, previous: str) -> dict[str, Any]:
    """The entry with these fields at this place of the chain.

    Raises:
        InputError: a field is not plain JSON.
    """
    # Hashed as it will be read: keys become text, which sorts in another order.
    entry = json.loads(line({**fields, "index": index, "previous": previous}))
    entry["hash"] = digest(entry)
    return entry


def line(entry: dict[str, Any]) -> bytes:
    """The one way to write an entry."""
    try:
        return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a ledger entry must be plain JSON: {error}") from None


def digest(entry: dict[str, Any]) -> str:
    """The hash of an entry without its field "hash"."""
    return hashlib.sha256(line(entry)).hexdigest()


def entries(
    path: Path, *, tear: list[bytes] | None = None, show: Show | None = None
) -> Iterator[tuple[dict[str, Any], int]]:
    """The entries of a file, each checked, with the byte position after it; one in memory at a time.

    Args:
        path: the ledger.
        tear: takes the last line where a crash tore it; such a line is refused without it.
        show: is called now and then with the bytes read so far and in all.

    Raises:
        InputError: there is no such file, or a line is not the next one; names the first.
    """
    try:
        with open(path, "rb") as file:
            yield from _entries(path, file, tear, show or (lambda done, total: None))
    except FileNotFoundError:
        raise InputError(f"no ledger at {path}; give the ledger.jsonl of a run") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give the ledger.jsonl in it") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; ask its owner for the permission") from None


def _entries(path: Path, file: BinaryIO, tear: list[bytes] | None, show: Show) -> Iterator[tuple[dict[str, Any], int]]:
    total = path.stat().st_size
    previous, end = ORIGIN, 0
    for index, written in enumerate(iter(lambda: file.readline(_LONGEST), b"")):
        entry = _parse(written)
        where = f"{path}, line {index + 1}"
        if not written.endswith(b"\n") and (index or _starts_an_entry(written, entry)):
            if tear is None:
                raise InputError(f"{where}: torn by a crash; opening the ledger for a run repairs it")
            tear.append(written)
            return
        wrong = problem(entry, index, previous) or _not_as_written(entry, written)
        if wrong:
            raise InputError(f"{where}: {wrong}; {_remedy(wrong, index)}")
        assert entry is not None
        previous, end = entry["hash"], end + len(written)
        if index % 1000 == 0:
            show(end, total)
        yield entry, end
    show(end, total)


def _remedy(wrong: str, index: int) -> str:
    if "newer version" in wrong:
        return "update sfumato"
    return (
        "restore the file from a backup" if index or "not an entry" not in wrong else "give the ledger.jsonl of a run"
    )


def _starts_an_entry(written: bytes, entry: dict[str, Any] | None) -> bool:
    """Whether the only line of a file can be what a crash left of a first entry; any other file is left alone."""
    return written.startswith(b'{"') and (entry is None or "previous" in entry) and len(written) < _LONGEST


def _not_as_written(entry: dict[str, Any] | None, written: bytes) -> str:
    """What is wrong with the bytes of an entry whose values are right; empty if nothing is."""
    return "" if entry is not None and line(entry) == written else "was changed after it was written (in its spelling)"


def _parse(written: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def problem(entry: dict[str, Any] | None, index: int, previous: str) -> str:
    """What is wrong with the entry at this place of the chain; empty if nothing is."""
    if entry is None or not all(name in entry for name in ("index", "hash", "previous")):
        return "not an entry of a ledger"
    version = entry.get("format", _FORMAT)
    if isinstance(version, int) and version > _FORMAT:
        return f"written by a newer version of sfumato (format {version}, this one reads {_FORMAT})"
    if entry["index"] != index or entry["previous"] != previous:
        return "does not follow the line before it; a line was removed, inserted or moved"
    try:
        hashed = digest({name: value for name, value in entry.items() if name != "hash"})
    except InputError:  # a number beyond the range of a double, which no ledger writes
        hashed = ""
    if entry["hash"] != hashed:
        return "was changed after it was written (its hash does not fit)"
    if "event" not in entry and entry.get("kind") not in ("budget", "statement"):
        if "kind" in entry:
            return f"written by a newer version of sfumato (an entry of kind {entry['kind']!r})"
        return "not an entry of a ledger"
    return ""
