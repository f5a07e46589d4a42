"""The ledger: an append-only file that says what was released from the records, one JSON object a line.

Guarantees that an event is on the disk before `append` returns, so that a crash can lose a release but never
its cost. Each line carries the hash of the line before it; a changed, removed or inserted line breaks the
chain and is named. A last line that a crash tore is dropped on opening. The bytes depend on what was recorded
and on nothing else (no clock, no host), so two equal runs write equal files.

A ledger may have a budget. It stands in the file, so that whoever opens it later is held to it, and a release that
would exceed it is refused before anything is written.

>>> import tempfile, pathlib
>>> from sfumato.accounting.events import Gaussian
>>> path = pathlib.Path(tempfile.mkdtemp()) / "ledger.jsonl"
>>> ledger = Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-6))
>>> for round in range(3):
...     ledger.append(Gaussian(2.0).poisson(0.01), phase="train", round=round)
>>> ledger.event() == Gaussian(2.0).poisson(0.01) * 3, ledger.phases(), len(ledger)
(True, ('train',), 4)
>>> ledger.remaining(Gaussian(2.0).poisson(0.01)) // 100
16
>>> ledger.close()
"""

import contextlib
import json
import os
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from sfumato._check import InputError, whole
from sfumato._files import beside, sync_folder, write_atomic, write_whole
from sfumato.accounting.events import Event
from sfumato.accounting.ledger import chain
from sfumato.accounting.ledger.budget import Budget, BudgetExceeded
from sfumato.accounting.ledger.merge import merge
from sfumato.accounting.ledger.meter import Meter, meter
from sfumato.accounting.ledger.totals import Totals


