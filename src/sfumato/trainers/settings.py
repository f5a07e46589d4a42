"""Settings of Lightning's Trainer that would come between a plan and its guarantee, refused by name."""

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
)
from lightning.pytorch.strategies import SingleDeviceStrategy

from sfumato._check import InputError

_PRECISIONS = ("32-true", "bf16-mixed")
_LEFT_OUT = {
    "gradient_clip_val": ((None,), "the plan clips that of each example: set its clip_norm"),
    "accumulate_grad_batches": ((1,), "a step goes through in micro-batches by itself"),
    "overfit_batches": ((0,), "who takes part is drawn; give a smaller data set"),
    "min_epochs": ((None, 0), "the plan says how many steps there are"),
    "min_steps": ((None,), "the plan says how many steps there are"),
}
_CALLBACKS = {
    LearningRateFinder: "takes steps that are undone, and each would cost privacy; choose the rate on public data",
    BatchSizeFinder: "takes steps that are undone, and the plan says how many are in a batch; set its micro_batch",
    GradientAccumulationScheduler: "changes what a step adds up, which the plan decides",
    StochasticWeightAveraging: "changes weights and schedule while the run goes on; keep an AveragedModel",
}


def refuse_settings(trainer: Trainer) -> None:
    """Refuse what the run cannot bear.

    Raises:
        InputError: names it, with what to do.
    """
    if trainer.world_size > 1 or not isinstance(trainer.strategy, SingleDeviceStrategy):
        raise InputError(
            f"the Trainer has {trainer.world_size} processes by {type(trainer.strategy).__name__}, and each would draw "
            "batches and noise; give it devices=1, or run several processes by DPSGD.open and torchrun"
        )
    if trainer.precision not in _PRECISIONS:
        raise InputError(
            f"precision={trainer.precision!r} changes or scales gradients before they are clipped; use one of "
            f"{', '.join(_PRECISIONS)}"
        )
    for name, (usual, why) in _LEFT_OUT.items():
        given = getattr(trainer, name)
        if given not in usual:
            raise InputError(f"{name}={given!r} of the Trainer has to be left out: {why}")
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for kind, why in _CALLBACKS.items():
            if isinstance(callback, kind):
                raise InputError(f"the callback {kind.__name__} {why}")
