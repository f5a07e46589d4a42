"""Does what a user brings let one unit reach another? One check for every place where a user's code runs for one unit.

The clipped sum moves by no more than its bound when a unit comes or goes if what all others contribute stays. A model,
a loss, a data set or a loop that keeps something of a unit it has seen breaks this. The check has two halves, at the
start of a run:

1. In fresh processes (see `histories`), which begin as this one does, the same units run in two orders. Each unit
   must give the same in both, and the second time: so nothing that an earlier one leaves behind may count, wherever it
   is kept. Where there are no fresh processes, the two orders run here, one after the other, behind 2.
2. Placeholders, which hold the shapes and types of records and none of their values, are the first that go through in
   this process. What only the first call decides follows from them.

While a run goes on, `refuse_memory` compares, at some steps, what a few units give behind two histories that differ in
nothing but the records.

Where a process cannot be forked, and the user's code takes no placeholders, there is a gap; `Findings` names it, and
the statement has a sentence.

Fresh processes are copies of this one, in which nothing that runs leaves a trace here. What code keeps between two
calls may lie anywhere: in an attribute, a class, a closure, a default argument, a cache, a global name, a loss, a data
set, a variable of the user's loop. A process that is forked from this one begins with all of it as it is here, and ends
with it. So two such processes that are given the same units in different orders show whether anything is kept, wherever
that is.

Each process computes in one thread, prints nothing, writes no checkpoint and ends without running exit handlers. Files
and other processes are shared with this one: what is kept there is not put back. So each process notes which files it
opens for which unit (see `at`), as far as Python opens them, and `shared_files` gives those that changed during the
trial and were read for another unit.

Where a process cannot be forked safely (no Linux, a GPU that is in use), `histories` gives None.
"""

import contextlib
import importlib
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.guard.trial import SAME_SHAPE, Coupled, Tolerance


class Subject(Protocol):
    """One place where a user's code runs for one unit.

    Attributes:
        state_message: the message where a unit's outcome depends on those that came before, with the remedy.
        tolerance: how much of a difference is round-off; None where outcomes are equal to the last bit.
    """

    state_message: str
    tolerance: Tolerance | None

    def placeholders(self) -> None:
        """Put placeholders through the user's code, which may raise whatever it raises."""

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """What each of some units gives, in turn, float64 [n, k]; each begins with what every unit begins with."""
        ...


@dataclass(frozen=True)
class Findings:
    """What the check of a subject could try.

    Attributes:
        fresh: whether two orders were compared in fresh processes.
        placeholders: whether placeholders went through first.
        refusal: why the subject is refused; None where each unit gave the same in both orders.
    """

    fresh: bool
    placeholders: bool
    refusal: str | None = None

    def refuse(self) -> "Findings":
        """These findings.

        Raises:
            Coupled: a unit's outcome depends on those that came before it.
        """
        if self.refusal is not None:
            raise Coupled(self.refusal)
        return self

    def sentences(self, unit: str, *, untried: bool = False) -> list[Assumption]:
        """What the statement has to add; mostly nothing.

        Args:
            unit: whose contribution it is.
            untried: whether a trial in fresh processes failed later, though there are such processes.
        """
        if self.fresh:
            return [Assumption("some_untried", {"unit": unit})] if untried else []
        id = "no_fresh_processes" if self.placeholders else "no_fresh_processes_nor_placeholders"
        return [Assumption(id, {"unit": unit})]


def try_out(subject: Subject, units: Sequence[int], *, at_once: bool = True) -> Findings:
    """Compare units in two orders, and let placeholders be the first that go through in this process.

    Args:
        subject: what is tried.
        units: really different ones; two or more show something.
        at_once: False where fresh processes would share open files.

    Returns:
        what was found; a check that names the layer may come before `Findings.refuse`.
    """
    orders = [list(units), list(units)[::-1]]

    def work(order: Sequence[int]) -> Callable[[], Tensor]:
        return lambda: torch.stack([subject.outcomes(order), subject.outcomes(order)])

    refusal = None
    seen = watched([work(order) for order in orders], at_once=at_once)
    found = None if seen is None else [each.result for each in seen]
    files = [] if seen is None else shared_files(seen)
    if files:
        found = without_files([work(order) for order in orders], files) or found
    if found is not None and not _same(found, subject.tolerance):
        again = histories([work(orders[0])]) if not files else [found[0]]
        if again is not None and equal(again[0], found[0], subject.tolerance):
            refusal = subject.state_message
        else:  # the code gives something else each time, as other checks report
            found = None
    taken = True
    try:
        subject.placeholders()
    except Exception:  # whatever the user's own code raises where it is given what no record is
        taken = False
    if found is None:
        try:
            same = _same([work(order)() for order in orders], subject.tolerance)
        except Exception as error:  # a tensor of an earlier operation was kept; anything else others report better
            same = not any(word in str(error) for word in ("vmap", "functorch"))
        refusal = refusal if same else subject.state_message
    return Findings(fresh=found is not None, placeholders=taken, refusal=refusal)


