"""DP-SGD: private training of any model, one example at a time hidden.

Each step draws every example with the same probability, clips each one's gradient, adds the gradients up, adds
Gaussian noise once, divides by the planned batch size and takes a step of any optimiser. How many examples go through
the model at once is a matter of memory alone. Augmentations of an example are averaged before clipping, a moving
average of the models and a schedule of the rate cost nothing.

Unit: an example, added or removed (Poisson sampling). A step is one Gaussian release of noise multiplier z, sampled at
batch_size / population.

>>> plan = DPSGD(steps=100, batch_size=64, noise_multiplier=1.0)
>>> plan.private_sum(population=6400).event(1).sampling_rate
0.01
>>> round(DPSGD(steps=100, batch_size=64).calibrate(epsilon=3, delta=1e-5, population=6400).noise_multiplier, 2)
0.65

References:
    Abadi et al.: Deep Learning with Differential Privacy. CCS 2016.
    De, Berrada, Hayes, Smith, Balle: Unlocking High-Accuracy Differentially Private Image Classification through
    Scale. 2022 (augmentations, moving average, large batches).
    Kurakin et al.: Toward Training at ImageNet Scale with Differential Privacy. 2022 (transfer, schedule).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Assumption, Stated, Unit
from sfumato.central.custom_loop.contribution import OwnLoop
from sfumato.central.custom_loop.dataset import MapRows
from sfumato.central.custom_loop.loop import PrivateLoop
from sfumato.central.custom_loop.optimizer import described
from sfumato.central.examples import Augmentation, ExampleContribution
from sfumato.central.losses import LossPerExample, cross_entropy, poisson_loss, squared_error
from sfumato.central.tasks import Classification, Counts, OwnLoss, Regression
from sfumato.data import ExampleDataset
from sfumato.sampling import OwnClients
from sfumato.training import Callback, Optimizer, OptimizerName, PrivatePlan, Result, Schedule, Task

_EPOCHS = 10.0

TaskName = Literal["classes", "regression", "counts", "own"]

_TASKS: dict[str, tuple[type[Classification] | type[Regression] | type[Counts], LossPerExample]] = {
    "classes": (Classification, cross_entropy),
    "regression": (Regression, squared_error),
    "counts": (Counts, poisson_loss),
}
"""How a model is measured, and the loss that it is trained by."""

_OF_FIT = {
    "task",
    "trainable",
    "learning_rate",
    "optimizer",
    "momentum",
    "nesterov",
    "weight_decay",
    "schedule",
    "warm_up",
    "augmentation",
    "augmentations",
    "ema_decay",
    "precision",
}
"""Fields that a loop of one's own decides."""


