"""The ledger: an append-only file that says what was released from the records, one JSON object a line.

Guarantees that an event is on the disk before `append` returns, so that a crash can lose a release but never
its cost. Each line carries the hash of the line before it; a changed, removed or inserted line breaks the
chain and is named. A last line that a crash tore is dropped on opening. The bytes depend on what was recorded
and on nothing else (no clock, no host), so two equal runs write equal files.

A ledger may have a budget. It stands in the file, so that it holds for every later writer, and a release that
would exceed it is refused before anything is written.

>>> import tempfile, pathlib
>>> from sfumato.accounting.events import Gaussian
>>> path = pathlib.Path(tempfile.mkdtemp()) / "ledger.jsonl"
>>> ledger = Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-6))
>>> for round in range(3):
...     ledger.append(Gaussian(2.0).poisson(0.01), phase="train", round=round)
>>> ledger.totals.event() == Gaussian(2.0).poisson(0.01) * 3, ledger.totals.phases(), len(ledger)
(True, ('train',), 4)
>>> ledger.remaining(Gaussian(2.0).poisson(0.01)) // 100
16
>>> ledger.close()

What the entries of a ledger add up to: releases by phase, the budget in force, the head of the chain.

Guarantees that each release counts once, whatever its phase: the total over all phases is their composition, for the
unit that the events were made for.

Merging ledgers: a run that was copied, or resumed in two places, becomes one in which each release counts once.

Guarantees that a release that stands in several of the ledgers counts exactly once, that every other release counts,
and that nothing is guessed. What makes two entries one release is their hash, which covers everything before them and
the identity of their writer. Entries of an anonymous writer have no such claim: two independent runs of one plan write
equal lines. Where ledgers share anonymous entries, the caller has to say which it is. The derivation is in
docs/how-to/ledger.md.

>>> import tempfile, pathlib
>>> from sfumato.accounting import Gaussian
>>> from sfumato.ledger import Ledger
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> with Ledger.open(folder / "a.jsonl", identity="5e1c") as ledger:
...     ledger.append(Gaussian(2.0))
>>> copied = (folder / "b.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
>>> for name, writer in (("a.jsonl", "77aa"), ("b.jsonl", "c04d")):
...     with Ledger.open(folder / name, identity=writer) as ledger:
...         ledger.append(Gaussian(3.0))
>>> merge([folder / "a.jsonl", folder / "b.jsonl"], folder / "all.jsonl").event() == Gaussian(2.0) + Gaussian(3.0) * 2
True
"""

import contextlib
import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from sfumato._check import InputError, whole
from sfumato._files import sibling, sync_folder, write_atomic, write_whole
from sfumato.accounting.events import Event, compose, event_from_json, terms
from sfumato.ledger import entries as chain
from sfumato.ledger.budget import Budget, BudgetExceeded, Meter, meter
from sfumato.ledger.entries import ORIGIN
from sfumato.statement.statement import Statement

# What the entries of a ledger add up to: releases by phase, the budget in force, the head of the chain.
#
# Guarantees that each release counts once, whatever its phase: the total over all phases is their composition, for the
# unit that the events were made for.


@dataclass(frozen=True)
class Seal:
    """An entry that says which statement was made of all entries before it.

    Attributes:
        entries: entries before it.
        head: hash of the last of them.
        statement: digest of the statement.
        files: digests of files that belong to the statement, by name.
    """

    entries: int
    head: str
    statement: str
    files: dict[str, str]


