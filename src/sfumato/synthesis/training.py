"""The stages of training without epsilon, taken step by step, so that a stopped run can resume.

A stage is a number of steps, each a function of the run's key, the step's number and the state before: so a stage that
resumes from its state ends bit for bit as if it had never stopped.

**Learner.** Parameters and their optimiser, whose whole state goes into a checkpoint and comes back bit for bit.

**Stages.** Categories, sequences, and the GAN on latent vectors.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._bar import Progress
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.runs import Checkpoint, Run
from sfumato.synthesis.networks import CategoryCodec, Critic, Generator, SequenceCodec
from sfumato.synthesis.records import Drawn, Records
from sfumato.synthesis.settings import EHRSafeSettings
from sfumato.training import Optimizer
from sfumato.training.server import MovingAverage, OptimizerFactory, Schedule, Server

_METRIC_ROWS = 100  # of the metrics, for a stage


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
        run: which keeps checkpoints, and reports a request to stop.
        stage: the steps.
        networks: what else a checkpoint holds, by names like "network.weight".
        saved: the checkpoint of this stage to go on from; None begins it.
        progress: called with the steps that are taken.
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
        if (step + 1) % max(1, stage.steps // _METRIC_ROWS) == 0:
            run.note({"stage": stage.name, "step": step + 1, "not_private": losses})
    save(stage.steps)  # what follows needs a while before its first checkpoint
    progress(stage.name, stage.steps, stage.steps)
    stage.settle()
    return True


def under(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {key.partition(".")[2]: value for key, value in tensors.items() if key.partition(".")[0] == name}


class Learner:
    """Trains a module by its gradient.

    Args:
        module: whose parameters are trained, in place.
        optimizer: builds the optimiser.
        schedule: of its learning rate; None for a constant one.
        clip_norm: a longer gradient is shortened to it; None for no bound.
        average_decay: of the moving average of the parameters; None for none.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: OptimizerFactory,
        *,
        schedule: Schedule | None = None,
        clip_norm: float | None = None,
        average_decay: float | None = None,
    ) -> None:
        self._parameters = list(module.parameters())
        theta = torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])
        parts = theta.split([parameter.numel() for parameter in self._parameters])
        views = [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]
        for parameter, view in zip(self._parameters, views, strict=True):
            parameter.data = view
        self._theta, self._clip_norm = theta, clip_norm
        average = None if average_decay is None else MovingAverage(theta, decay=average_decay)
        self._server = Server(optimizer, views, schedule=schedule, average=average)

    def step(self, loss: Tensor, index: int) -> float:
        """One step, the `index`-th from 0, against the gradient of a loss; gives the loss.

        Raises:
            Diverged: instead of a step.
        """
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        norm, value = torch.nn.utils.get_total_norm(gradients).item(), loss.item()
        if not (math.isfinite(norm) and math.isfinite(value)):
            raise Diverged
        if self._clip_norm is not None and norm > self._clip_norm:
            gradients = [gradient * (self._clip_norm / norm) for gradient in gradients]
        self._server.step(gradients, index)
        return value

    def settle(self) -> None:
        """Put the moving average in place of the parameters, at the end."""
        self._theta.copy_(self._server.released(self._theta))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors, the parameters among them, and numbers."""
        tensors, numbers = self._server.state()
        return {"parameters": self._theta, **tensors}, numbers

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Put the state back."""
        self._theta.copy_(tensors["parameters"])
        self._server.load({name: value for name, value in tensors.items() if name != "parameters"}, numbers)


_ROWS = 256  # rows of categories a step
_LONGEST_GRADIENT = 5.0  # of the sequential autoencoder: a rare one is a hundred times as long as the others


class Codes(Protocol):
    """Rows of categories to learn from.

    Attributes:
        static_codes: int64 [n, categorical static columns], -1 where missing.
        codes: int64 [visits, categorical temporal columns].
    """

    @property
    def static_codes(self) -> np.ndarray: ...
    @property
    def codes(self) -> np.ndarray: ...


class Categories:
    """Learns the embeddings of categories, static ones and those of visits."""

    name, rate = "categories", "learning_rate"

    def __init__(
        self,
        settings: EHRSafeSettings,
        codecs: tuple[CategoryCodec, CategoryCodec],
        records: Codes,
        source: RandomSource,
    ) -> None:
        self._source = source
        pairs = zip(codecs, (records.static_codes, records.codes), strict=True)
        self._rows = [(codec, *np.unique(codes, axis=0, return_counts=True)) for codec, codes in pairs if codec.learns]
        self.steps = settings.category_steps if self._rows else 0
        trained = nn.ModuleList(codec for codec, _, _ in self._rows)
        optimizer = Optimizer(name="adam", learning_rate=settings.sizes.learning_rate, momentum=0.9)
        self._learner = Learner(trained, optimizer) if self._rows else None

    def step(self, index: int) -> dict[str, float]:
        """Cross-entropy of rows, each as likely as it is common."""
        random = np.random.default_rng(self._source.seed64("ehr categories", index))
        loss = torch.zeros(())
        for codec, rows, counts in self._rows:
            chosen = random.choice(len(rows), _ROWS, p=counts / counts.sum())
            codes = torch.from_numpy(rows[chosen])
            loss = loss + codec.losses(codec.logits(codec.encode(codes)), codes).mean()
        assert self._learner is not None
        return {"loss": self._learner.step(loss, index)}

    def learners(self) -> dict[str, Learner]:
        """One for both codecs."""
        return {} if self._learner is None else {"categories": self._learner}

    def settle(self) -> None:
        """Nothing more."""


