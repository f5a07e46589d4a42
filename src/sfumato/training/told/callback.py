"""What a caller of `fit` may do between the rounds: log, measure, schedule, stop.

Between two rounds nothing is released that was not before, so a callback changes no guarantee as long as it only reads
the rows that it is given and the model of the round. What it is told under "not_private" came about without noise, and
what it prints, sends or decides by that is outside of the guarantee.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from sfumato._check import InputError


class Stop(Exception):
    """Raise it in `on_round` or `on_evaluation` to end the run there: it has a statement, and can be resumed.

    The statement of a stopped run says that the choice to stop must not rest on private numbers.
    """


class Callback:
    """Inherit from it, and write the methods that you need; each process of a run calls its own."""

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Before the first round of this process.

        Args:
            plan: what plan.json holds.
            rounds: of the whole run.
            done: rounds that an earlier process did.
        """

    def on_round(self, row: dict[str, Any]) -> None:
        """After a round.

        Args:
            row: its row of metrics.jsonl: "round" from 1, "epsilon" so far, the server's "learning_rate" where it is
                known, and under "not_private" what is private.
        """

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """After a measurement on the validation data.

        Args:
            row: its row of metrics.jsonl.
            model: what would be released now; not to be changed.
        """

    def on_checkpoint(self, round: int, folder: Path | None) -> None:
        """After a checkpoint was written.

        Args:
            round: rounds done.
            folder: of the run.
        """

    def on_end(self, result: Any) -> None:
        """After the released files were written.

        Args:
            result: what `fit` returns.
        """

    def assumptions(self) -> list[str]:
        """Sentences for the statement, where the callback makes known what came about without noise."""
        return []


class Callbacks(Callback):
    """Several, one after the other."""

    def __init__(self, members: Sequence[Callback]) -> None:
        for member in members:
            if not isinstance(member, Callback):
                given = f"the class {member.__name__}" if isinstance(member, type) else type(member).__name__
                raise InputError(
                    f"callbacks must be instances of sfumato.training.Callback, got {given}; inherit from it, and give "
                    "an instance"
                )
        self._members = tuple(members)

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Tell all."""
        for member in self._members:
            member.on_start(plan, rounds, done)

    def on_round(self, row: dict[str, Any]) -> None:
        """Tell all."""
        for member in self._members:
            member.on_round(row)

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """Tell all."""
        for member in self._members:
            member.on_evaluation(row, model)

    def on_checkpoint(self, round: int, folder: Path | None) -> None:
        """Tell all."""
        for member in self._members:
            member.on_checkpoint(round, folder)

    def on_end(self, result: Any) -> None:
        """Tell all."""
        for member in self._members:
            member.on_end(result)

    def assumptions(self) -> list[str]:
        """Those of all."""
        return [sentence for member in self._members for sentence in member.assumptions()]
