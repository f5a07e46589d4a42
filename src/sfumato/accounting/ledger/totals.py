"""What the entries of a ledger add up to: releases by phase, the budget in force, the head of the chain.

Guarantees that each release counts once, whatever its phase: the total over all phases is their composition, for the
unit that the events were made for.
"""

import json
from dataclasses import dataclass
from typing import Any

from sfumato._check import InputError
from sfumato.accounting.events import Event, compose, event_from_json, terms
from sfumato.accounting.ledger.budget import Budget
from sfumato.accounting.ledger.chain import ORIGIN
from sfumato.accounting.ledger.meter import meter


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
        run: identity of whoever wrote the last entry; None for an anonymous writer.
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
