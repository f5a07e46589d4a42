"""How far a long count is, on stderr: a bar on a terminal; elsewhere a line now and then, for a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from sfumato._bar import bar


@contextmanager
def counting(what: str, *, visible: bool, every: float = 30.0) -> Iterator[Callable[[int, int], None]]:
    """Show a count.

    Args:
        what: is counted, for people.
        visible: False shows nothing.
        every: seconds between lines where stderr is no terminal, > 0; what is shorter prints none.

    Yields:
        a function that is told how many are done, and of how many.
    """
    lines = visible and not Console(stderr=True).is_terminal
    told = time.monotonic()
    with bar(what, visible=visible and not lines) as step:

        def show(done: int, of: int) -> None:
            nonlocal told
            step(done, of)
            if lines and time.monotonic() - told > every:
                print(f"sfumato: {done:,} of {of:,} {what}", file=sys.stderr, flush=True)
                told = time.monotonic()

        yield show
