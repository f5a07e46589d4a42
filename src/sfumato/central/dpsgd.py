"""DP-SGD: private training of any model, one example at a time hidden.

Each step draws every example with the same probability, clips each one's gradient, adds the gradients up, adds
Gaussian noise once, divides by the planned batch size and takes a step of any optimiser. How many examples go through
the model at once is a matter of memory alone. Augmentations of an example are averaged before clipping, a moving
average of the models and a schedule of the rate cost nothing.

Unit: an example, added or removed (Poisson sampling); with `examples.per_user`, a user with all examples. A step is one
Gaussian release of noise multiplier z, sampled at cohort.size / population.

>>> plan = DPSGD(steps=100, cohort=64, noise=1.0)
>>> plan.private_sum(population=6400).event(1).sampling_rate
0.01
>>> round(DPSGD(steps=100, cohort=64).calibrate(epsilon=3, delta=1e-5, population=6400).noise.multiplier, 2)
0.65

References:
    Abadi et al.: Deep Learning with Differential Privacy. CCS 2016.
    De, Berrada, Hayes, Smith, Balle: Unlocking High-Accuracy Differentially Private Image Classification through
    Scale. 2022 (augmentations, moving average, large batches).
    Kurakin et al.: Toward Training at ImageNet Scale with Differential Privacy. 2022 (transfer, schedule).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import part, plan
from sfumato._types import Algorithm, Assumption, Stated, Unit
from sfumato.central.example_training import EXAMPLES, ExampleTraining
from sfumato.sampling import COHORTS, MinSeparation, Poisson, Sampler, Shuffled
from sfumato.training.defaults import usual_batch, usual_rate, usual_steps
from sfumato.training.plan import Plan
from sfumato.training.server import OPTIMIZERS, Optimizer
from sfumato.training.table_training import TABLES, DeferredTables, DenseTables, SelectedTables, TableTraining

if TYPE_CHECKING:
    import torch
    from torch import nn

    from sfumato.central.custom_loop.dataset import MapRows
    from sfumato.central.custom_loop.loop import PrivateLoop
    from sfumato.central.examples import ExampleContribution
    from sfumato.central.tasks import LossPerExample
    from sfumato.data import ExampleDataset
    from sfumato.training.contribution import Task
    from sfumato.training.fit import Result, RunOptions
    from sfumato.training.private_sum import PrivateSum

TaskName = Literal["classes", "regression", "counts", "own"]


@plan
class DPSGD(Plan):
    """Private SGD on examples; fields with those of `Plan`. cohort.size is the batch size.

    Attributes:
        task: what targets are. "classes" has cross entropy and accuracy. "regression" is of numbers: squared error,
            RMSE, MAE, R². "counts" has the Poisson loss of a model that gives the logarithm of a rate. "own" is
            anything, by a loss that is given in Python.
        steps: how often the optimiser steps; None follows from epochs.
        epochs: expected passes over the data; None for 10, and for as many as make 300 steps, where steps are not given
            either. With shuffled or min_separation sampling a pass is as many whole batches as there are: one more
            would let somebody take part once more.
        examples: how examples go through the model: micro-batches, augmentation, precision.
        tables: how embeddings train. "dense" adds noise to every row in every step. "deferred" adds it to a row when it
            is next read: the same law and cost, in steps that touch only what a batch reads. "adafest" selects rows by
            noisy counts, and changes these only. Both need SGD and independent noise; adafest also takes Adam,
            and deferred the noise of one tree with the plain estimator.
    """

    task: TaskName = "classes"
    steps: int | None = None
    epochs: float | None = None
    cohort: Sampler = part(default=Poisson(size=256), converter=COHORTS)
    server: Optimizer = part(default=Optimizer(learning_rate=None), converter=OPTIMIZERS)
    examples: ExampleTraining = part(default=ExampleTraining(), converter=EXAMPLES)
    tables: TableTraining = part(default=DenseTables(), converter=TABLES)

    name: ClassVar[str] = "dpsgd"
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
    renamed: ClassVar[Mapping[str, str]] = {
        **Plan.renamed,
        "batch_size": "cohort.size",
        "micro_batch": "examples.micro_batch",
        "memory_budget": "examples.memory_budget",
        "learning_rate": "server.learning_rate",
        "optimizer": "server",
        "momentum": "server.momentum",
        "nesterov": "server.nesterov",
        "weight_decay": "server.weight_decay",
        "schedule": "server.schedule",
        "warm_up": "server.warm_up",
        "ema_decay": "server.ema_decay",
        "augmentation": "examples.augmentation",
        "augmentations": "examples.copies",
        "precision": "examples.precision",
    }

    def __post_init__(self) -> None:
        _check.one_of(get_args(TaskName), task=self.task)
        super().__post_init__()
        if self.steps is not None:
            _check.whole(steps=self.steps)
        if self.epochs is not None:
            _check.positive(epochs=self.epochs)
            if self.steps is not None:
                raise InputError(f"give steps ({self.steps}) or epochs ({self.epochs:g}), not both")
        if self.cohort.users_per_client != 1:
            raise InputError(
                f"examples contribute one by one, got cohort.users_per_client={self.cohort.users_per_client}; use 1"
            )

        if self.examples.per_user is not None and self.unit != "user":
            raise InputError(
                f"examples.per_user={self.examples.per_user} makes users the unit, and {self.name} hides a "
                f"{self.unit}; leave it out, or use dpsgd"
            )

    @property
    def unit(self) -> Unit:  # pyright: ignore[reportIncompatibleVariableOverride]
        """An example; a user where several of a user's examples are clipped as one."""
        return "example" if self.examples.per_user is None else "user"

    @property
    def of_examples(self) -> bool:
        """Whatever the unit is."""
        return True

    def units_in(self, data: ExampleDataset) -> int:
        """Examples, or users.

        Raises:
            InputError: users are the unit, and the data have none, or only one.
        """
        if self.examples.per_user is None:
            return super().units_in(data)
        if data.num_users < 2:
            raise InputError("the data set has one user; a private sum needs at least 2")
        return data.num_users

    def rounds_for(self, population: int) -> int:
        """Steps, for a public number of examples, or of users."""
        if self.steps is not None:
            return self.steps
        size = self.cohort.size
        if isinstance(self.cohort, Shuffled | MinSeparation):  # a step beyond whole batches: another participation
            population = population // size * size
        if self.epochs is None:
            return usual_steps(population, size)
        return max(1, math.ceil(self.epochs * population / size))

    def rate_for(self, rounds: int) -> float:
        """By the rule of the optimiser, for so many steps."""
        server, classes = self.server, self.task == "classes"
        norm = self.clipping.norm or 1.0
        return usual_rate(server.name, rounds, momentum=server.momentum, classes=classes, norm=norm)

    def with_usual_sizes(self, population: int, chosen: Collection[str] = ()) -> Self:
        """With the batch that follows from the public number of examples, or of users."""
        if {"cohort", "cohort.size"} & set(chosen):
            return self
        size = usual_batch(population, noise=self.noise.noise_multiplier != 0)
        return replace(self, cohort=replace(self.cohort, size=size))

    def for_population(self, population: int) -> Self:
        """The same plan by its steps, with the noise decided."""
        return replace(self, steps=self.rounds_for(population), epochs=None)._planned(population)

    def private_sum(self, population: int) -> PrivateSum:
        """The parts of a step; with tables=adafest counts select rows."""
        found = super().private_sum(population)
        return replace(found, selection=self.tables) if isinstance(self.tables, SelectedTables) else found

    def default_task(self) -> Task:
        """What the targets must be, and the measures of them."""
        from sfumato.central.tasks import task_named

        return task_named(self.task)

    def contribution(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: nn.Module, data: ExampleDataset, device: str, head_seed: int, *, loss: LossPerExample | None = None
    ) -> ExampleContribution:
        """Clipped gradients of examples; without a loss, by that of the task.

        Raises:
            InputError: task=own without a loss.
        """
        from sfumato.central.examples import ExampleContribution, UserContribution
        from sfumato.central.tasks import loss_named

        loss = loss_named(self.task, data) if loss is None else loss
        kind = ExampleContribution if self.examples.per_user is None else UserContribution
        return kind(
            model=model,
            data=data,
            loss=loss,
            device=device,
            trainable=self.trainable,
            examples=self.examples,
            tables=self.tables,
        )

    def fit(
        self,
        model: nn.Module,
        data: ExampleDataset,
        *,
        loss: LossPerExample | None = None,
        options: RunOptions | None = None,
        **run: Any,
    ) -> Result:
        """Train, and say what it cost.

        Args:
            model: maps the inputs to what the loss reads: logits [n, classes]; numbers or logarithms of rates [n],
                [n, 1] or [n, k]. It is copied, never changed.
            data: the private records.
            loss: from the model's outputs and the targets [n] or [n, k] (None where there are none) to one loss an
                example, [n]; None takes the task's own.
            options: of the run, as for `Plan.fit`.
            run: validation, test, out and resume, as for `Plan.fit`.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        if loss is not None:
            from sfumato.central.tasks import CustomLoss
            from sfumato.training.fit import RunOptions

            options = replace(options or RunOptions(), contribution=partial(self.contribution, loss=loss))
            if self.task == "own" and options.task is None:
                options = replace(options, task=CustomLoss(loss))
        return super().fit(model, data, options=options, **run)

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
        options: RunOptions | None = None,
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
            options: of the run: checkpoints, progress, budget, callbacks; the model's device is its own.

        Returns:
            a context; see `PrivateLoop`.

        Raises:
            InputError: a setting of the plan that the loop decides, an optimiser of other parameters, a data set of no
                use; in the context, what `fit` raises too.
        """
        from sfumato.central.custom_loop.contribution import CustomLoop
        from sfumato.central.custom_loop.loop import PrivateLoop
        from sfumato.central.custom_loop.optimizer import described
        from sfumato.training.fit import RunOptions

        self._refuse_settings_of_fit()
        plan, options = replace(self, task="own"), options or RunOptions()
        _check.whole(at_least=0, workers=workers)
        about = {**options.about, "loop": "own", "optimizer": described(optimizer)}

        def fit(model: nn.Module, rows: MapRows, **given: Any) -> Result:
            mine = replace(options, task=CustomLoop(), about=about, **given)
            return plan.fit(model, rows, out=out, resume=resume, options=mine)  # pyright: ignore[reportArgumentType]

        return PrivateLoop(
            fit,
            plan,
            model,
            optimizer,
            dataset,
            collate=collate,
            workers=workers,
            keep=keep or {},
            callbacks=options.callbacks,
            checkpoint=None if out is None else Path(out) / "checkpoint",
            resume=resume,
        )

    def _refuse_settings_of_fit(self) -> None:
        """Refuse settings that a loop of the user's own decides."""
        mine, usual = self.examples, ExampleTraining()
        decided = {
            "task": (self.task, DPSGD.task),
            "trainable": (self.trainable, DPSGD.trainable),
            "server": (self.server, DPSGD.server),
            "tables": (TABLES.word(self.tables), TABLES.word(DPSGD.tables)),
            **{f"examples.{name}": (getattr(mine, name), getattr(usual, name)) for name in _DECIDED_BY_LOOP},
        }
        for name, (given, default) in decided.items():
            if given != default:
                raise InputError(
                    f"{name}={given!r} is for fit: in a loop of your own your optimiser, model and code decide that; "
                    "leave it out of the plan"
                )

    def refuse_prefix(self) -> None:
        """Pictures that are augmented are others in every step."""
        if self.examples.augmentation != "none":
            raise InputError(
                f"examples.augmentation={self.examples.augmentation} changes pictures before the frozen layers in "
                "every step; use examples.augmentation=none, or leave out prefix_cache (--prefix-cache)"
            )

    def assumptions(self) -> list[Stated]:
        """What the outputs and the loss rest on."""
        known = {"classes": "classes_public", "own": "loss_chosen"}
        found: list[Stated] = [Assumption(known.get(self.task, "targets_unbounded"))]
        return [*found, Assumption("no_copy_went_on")] if isinstance(self.tables, DeferredTables) else found


_DECIDED_BY_LOOP = ("augmentation", "copies", "per_user", "precision")


ALGORITHM = Algorithm(
    name="dpsgd",
    package="sfumato.central",
    plan="DPSGD",
    records="examples",
    title="SGD",
    summary="train a model that hides every single example (DP-SGD)",
    about="Train a model of classes, numbers or counts so that no single example can be inferred from it (DP-SGD). "
    "Each step draws a random batch, clips every example's gradient, and adds noise to the sum.",
    example="sfumato dpsgd --data glyphs --epsilon 3 --delta 1e-5 --epochs 5 --dry-run",
    matters="data model epsilon noise epochs cohort server.learning_rate out resume dry_run",
)
