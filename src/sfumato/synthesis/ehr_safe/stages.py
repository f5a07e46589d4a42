"""What is learned one after the other: categories, sequences, and the GAN on latent vectors.

A stage is a number of steps, each a function of the run's key, the step's number and the state before: so a stage that
goes on from its state ends bit for bit as if it had never stopped.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._random import RandomSource
from sfumato.synthesis.ehr_safe.categories import CategoryCodec
from sfumato.synthesis.ehr_safe.critic import Critic
from sfumato.synthesis.ehr_safe.generator import Generator
from sfumato.synthesis.ehr_safe.learner import Learner
from sfumato.synthesis.ehr_safe.records import Drawn, Records
from sfumato.synthesis.ehr_safe.sequences import SequenceCodec
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings
from sfumato.training import Optimizer
from sfumato.training.schedule import Schedule
from sfumato.training.server import OptimizerFactory

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
        self._parts = [(codec, *np.unique(codes, axis=0, return_counts=True)) for codec, codes in pairs if codec.learns]
        self.steps = settings.category_steps if self._parts else 0
        trained = nn.ModuleList(codec for codec, _, _ in self._parts)
        optimizer = Optimizer(name="adam", learning_rate=settings.learning_rate, momentum=0.9)
        self._learner = Learner(trained, optimizer) if self._parts else None

    def step(self, index: int) -> dict[str, float]:
        """Cross-entropy of rows, each as likely as it is common."""
        random = np.random.default_rng(self._source.seed64("ehr categories", index))
        loss = torch.zeros(())
        for codec, rows, counts in self._parts:
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
        self._per_epoch = len(records.batches(settings.batch_size, source, 0))
        self.steps = settings.epochs * self._per_epoch
        optimizer = Optimizer(name="adam", learning_rate=settings.learning_rate, momentum=0.9)
        schedule = Schedule(kind="cosine", rounds=self.steps)
        self._learner = Learner(codec, optimizer, schedule=schedule, clip_norm=_LONGEST_GRADIENT)
        self._epoch = lru_cache(maxsize=1)(self._drawn_epoch)

    def _drawn_epoch(self, epoch: int) -> tuple[list[np.ndarray], Drawn]:
        return (
            self._records.batches(self._settings.batch_size, self._source, epoch),
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
        self.steps = settings.gan_steps
        falls = Schedule(kind="cosine", rounds=self.steps)
        self._makes = Learner(generator, gan_optimizer(settings), schedule=falls, average_decay=settings.average_decay)
        self._judges = Learner(critic, gan_optimizer(settings))

    def step(self, index: int) -> dict[str, float]:
        """Several steps of the critic, one of the generator."""
        settings = self._settings
        random = torch.Generator().manual_seed(self._source.seed64("ehr gan", index))
        size, judged = settings.gan_batch_size, 0.0
        for turn in range(settings.critic_steps):
            real = self._latents[torch.randint(len(self._latents), (size,), generator=random)]
            with torch.no_grad():
                made = self._generator.drawn(size, random)
            share = torch.rand(size, 1, generator=random)
            losses = self._critic.losses(real, made, share, penalty=settings.gradient_penalty)
            judged = self._judges.step(losses.mean(), index * settings.critic_steps + turn)
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
            return torch.optim.RMSprop(parameters, settings.gan_learning_rate)
        # Gulrajani et al., table 1
        return torch.optim.Adam(parameters, settings.gan_learning_rate, betas=(0.0, 0.9))

    return make
