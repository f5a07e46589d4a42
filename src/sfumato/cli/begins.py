"""What is said when a run begins, and where it is stopped before: nobody is told to go on with a run that is not."""

from pathlib import Path
from typing import Any

from sfumato.cli.console import say
from sfumato.training import Callback


class Begins(Callback):
    """Says where a run is and how it goes on after a stop, as soon as that is true.

    Args:
        out: the run's folder.
        command: that trains it.
        already: the run is finished.
        quiet: say nothing.

    Attributes:
        done: whether the run has begun.
    """

    def __init__(self, out: Path, command: str, *, already: bool, quiet: bool) -> None:
        how = f"go on after a stop with: sfumato {command} --resume {out}"
        if already:
            how = "the run is finished: nothing is trained or measured again"
        self._line = None if quiet else f"run: {out} ({how})"
        self.done = False

    def tell(self) -> None:
        """Say it, unless it was said."""
        if self._line is not None:
            say(self._line)
            self._line = None

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Say it now at the latest."""
        self.done = True
        self.tell()


def stopped_in_cache(cache: Path, model: Any, seed: int | None, *, resume: Path | None) -> str:
    """What to do after a stop while records went through the frozen layers.

    Args:
        cache: the folder of `--prefix-cache`.
        model: the options of the model.
        seed: of the run.
        resume: the folder of a run that was to go on; None for a new one.
    """
    stopped = "stopped while the records went through the frozen layers"
    weights = getattr(model, "weights", None) or getattr(model, "pretrained", None)
    if seed is None and resume is None and weights is None:
        return (
            f"{stopped}, and no run has begun; without --weights and --seed these layers are others each time, so "
            f"delete {cache} and start again, with one of them"
        )
    run = "" if resume is not None else ", and no run has begun"
    return f"{stopped}{run}; run the same command again, and {cache} goes on where it stopped"
