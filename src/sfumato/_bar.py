"""How far something is, on stderr: a bar on a terminal; elsewhere a line now and then, for a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with what is done ("stages", "steps"), how much of it is done, and of how much."""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""


@contextmanager
def bar(title: str, *, visible: bool, every: float = 30.0) -> Iterator[Callable[[int, int], None]]:
    """Show it; the function inside takes (done, total), with a total of 0 where it is unknown.

    Args:
        title: what goes on.
        visible: False shows nothing.
        every: seconds between lines where stderr is no terminal, > 0; what is shorter prints none.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    lines = visible and not console.is_terminal
    shown = time.monotonic()
    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not visible or lines, transient=True) as progress:
        task = progress.add_task("", total=None)

        def show(done: int, total: int) -> None:
            nonlocal shown
            progress.update(task, completed=done, total=total or None)
            if lines and time.monotonic() - shown > every:
                of = f" of {total:,}" if total else ""
                print(f"sfumato: {title}: {done:,}{of}", file=sys.stderr, flush=True)
                shown = time.monotonic()

        yield show