@dataclass(frozen=True, kw_only=True)
class DPSGD(PrivatePlan):
    """Private SGD on examples; fields beside those of `PrivatePlan`.

    Attributes:
        task: what targets are: "classes" (cross entropy; accuracy), "regression" (numbers: squared error; RMSE, MAE,
            R²), "counts" (the model gives the logarithm of a rate: Poisson loss), or "own" (anything, by a loss that is
            given in Python).
        steps: how often the optimiser steps; None follows from epochs.
        epochs: expected passes over the data; None for 10, where steps are not given either. With shuffled or
            min_separation sampling a pass is as many whole batches as there are: one more would let somebody take part
            once more.
        batch_size: expected examples a step: the public denominator. The sampling rate is batch_size/N.
        micro_batch: examples that go through the model at once; None measures how many fit. No result depends on it,
            but where the model draws random numbers (dropout).
        memory_budget: MiB for a micro-batch; None for half of the free memory of a GPU, 512 on a CPU.
        learning_rate: rate of the optimiser on the noisy mean gradient.
        optimizer: torch optimiser that takes the steps.
        momentum: SGD's and RMSprop's momentum, first beta of Adam's kin; in [0, 1).
        nesterov: Nesterov's momentum, for SGD.
        weight_decay: of the optimiser, >= 0.
        schedule: "constant", or "cosine" down to zero at the last step.
        warm_up: steps at the start in which the learning rate rises.
        augmentation: of pictures: "flip", or "crop_flip", drawn anew in each step.
        augmentations: copies of each picture, averaged before clipping.
        ema_decay: release a moving average of the models with this decay, 0.999 for example; None releases the last.
        precision: "bfloat16" runs the model under autocast; gradients, norms and sums stay in single precision or more.
    """

    task: TaskName = "classes"
    steps: int | None = None
    epochs: float | None = None
    batch_size: int = 256
    micro_batch: int | None = None
    memory_budget: int | None = None
    learning_rate: float = 0.5
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warm_up: int = 0
    augmentation: Augmentation = "none"
    augmentations: int = 1
    ema_decay: float | None = None
    precision: Literal["float32", "bfloat16"] = "float32"

    name: ClassVar[str] = "dpsgd"
    unit: ClassVar[Unit] = "example"
    model_fields: ClassVar[tuple[str, ...]] = (
        "model",
        "classes",
        "outputs",
        "input_shapes",
        "vocabulary_sizes",
        "normalisation",
        "model_options",
        "version",
    )

    def __post_init__(self) -> None:
        _check.one_of(get_args(TaskName), task=self.task)
        _check.one_of(("none", "flip", "crop_flip"), augmentation=self.augmentation)
        _check.one_of(("float32", "bfloat16"), precision=self.precision)
        _check.whole(batch_size=self.batch_size, augmentations=self.augmentations)
        for name in ("steps", "micro_batch", "memory_budget"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})
        if self.epochs is not None:
            _check.positive(epochs=self.epochs)
            if self.steps is not None:
                raise InputError(f"give steps ({self.steps}) or epochs ({self.epochs:g}), not both")
        if self.ema_decay is not None:
            _check.between(0.0, 1.0, ends="[)", ema_decay=self.ema_decay)
        if self.augmentations > 1 and self.augmentation == "none":
            raise InputError(
                f"augmentations={self.augmentations} copies of one picture are all the same; choose an augmentation, "
                "flip for example"
            )
        super().__post_init__()
        _ = self.server, self.rate_schedule(1)  # both check their fields

    @property
    def server(self) -> Optimizer:
        """The optimiser."""
        return Optimizer(
            name=self.optimizer,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )

    def rate_schedule(self, rounds: int) -> Schedule | None:
        """The learning rate's way, a function of the step."""
        return Schedule(kind=self.schedule, rounds=rounds, warm_up=self.warm_up)

    @property
    def average_decay(self) -> float | None:
        """Decay of the moving average."""
        return self.ema_decay

    @property
    def grouping(self) -> OwnClients:
        """Every example contributes by itself."""
        return OwnClients(clients=self.batch_size)

    def cohort_size(self, population: int) -> int:
        """Planned examples a step.

        Raises:
            InputError: more than there are.
        """
        if self.batch_size > population:
            raise InputError(
                f"a batch of {self.batch_size} examples cannot be drawn from {population}; lower batch_size"
            )
        return self.batch_size

    def rounds_for(self, population: int) -> int:
        """Steps, for a public number of examples."""
        if self.steps is not None:
            return self.steps
        epochs = self.epochs or _EPOCHS
        if self.sampling in ("shuffled", "min_separation"):  # a step beyond whole batches costs another participation
            return max(1, math.ceil(epochs * (population // self.batch_size)))
        return max(1, math.ceil(epochs * population / self.batch_size))

    def for_population(self, population: int) -> Self:
        """The same plan by its steps, with the noise decided."""
        counted = dataclasses.replace(self, steps=self.rounds_for(population), epochs=None)
        return super(DPSGD, counted).for_population(population)

    def default_task(self) -> Task:
        """What the targets must be, and the measures of them."""
        return OwnLoss() if self.task == "own" else _TASKS[self.task][0]()

    def contribution(
        self,
        model: nn.Module,
        data: ExampleDataset,
        device: str,
        head_seed: int,
        *,
        loss: LossPerExample | None = None,
    ) -> ExampleContribution:
        """Clipped gradients of examples; without a loss, by that of the task.

        Raises:
            InputError: task=own without a loss.
        """
        if loss is None:
            if self.task == "own":
                OwnLoss().check(data)  # tells what to do
            loss = _TASKS[self.task][1]
        return ExampleContribution(model=model, data=data, loss=loss, device=device, **self.of_examples())

    def of_examples(self) -> dict[str, Any]:
        """How examples go through the model, in the words of `ExampleContribution`."""
        return {
            "trainable": self.trainable,
            "augmentation": self.augmentation,
            "copies": self.augmentations,
            "micro_batch": self.micro_batch,
            "memory_budget": None if self.memory_budget is None else self.memory_budget << 20,
            "bfloat16": self.precision == "bfloat16",
        }

    def fit(
        self, model: nn.Module, data: ExampleDataset, *, loss: LossPerExample | None = None, **options: Any
    ) -> Result:
        """Train, and say what it cost.

        Args:
            model: maps the inputs to what the loss reads: logits [n, classes]; numbers or logarithms of rates [n],
                [n, 1] or [n, k]. It is copied, never changed.
            data: the private records.
            loss: from the model's outputs and the targets [n] or [n, k] (None where there are none) to one loss an
                example, [n]; None takes the task's own.
            options: as for `TrainingPlan.fit`.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        chosen: dict[str, Any] = {} if loss is None else {"contribution": partial(self.contribution, loss=loss)}
        if loss is not None and self.task == "own":
            chosen["task"] = OwnLoss(loss)
        return super().fit(model, data, **{**chosen, **options})

    def open(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int = 0,
        out: str | Path | None = None,
        resume: bool = False,
        keep: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
        about: dict[str, Any] | None = None,
        **options: Any,
    ) -> PrivateLoop:
        """A training loop of your own: your model, optimiser, data set, forward pass and losses.

        Args:
            model: trained in place. Parameters that require no gradient stay as they are.
            optimizer: of torch, holding all of the model's parameters that require a gradient; it takes a step when a
                batch is through. Its settings count, those of the plan have to be left out.
            dataset: map-style, of any kind of examples; give the data set, not a DataLoader.
            collate: from a list of examples to a batch; None for torch's own.
            workers: processes that read ahead; 0 reads in this one.
            out: folder of the run; None keeps everything in memory.
            resume: go on from the checkpoint in `out`.
            keep: objects with a state_dict, by name (a scheduler, a moving average), that go with the checkpoints.
            callbacks: are told of steps and checkpoints; see `sfumato.training.Callback`.
            about: JSON that describes the model and the data, kept in plan.json.
            options: cadence, progress and budget, as for `TrainingPlan.fit`.

        Returns:
            a context; see `PrivateLoop`.

        Raises:
            InputError: a setting of the plan that the loop decides, an optimiser of other parameters, a data set of no
                use; in the context, what `fit` raises too.
        """
        for field in dataclasses.fields(self):
            if field.name in _OF_FIT and getattr(self, field.name) != field.default:
                raise InputError(
                    f"{field.name}={getattr(self, field.name)!r} is for fit: in a loop of your own your optimiser, "
                    "model and code decide that; leave it out of the plan"
                )
        plan = dataclasses.replace(self, task="own")
        _check.whole(at_least=0, workers=workers)
        described_by = {**(about or {}), "loop": "own", "optimizer": described(optimizer)}

        def fit(model: nn.Module, rows: MapRows, **given: Any) -> Result:
            run = {"task": OwnLoop(), "out": out, "resume": resume, "about": described_by, **options}
            return plan.fit(model, rows, **run, **given)  # pyright: ignore[reportArgumentType]

        return PrivateLoop(
            fit,
            plan,
            model,
            optimizer,
            dataset,
            collate=collate,
            workers=workers,
            keep=keep or {},
            callbacks=callbacks,
            checkpoint=None if out is None else Path(out) / "checkpoint",
            resume=resume,
            micro_batch=self.micro_batch,
            memory_budget=None if self.memory_budget is None else self.memory_budget << 20,
        )

    def refuse_prefix(self) -> None:
        """Pictures that are augmented are others in every step."""
        if self.augmentation != "none":
            raise InputError(
                f"augmentation={self.augmentation} changes the pictures in every step, before the frozen layers see "
                "them, so nothing can be kept of those; use augmentation=none, or leave out prefix_cache "
                "(--prefix-cache)"
            )

    def assumptions(self) -> list[Stated]:
        """What the outputs and the loss rest on."""
        known = {"classes": "classes_public", "own": "loss_chosen"}
        return [Assumption(known.get(self.task, "targets_unbounded"))]
