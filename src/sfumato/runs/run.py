"""A run: folder, lock, key, ledger, budget, processes, resume and statement. It knows no loop.

Whatever is released from private records goes through one run, in phases: a noisy histogram, then the rounds of a
loop, then votes. Each release is recorded before it happens (`spend`), all phases stand in one ledger, and one
statement covers them (`finish`). Everything random is a function of the run's key, so what was not yet saved when a
process died is repeated bit for bit, and recorded again in the same place: no noise is ever spent twice. A phase's
randomness is also a function of all that was recorded before it (`HistoryDigest`), so two copies of a stopped run that
go on by other records do not meet the same noise.

At the end the statement names the ledger that it was made of, and the ledger's last entry the statement, the plan and
the model, so that none of them can be exchanged alone (`sfumato.ledger`). The key of a run that is complete
is deleted before its statement says so.

The order of a run: `saved` reads where it stood; the caller checks what it must; `start` writes the first file. So a
mistake in plan or data leaves no folder behind.

>>> from sfumato.accounting import Laplace
>>> facts = Facts(
...     unit="label", adjacency="replace", population=100, delta=1e-3, sampling="everyone", mechanism="a count")
>>> with Run.open(None, plan={"plan": "count"}, seed=1) as run:
...     _ = run.start("the fingerprint of plan and data")
...     count = run.release("count", Laplace(scale=2.0), lambda source: {"n": torch.tensor([41.0])})
...     statement = run.finish(count, facts)
>>> round(statement.epsilon, 3)
0.998

Ctrl-C and SIGTERM ask the run to stop after the round in hand; a second one stops it at once.

**History:** what a run has recorded so far, as one word; the same after the same releases in the same order, else
another. A phase draws its randomness under this word. So two copies of a stopped run that go on in different ways, by
another order, with something between, or at another point of a loop, draw different noise, and the difference of what
they release reveals no sum; a run that goes on as it did before draws the same again. Another query under the same
name, event and public fields is not distinguished from the first: do not go on twice from one folder. Budgets and
statements are no part of it, nor is where the ledger lies: a run in memory has the same word.

>>> from sfumato.accounting import Gaussian
>>> one, other = HistoryDigest(), HistoryDigest()
>>> one.add({"phase": "votes", "event": Gaussian(2.0).to_json()}); one.word == other.word
False
>>> other.add({"event": Gaussian(2.0).to_json(), "phase": "votes", "hash": "of the ledger's"}); one.word == other.word
True
"""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from safetensors.torch import save_file
from torch import Tensor

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.accounting import Event, compose, event_from_json, terms
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger import entries as chain
from sfumato.ledger import ledger as binding
from sfumato.ledger.budget import meter
from sfumato.runs import checkpoint as checkpoints
from sfumato.runs.checkpoint import Checkpoint
from sfumato.runs.folder import RunFolder
from sfumato.runs.processes import Team
from sfumato.statement import Statement
from sfumato.statement.facts import KEY_CLOSED, KEY_DELETED, NO_LEDGER, Facts, make_statement

# Ctrl-C and SIGTERM ask the run to stop after the round in hand; a second one stops it at once.


_STOPPING = b"sfumato: stopping as soon as the run can go on from there; a second Ctrl-C stops it at once\n"


class Interrupt:
    """A context in which the first signal only sets `asked`, and says so; outside the main thread it does nothing.

    Attributes:
        asked: whether somebody asked the run to stop.

    Raises:
        KeyboardInterrupt: on entering, if the handler that was there before has been `asked`, and what it raised was
            lost.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
            if any(getattr(handler, "asked", False) for handler in self._before.values()):
                self.__exit__()
                raise KeyboardInterrupt
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, number: int, _: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if os.environ.get("RANK", "0") == "0":
            # by its number: a handler may run while the stream itself is being written; notebooks have no number
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.write(sys.stderr.fileno(), b"\n" * sys.stderr.isatty() + _STOPPING)


class HistoryDigest:
    """The chain of a ledger's releases, without what distinguishes one ledger from another."""

    def __init__(self) -> None:
        self.word = chain.ORIGIN

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]]) -> Self:
        """That of a ledger's entries."""
        digest = cls()
        for entry in entries:
            if "event" in entry:
                digest.add(entry)
        return digest

    def add(self, entry: Mapping[str, Any]) -> None:
        """Take in a release; fields as in the ledger."""
        fields = {name: value for name, value in entry.items() if name not in chain.RESERVED}
        sealed = chain.seal({**fields, "event": entry["event"]}, index=0, previous=self.word)
        self.word = sealed["hash"]


