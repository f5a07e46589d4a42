"""A progress bar on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, *, visible: bool) -> Iterator[Callable[[int, int], None]]:
    """Show one; the function inside takes (done, total).

    Args:
        title: what goes on.
        visible: False shows nothing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not visible, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