class Sequences:
    """Learns the sequential autoencoder, epoch by epoch, each with scores of its own."""

    name, rate = "sequences", "learning_rate"

    def __init__(self, settings: EHRSafeSettings, codec: SequenceCodec, records: Records, source: RandomSource) -> None:
        self._settings, self._codec, self._records, self._source = settings, codec, records, source
        self._per_epoch = len(records.batches(settings.sizes.batch_size, source, 0))
        self.steps = settings.sizes.epochs * self._per_epoch
        optimizer = Optimizer(name="adam", learning_rate=settings.sizes.learning_rate, momentum=0.9)
        schedule = Schedule(kind="cosine", rounds=self.steps)
        self._learner = Learner(codec, optimizer, schedule=schedule, clip_norm=_LONGEST_GRADIENT)
        self._epoch = lru_cache(maxsize=1)(self._drawn_epoch)

    def _drawn_epoch(self, epoch: int) -> tuple[list[np.ndarray], Drawn]:
        return (
            self._records.batches(self._settings.sizes.batch_size, self._source, epoch),
            self._records.draw(self._source.seed64("ehr scores", epoch)),
        )

    def step(self, index: int) -> dict[str, float]:
        """A batch of patients."""
        epoch, place = divmod(index, self._per_epoch)
        batches, drawn = self._epoch(epoch)
        batch = self._records.batch(batches[place], drawn)
        generator = torch.Generator().manual_seed(self._source.seed64("ehr latent noise", index))
        noise = torch.randn(len(batches[place]), self._settings.latent, generator=generator)
        losses = self._codec.losses(
            batch,
            self._settings.latent_noise * noise,
            time_weight=self._settings.time_weight,
            visits=self._records.scales.visits,
        )
        return {"loss": self._learner.step(losses.mean(), index)}

    def learners(self) -> dict[str, Learner]:
        """That of the autoencoder."""
        return {"sequences": self._learner}

    def settle(self) -> None:
        """Nothing more."""


class Adversaries:
    """Learns the generator against the critic, on the latent vectors of all patients."""

    name, rate = "gan", "gan_learning_rate"

    def __init__(
        self,
        settings: EHRSafeSettings,
        generator: Generator,
        critic: Critic,
        latents: Tensor,
        source: RandomSource,
    ) -> None:
        self._settings, self._generator, self._critic = settings, generator, critic
        self._latents, self._source = latents, source
        self.steps = settings.sizes.gan_steps
        falls = Schedule(kind="cosine", rounds=self.steps)
        self._makes = Learner(
            generator, gan_optimizer(settings), schedule=falls, average_decay=settings.sizes.average_decay
        )
        self._judges = Learner(critic, gan_optimizer(settings))

    def step(self, index: int) -> dict[str, float]:
        """Several steps of the critic, one of the generator."""
        settings = self._settings
        random = torch.Generator().manual_seed(self._source.seed64("ehr gan", index))
        size, judged = settings.sizes.gan_batch_size, 0.0
        for turn in range(settings.sizes.critic_steps):
            real = self._latents[torch.randint(len(self._latents), (size,), generator=random)]
            with torch.no_grad():
                made = self._generator.drawn(size, random)
            share = torch.rand(size, 1, generator=random)
            losses = self._critic.losses(real, made, share, penalty=settings.gradient_penalty)
            judged = self._judges.step(losses.mean(), index * settings.sizes.critic_steps + turn)
        loss = -self._critic(self._generator.drawn(size, random)).mean()
        return {"loss": self._makes.step(loss, index), "critic_loss": judged}

    def learners(self) -> dict[str, Learner]:
        """Both sides."""
        return {"generator": self._makes, "critic": self._judges}

    def settle(self) -> None:
        """The generator's average is what draws."""
        self._makes.settle()


def gan_optimizer(settings: EHRSafeSettings) -> OptimizerFactory:
    """The optimiser of either side."""

    def make(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        if settings.gan_optimizer == "rmsprop":
            return torch.optim.RMSprop(parameters, settings.sizes.gan_learning_rate)
        # Gulrajani et al., table 1
        return torch.optim.Adam(parameters, settings.sizes.gan_learning_rate, betas=(0.0, 0.9))

    return make