def _same(found: Sequence[Tensor], tolerance: Tolerance | None) -> bool:
    """Whether each unit gave the same in both orders, both times; two tensors [2, n, k]."""
    forward, backward = found
    return equal(forward, backward.flip(1), tolerance) and equal(forward[:1], forward[1:], tolerance)


def equal(one: Tensor, other: Tensor, tolerance: Tolerance | None) -> bool:
    """Whether outcomes are the same; without a tolerance to the last bit."""
    if one.shape != other.shape:
        return False
    if tolerance is None:
        return torch.equal(one.nan_to_num(), other.nan_to_num())
    finite = other.isfinite()
    if not torch.equal(one.isfinite(), finite):
        return False
    scale = float(other.nan_to_num(0.0, 0.0, 0.0).abs().max()) if other.numel() else 0.0
    return tolerance.holds(one, other, scale)


def due(step: int, steps: int, source: RandomSource, *, seldom: bool = False) -> bool:
    """Whether a step is looked at: the first and the last one, and others by chance, more of them early.

    A step from 0 is looked at with chance 4 / (step + 4) + 1/64, or, where it costs fresh processes, half of that.
    No one without the run's key knows which ones.

    Args:
        step: from 0.
        steps: of the whole run.
        source: the run's randomness.
        seldom: half as often.
    """
    if step in (0, steps - 1):
        return True
    chance = (4.0 / (step + 4) + 1 / 64) / (2 if seldom else 1)
    return bool(source.stream("look", step, int(seldom)).uniform(1)[0] < chance)


Outcomes = Callable[[Sequence[int]], Tensor]
"""From units that go through first to what a few others give behind them, float64 [n, k]."""


class Looked(NamedTuple):
    """That two histories were compared, and what `now` gave in them."""

    now: Tensor | None


def refuse_memory(
    outcomes: Outcomes,
    befores: tuple[Sequence[int], Sequence[int]],
    message: str,
    tolerance: Tolerance | None = SAME_SHAPE,
    now: Callable[[], Tensor] | None = None,
) -> Looked | None:
    """While a run goes on: what a few units give behind one history and behind another of the same length.

    Args:
        outcomes: of the few, behind a history.
        befores: units of two histories.
        message: of the refusal.
        tolerance: as in `Subject`.
        now: runs first in both processes, and leaves the weights as they were; what it gives must be the same.

    Returns:
        what that gives; None where no two histories could be compared: there are no fresh processes, or the code
        raised something in one, or took too long.

    Raises:
        Coupled: they give something else; the step must not be released.
    """

    def work(before: Sequence[int]) -> tuple[Tensor | None, Tensor]:
        return None if now is None else now(), outcomes(before)

    works = [partial(work, before) for before in befores]
    found = histories(works)
    if found is None:
        return None
    (first, one), (_, other) = found
    if not equal(one, other, tolerance):
        again = histories(works[:1])
        if again is not None and equal(again[0][1], one, tolerance):
            raise Coupled(message)
    return Looked(first)


_SECONDS = 120.0  # a process that takes longer is ended; what it should have shown is then not known

_CLOCK = 10_000_000  # nanoseconds by which a file system's clock may be behind

Work = Callable[[], Any]


class _Files:
    """Which files were opened for which unit, of those that changed since the trial began."""

    def __init__(self) -> None:
        self.unit: int | None = None
        self.began = 0
        self.read: set[tuple[str, int]] = set()
        self.written: set[tuple[str, int]] = set()

    def see(self, event: str, details: tuple[Any, ...]) -> None:
        """Python's own report of a file that is opened."""
        if event != "open" or self.unit is None or not isinstance(details[0], str | bytes | os.PathLike):
            return
        path, mode, flags = os.path.realpath(os.fsdecode(details[0])), details[1] or "", details[2] or 0
        if path.startswith(("/proc/", "/sys/", "/dev/")):
            return
        if set(mode) & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR):
            self.written.add((path, self.unit))
        elif os.path.exists(path) and os.stat(path).st_mtime_ns >= self.began:
            self.read.add((path, self.unit))


