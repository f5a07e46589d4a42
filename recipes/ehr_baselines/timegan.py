"""TimeGAN: a GAN in the latent space of an autoencoder of sequences, with a network that foretells the next step.

Embedder, recovery, supervisor, generator and discriminator are recurrent. The autoencoder learns first, then the
supervisor on real latent sequences, then all together: the generator against the discriminator, the supervisor's error
on real sequences, and the distance of the means and deviations of generated from those of real frames.

As the authors' code does, the static columns go with every step instead of having an autoencoder of their own. Frames
hold masks, one-hot categories, times and the number of visits, which the paper does not have (see `frames`).

References:
    Yoon, Jarrett, van der Schaar 2019, Time-series Generative Adversarial Networks, NeurIPS. Equations 7 to 11; weights
    of the losses as in the authors' code.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ehr_baselines.frames import Frames
from ehr_baselines.networks import Recurrent, SequenceNetworks
from ehr_baselines.plan import BaselinePlan
from ehr_baselines.turns import Turns, learner, picked, taken_for
from sfumato import _check
from sfumato._random import RandomSource
from sfumato.synthesis.training import Stage

_RECONSTRUCTED, _FORETOLD, _MOMENTS = 10.0, 100.0, 100.0  # weights of the losses
_FORETOLD_BY_EMBEDDER = 0.1
_TURNS = 2  # of the generator and the embedder for each of the discriminator
_GOOD = 0.15  # a discriminator with a lower loss waits


class TimeGANNetworks(SequenceNetworks):
    """The five networks, for frames of `width` numbers and `steps` steps; latent sequences are [n, T, hidden]."""

    def __init__(self, width: int, steps: int, noise: int, hidden: int, layers: int) -> None:
        super().__init__()
        self._shape = (steps, noise)
        self.embedder = Recurrent(width, hidden, hidden, layers)
        self.recovery = Recurrent(hidden, width, hidden, layers)
        self.supervisor = Recurrent(hidden, hidden, hidden, max(1, layers - 1))
        self.generator = Recurrent(noise, hidden, hidden, layers)
        self.discriminator = Recurrent(hidden, 1, hidden, layers, squashed=False)

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform numbers [count, steps, noise]."""
        return torch.rand(count, *self._shape, generator=generator)

    def drawn(self, count: int, outcome: Tensor, generator: torch.Generator) -> Tensor:
        """New frames."""
        return self.recovery(self.supervisor(self.generator(self.noise(count, generator))))


