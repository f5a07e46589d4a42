"""Progress on stderr: a bar on a terminal; elsewhere a line now and then, for a log: round, ε, rate, time left."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sfumato._rounding import rounded_up


class Display:
    """A context that shows the rows of the metrics as they come.

    Args:
        rounds: rounds of the whole run.
        done: rounds done before.
        visible: False shows nothing.
        headline: a measurement in a few words; empty for a row that is none.
        planned: ε of all rounds; None without any guarantee.
        every: seconds between lines where stderr is no terminal, > 0; a run that is shorter prints none.
    """

    def __init__(
        self,
        rounds: int,
        done: int,
        *,
        visible: bool,
        headline: Callable[[dict[str, Any]], str] | None = None,
        every: float = 30.0,
        planned: float | None = None,
    ) -> None:
        self._planned = "" if planned is None else f" of {rounded_up(planned, 3):.3g}"
        console = Console(stderr=True)
        self._lines = _Lines(rounds, done, every=every) if visible and not console.is_terminal else None
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not visible or self._lines is not None,
        )
        self._task = self._progress.add_task("", total=rounds, completed=done)
        self._headline = headline or (lambda row: "")
        self._measured = ""

    def __enter__(self) -> "Display":
        self._progress.start()
        if self._lines is not None:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._lines is not None:
            self._lines.stop()

    def show(self, row: dict[str, Any]) -> None:
        """Show one row of metrics.jsonl."""
        if "evaluation" in row:
            self._measured = self._headline(row)
            return
        epsilon, loss = row["epsilon"], row["not_private"]["loss"]
        parts = [
            "no guarantee" if epsilon is None else f"ε {rounded_up(epsilon, 3):.3g}{self._planned}",
            "" if loss is None else f"loss {loss:.3g} (private)",
            self._measured,
        ]
        told = " · ".join(p for p in parts if p)
        self._progress.update(self._task, completed=row["round"], description=told)
        if self._lines is not None:
            self._lines.state = row["round"], told


class _Lines:
    """A thread that tells the state every so many seconds, also where a round takes longer than that.

    Attributes:
        state: rounds done and what is known of the last one, in words.
    """

    def __init__(self, rounds: int, done: int, *, every: float) -> None:
        self.state: tuple[int, str] = done, ""
        self._rounds, self._before, self._every = rounds, done, every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, args=(sys.stderr,), name="progress", daemon=True)

    def start(self) -> None:
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Nothing is printed from here on."""
        self._over.set()
        self._thread.join()

    def _tell(self, out: TextIO) -> None:
        while not self._over.wait(self._every):
            try:
                print(self._line(), file=out, flush=True)
            except (OSError, ValueError):  # the reader of the log is gone; the run is worth more
                return

    def _line(self) -> str:
        done, told = self.state
        seconds = time.monotonic() - self._started
        rate = (done - self._before) / seconds
        left = f"{rate:.3g} rounds/s · {_duration((self._rounds - done) / rate)} left" if rate else ""
        return " · ".join(filter(None, (f"sfumato: round {done:,} of {self._rounds:,}", told, left)))


def _duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds.

    >>> _duration(3720), _duration(61)
    ('1 h 02 min', '1 min 01 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"