_files = _Files()


def at(unit: int | None) -> None:
    """From here on the code runs for this unit; None for no single one."""
    _files.unit = unit


@dataclass(frozen=True)
class History:
    """What a piece of work returned, and the files that it opened, each with a unit."""

    result: Any
    read: frozenset[tuple[str, int]]
    written: frozenset[tuple[str, int]]


def shared_files(found: Sequence[History]) -> list[str]:
    """Files that changed since the trial began and were read for a unit for which they were not written."""
    return sorted({path for history in found for path, unit in history.read - history.written})


_hung: list[int] = []  # processes that took too long: others would, too


def can_fork() -> bool:
    """Whether a process may be forked here: on Linux, and not after a GPU was used or a process that took too long."""
    return not _hung and sys.platform == "linux" and not (torch.cuda.is_available() and torch.cuda.is_initialized())


def histories(works: Sequence[Work]) -> list[Any] | None:
    """What each piece of work returns, in a fresh process of its own; see `watched`."""
    found = watched(works)
    return None if found is None else [each.result for each in found]


def without_files(works: Sequence[Work], paths: Sequence[str]) -> list[Any] | None:
    """What each piece of work returns, one after the other, where each begins without some files.

    The files lie aside meanwhile, and are as before afterwards; what the work writes in their place is removed.

    Returns:
        as `histories`: None where the work needs one of the files, or a file cannot be laid aside.
    """
    found: list[Any] = []
    aside: dict[str, str] = {}
    try:
        for path in paths:
            other = f"{path}.aside-{os.getpid()}"
            os.replace(path, other)
            aside[path] = other
        for work in works:
            result = histories([work])
            if result is None:
                return None
            found += result
            for path in aside:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    except OSError:  # a folder that cannot be written, a file that is gone
        return None
    finally:
        for path, other in aside.items():
            os.replace(other, path)
    return found


def watched(works: Sequence[Work], *, at_once: bool = True) -> list[History] | None:
    """What each piece of work returns and which files it opens, in a fresh process of its own.

    Args:
        works: what to run; each returns something that can be pickled.
        at_once: run them side by side; False where they share open files.

    Returns:
        the results in their order; None if there is no fork here, none is left, or one failed or took too long. Where
        one of several at once failed, all run again, one after the other: it may have read a file that another one
        was just writing.
    """
    if not can_fork():
        return None
    importlib.import_module("torch._dynamo")  # torch loads it at its first step; each process would for itself
    _files.began = time.time_ns() - _CLOCK
    found = _run(works, at_once=at_once)
    if at_once and len(found) > 1 and None in found and not _hung:
        found = _run(works, at_once=False)
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(works) else None


def _run(works: Sequence[Work], *, at_once: bool) -> list[History | None]:
    """What `watched` gives, with None for each process that failed; empty where one cannot be started."""
    found: list[History | None] = []
    waiting: list[tuple[int, int]] = []
    try:
        for work in works:
            try:
                waiting.append(_started(work))
            except OSError:  # no more processes or memory for them
                return []
            if not at_once:
                found.append(_result(*waiting.pop()))
        while waiting:
            found.append(_result(*waiting.pop(0)))
    finally:
        for child, pipe in waiting:
            _end(child, pipe)
    return found


def _started(work: Work) -> tuple[int, int]:
    """A process that runs the work, and the pipe that it writes to."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child:
        os.close(writing)
        return child, reading
    try:  # in the new process, which never returns from here
        os.close(reading)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # nor may it take what the run itself would read
            os.dup2(silent, stream)
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        sys.dont_write_bytecode = True
        sys.addaudithook(_files.see)
        result = work()
        history = History(result, frozenset(_files.read), frozenset(_files.written))
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(history, pipe)
    finally:
        os._exit(0)


def _result(child: int, pipe: int) -> History | None:
    """What a process wrote; None if it failed or took too long."""
    parts, end = [], time.monotonic() + _SECONDS
    try:
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = os.read(pipe, 1 << 20)
            if not part:
                break
            parts.append(part)
        if time.monotonic() >= end:
            _hung.append(child)
    finally:
        _end(child, pipe)
    try:
        return pickle.loads(b"".join(parts))  # written by this process's own copy
    except (EOFError, pickle.UnpicklingError):
        return None


def _end(child: int, pipe: int) -> None:
    os.close(pipe)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