class Ledger:
    """An open ledger; use `Ledger.open`. One writer at a time: the first append locks the file until `close`.

    Attributes:
        path: the file.
        identity: of this writer, or None; see `open`.
        recovered: bytes of a torn last line that opening removed, 0 as a rule.
    """

    def __init__(self, path: Path, file: BinaryIO, identity: str | None) -> None:
        self.path = path
        self.identity = identity
        self.recovered = 0
        self._file = file
        self._locked = False
        self._totals = Totals()
        self._meter: Meter | None = None
        self._ends = array("Q")  # byte position after each entry
        self._seen = self._state()

    @classmethod
    def open(
        cls, path: Path | str, *, budget: Budget | None = None, identity: str | None = None, at_least: int = 0
    ) -> "Ledger":
        """Open or create a ledger, check its chain and drop a torn last line.

        Args:
            path: the file.
            budget: what all releases together may cost. Written into a ledger that has none or a looser one; without
                it, the budget in the file holds.
            identity: tells this writer's releases from those of another writer with the same settings, so that
                ledgers can be merged. A promise: whoever opens with the same identity and appends the same entry
                after the same entries, repeats the same release, noise included. Take `secrets.token_hex(16)` for a
                writer that repeats nothing. It is public, and is written with the first entry.
            at_least: entries that it must have, from a checkpoint.

        Raises:
            InputError: the chain is broken (names the first bad line), the file cannot be opened, it is shorter than
                `at_least`, or its budget is tighter. Nothing is changed on the disk.
        """
        path = Path(path)
        if identity is not None and not (isinstance(identity, str) and identity.isprintable() and identity):
            raise InputError(f"identity must be a word such as secrets.token_hex(16), got {identity!r}")
        created = not path.exists()
        ledger = cls(path, _open(path), identity)
        try:
            ledger._load(at_least)
            if budget is not None:
                ledger.settle(budget)
            if created:
                sync_folder(path.parent)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @staticmethod
    def read(path: Path | str, *, torn: bool = False, show: chain.Show | None = None) -> Totals:
        """What a ledger adds up to; every line is checked and nothing is changed.

        Args:
            path: the file. It is read line by line, whatever its size.
            torn: leave out a last line that a crash tore, instead of refusing it.
            show: is told now and then how many bytes of how many are read.

        Raises:
            InputError: names the first line that is torn, changed, out of place or unknown to this version.
        """
        path, totals = Path(path), Totals()
        tear: list[bytes] | None = [] if torn else None
        for entry, _ in chain.entries(path, tear=tear, show=show):
            _record(path, totals, entry)
        totals.torn = bool(tear)
        return totals

    @staticmethod
    def verify(path: Path | str) -> int:
        """Check every line of a ledger without changing it; the number of entries.

        Raises:
            InputError: names the first line that is torn, changed, out of place or unknown to this version.
        """
        return Ledger.read(path).entries

    merge = staticmethod(merge)

    def append(self, event: Event, *, phase: str | None = None, **fields: Any) -> None:
        """Record an event and flush it to the disk.

        Args:
            event: what is about to be released; append before the release.
            phase: the part of the work that it belongs to, such as "pretrain".
            fields: anything else that JSON can write (round, note). Public: put nothing private in it.

        Raises:
            BudgetExceeded: the ledger's budget does not allow it; nothing was written.
            InputError: a field has a reserved name or is not JSON, another process writes to the file, or somebody has
                changed, replaced or deleted it; nothing was written.
        """
        if not isinstance(event, Event):
            raise InputError(f"event must be an accounting event such as Gaussian(1.0), got {event!r}")
        if phase is not None and not (isinstance(phase, str) and phase):
            raise InputError(f"phase must be a name such as 'pretrain', got {phase!r}")
        taken = [name for name in fields if name in chain.RESERVED]
        if taken:
            raise InputError(f"field {taken[0]!r} is written by the ledger itself; choose another name")
        if self._meter is not None:
            try:
                self._meter.admit(event)
            except BudgetExceeded as refusal:
                raise BudgetExceeded(f"{self.path}: {refusal}") from None
        self._write({**fields, **({"phase": phase} if phase else {}), "event": event.to_json()}, event)
        if self._meter is not None:
            self._meter.spend(event)

    def event(self, phase: str | None = None) -> Event:
        """Everything recorded so far in a phase, composed; over all phases without one.

        Raises:
            InputError: there is no such phase.
        """
        return self._totals.event(phase)

    def phases(self) -> tuple[str, ...]:
        """The names of the phases in the order of their first release; "" for releases without a phase."""
        return self._totals.phases()

    @property
    def head(self) -> str:
        """Hash of the last entry; 64 zeros for an empty ledger."""
        return self._totals.head

    @property
    def writer(self) -> str | None:
        """Identity of whoever wrote the last entry, or None."""
        return self._totals.run

    @property
    def releases(self) -> int:
        """Entries that record an event; the others set a budget."""
        return self._totals.releases

    @property
    def budget(self) -> Budget | None:
        """The budget in force."""
        return self._totals.budget

    def remaining(self, event: Event) -> int | float:
        """How many more of this event the budget allows.

        Args:
            event: one step.

        Returns:
            a whole number, exact up to 10^9 and no more than that; inf for an event that costs nothing.

        Raises:
            InputError: the ledger has no budget, or no accountant knows the event.
        """
        if not isinstance(event, Event):
            raise InputError(f"event must be an accounting event such as Gaussian(1.0), got {event!r}")
        if self._meter is None:
            raise InputError(f"{self.path} has no budget; open it with budget=Budget(epsilon=…, delta=…)")
        return self._meter.remaining(event)

    def replace_budget(self, budget: Budget, *, reason: str) -> None:
        """Put another budget in force, a looser one too. The old one and the reason stay in the file.

        Args:
            budget: what all releases together may cost, those so far included.
            reason: one public sentence that whoever reads the ledger will see.

        Raises:
            InputError: there is no reason given, or another process writes to the file.
        """
        _require_budget(budget)
        if not isinstance(reason, str) or not reason.strip():
            raise InputError("replacing a budget needs a reason: one sentence that may be published")
        self._write_budget(budget, reason=reason)

    def settle(self, budget: Budget) -> None:
        """Bring a budget and the one in the file together: the tighter one is in force, and stands in the file.

        Raises:
            InputError: that in the file is tighter, or cannot be compared.
        """
        _require_budget(budget)
        before = self.budget
        if budget == before:
            return
        if before is not None and not budget.within(before):
            raise InputError(
                f"{self.path} has a budget of {before.describe()}, and {budget.describe()} is not tighter; open it "
                "without a budget, and loosen it with replace_budget"
            )
        self._write_budget(budget)

    def seal(self, statement: str, files: Mapping[str, str] | None = None) -> None:
        """Record which statement was made of all entries so far; `ledger.binding` compares the two.

        Args:
            statement: its digest, `Statement.digest`.
            files: digests of files that belong to it, by name.
        """
        self._write({"kind": "statement", "statement": {"digest": statement, "files": dict(files or {})}})

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The entries, read from the file one by one."""
        yield from (entry for entry, _ in chain.entries(self.path))

    def truncate(self, entries: int, *, head: str | None = None) -> None:
        """Go back to the first `entries` entries, as a checkpoint recorded them; exact to the byte.

        Only for releases that never left this machine: what a crash threw away before anyone saw it. A budget that was
        set later stays in force, and is written again.

        Args:
            entries: how many to keep.
            head: hash of the last of them; without it, nobody can tell whether this is the ledger that is meant.

        Raises:
            InputError: the ledger is shorter than that, or another one; nothing was changed.
        """
        whole(at_least=0, entries=entries)
        if entries > len(self):
            raise InputError(f"{self.path} has {len(self)} entries, cannot go back to {entries}; is it another run's?")
        self._refuse_changes()
        if head is not None and head != self._head_at(entries):
            raise InputError(
                f"{self.path} is another run's: entry {entries} is not the one that was noted; take its own"
            )
        if entries == len(self):
            return
        held = self.budget if entries <= self._totals.budget_entry else None
        self._lock()
        os.ftruncate(self._file.fileno(), self._ends[entries - 1] if entries else 0)
        os.fsync(self._file.fileno())
        self._load()
        if held is not None and held != self.budget:
            self._write_budget(held)

    def close(self) -> None:
        """Close the file and let other writers at it; nothing is pending."""
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

    def _write(self, fields: dict[str, Any], event: Event | None = None) -> None:
        """Put one entry at the end."""
        if self.identity != self._totals.run and "statement" not in fields:  # which is nobody's release
            fields = {**fields, "run": self.identity}
        entry = chain.seal(fields, index=len(self), previous=self.head)
        line = chain.line(entry)
        self._lock()
        self._refuse_changes()
        try:
            write_whole(self._file.fileno(), line)
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # what is torn then is dropped when it is opened again
                self._restore()
            raise
        self._totals.record(entry, event)
        self._ends.append(self._size + len(line))
        self._seen = self._state()

    def _state(self) -> tuple[int, ...]:
        """What tells the open file from another one, and from itself after a change."""
        return _state(os.fstat(self._file.fileno()))

    def _refuse_changes(self) -> None:
        """Stop where the file is not the one that this process left.

        Raises:
            InputError: it was deleted, replaced or changed. What only this process still has is written beside it.
        """
        there: tuple[int, ...] | None = None
        with contextlib.suppress(FileNotFoundError):
            there = _state(os.stat(self.path))
        if there == self._seen:
            return
        if not self.path.parent.is_dir():
            raise InputError(
                f"{self.path.parent} was deleted while {self.path.name} was written to; start anew elsewhere"
            )
        if there is not None and there[:2] == self._seen[:2]:
            raise InputError(
                f"{self.path} was changed by another process ({there[2]} bytes, expected {self._size}); open it again"
            )
        done = "replaced by another file" if there else "deleted"
        raise InputError(f"{self.path} was {done} while it was written to; {self._keep_aside()}")

    def _keep_aside(self) -> str:
        """Write what the open file holds beside the path that it has lost; says where it is."""
        if os.fstat(self._file.fileno()).st_nlink:
            return "put the file of this run back"
        kept = beside(self.path, after=".kept")
        try:
            write_atomic(kept, os.pread(self._file.fileno(), self._size, 0))
        except OSError as error:
            return f"what it held could not be kept ({error.strerror}); take a copy"
        return f"what it held is kept in {kept}: put it back"

    def _head_at(self, entries: int) -> str:
        """Hash of the last of the first so many entries."""
        if not entries:
            return chain.ORIGIN
        start = self._ends[entries - 2] if entries > 1 else 0
        return json.loads(os.pread(self._file.fileno(), self._ends[entries - 1] - start, start))["hash"]

    def _write_budget(self, budget: Budget, **fields: Any) -> None:
        self._write({"kind": "budget", "budget": budget.to_json(), **fields})
        self._meter = meter(budget, self._totals.counts)

    def _load(self, at_least: int = 0) -> None:
        self._totals, self._ends = Totals(), array("Q")
        tear: list[bytes] = []
        for entry, end in chain.entries(self.path, tear=tear):
            _record(self.path, self._totals, entry)
            self._ends.append(end)
        self._meter = meter(self.budget, self._totals.counts) if self.budget else None
        if len(self) < at_least:
            raise InputError(
                f"{self.path} has {len(self)} entries and should have {at_least}: it was cut short; take a whole copy"
            )
        if tear:
            self._lock()  # or else another process is writing that line now
            self.recovered = len(tear[0])
            self._restore()
        self._seen = self._state()

    def _lock(self) -> None:
        """Keep other writers away until the file is closed."""
        if self._locked:
            return
        try:
            import fcntl  # not on every system; the size of the file is checked in any case

            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True
        except BlockingIOError:
            raise InputError(f"another process is writing to {self.path}; let it end or stop it first") from None
        except (ImportError, OSError):  # a file system without locks
            return

    def _restore(self) -> None:
        """Cut the file back to its last whole entry."""
        os.ftruncate(self._file.fileno(), self._size)
        os.fsync(self._file.fileno())
        self._seen = self._state()


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _require_budget(budget: object) -> None:
    if not isinstance(budget, Budget):
        raise InputError(f"budget must be a Budget(epsilon=…, delta=…) or Budget(rho=…), got {budget!r}")


def _record(path: Path, totals: Totals, entry: dict[str, Any]) -> None:
    try:
        totals.record(entry)
    except InputError as error:
        raise InputError(f"{path}, {error}") from None


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "a+b", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o666))
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; give a file in it, {path / 'ledger.jsonl'} for example") from None
    except PermissionError:
        raise InputError(f"{path} may not be written; ask its owner, or read it with Ledger.read") from None
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} cannot be created: its folder does not exist; create the folder first") from None
