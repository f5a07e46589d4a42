"""The steps of a stage: taken one by one, with checkpoints between them, so that a run that was stopped goes on.

A stage is a number of steps, each a function of the run's key, the step's number and the state before: so a stage that
goes on from its state ends bit for bit as if it had never stopped.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Protocol

from torch import Tensor

from sfumato._check import InputError
from sfumato.runs import Checkpoint, Run

Progress = Callable[[str, int, int], None]
"""Is told what goes on, how much of it is done, and of how much."""

LARGEST_RATE = 1e37
"""A learning rate at most: ten times it, which a first step of Adam takes, is a number of single precision."""

_ROWS = 100  # of the metrics, for a stage


class Diverged(ArithmeticError):
    """A loss or a gradient is not finite; nothing was changed by it."""


class Stateful(Protocol):
    """What learns, and whose state goes into a checkpoint."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers."""
        ...

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Put the state back."""
        ...


class Stage(Protocol):
    """One thing to learn.

    Attributes:
        name: for messages, metrics and checkpoints.
        rate: the setting that is lower for a stage that diverged.
        steps: how many.
    """

    name: str
    rate: str
    steps: int

    def step(self, index: int) -> dict[str, float]:
        """Take a step; gives losses.

        Raises:
            Diverged: a loss is not finite.
        """
        ...

    def learners(self) -> Mapping[str, Stateful]:
        """Whose states are the stage's state."""
        ...

    def settle(self) -> None:
        """After the last step."""
        ...


def take(
    run: Run,
    stage: Stage,
    networks: Callable[[], dict[str, Tensor]],
    *,
    saved: Checkpoint | None,
    progress: Progress,
    save_every: float,
) -> bool:
    """Take the steps of a stage that are left.

    Args:
        run: which keeps checkpoints, and says when somebody asked it to stop.
        stage: the steps.
        networks: what else a checkpoint holds, by names like "network.weight".
        saved: the checkpoint of this stage to go on from; None begins it.
        progress: is told how many steps are taken.
        save_every: seconds between checkpoints, >= 0.

    Returns:
        False where the run was asked to stop before the last step.

    Raises:
        InputError: the stage diverged; the last checkpoint stays.
    """
    begin = 0
    if saved is not None:
        begin = int(saved.state["step"])
        for name, learner in stage.learners().items():
            learner.load(under(f"learner {name}", saved.tensors), saved.state["learners"][name])

    def save(step: int) -> None:
        tensors, numbers = networks(), {}
        for name, learner in stage.learners().items():
            own, numbers[name] = learner.state()
            tensors |= {f"learner {name}.{key}": value.clone() for key, value in own.items()}
        run.save(tensors, {"stage": stage.name, "step": step, "learners": numbers})

    last = monotonic()
    for step in range(begin, stage.steps):
        if run.asked_to_stop:
            save(step)
            return False
        if monotonic() - last > save_every:
            save(step)
            last = monotonic()
        progress(stage.name, step, stage.steps)
        try:
            losses = stage.step(step)
        except Diverged:
            kept = "" if run.folder is None else "; the last good checkpoint is kept, for this plan only"
            raise InputError(
                f"the stage {stage.name!r} diverged in step {step + 1:,} of {stage.steps:,}: a loss is not finite; "
                f"start a new run with a lower {stage.rate}{kept}"
            ) from None
        if (step + 1) % max(1, stage.steps // _ROWS) == 0:
            run.note({"stage": stage.name, "step": step + 1, "not_private": losses})
    save(stage.steps)  # what follows needs a while before its first checkpoint
    progress(stage.name, stage.steps, stage.steps)
    stage.settle()
    return True


def under(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {key.partition(".")[2]: value for key, value in tensors.items() if key.partition(".")[0] == name}
