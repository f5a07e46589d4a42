"""C-RNN-GAN: a generator that reads its own last step next to fresh noise, and a discriminator that reads both ways.

Both are LSTMs. The generator first learns to foretell the next step of real sequences. Then it learns by feature
matching: the means of the discriminator's last layer over generated records are to be those over real ones. A side
whose loss is below a share of the other's is not updated in that step ("freezing"); the generator's loss in this
comparison is the cross-entropy −log D, which the discriminator's is measured in, too.

Beyond the paper: Adam for both sides, a bound on the gradient, no curriculum of lengths; and frames hold masks, one-hot
categories, times, static columns and the number of visits (see `frames`).

References:
    Mogren 2016, C-RNN-GAN: Continuous recurrent neural networks with adversarial training, arXiv 1611.09904. Section 3.
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
from ehr_baselines.turns import Turns, blurred, learner, picked, taken_for
from sfumato import _check
from sfumato._random import RandomSource
from sfumato.synthesis.training import Stage


class CRNNGANNetworks(SequenceNetworks):
    """Generator and discriminator, for frames of `width` numbers and `steps` steps."""

    def __init__(self, width: int, steps: int, noise: int, hidden: int, layers: int) -> None:
        super().__init__()
        self._shape, self._width = (steps, noise), width
        self.generator = Recurrent(noise + width, width, hidden, layers, cell="lstm")
        self.discriminator = Recurrent(width, 1, hidden, layers, cell="lstm", both_ways=True, squashed=False)

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform numbers [count, steps, noise]."""
        return torch.rand(count, *self._shape, generator=generator)

    def drawn(self, count: int, outcome: Tensor, generator: torch.Generator) -> Tensor:
        """New frames, step by step."""
        noise, last, state, found = self.noise(count, generator), torch.zeros(count, 1, self._width), None, []
        for step in range(self._shape[0]):
            features, state = self.generator.states(torch.cat([noise[:, step : step + 1], last], dim=2), state)
            last = self.generator.read_out(features)
            found.append(last)
        return torch.cat(found, dim=1)

    def foretold(self, frames: Tensor, generator: torch.Generator) -> Tensor:
        """What the generator gives where real steps come before each one, [n, T, width]."""
        before = torch.cat([torch.zeros_like(frames[:, :1]), frames[:, :-1]], dim=1)
        return self.generator(torch.cat([self.noise(len(frames), generator), before], dim=2))


@dataclass(frozen=True, kw_only=True)
class CRNNGAN(BaselinePlan):
    """The plan.

    Attributes:
        pretraining_steps: of the generator, on the next step of real sequences.
        frozen_below: a side whose loss is lower than this share of the other's waits, in [0, 1].
    """

    pretraining_steps: int = 200
    frozen_below: float = 0.7

    name: ClassVar[str] = "crnngan"
    title: ClassVar[str] = "C-RNN-GAN"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole(pretraining_steps=self.pretraining_steps)
        _check.between(0.0, 1.0, frozen_below=self.frozen_below)

    def networks(self, frames: Frames) -> CRNNGANNetworks:
        """Generator and discriminator."""
        return CRNNGANNetworks(frames.width, frames.steps, self.noise, self.hidden, self.layers)

    def stages(
        self, networks: CRNNGANNetworks, frames: Tensor, outcome: Tensor, source: RandomSource
    ) -> Sequence[tuple[str, Callable[[], Stage]]]:
        """The generator alone, then both sides."""

        def real(random: torch.Generator) -> Tensor:
            return frames[picked(len(frames), self.batch_size, random)]

        def pretraining() -> Stage:
            makes = learner(self.learning_rate, networks.generator)

            def turn(index: int, random: torch.Generator) -> dict[str, float]:
                x = real(random)
                return {"loss": makes.step(functional.mse_loss(networks.foretold(x, random), x), index)}

            return Turns("pretraining", self.pretraining_steps, {"generator": makes}, turn, source)

        def adversaries() -> Stage:
            makes = learner(self.learning_rate, networks.generator)
            judges = learner(self.learning_rate, networks.discriminator)
            discriminator = networks.discriminator

            def turn(index: int, random: torch.Generator) -> dict[str, float]:
                both = real(random), networks.drawn(self.batch_size, outcome, random)
                x, made = (blurred(each, self.blur, random) for each in both)
                judged = taken_for(discriminator(x), real=True) + taken_for(discriminator(made.detach()), real=False)
                judged = judged / 2
                with torch.no_grad():
                    wanted = discriminator.features(x).mean(0)
                seen = discriminator.features(made)
                fooled = taken_for(discriminator.read_out(seen), real=True).item()
                matched = functional.mse_loss(seen.mean(0), wanted)
                # both gradients are of the weights before this step
                reported = {"loss": matched.item(), "fooled": fooled, "discriminator_loss": judged.item()}
                if not fooled < self.frozen_below * judged.item():
                    makes.step(matched, index)
                if not judged.item() < self.frozen_below * fooled:
                    judges.step(judged, index)
                return reported

            return Turns("gan", self.steps, {"generator": makes, "discriminator": judges}, turn, source)

        return [("pretraining", pretraining), ("gan", adversaries)]
