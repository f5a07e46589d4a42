"""The server's optimiser where nobody chose its learning rate: as fast as the noise of the whole run allows.

A round's noise has std s = z·C/K in each of the model's d coordinates. SGD of rate η and momentum μ carries it as far
as η·s/(1−μ), and T rounds are a walk of T independent steps, so all noise together moves the model by about
η·s·√(d·T)/(1−μ). Noise that is correlated over the rounds walks less far: T is then the largest variance of its prefix
sums. The rate is the highest at which this is at most `MOST_MOVED`, and never above one that is given.
With small cohorts and large models the usual rates move it by thousands: clients then start from weights that are noise
alone, their losses explode, and the run costs privacy for nothing.

The rate follows from public numbers, so it costs nothing. It says that noise does not drown the model, not that the
model learns.

>>> authors = Restrained(learning_rate=0.02, momentum=0.9, noise_std=0.62 / 32, rounds=200)
>>> round(authors.rate(453_632), 4)
0.0108
>>> small_cohort = Restrained(learning_rate=0.02, momentum=0.9, noise_std=7.19 / 4, rounds=200)
>>> f"{small_cohort.rate(5_327_872):.1e}", small_cohort.rate(10)
('3.4e-05', 0.02)
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from sfumato.training import Optimizer

MOST_MOVED = 20.0
"""About the L2 norm of a fresh LeNet, so that the noise does not outweigh what the run starts from; what happens beyond
it is in docs/explanation/lab-notes.md."""

_FORGETS = 0.99  # torch's decay of RMSprop's running square
_GROWS = 1 - 0.999  # of the squares, that Yogi's grows by in a step


@dataclass(frozen=True, kw_only=True)
class Restrained(Optimizer):
    """An optimiser whose learning rate is that given, or what the noise allows if that is less.

    Attributes:
        noise_std: of a coordinate of the mean in a round, z·C/K; 0 for none.
        rounds: how often it steps.
        walk: largest variance of the sums of the rounds' noise, in that of one round; None for `rounds`.
    """

    noise_std: float
    rounds: int
    walk: float | None = None

    def rate(self, size: int) -> float:
        """The learning rate for so many trained parameters.

        Optimisers that divide by a running norm of their gradients take steps of about 1 whatever the noise is;
        RMSprop and Yogi take longer ones at first, for their running norms begin at zero.
        """
        walked: float = size * self.rounds
        if self.name == "sgd":
            walked = size * (self.rounds if self.walk is None else self.walk) * self.noise_std**2
        if self.name == "rmsprop":
            walked = size * sum(1 / (1 - _FORGETS**step) for step in range(1, self.rounds + 1))
        if self.name == "yogi":
            walked = size * sum(1 / min(1.0, _GROWS * step) for step in range(1, self.rounds + 1))
        carried = 1 / (1 - self.momentum) if self.name in ("sgd", "rmsprop") else 1.0
        moved = self.learning_rate * carried * math.sqrt(walked)
        return self.learning_rate * min(1.0, MOST_MOVED / moved) if moved and self.noise_std else self.learning_rate

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Build it at this rate."""
        chosen = self.rate(sum(parameter.numel() for parameter in parameters))
        return super(Restrained, replace(self, learning_rate=chosen)).__call__(parameters)
