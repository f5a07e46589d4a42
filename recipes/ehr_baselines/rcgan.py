"""RC-GAN: a recurrent generator and a recurrent discriminator, which both get the label at every step.

The label is the outcome of the schema: new records get one by the shares of the real ones, and no row of a real patient
serves as a condition. Other static columns are generated like the rest. Without an outcome this is the paper's RGAN.

The generator is an LSTM that gets fresh noise at each step; the discriminator, another one, answers at each step, and
its loss is the mean of the cross-entropies. Beyond the paper: both learn by Adam with a bound on the gradient, and
frames hold masks, one-hot categories, times and the number of visits (see `frames`).

References:
    Esteban, Hyland, Rätsch 2017, Real-valued (Medical) Time Series Generation with Recurrent Conditional GANs, arXiv
    1706.02633. Section 3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ehr_baselines.frames import Frames
from ehr_baselines.networks import Recurrent, SequenceNetworks, repeated
from ehr_baselines.plan import BaselinePlan
from ehr_baselines.turns import Turns, blurred, learner, picked, taken_for
from sfumato._random import RandomSource
from sfumato.synthesis.training import Stage


class RCGANNetworks(SequenceNetworks):
    """Generator and discriminator, for frames of `width` numbers, `steps` steps and `labels` categories."""

    conditional = True

    def __init__(self, width: int, labels: int, steps: int, noise: int, hidden: int, layers: int) -> None:
        super().__init__()
        self._shape = (steps, noise)
        self.generator = Recurrent(noise + labels, width, hidden, layers, cell="lstm")
        self.discriminator = Recurrent(width + labels, 1, hidden, layers, cell="lstm", squashed=False)

    def drawn(self, count: int, outcome: Tensor, generator: torch.Generator) -> Tensor:
        """New frames of these outcomes."""
        steps, _ = self._shape
        noise = torch.randn(count, *self._shape, generator=generator)
        return self.generator(torch.cat([noise, repeated(outcome, steps)], dim=2))

    def judged(self, frames: Tensor, outcome: Tensor) -> Tensor:
        """Logits of being real, [n, T]."""
        return self.discriminator(torch.cat([frames, repeated(outcome, frames.shape[1])], dim=2))[..., 0]


@dataclass(frozen=True, kw_only=True)
class RCGAN(BaselinePlan):
    """The plan; its fields are those of all three."""

    name: ClassVar[str] = "rcgan"
    title: ClassVar[str] = "RC-GAN"

    def networks(self, frames: Frames) -> RCGANNetworks:
        """Generator and discriminator."""
        labels = len(frames.outcomes) - 1
        return RCGANNetworks(frames.width, labels, frames.steps, self.noise, self.hidden, self.layers)

    def stages(
        self, networks: RCGANNetworks, frames: Tensor, outcome: Tensor, source: RandomSource
    ) -> Sequence[tuple[str, Callable[[], Stage]]]:
        """One stage: a step of the discriminator, one of the generator."""

        def adversaries() -> Stage:
            makes = learner(self.learning_rate, networks.generator)
            judges = learner(self.learning_rate, networks.discriminator)

            def turn(index: int, random: torch.Generator) -> dict[str, float]:
                rows = picked(len(frames), self.batch_size, random)
                labels = outcome[rows]
                with torch.no_grad():
                    made = networks.drawn(len(rows), labels, random)
                real, made = (blurred(each, self.blur, random) for each in (frames[rows], made))
                loss = taken_for(networks.judged(real, labels), real=True)
                loss = loss + taken_for(networks.judged(made, labels), real=False)
                judged = judges.step(loss, index)
                labels = outcome[picked(len(frames), self.batch_size, random)]
                made = blurred(networks.drawn(len(labels), labels, random), self.blur, random)
                fooled = taken_for(networks.judged(made, labels), real=True)
                return {"loss": makes.step(fooled, index), "discriminator_loss": judged}

            return Turns("gan", self.steps, {"generator": makes, "discriminator": judges}, turn, source)

        return [("gan", adversaries)]
