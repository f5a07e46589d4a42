"""A stage whose steps are a function of their number and of what is drawn for it."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._random import RandomSource
from sfumato.synthesis.training import Diverged, Learner
from sfumato.training.server import OptimizerFactory

_LONGEST_GRADIENT = 5.0
_BETAS = (0.5, 0.9)  # with 0.9 adversaries swing, and all records become one


class Turns:
    """A stage.

    Args:
        name: of the stage.
        steps: how many.
        learners: that learn in it, by names.
        turn: takes a step, from its number and a generator of its own, and gives losses.
        source: of the generators.
    """

    rate = "learning_rate"

    def __init__(
        self,
        name: str,
        steps: int,
        learners: dict[str, Learner],
        turn: Callable[[int, torch.Generator], dict[str, float]],
        source: RandomSource,
    ) -> None:
        self.name, self.steps = name, steps
        self._learners, self._turn, self._source = learners, turn, source

    def step(self, index: int) -> dict[str, float]:
        """Take a step.

        Raises:
            Diverged: a loss is not finite.
        """
        seed = self._source.seed64("baseline step", self.name, index)
        losses = self._turn(index, torch.Generator().manual_seed(seed))
        if not all(math.isfinite(loss) for loss in losses.values()):  # also of a side that waits
            raise Diverged
        return losses

    def learners(self) -> dict[str, Learner]:
        """All of them."""
        return self._learners

    def settle(self) -> None:
        """Nothing more."""


def learner(rate: float, *modules: nn.Module) -> Learner:
    """Adam for the parameters of some modules, with a bound on the gradient.

    Args:
        rate: the learning rate.
        modules: that learn together.
    """

    def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, rate, betas=_BETAS)

    factory: OptimizerFactory = adam
    return Learner(nn.ModuleList(modules), factory, clip_norm=_LONGEST_GRADIENT)


def picked(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Rows of a batch, int64 [size], drawn from `count` with replacement."""
    return torch.randint(count, (size,), generator=generator)


def taken_for(logits: Tensor, *, real: bool) -> Tensor:
    """Mean cross-entropy of a discriminator's logits against one answer for all."""
    answer = torch.full_like(logits, float(real))
    return functional.binary_cross_entropy_with_logits(logits, answer)


def blurred(frames: Tensor, spread: float, generator: torch.Generator) -> Tensor:
    """Frames with normal numbers of this deviation added, as a discriminator sees them.

    Masks and categories of real records are exactly 0 or 1, which those of a generator never are: without noise a
    discriminator looks at nothing else.
    """
    return frames + spread * torch.randn(frames.shape, generator=generator)
