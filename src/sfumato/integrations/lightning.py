"""A LightningModule that trains privately, by Lightning's own Trainer.

The private sum decides who is in a batch, when the optimiser steps and how a run goes on, so Lightning gets none of
these to decide: what its training loop goes through are *turns*, and each turn is a whole step of a `PrivateLoop`. It
may end the run behind any of them, and does all the rest: devices, precision, validation, logs, callbacks, checkpoints
of the weights, which have their noise whenever it can see them.

Unit: an example. The run is that of `DPSGD.open`, and gives the same bits.
"""

import math
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.central.custom_loop.loop import PrivateLoop

try:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import (
        BatchSizeFinder,
        GradientAccumulationScheduler,
        LearningRateFinder,
        StochasticWeightAveraging,
    )
    from lightning.pytorch.strategies import SingleDeviceStrategy
    from lightning.pytorch.utilities.model_helpers import is_overridden
    from torchmetrics import Metric
except ImportError as error:  # pragma: no cover
    raise ImportError("PrivateModule needs Lightning; install it with: pip install 'sfumato[lightning]'") from error

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
_TRANSFERS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


class PrivateModule(LightningModule):
    """The base class of a module whose `fit` trains privately.

    A subclass has the methods of any LightningModule (`configure_optimizers`, `validation_step`, hooks) and, in the
    place of `training_step`, `losses`. Its networks are attributes, as usual; they are what is trained and released.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False
        self._turns: _Turns | None = None

    @property
    def private(self) -> PrivateLoop | None:
        """The loop while it runs, from its first batch: `epsilon` so far, `done` steps, whether a batch is `trying`."""
        return None if self._turns is None else self._turns.private

    def losses(self, batch: Any, index: int) -> Tensor:
        """The forward pass of a micro-batch.

        Args:
            batch: what the data set and `collate` give, on the module's device.
            index: of the micro-batch in its step. Who else takes part decides in which one an example is, so a loss
                must not follow from it.

        Returns:
            one loss for each example, [n]: `reduction="none"`.
        """
        raise NotImplementedError

    def fit(
        self, trainer: Trainer, plan: DPSGD, dataset: Any, *, val_dataloaders: Any = None, **options: Any
    ) -> PrivateLoop:
        """Train by a Trainer, in place.

        An epoch of Lightning's is N / cohort.size steps, rounded up. The run ends with the plan's last step, or where
        Lightning ends it.

        Args:
            trainer: of one device. Its limits only end the run early.
            plan: with its noise decided.
            dataset: map-style, of any kind of examples; give the data set, not a DataLoader.
            val_dataloaders: as for `Trainer.fit`; what they measure on private records is not covered.
            options: collate, workers, out, resume, keep and others of `DPSGD.open`. Schedulers of
                `configure_optimizers` are kept without being named.

        Returns:
            the loop, which is over: `statement`, `result`, `done` of `planned` steps.

        Raises:
            InputError: a setting of the Trainer or of the module that the guarantee does not bear, or what
                `DPSGD.open` refuses.
        """
        if not isinstance(trainer, Trainer):
            raise InputError(f"trainer must be a Trainer of lightning.pytorch, got {type(trainer).__name__}")
        if not isinstance(plan, DPSGD):
            raise InputError(
                f"plan must be a DPSGD, got {type(plan).__name__}; the order is fit(trainer, plan, dataset)"
            )
        _refuse_settings(trainer)
        if is_overridden("training_step", self, parent=PrivateModule):
            raise InputError(
                "training_step would be called without a batch, and its loss has no noise; rename it to "
                "losses(batch, index), with one loss an example"
            )
        if not is_overridden("losses", self, parent=PrivateModule):
            raise InputError("the module has no losses(batch, index); write it: one loss for each example of the batch")
        for name in _TRANSFERS:
            if is_overridden(name, self, parent=LightningModule):
                raise InputError(f"{name} would not see a batch: Lightning has turns; do it in collate or in losses")
        count = len(dataset) if hasattr(dataset, "__len__") else 1  # without a length it is refused where it is opened
        with _signals_unchanged(), ExitStack() as stack:
            turns = self._turns = _Turns(self, plan, dataset, options, stack, math.ceil(count / plan.cohort.size))
            try:
                trainer.fit(self, train_dataloaders=turns, val_dataloaders=val_dataloaders)
            finally:
                self._turns = None
        if turns.private is None:
            raise InputError("the Trainer took no step; see its max_epochs, max_steps and limit_train_batches")
        return turns.private

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """A turn of Lightning's is a step of the run."""
        if self._turns is None:
            raise InputError("Trainer.fit knows neither plan nor data; call fit(trainer, plan, dataset) of the module")
        self._turns.take()

    def log(self, name: str, value: Any, *args: Any, **keywords: Any) -> None:
        """As in any LightningModule, and nothing of batches that only try the losses out."""
        private = None if self._turns is None else self._turns.in_hand
        if private is not None:
            if private.trying:
                return
            keywords.setdefault("batch_size", private.examples)
        super().log(name, value, *args, **keywords)

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the module has no part in the run."""
        return {**super().__getstate__(), "_turns": None}


class _Turns:
    """What Lightning takes for a data loader: as many turns as an epoch has steps, and what happens in each."""

    def __init__(
        self,
        module: PrivateModule,
        plan: DPSGD,
        dataset: Any,
        options: Mapping[str, Any],
        stack: ExitStack,
        per_epoch: int,
    ) -> None:
        self.private: PrivateLoop | None = None
        self.in_hand: PrivateLoop | None = None  # the loop while the module computes losses
        self._module, self._plan, self._dataset, self._options = module, plan, dataset, options
        self._stack, self._per_epoch = stack, per_epoch
        self._steps: Iterator[Iterator[Any]] = iter(())

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[Tensor]:
        """Turns hold nothing, so it does not matter how many Lightning asks for ahead."""
        return (torch.zeros(()) for _ in range(self._per_epoch))

    def take(self) -> None:
        """A step of the run, or the end of it."""
        module, trainer = self._module, self._module.trainer
        # Lightning's precision is for the losses, not for reading, noise and checks.
        with torch.autocast(module.device.type, enabled=False):
            private = self.private or self._open()
            for index, batch in enumerate(next(self._steps, ())):
                moved = module.transfer_batch_to_device(batch, module.device, 0)
                self.in_hand = private
                try:
                    with trainer.precision_plugin.train_step_context():
                        losses = module.losses(moved, index)
                finally:
                    self.in_hand = None
                private.backward(losses)
            if private.result is None:
                self._step_schedulers(private.done)
                if private.done == private.planned:
                    next(self._steps, None)  # to the run's end
        if private.result is not None:
            trainer.should_stop = True

    def _open(self) -> PrivateLoop:
        """Open the loop, now that networks and optimiser are where Lightning wants them."""
        module, options = self._module, dict(self._options)
        optimizer = module.optimizers(use_pl_optimizer=False)
        if isinstance(optimizer, list):
            raise InputError(
                f"configure_optimizers gave {len(optimizer)} optimisers; a step is one optimiser's, give one"
            )
        schedulers = {}
        for place, config in enumerate(module.trainer.lr_scheduler_configs):
            if isinstance(config.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                raise InputError(
                    "ReduceLROnPlateau follows a measured number, which the guarantee does not cover; give a "
                    "scheduler that follows steps, or step it in on_validation_end"
                )
            schedulers[f"scheduler_{place}"] = config.scheduler
        options["keep"] = {**schedulers, **(options.get("keep") or {})}
        private = self._plan.open(_networks(module), optimizer, self._dataset, **options)
        counted: Any = module.optimizers()  # Lightning counts its steps, and calls on_before_optimizer_step
        private.step_by(counted.step)
        self.private = self._stack.enter_context(private)
        self._steps = private.steps()
        return private

    def _step_schedulers(self, done: int) -> None:
        for config in self._module.trainer.lr_scheduler_configs:
            every = config.frequency * (1 if config.interval == "step" else self._per_epoch)
            if done % every == 0:
                config.scheduler.step()  # pyright: ignore[reportCallIssue]  # none needs a number: see _open


def _refuse_settings(trainer: Trainer) -> None:
    """Refuse settings of the Trainer that would come between a plan and its guarantee.

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


def _networks(module: LightningModule) -> nn.Module:
    """The networks that a module holds, under their names: not the module, whose attributes are Lightning's affair.

    Raises:
        InputError: a parameter that lies in none of them.
    """
    for name, _ in module.named_parameters(recurse=False):
        raise InputError(f"parameter {name} belongs to no layer; put it into a module of its own, with a forward")
    networks = nn.Module()
    for name, part in module.named_children():
        if isinstance(part, LightningModule):
            raise InputError(f"{name} is a LightningModule within another one; give the networks that it holds")
        if not isinstance(part, Metric):  # measures change from step to step, and are not released
            networks.add_module(name, part)
    return networks


@contextmanager
def _signals_unchanged() -> Iterator[None]:
    """Signals as they were: Lightning and the run take turns in handling them, and Lightning ends first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
