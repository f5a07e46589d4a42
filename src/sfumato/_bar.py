"""How far something is, on stderr: a bar on a terminal; elsewhere a line now and then, for a log."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_SHORT = 1.0  # seconds: a step that takes no longer prints no line

_printed = [time.monotonic()]  # when the last line was printed, or what prints them began

Progress = Callable[[str, int, int], None]
"""Called with what is done ("stages", "steps"), how much of it is done, and of how much."""


def begin() -> None:
    """A command or a run begins, and its first line is due after as long as later ones."""
    _printed[0] = time.monotonic()


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""


@contextmanager
def bar(title: str, *, visible: bool | None, every: float = 10.0) -> Iterator[Callable[[int, int], None]]:
    """Show it; the function inside takes (done, total), with a total of 0 where it is unknown.

    A step that never calls it is shown by the time that it has taken.

    Args:
        title: what goes on.
        visible: False shows nothing, None lines on a terminal, too.
        every: seconds between lines, > 0.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    lines = Lines(title, every) if in_lines(visible, console) else None
    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn())
    disabled = not visible or lines is not None
    with Progress(*columns, console=console, disable=disabled, transient=True) as progress, lines or nullcontext():
        task = progress.add_task("", total=None)

        def show(done: int, total: int) -> None:
            if lines is not None:
                lines.text = f"{done:,} of {total:,}" if total else f"{done:,}"
            progress.update(task, completed=done, total=total or None)

        yield show


def in_lines(visible: bool | None, console: "Console") -> bool:
    """Whether lines stand for a bar."""
    return visible is None or (visible and not console.is_terminal)


class Lines:
    """A context in which a thread reports a state every so many seconds, however long one step of it takes.

    The seconds count from the last line of the process, or from `begin`, so that many short steps do not pass without a
    word. A step that takes no longer than a second prints none.

    Args:
        title: what goes on.
        every: seconds between lines, > 0.

    Attributes:
        text: the state; "" reports the time that has passed.
    """

    def __init__(self, title: str, every: float) -> None:
        self.text = ""
        self._title, self._every = title, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, args=(sys.stderr,), name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def line(self) -> str:
        """What is reported now."""
        return f"sfumato: {self._title}: {self.text or duration(time.monotonic() - self._started)}"

    def _report(self, out: TextIO) -> None:
        due = _printed[0] + self._every - time.monotonic()
        wait = max(due, min(_SHORT, self._every))
        while not self._over.wait(wait):
            try:
                print(self.line(), file=out, flush=True)
            except (OSError, ValueError):  # the reader of the log is gone; the work is worth more
                return
            _printed[0], wait = time.monotonic(), self._every


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds.

    >>> duration(3720), duration(61)
    ('1 h 02 min', '1 min 01 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"
