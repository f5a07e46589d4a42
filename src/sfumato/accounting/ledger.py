"""The ledger: an append-only file that says what was released from the records, one JSON object a line.

Guarantees that an event is on the disk before `append` returns, so that a crash can lose a release but never
its cost. Each line carries the hash of the line before it; a changed, removed or inserted line breaks the
chain and is named. A last line that a crash tore is dropped on opening. The bytes depend on what was recorded
and on nothing else (no clock, no host), so two equal runs write equal files.

>>> import tempfile, pathlib
>>> from sfumato.accounting.events import Gaussian
>>> ledger = Ledger.open(pathlib.Path(tempfile.mkdtemp()) / "ledger.jsonl")
>>> for round in range(3):
...     ledger.append(Gaussian(1.0).poisson(0.1), round=round)
>>> ledger.event() == Gaussian(1.0).poisson(0.1) * 3, len(ledger)
(True, 3)
>>> ledger.close()
"""

import hashlib
import json
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from sfumato._check import InputError, whole
from sfumato._files import sync_folder
from sfumato.accounting.events import Event, compose, event_from_json, terms

_ORIGIN = "0" * 64
_RESERVED = ("index", "event", "hash", "previous")


class Ledger:
    """An open ledger; use `Ledger.open`. One writer at a time.

    Attributes:
        path: the file.
        head: hash of the last entry; 64 zeros for an empty ledger.
        recovered: bytes of a torn last line that opening removed, 0 as a rule.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.head = _ORIGIN
        self.recovered = 0
        self._file = file
        self._counts: dict[Event, int] = {}
        self._ends = array("Q")  # byte position after each entry

    @classmethod
    def open(cls, path: Path | str) -> "Ledger":
        """Open or create a ledger, check its chain and drop a torn last line.

        Raises:
            InputError: the chain is broken; names the first bad line. Nothing is changed on the disk.
        """
        path = Path(path)
        created = not path.exists()
        ledger = cls(path, open(path, "a+b"))  # noqa: SIM115 (the ledger closes it)
        try:
            ledger._load()
            if created:
                sync_folder(path.parent)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @staticmethod
    def verify(path: Path | str) -> int:
        """Check every line of a ledger without changing it; the number of entries.

        Raises:
            InputError: names the first line that is torn, changed or out of place.
        """
        path = Path(path)
        if not path.exists():
            raise InputError(f"no ledger at {path}")
        with open(path, "rb") as file:
            return sum(1 for _ in _entries(path, file, tear=None))

    def append(self, event: Event, **fields: Any) -> None:
        """Record an event and flush it to the disk.

        Args:
            event: what is about to be released; append before the release.
            fields: anything else that JSON can write (round, phase, note). Public: put nothing private in it.

        Raises:
            InputError: a field has a reserved name or is not JSON, or the file was changed by someone else.
        """
        if not isinstance(event, Event):
            raise InputError(f"event must be an accounting event such as Gaussian(1.0), got {event!r}")
        taken = [name for name in fields if name in _RESERVED]
        if taken:
            raise InputError(f"field {taken[0]!r} is written by the ledger itself; choose another name")
        entry = {**fields, "index": len(self), "event": event.to_json(), "previous": self.head}
        entry = json.loads(_line(entry))  # as it will be read: keys become text, which sorts in another order
        entry["hash"] = _hash(entry)
        line = _line(entry)
        size = os.fstat(self._file.fileno()).st_size
        if size != self._size:
            raise InputError(f"{self.path} was changed by another process ({size} bytes, expected {self._size})")
        try:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            self._restore()
            raise
        self._record(event, entry["hash"], self._size + len(line))

    def event(self) -> Event:
        """Everything recorded so far, composed."""
        return compose(self._counts)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The entries, read from the file one by one."""
        with open(self.path, "rb") as file:
            yield from (entry for entry, _ in _entries(self.path, file, tear=None))

    def truncate(self, entries: int) -> None:
        """Go back to the first `entries` entries, as a checkpoint recorded them; exact to the byte.

        Only for releases that never left this machine: what a crash threw away before anyone saw it.

        Raises:
            InputError: the ledger is shorter than that.
        """
        whole(at_least=0, entries=entries)
        if entries > len(self):
            raise InputError(f"{self.path} has {len(self)} entries, cannot go back to {entries}; is it another run's?")
        if entries == len(self):
            return
        self._file.truncate(self._ends[entries - 1] if entries else 0)
        os.fsync(self._file.fileno())
        self._load()

    def close(self) -> None:
        """Close the file; nothing is pending."""
        self._file.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _record(self, event: Event, digest: str, end: int) -> None:
        for single, count in terms(event):
            self._counts[single] = self._counts.get(single, 0) + count
        self.head = digest
        self._ends.append(end)

    def _load(self) -> None:
        self.head, self._counts, self._ends = _ORIGIN, {}, array("Q")
        tear: list[bytes] = []
        with open(self.path, "rb") as file:
            for entry, end in _entries(self.path, file, tear):
                self._record(event_from_json(entry["event"]), entry["hash"], end)
        if tear:
            self.recovered = len(tear[0])
            self._restore()

    def _restore(self) -> None:
        """Cut the file back to its last whole entry."""
        os.ftruncate(self._file.fileno(), self._size)
        os.fsync(self._file.fileno())


def _entries(path: Path, file: BinaryIO, tear: list[bytes] | None) -> Iterator[tuple[dict[str, Any], int]]:
    """Entries with the position of their end; an unfinished last line goes to `tear`, or is refused without
    one.
    """
    previous, end = _ORIGIN, 0
    for index, line in enumerate(file):
        if not line.endswith(b"\n"):
            if tear is None:
                raise InputError(f"{path}, line {index + 1}: torn by a crash; opening the ledger for a run repairs it")
            tear.append(line)
            return
        entry = _parse(line)
        problem = _problem(entry, index, previous)
        if entry is None or problem:
            raise InputError(f"{path}, line {index + 1}: {problem}; restore the file from a backup")
        previous, end = entry["hash"], end + len(line)
        yield entry, end


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _problem(entry: dict[str, Any] | None, index: int, previous: str) -> str:
    if entry is None or not all(name in entry for name in _RESERVED):
        return "not an entry of a ledger"
    if entry["index"] != index or entry["previous"] != previous:
        return "does not follow the line before it; a line was removed, inserted or moved"
    if entry["hash"] != _hash({name: value for name, value in entry.items() if name != "hash"}):
        return "was changed after it was written (its hash does not fit)"
    return ""


def _line(entry: dict[str, Any]) -> bytes:
    try:
        return json.dumps(entry, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"a ledger entry must be plain JSON: {error}") from None


def _hash(entry: dict[str, Any]) -> str:
    return hashlib.sha256(_line(entry)).hexdigest()
