"""A user's code in fresh processes: copies of this one, in which nothing that runs leaves a trace here.

What code keeps between two calls may lie anywhere: in an attribute, a class, a closure, a default argument, a cache, a
global name, a loss, a data set, a variable of the user's loop. A process that is forked from this one begins with all
of it as it is here, and ends with it. So two such processes that are given the same units in different orders show
whether anything is kept, wherever that is.

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
from typing import Any

import torch

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
        the results in their order; None if there is no fork here, none is left, or one failed or took too long.
    """
    if not can_fork():
        return None
    importlib.import_module("torch._dynamo")  # torch loads it at its first step; each process would for itself
    _files.began = time.time_ns() - _CLOCK
    found = []
    waiting: list[tuple[int, int]] = []
    try:
        for work in works:
            try:
                waiting.append(_started(work))
            except OSError:  # no more processes or memory for them
                return None
            if not at_once:
                found.append(_result(*waiting.pop()))
        while waiting:
            found.append(_result(*waiting.pop(0)))
    finally:
        for child, pipe in waiting:
            _end(child, pipe)
    return None if any(each is None for each in found) else found


def _started(work: Work) -> tuple[int, int]:
    """A process that runs the work, and the pipe that it writes to."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
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
        silent = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
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


def _result(child: int, pipe: int) -> Any:
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