class Run:
    """One run; open it with `Run.open`.

    Attributes:
        source: the run's randomness.
        team: its processes.
        folder: of its files, or None for a run in memory.
        history: rows of metrics.jsonl.
    """

    def __init__(
        self, *, folder: RunFolder | None, team: Team, plan: dict[str, Any], budget: Budget | None, stack: ExitStack
    ) -> None:
        self.folder = folder
        self.team = team
        self.history: list[dict[str, Any]] = []
        self.source: RandomSource
        self._plan, self._budget, self._stack = plan, budget, stack
        self._ledger: Ledger | None = None
        self._meter = meter(budget, {}) if budget is not None and folder is None else None  # else the ledger has one
        self._spent: dict[Event, int] = {}
        self._history_digest = HistoryDigest()
        self._releases: dict[str, dict[str, Tensor]] = {}
        self._costs: dict[str, Event] = {}  # of what was released, by phase
        self._last: Checkpoint | None = None
        self._fingerprint = ""
        self._rounds_taken: list[str | None] = []
        self._finished = False
        self._interrupt, self._signals = Interrupt(), stack.enter_context(ExitStack())
        self._adjacency: Adjacency | None = None

    @classmethod
    @contextmanager
    def open(
        cls,
        out: Path | str | None,
        *,
        plan: dict[str, Any],
        seed: int | None = None,
        resume: bool = False,
        budget: Budget | None = None,
    ) -> Iterator["Run"]:
        """A run from its key to its last file.

        Args:
            out: its folder; None keeps everything in memory.
            plan: what plan.json holds, all of it public; "about" is no part of the comparison when a run goes on.
            seed: repeatable randomness, for simulation only; None draws a key from the operating system.
            resume: go on with the run in `out`.
            budget: what all releases together may cost; a release beyond it is refused.

        Raises:
            InputError: the folder is of no use, or another process writes to it.
        """
        if resume and out is None:
            raise InputError("resume needs the folder of the run; give out")
        folder = None if out is None else RunFolder(out)
        team = Team()
        with ExitStack() as stack:
            stack.callback(team.close)
            if folder is not None:
                stack.callback(folder.release)
            stack.enter_context(torch.random.fork_rng(devices=[]))
            run = cls(folder=folder, team=team, plan=plan, budget=budget, stack=stack)
            if folder is not None and team.leads:
                with run._writing():
                    folder.claim(resume=resume)
            run.source = run._key(seed, resume=resume)
            yield run

    def saved(self, fingerprint: str) -> Checkpoint:
        """The checkpoint of a run that goes on; what its phases have released is read with it.

        What is not trained comes from `frozen`.

        Raises:
            InputError: there is none, it is damaged or of another version, or it is of another plan, model or data set.
        """
        assert self.folder is not None
        saved = self.folder.saved()
        if saved.fingerprint != fingerprint:
            raise self.folder.another(self._plan)
        self._last = saved
        self._releases = {phase: checkpoints.load_release(self.folder.checkpoint, phase) for phase in saved.phases}
        return saved

    def frozen(self) -> dict[str, Tensor]:
        """What a run that goes on does not train."""
        assert self.folder is not None
        return checkpoints.load_frozen(self.folder.checkpoint)

    def keep_frozen(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep tensors that are not trained for a run that goes on; before its loop begins."""
        if self.folder is not None and self.team.leads:
            with self._writing():
                checkpoints.save_frozen(self.folder.checkpoint, dict(tensors))

    def start(self, fingerprint: str) -> None:
        """Begin to write: a new folder, or the ledger as the checkpoint left it.

        Args:
            fingerprint: of plan, model and data: every process must have the same.

        Raises:
            InputError: the folder is taken, or the ledger is not the checkpoint's.
        """
        self._fingerprint = fingerprint
        # From before the first checkpoint on: a signal finds a run that can go on.
        self._signals.enter_context(self._interrupt)
        if self.folder is None or not self.team.leads:
            return
        with self._writing():
            if self._last is None:
                self.folder.start()
                self.folder.write_plan(self._plan)
                checkpoints.write_key(self.folder.checkpoint, self.source)
                self._ledger = self._open_ledger(self.folder)
                self.save({}, {})
                return
            if not self.folder.ledger.exists():
                raise InputError(f"{self.folder.ledger} is missing: take the one of this run, or start a new run")
            self._ledger = self._open_ledger(self.folder)
            self._refuse_stranger(self._ledger, self._last)
            self._ledger.truncate(self._last.ledger_entries, head=self._last.ledger_head)
            self._history_digest = HistoryDigest.of(self._ledger)
            self.folder.withdraw_statement()
            self.history = self.folder.keep_metrics(self._last.metrics_lines)
        if self._budget is not None:
            self._ledger.settle(self._budget)

    def begin(
        self, fingerprint: str, adjacency: Adjacency, *, resume: bool, what: str, costs: Sequence[Event] = ()
    ) -> Checkpoint | None:
        """Begin a run that one process does alone: how neighbours differ, what is saved, and the start of its folder.

        Args:
            fingerprint: of plan, model and data.
            adjacency: how neighbours differ.
            resume: whether the run in the folder goes on.
            what: is released, for messages: "votes".
            costs: of a new run's releases; a budget that does not allow them is refused before anything is written.

        Returns:
            The checkpoint of a run that goes on; None for a new one.

        Raises:
            InputError: there are several processes, or as for `between`, `saved`, `refuse_unaffordable` and `start`.
        """
        if self.team.size > 1:
            raise InputError(f"{what} are made in one process, got {self.team.size}; start it without torchrun")
        self.between(adjacency)
        saved = self.saved(fingerprint) if resume else None
        if saved is None and costs:
            self.refuse_unaffordable(what, *costs)
        self.start(fingerprint)
        return saved

    def between(self, adjacency: Adjacency) -> None:
        """Say how neighbours differ, before anything is released: one run has one notion of them.

        Raises:
            InputError: the budget is for others, and would be counted too low.
        """
        if self._budget is not None and self._budget.adjacency != adjacency:
            raise InputError(
                f"the budget is for neighbours by {self._budget.adjacency} but this run's differ by {adjacency}; "
                f'give Budget(..., adjacency="{adjacency}")'
            )
        if self._adjacency not in (None, adjacency):
            raise InputError(f"one statement cannot cover neighbours by {self._adjacency} and by {adjacency}")
        self._adjacency = adjacency

    def refuse_unaffordable(self, what: str, *events: Event) -> None:
        """Refuse a budget that does not allow the first releases of a new run together, before any of them is made.

        Args:
            what: they are, for the message.
            events: of them.

        Raises:
            BudgetExceeded: it does not.
        """
        if self._budget is None:
            return
        first = meter(self._budget, {})
        try:
            for event in events:
                first.admit(event)
                first.spend(event)
        except BudgetExceeded as error:
            fixed = self._budget.fixed_plan or self._budget.rho is not None
            more = (
                ""
                if fixed
                else "; for a plan that is fixed beforehand, give Budget(…, fixed_plan=True), which allows more"
            )
            raise BudgetExceeded(
                f"the budget has to allow {what}, or nothing would come of it: {error}{more}"
            ) from None

    def take_rounds(self, phase: str | None = None) -> None:
        """Say that a loop draws its rounds from this run's randomness, and keeps its state in the checkpoint.

        Args:
            phase: of these rounds, within which they are drawn; None for a loop that is alone in its run.

        Raises:
            InputError: another loop does so without a phase, or in the same one; the two would add the same noise to
                different sums.
        """
        if self._rounds_taken and (phase is None or {None, phase} & set(self._rounds_taken)):
            raise InputError(
                "a phase holds one loop: a second would draw the same cohorts and noise; give it a phase of its "
                "own, or another folder"
            )
        self._rounds_taken.append(phase)

    @property
    def history_word(self) -> str:
        """What was recorded so far, as one word (`HistoryDigest`): a part of what noise is drawn from."""
        return self._history_digest.word

    @property
    def asked_to_stop(self) -> bool:
        """Whether a signal asked this process to stop at the next place where the run can go on."""
        return self._interrupt.asked

    def spend(self, event: Event, *, phase: str | None = None, **public: Any) -> None:
        """Record a release before it happens.

        Args:
            event: what is about to be released; for one unit.
            phase: the part of the run that it belongs to; None for its main one.
            public: anything else for the ledger; nothing private.

        Raises:
            BudgetExceeded: the budget does not allow it; nothing was recorded.
        """
        if self.folder is not None and self.team.leads and self._ledger is None:
            raise RuntimeError("the run has not started: what it releases now would stand in no ledger")
        if self._finished:
            raise RuntimeError("the run has finished: its statement would not cover what it releases now")
        fields = {**public, **({} if phase is None else {"phase": phase})}
        if self._ledger is not None:
            with self._writing():
                self._ledger.append(event, **fields)
        elif self._meter is not None:
            self._meter.admit(event)
            self._meter.spend(event)
        self._history_digest.add({**fields, "event": event.to_json()})
        for single, count in terms(event):
            self._spent[single] = self._spent.get(single, 0) + count

    def release(
        self, phase: str, event: Event, draw: Callable[[RandomSource], dict[str, Tensor]], **public: Any
    ) -> dict[str, Tensor]:
        """Release something once: a run that goes on finds it, and neither pays nor draws again.

        Args:
            phase: its name, once in a run; asked for again, it gives the first result again.
            event: what it costs one unit.
            draw: makes it from the phase's own randomness, whose streams are those of no other phase and of no loop,
                nor of this phase after other releases, and from the private records.
            public: for the ledger.

        Between the checkpoints of a loop, the loop's next one keeps it; until then the same is drawn again.

        Raises:
            InputError: a run that goes on draws something else than before it died, with the same noise; or the phase
                was released at another cost.
        """
        if phase in self._releases:
            self._refuse_another(phase, event)
            return self._releases[phase]
        last = self._last
        # Else rounds since the checkpoint would have to go with it, and only the loop knows their state.
        keep = last is not None and (not last.state or last.complete or not self._is_outdated(last))
        self.spend(event, phase=phase, **public)
        source = self.source.within(self.team.from_leader(self._history_digest.word))  # only the leader has the ledger
        self._releases[phase], self._costs[phase] = draw(source), event
        if self.folder is not None and self.team.leads:
            with self._writing():
                checkpoints.save_release(self.folder.checkpoint, phase, self._releases[phase])
        if last is not None and keep:
            self.save(last.tensors, last.state, complete=last.complete)
        return self._releases[phase]

    def has_released(self, phase: str) -> bool:
        """Whether this phase was released: `release` would neither pay nor draw again."""
        return phase in self._releases

    def _refuse_another(self, phase: str, event: Event) -> None:
        """Else the first result of a phase would silently be returned for something else."""
        known = [self._costs[phase]] if phase in self._costs else []
        if not known and self._ledger is not None:  # a run that goes on; others of the phase may have been spent
            entries = (entry for entry in self._ledger if entry.get("phase") == phase and "event" in entry)
            known = [event_from_json(entry["event"]) for entry in entries]
        if known and event not in known:
            raise InputError(
                f"phase {phase!r} was released as {known[0]}, so it cannot be {event} now; "
                "give what follows a name of its own"
            )

    def _is_outdated(self, saved: Checkpoint) -> bool:
        """Whether something was recorded since this checkpoint."""
        return self._ledger is not None and saved.ledger_entries != len(self._ledger)

    def spent(self) -> Event:
        """Everything recorded so far, composed."""
        return compose(self._spent) if self._ledger is None else self._ledger.totals.event()

    def note(self, row: dict[str, Any]) -> None:
        """Add a row to the metrics; what is private in it stands under "not_private"."""
        self.history.append(row)
        if self.folder is not None and self.team.leads:
            with self._writing():
                self.folder.add_metrics(row)

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any], *, complete: bool = False) -> None:
        """Write a checkpoint: this is where a run that is stopped goes on."""
        if self.folder is None or not self.team.leads or self._ledger is None:
            return
        self._last = Checkpoint(
            ledger_entries=len(self._ledger),
            ledger_head=self._ledger.totals.head,
            metrics_lines=self.folder.metrics_lines,
            fingerprint=self._fingerprint,
            complete=complete,
            phases=tuple(self._releases),
            tensors=tensors,
            state=state,
        )
        with self._writing():
            self.folder.flush_metrics()
            checkpoints.save(self.folder.checkpoint, self._last)

    def finish(
        self,
        tensors: dict[str, Tensor],
        facts: Facts,
        *,
        metadata: dict[str, Any] | None = None,
        complete: bool = True,
    ) -> Statement:
        """Write the statement and what is released.

        Args:
            tensors: of model.safetensors.
            facts: what the statement states in addition to the ledger.
            metadata: JSON in the header of model.safetensors; public.
            complete: all that was planned has run; the key is deleted then.
        """
        self._signals.close()
        self.between(facts.adjacency)
        self._finished = True
        if self.folder is None:
            facts = replace(facts, disclosure={"verification": NO_LEDGER, **facts.disclosure})
        statement = None
        if self.team.leads:
            ledger = self._ledger
            statement = make_statement(
                self.spent(),
                facts,
                noise_source="seeded" if facts.seeded else self.source.kind,
                ledger=None if ledger is None else {"entries": len(ledger), "head": ledger.totals.head},
                key_on_disk=self.folder is not None and not complete,
            )
            if self.folder is not None and ledger is not None:
                with self._writing():
                    self._release_files(self.folder, ledger, statement, tensors, metadata or {}, complete=complete)
        statement = self.team.from_leader(statement)
        assert statement is not None
        return statement

    def _release_files(
        self,
        folder: RunFolder,
        ledger: Ledger,
        statement: Statement,
        tensors: dict[str, Tensor],
        metadata: dict[str, Any],
        *,
        complete: bool,
    ) -> None:
        """Write the model, forget the key, and bind ledger, statement, plan and model together; in this order, so that
        a run that dies in between goes on, and no file says what is not yet so."""
        header = {"sfumato": json.dumps(metadata, sort_keys=True)}
        write_atomic(folder.model, lambda temporary: save_file(tensors, temporary, header))
        if complete:
            if self._last is not None and not self._last.complete:  # a run without a loop
                self.save(self._last.tensors, self._last.state, complete=True)
            checkpoints.delete_key(folder.checkpoint)
        elif self._last is not None and self._is_outdated(self._last):
            self.save(self._last.tensors, self._last.state)  # no run that goes on may forget what a statement states
        ledger.seal(statement.digest, binding.digests([folder.plan, folder.model]))
        statement.save(folder.statement)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what the system refuses to write, and a folder that is gone, into one line."""
        assert self.folder is not None
        try:
            yield
        except OSError as error:
            raise self.folder.unwritable(error) from None
        except InputError:
            if self._ledger is not None:
                self.folder.refuse_deleted()
            raise

    def _identity(self) -> str | None:
        """Who writes to the ledger: a name that follows from the run's key, with which a resumed run repeats releases.
        Runs of one seed may be many things, and have no identity."""
        return self.source.stream("ledger").bytes(16).hex() if self.source.kind == "os" else None

    def _open_ledger(self, folder: RunFolder) -> Ledger:
        budget = self._budget if self._last is None else None  # one that goes on is rewound before
        entries = 0 if self._last is None else self._last.ledger_entries
        return self._stack.enter_context(
            Ledger.open(folder.ledger, identity=self._identity(), budget=budget, at_least=entries)
        )

    def _key(self, seed: int | None, *, resume: bool) -> RandomSource:
        if seed is not None:
            return RandomSource.from_seed(seed)
        source = None
        if self.team.leads:
            source = RandomSource.from_os() if not resume else self._stored_key()
        return self.team.from_leader(source)

    def _stored_key(self) -> RandomSource:
        assert self.folder is not None
        saved = self.folder.saved()
        kept = checkpoints.keeps_key(self.folder.checkpoint, saved)
        return checkpoints.read_key(self.folder.checkpoint) if kept else RandomSource.from_os()

    def _refuse_stranger(self, ledger: Ledger, saved: Checkpoint) -> None:
        """Refuse a key that is not the ledger's, and a statement that would call seeded releases random."""
        if self.source.kind == "os" and ledger.totals.releases and ledger.totals.run is None:
            raise InputError("the releases in the ledger were seeded; go on with the same seed, or start a new run")
        if not saved.complete and ledger.totals.run not in (None, self._identity()):
            raise InputError(
                "the last ledger entry was written with another key than the checkpoint's; take ledger and "
                "checkpoint of one run, or start a new run"
            )


# Closing a run that was stopped: its key is deleted, so that no one can repeat its noise, and it cannot go on.
#
# Guarantees that what was released stays as it is, ledger and model, and that the statement says so of the key only
# when the key is gone: of the statement, that one answer changes, and no number.


@dataclass(frozen=True)
class Closed:
    """What became of a run.

    Attributes:
        complete: it had run to its end, and nothing was left to do.
        already: it was closed before, and nothing was changed now.
        key: whether a key was there, and was deleted; a seeded run has none.
        stated: whether it has a statement; a run that was killed has none.
        answered: whether the statement's answer about the key was changed.
        round: rounds that its checkpoint holds, or None if it had no loop.
    """

    complete: bool
    already: bool
    key: bool
    stated: bool
    answered: bool
    round: int | None


def close_run(path: Path | str) -> Closed:
    """Close a run.

    Args:
        path: its folder.

    Raises:
        InputError: it is not the folder of a run, it is damaged, or another process writes to it.
    """
    folder = RunFolder(path)
    if not (folder.checkpoint / checkpoints.STATE).exists():
        raise InputError(f"{folder.path} holds no checkpoint: it is not the folder of a run that can be closed")
    folder.claim(resume=True)
    try:
        saved = checkpoints.load(folder.checkpoint)
        key = (folder.checkpoint / checkpoints.KEY).exists()
        already, answered = saved.closed and not key, False
        if not (saved.complete or saved.closed):
            checkpoints.save(folder.checkpoint, replace(saved, closed=True))
        checkpoints.delete_key(folder.checkpoint)
        if folder.statement.exists():
            statement = Statement.load(folder.statement)
            answer = KEY_DELETED if saved.complete else KEY_CLOSED
            if not statement.seeded and statement.disclosure["cryptographic_noise"] != answer:
                statement.answer(cryptographic_noise=answer).save(folder.statement)
                answered = True
    except OSError as error:
        raise folder.unwritable(error) from None
    finally:
        folder.release()
    rounds = saved.state.get("round")
    return Closed(
        complete=saved.complete,
        already=already,
        key=key,
        stated=folder.statement.exists(),
        answered=answered,
        round=rounds if isinstance(rounds, int) else None,
    )
