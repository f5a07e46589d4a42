"""What is known of examples that only the user's own loop understands."""

from typing import Any

from sfumato._check import InputError
from sfumato.central.numbers import OwnLoss
from sfumato.central.own.map_rows import MapRows


class OwnLoop(OwnLoss):
    """A task without measures: the loop takes its own."""

    def check(self, data: Any) -> None:
        """Refuse data in which nobody can hide."""
        if len(data) < 2:
            raise InputError(f"the data set has {len(data)} examples; a private sum needs at least 2")

    def assumptions(self, data: MapRows) -> list[str]:
        """What the guarantee rests on beside the engine's own checks."""
        return [
            "The loop around the private sum is the user's own: that it computes the loss of an example from this "
            "example alone was tried on examples of the data, before the first step and now and then later, in the "
            "precision of the run, and not proven; running averages of losses, memory banks and other state of the "
            "loop that follows from examples break it. What the loop prints, logs, measures or saves by itself is not "
            "covered, and neither is a learning rate, a stop or another change of the optimiser or its gradient that "
            "follows from it.",
        ]