@dataclass(frozen=True, kw_only=True)
class TimeGAN(BaselinePlan):
    """The plan.

    Attributes:
        embedding_steps: of the autoencoder, before anything else.
        supervised_steps: of the supervisor, after that.
        gamma: weight of latent sequences that the supervisor has not corrected, for both sides.
    """

    embedding_steps: int = 1000
    supervised_steps: int = 1000
    gamma: float = 1.0

    name: ClassVar[str] = "timegan"
    title: ClassVar[str] = "TimeGAN"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole(embedding_steps=self.embedding_steps, supervised_steps=self.supervised_steps)
        _check.non_negative(gamma=self.gamma)

    def networks(self, frames: Frames) -> TimeGANNetworks:
        """The five networks."""
        return TimeGANNetworks(frames.width, frames.steps, self.noise, self.hidden, self.layers)

    def stages(
        self, networks: TimeGANNetworks, frames: Tensor, outcome: Tensor, source: RandomSource
    ) -> Sequence[tuple[str, Callable[[], Stage]]]:
        """Autoencoder, supervisor, all together."""

        def real(random: torch.Generator) -> Tensor:
            return frames[picked(len(frames), self.batch_size, random)]

        def embedding() -> Stage:
            both = learner(self.learning_rate, networks.embedder, networks.recovery)

            def turn(index: int, random: torch.Generator) -> dict[str, float]:
                x = real(random)
                return {"loss": both.step(_reconstructed(networks, x, networks.embedder(x)), index)}

            return Turns("embedding", self.embedding_steps, {"embedding": both}, turn, source)

        def supervised() -> Stage:
            foretells = learner(self.learning_rate, networks.supervisor)

            def turn(index: int, random: torch.Generator) -> dict[str, float]:
                with torch.no_grad():
                    latent = networks.embedder(real(random))
                return {"loss": foretells.step(_foretold(networks, latent), index)}

            steps = self.supervised_steps if frames.shape[1] > 1 else 0  # else there is nothing to foretell
            return Turns("supervised", steps, {"supervisor": foretells}, turn, source)

        def joint() -> Stage:
            makes = learner(self.learning_rate, networks.generator, networks.supervisor)
            embeds = learner(self.learning_rate, networks.embedder, networks.recovery)
            judges = learner(self.learning_rate, networks.discriminator)

            def turn(index: int, random: torch.Generator) -> dict[str, float]:
                made = 0.0
                for part in range(_TURNS):
                    x, z = real(random), networks.noise(self.batch_size, random)
                    made = makes.step(self._generated(networks, x, z), index * _TURNS + part)
                    latent = networks.embedder(x)
                    loss = _reconstructed(networks, x, latent)
                    loss = loss + _FORETOLD_BY_EMBEDDER * _foretold(networks, latent)
                    embeds.step(loss, index * _TURNS + part)
                x, z = real(random), networks.noise(self.batch_size, random)
                loss = self._judged(networks, x, z)
                judged = judges.step(loss, index) if loss.item() > _GOOD or not loss.isfinite() else loss.item()
                return {"loss": made, "discriminator_loss": judged}

            learners = {"generator": makes, "embedding": embeds, "discriminator": judges}
            return Turns("joint", self.steps, learners, turn, source)

        return [("embedding", embedding), ("supervised", supervised), ("joint", joint)]

    def _generated(self, networks: TimeGANNetworks, x: Tensor, z: Tensor) -> Tensor:
        """The generator's loss."""
        with torch.no_grad():
            latent = networks.embedder(x)
        raw = networks.generator(z)
        made = networks.supervisor(raw)
        fooled = taken_for(networks.discriminator(made), real=True)
        fooled = fooled + self.gamma * taken_for(networks.discriminator(raw), real=True)
        return fooled + _FORETOLD * _root(_foretold(networks, latent)) + _MOMENTS * _moments(networks.recovery(made), x)

    def _judged(self, networks: TimeGANNetworks, x: Tensor, z: Tensor) -> Tensor:
        """The discriminator's loss."""
        with torch.no_grad():
            latent, raw = networks.embedder(x), networks.generator(z)
            made = networks.supervisor(raw)
        found = taken_for(networks.discriminator(latent), real=True)
        found = found + taken_for(networks.discriminator(made), real=False)
        return found + self.gamma * taken_for(networks.discriminator(raw), real=False)


def _reconstructed(networks: TimeGANNetworks, x: Tensor, latent: Tensor) -> Tensor:
    return _RECONSTRUCTED * _root(functional.mse_loss(networks.recovery(latent), x))


def _foretold(networks: TimeGANNetworks, latent: Tensor) -> Tensor:
    """Squared error of the supervisor's word on each next step; 0 for sequences of one."""
    if latent.shape[1] < 2:
        return latent.new_zeros(())
    return functional.mse_loss(networks.supervisor(latent)[:, :-1], latent[:, 1:])


def _moments(made: Tensor, x: Tensor) -> Tensor:
    """Mean distance of deviations and of means over a batch, of each channel at each step."""
    spread = ((made.var(0, correction=0) + 1e-6).sqrt() - (x.var(0, correction=0) + 1e-6).sqrt()).abs().mean()
    return spread + (made.mean(0) - x.mean(0)).abs().mean()


def _root(x: Tensor) -> Tensor:
    return (x + 1e-8).sqrt()