class Totals:
    """The sum of a ledger's entries; `record` takes them one by one, so memory does not grow with their number.

    Attributes:
        entries: lines of the ledger.
        releases: those of them that record an event.
        head: hash of the last entry; 64 zeros for none.
        run: identity of the writer of the last entry; None for an anonymous writer.
        budget: the budget in force, or None.
        budget_entry: index of the entry that set it, -1 for none.
        last: the last release's entry, {} for none.
        counts: single events with how often they happened, over all phases; read-only.
        seals: the statements that were made of the entries so far.
        torn: whether a last line that a crash tore was left out.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.releases = 0
        self.head = ORIGIN
        self.run: str | None = None
        self.budget: Budget | None = None
        self.budget_entry = -1
        self.last: dict[str, Any] = {}
        self.counts: dict[Event, int] = {}
        self.seals: list[Seal] = []
        self.torn = False
        self._phases: dict[str, dict[Event, int]] = {}
        self._read: dict[str, Event] = {}

    def event(self, phase: str | None = None) -> Event:
        """Everything recorded in a phase, composed; over all phases without one.

        Raises:
            InputError: there is no such phase.
        """
        if phase is None:
            return compose(self.counts)
        if not isinstance(phase, str) or phase not in self._phases:
            known = ", ".join(map(repr, self._phases)) or "none"
            raise InputError(f"the ledger has no phase {phase!r}; its phases are: {known}")
        return compose(self._phases[phase])

    def phases(self) -> tuple[str, ...]:
        """The names of the phases in the order of their first release; "" for releases without a phase."""
        return tuple(self._phases)

    def remaining(self, event: Event) -> int | float:
        """How many more of this event the budget allows, as `Ledger.remaining`.

        Raises:
            InputError: there is no budget, or no accountant knows the events.
        """
        if self.budget is None:
            raise InputError("the ledger has no budget; open it with budget=Budget(epsilon=…, delta=…)")
        return meter(self.budget, self.counts).remaining(event)

    def spent(self) -> float | None:
        """What all releases cost in the currency of the budget; None without a budget.

        Raises:
            InputError: no accountant that may count them knows the events.
        """
        return meter(self.budget, self.counts).spent() if self.budget else None

    def record(self, entry: dict[str, Any], event: Event | None = None) -> None:
        """Add a checked entry.

        Args:
            entry: as it stands in the file.
            event: its event, if known already.

        Raises:
            InputError: this version does not know the event or the budget; names the line.
        """
        try:
            if entry.get("kind") == "budget":
                self.budget, self.budget_entry = Budget.from_json(entry["budget"]), self.entries
            elif entry.get("kind") == "statement":
                self.seals.append(self._seal(entry["statement"]))
            else:
                self._add(event or self._event(entry["event"]), str(entry.get("phase") or ""))
                self.releases, self.last = self.releases + 1, entry
            run = entry.get("run", self.run)
            if not (run is None or isinstance(run, str)):
                raise InputError(f"run is {run!r:.80}, not the name of a writer")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(f"line {self.entries + 1}: {error}; was it written by a newer version?") from None
        self.entries, self.head, self.run = self.entries + 1, entry["hash"], run

    def _seal(self, value: dict[str, Any]) -> Seal:
        files = dict(value["files"])
        if not all(isinstance(text, str) for text in (value["digest"], *files, *files.values())):
            raise InputError("its digests are no text")
        return Seal(self.entries, self.head, value["digest"], files)

    def _add(self, event: Event, phase: str) -> None:
        of_phase = self._phases.setdefault(phase, {})
        for single, count in terms(event):
            of_phase[single] = of_phase.get(single, 0) + count
            self.counts[single] = self.counts.get(single, 0) + count

    def _event(self, value: dict[str, Any]) -> Event:
        text = json.dumps(value, sort_keys=True)
        if text not in self._read:
            if len(self._read) >= 1000:
                self._read.clear()
            self._read[text] = event_from_json(value)
        return self._read[text]


# What binds a statement to its ledger: each names the other, so that neither can be exchanged, cut or changed alone.
#
# The statement holds the number of entries that it was made of and the hash of the last one. The entry behind them, the
# seal, holds the statement's digest, and those of the files that were released with it. Guarantees that a difference
# between the two is found and reported. It cannot show that someone has written both anew: keep the head elsewhere for
# that. Answers that the author of a run gave (`Statement.answer`) are no part of the digest.


def digests(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by name, for the seal; those that are not there are left out."""
    found = {}
    for path in files:
        if path.is_file():
            with open(path, "rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def compare(totals: Totals, statement: Statement, folder: Path) -> bool:
    """Hold a statement against the ledger next to it, both ways, and the files that were released with them.

    Args:
        totals: what the ledger adds up to.
        statement: the statement in the same folder.
        folder: where they are; files that a bundle leaves out are not missed.

    Returns:
        whether the two name each other; False where neither names anything, as when they were written by hand.

    Raises:
        InputError: they do not belong together, or a file was exchanged; says which.
    """
    named = statement.ledger
    if named is None and not totals.seals:
        return False
    where = f"statement.json and ledger.jsonl in {folder} do not belong together: "
    remedy = "; take a whole copy of the folder"
    if named is None:
        raise InputError(f"{where}the ledger names a statement, and this one names no ledger{remedy}")
    if totals.entries < named["entries"]:
        raise InputError(
            f"{where}the ledger has {totals.entries} entries, and the statement was made of {named['entries']}; lines "
            f"were cut off{remedy}"
        )
    seal = next((seal for seal in totals.seals if seal.entries == named["entries"]), None)
    if seal is None:
        raise InputError(f"{where}the ledger's entry {named['entries'] + 1} should name the statement{remedy}")
    if seal.head != named["head"]:
        raise InputError(f"{where}the ledger is another one, or was written anew{remedy}")
    if seal.statement != statement.digest:
        raise InputError(f"{where}the statement is another one, or was changed{remedy}")
    for name, digest in digests(folder / name for name in seal.files if "/" not in name).items():
        if digest != seal.files[name]:
            raise InputError(f"{folder / name} is not the file that its statement was made for: it was changed{remedy}")
    return True


_Key = tuple[bytes, int, int]


@dataclass
class _Source:
    """One ledger to merge.

    Attributes:
        path: the file.
        totals: what it adds up to.
        releases: of each release its id, which of equal ids in this file it is, and whether its writer is anonymous.
        lines: hashes of all entries as they stand.
    """

    path: Path
    totals: Totals = field(default_factory=Totals)
    releases: list[tuple[bytes, int, bool]] = field(default_factory=list)
    lines: set[bytes] = field(default_factory=set)

    def ids(self, *, anonymous: bool) -> set[bytes]:
        return {id for id, _, is_anonymous in self.releases if is_anonymous is anonymous}

    @property
    def name(self) -> str:
        """Enough of the path to know the file by; the rest of it is not published."""
        return "/".join(self.path.parts[-2:]).lstrip("/")


def merge(
    paths: Sequence[Path | str],
    out: Path | str,
    *,
    same_run: bool = False,
    unrelated: bool = False,
    budget: Budget | None = None,
) -> Totals:
    """Merge ledgers of the same records into a new one in which each release counts once.

    The new file begins with the first ledger as it is, byte for byte. Releases of the others that are not in it follow,
    chained anew; their field "origin" names the file, its head and the hash that the entry had there. A ledger that is
    the beginning of another adds nothing, so equal ledgers merge to themselves.

    Args:
        paths: two ledgers or more; they are not changed.
        out: the new file, which must not exist.
        same_run: equal entries of an anonymous writer are one release, because one file is a copy of the other.
        unrelated: ledgers without a common release belong together all the same, as phases of work on the same
            records. Equal entries of an anonymous writer are then different releases, unless `same_run` is set too.
        budget: the budget of the new ledger; the tightest of the old ones without it.

    Returns:
        what the new ledger adds up to.

    Raises:
        InputError: a ledger is damaged, `out` exists, the ledgers have nothing in common, or it cannot be known
            whether equal entries are one release.
    """
    listed = isinstance(paths, Iterable) and not isinstance(paths, str | Path)
    if not listed or not all(isinstance(path, str | Path) for path in [*paths, out]):
        raise InputError("ledgers to merge must be a list of paths, and out a path")
    files = _different([Path(path) for path in paths])
    out = Path(out)
    if not files:
        raise InputError("no ledger to merge; give the paths of at least two")
    if out.exists():
        raise InputError(f"{out} exists already; choose another path for the merged ledger")
    sources = [_read(path) for path in files]
    _refuse_doubt(sources, same_run=same_run, unrelated=unrelated)
    keys = [_keys(source, i, separate=unrelated and not same_run) for i, source in enumerate(sources)]
    if not unrelated:
        _refuse_strangers(sources, keys)
    kept = _without_beginnings(sources, keys)
    in_force = budget or _tightest([source for source in sources if source.totals.budget])
    write_atomic(out, lambda temporary: _write(temporary, [(sources[i], keys[i]) for i in kept], in_force))
    totals = Totals()
    for entry, _ in chain.entries(out):
        totals.record(entry)
    return totals


def _different(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not any(path.exists() and other.exists() and path.samefile(other) for other in found):
            found.append(path)
    return found


def _read(path: Path) -> _Source:
    source, seen = _Source(path), Counter[bytes]()
    for entry, _ in chain.entries(path):
        try:
            source.totals.record(entry)
        except InputError as error:
            raise InputError(f"{path}, {error}") from None
        source.lines.add(bytes.fromhex(entry["hash"]))
        if "event" in entry:
            id = _id(path, entry)
            source.releases.append((id, seen[id], source.totals.run is None))
            seen[id] += 1
    return source


def _id(path: Path, entry: dict[str, Any]) -> bytes:
    """What a release is known by: the hash that it had where it was first recorded."""
    try:
        return bytes.fromhex(entry.get("origin", entry)["hash"])
    except (KeyError, TypeError, ValueError):
        origin = entry["origin"]
        raise InputError(
            f"{path}, line {entry['index'] + 1}: origin {origin!r:.80} is none of a merged ledger"
        ) from None


def _keys(source: _Source, number: int, *, separate: bool) -> list[_Key]:
    """What identifies each release of a ledger; `separate` keeps anonymous ones of different files distinct."""
    return [(id, occurrence, number if anonymous and separate else -1) for id, occurrence, anonymous in source.releases]


def _refuse_doubt(sources: list[_Source], *, same_run: bool, unrelated: bool) -> None:
    if same_run or unrelated:
        return
    seen: dict[bytes, _Source] = {}
    for source in sources:
        for id in source.ids(anonymous=True):
            if id in seen:
                raise InputError(
                    f"{seen[id].path} and {source.path} share entries of a writer without identity; give "
                    "same_run=True if one is a copy, or unrelated=True to count both"
                )
        seen |= dict.fromkeys(source.ids(anonymous=True), source)


def _refuse_strangers(sources: list[_Source], keys: list[list[_Key]]) -> None:
    filled = [(source, set(own)) for source, own in zip(sources, keys, strict=True) if own]
    if not filled:
        return
    reached, rest = set(filled[0][1]), filled[1:]
    while near := [other for other in rest if not reached.isdisjoint(other[1])]:
        reached = reached.union(*(own for _, own in near))
        rest = [other for other in rest if other not in near]
    if rest:
        raise InputError(
            f"{filled[0][0].path} and {rest[0][0].path} have no release in common; if they are phases of work on the "
            "same records, unrelated=True adds them up"
        )


def _without_beginnings(sources: list[_Source], keys: list[list[_Key]]) -> list[int]:
    """The ledgers that are not the beginning of another one, in order; of equal ones the first."""
    kept: list[int] = []
    for i, source in enumerate(sources):
        head = bytes.fromhex(source.totals.head)
        others = [j for j in range(len(sources)) if j != i and set(keys[i]) <= set(keys[j])]
        longer = [j for j in others if head in sources[j].lines and sources[j].totals.head != source.totals.head]
        equal = [j for j in others if sources[j].totals.head == source.totals.head and j < i]
        if not longer and not equal and source.totals.entries:
            kept.append(i)
    return kept or [0]


def _tightest(sources: list[_Source]) -> Budget | None:
    """A budget that keeps all of these."""
    found: Budget | None = None
    for source in sources:
        budget = source.totals.budget
        assert budget is not None
        if found is None:
            found = budget
        elif (found.adjacency, found.currency) != (budget.adjacency, budget.currency):
            raise InputError(
                f"the budgets {found.describe()} and {budget.describe()} (of {source.path}) cannot be compared; "
                "give budget= for the merged ledger"
            )
        elif found.rho is not None and budget.rho is not None:
            found = Budget(rho=min(found.rho, budget.rho), adjacency=found.adjacency)
        else:
            orders = {each.order for each in (found, budget) if not each.fixed_plan}
            found = Budget(
                epsilon=min(found.limit, budget.limit),
                delta=min(found.delta or 0.0, budget.delta or 0.0),
                adjacency=found.adjacency,
                fixed_plan=found.fixed_plan and budget.fixed_plan,
                order=orders.pop() if len(orders) == 1 else None,
            )
    return found


def _write(path: Path, sources: list[tuple[_Source, list[_Key]]], budget: Budget | None) -> None:
    (first, known), *others = sources
    written = set(known)
    index, head, run = first.totals.entries, first.totals.head, first.totals.run
    with open(path, "wb") as file:

        def put(fields: dict[str, Any]) -> None:
            nonlocal index, head
            entry = chain.seal(fields, index=index, previous=head)
            file.write(chain.line(entry))
            index, head = index + 1, entry["hash"]

        for entry, _ in chain.entries(first.path):
            file.write(chain.line(entry))
        for source, keys in others:
            own, place = None, iter(keys)
            for entry, _ in chain.entries(source.path):
                own = entry.get("run", own)
                if "event" not in entry:
                    continue
                key = next(place)
                if key in written:
                    continue
                written.add(key)
                origin = {"file": source.name, "head": source.totals.head, "hash": entry["hash"]}
                fields = {name: value for name, value in entry.items() if name not in ("hash", "run")}
                marked = {"run": own} if own != run else {}
                put({"origin": origin, **fields, **marked})
                run = own
        if budget != first.totals.budget and budget is not None:
            put({"kind": "budget", "budget": budget.to_json(), "reason": "ledgers were merged"})


class Ledger:
    """An open ledger; use `Ledger.open`. One writer at a time: the first append locks the file until `close`.

    Attributes:
        path: the file.
        identity: of this writer, or None; see `open`.
        totals: what its entries add up to: releases, phases, the head of the chain, the budget in force.
        recovered: bytes of a torn last line that opening removed, 0 as a rule.
    """

    def __init__(self, path: Path, file: BinaryIO, identity: str | None) -> None:
        self.path = path
        self.identity = identity
        self.recovered = 0
        self._file = file
        self._locked = False
        self.totals = Totals()
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
            identity: distinguishes this writer's releases from those of another writer with the same settings, so that
                ledgers can be merged. A promise: a writer that opens with the same identity and appends the same entry
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
            show: is called now and then with the bytes read so far and in all.

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
            reason: one public sentence that readers of the ledger will see.

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
        before = self.totals.budget
        if budget == before:
            return
        if before is not None and not budget.within(before):
            raise InputError(
                f"{self.path} has a budget of {before.describe()}, and {budget.describe()} is not tighter; open it "
                "without a budget, and loosen it with replace_budget"
            )
        self._write_budget(budget)

    def seal(self, statement: str, files: Mapping[str, str] | None = None) -> None:
        """Record which statement was made of all entries so far; `compare` compares the two.

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
            head: hash of the last of them; without it, nothing shows whether this is the ledger that is meant.

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
        held = self.totals.budget if entries <= self.totals.budget_entry else None
        self._lock()
        os.ftruncate(self._file.fileno(), self._ends[entries - 1] if entries else 0)
        os.fsync(self._file.fileno())
        self._load()
        if held is not None and held != self.totals.budget:
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
        if self.identity != self.totals.run and "statement" not in fields:  # which is no release
            fields = {**fields, "run": self.identity}
        entry = chain.seal(fields, index=len(self), previous=self.totals.head)
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
        self.totals.record(entry, event)
        self._ends.append(self._size + len(line))
        self._seen = self._state()

    def _state(self) -> tuple[int, ...]:
        """What distinguishes the open file from another one, and from itself after a change."""
        return _state(os.fstat(self._file.fileno()))

    def _refuse_changes(self) -> None:
        """Stop where the file is not the one that this process left.

        Raises:
            InputError: it was deleted, replaced or changed. What only this process still has is written next to it.
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
        """Write what the open file holds next to the path that it has lost; return where it is."""
        if os.fstat(self._file.fileno()).st_nlink:
            return "put the file of this run back"
        kept = sibling(self.path, after=".kept")
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
        self._meter = meter(budget, self.totals.counts)

    def _load(self, at_least: int = 0) -> None:
        self.totals, self._ends = Totals(), array("Q")
        tear: list[bytes] = []
        for entry, end in chain.entries(self.path, tear=tear):
            _record(self.path, self.totals, entry)
            self._ends.append(end)
        self._meter = meter(self.totals.budget, self.totals.counts) if self.totals.budget else None
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
