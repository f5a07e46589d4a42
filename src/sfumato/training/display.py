"""A progress bar on stderr: rounds, ε so far and of all rounds, loss."""

from collections.abc import Callable
from typing import Any

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
    """

    def __init__(
        self,
        rounds: int,
        done: int,
        *,
        visible: bool,
        headline: Callable[[dict[str, Any]], str] | None = None,
        planned: float | None = None,
    ) -> None:
        self._planned = "" if planned is None else f" of {rounded_up(planned, 3):.3g}"
        self._progress = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            disable=not visible,
        )
        self._task = self._progress.add_task("", total=rounds, completed=done)
        self._headline = headline or (lambda row: "")
        self._measured = ""

    def __enter__(self) -> "Display":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

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
        self._progress.update(self._task, completed=row["round"], description=" · ".join(p for p in parts if p))
