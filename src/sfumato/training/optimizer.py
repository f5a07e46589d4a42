"""The optimiser of a plan: its kind, its rate, how the rate goes, and the moving average that is released.

It sees the noisy mean of a round and nothing else. A schedule is a function of the round alone, and a moving average is
made of released models, so both cost no privacy.

>>> Optimizer("sgd", learning_rate=0.5, momentum=0.9, nesterov=True).learning_rate
0.5
>>> schedule = Schedule(kind="cosine", rounds=10, warm_up=2)
>>> [round(schedule.factor(index), 3) for index in (0, 1, 2, 6, 9)]
[0.5, 1.0, 1.0, 0.5, 0.038]

A rate that is left open is what the noise allows. A round's noise has std s = z·C/K in each of the model's d
coordinates. SGD of rate η and momentum μ carries it as far as η·s/(1−μ), and T rounds are a walk of T independent
steps, so all noise together moves the model by about η·s·√(d·T)/(1−μ). Noise that is correlated over the rounds walks
less far: T is then the largest variance of its prefix sums. The rate is the highest at which this is at most
`MOST_MOVED`. With small cohorts and large models the usual rates move it by thousands: clients then start from weights
that are noise alone, their losses explode, and the run costs privacy for nothing. The rate follows from public numbers,
so it costs nothing. It says that noise does not drown the model, not that the model learns.

>>> authors = NoiseLimited(Optimizer("sgd", learning_rate=0.02, momentum=0.9), noise_std=0.62 / 32, rounds=200)
>>> round(authors.rate(453_632), 4)
0.0108
>>> small_cohort = NoiseLimited(Optimizer("sgd", learning_rate=0.02, momentum=0.9), noise_std=7.19 / 4, rounds=200)
>>> f"{small_cohort.rate(5_327_872):.1e}", small_cohort.rate(10)
('3.4e-05', 0.02)

References:
    Loshchilov, Hutter: SGDR. ICLR 2017 (cosine). Goyal et al.: Accurate, Large Minibatch SGD. 2017 (warm-up).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from sfumato import _check
from sfumato._check import LARGEST_SINGLE, InputError
from sfumato._parts import Kinds

if TYPE_CHECKING:
    import torch
    from torch import nn

MOST_MOVED = 20.0
"""About the L2 norm of a fresh LeNet, so that the noise does not outweigh what the run starts from; what happens beyond
it is in docs/explanation/lab-notes.md."""

_FORGETS = 0.99  # torch's decay of RMSprop's running square
_GROWS = 1 - 0.999  # of the squares, that Yogi's grows by in a step

OptimizerName = Literal["sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop", "yogi"]
_CORRECTED = ("adam", "adamw", "nadam")
"""Those that divide the rate of their first step by 1 - momentum, which has to stay a number of single precision."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A factor on the learning rate for each round.

    Attributes:
        kind: "constant", or "cosine" down to zero.
        rounds: rounds of the whole run.
        warm_up: rounds at the start in which the rate rises in equal steps.
    """

    kind: Literal["constant", "cosine"] = "constant"
    rounds: int
    warm_up: int = 0

    def __post_init__(self) -> None:
        _check.one_of(("constant", "cosine"), schedule=self.kind)
        _check.whole(rounds=self.rounds)
        _check.whole(at_least=0, warm_up=self.warm_up)

    def factor(self, round_index: int) -> float:
        """What the learning rate is multiplied with in this round, from 0; in [0, 1]."""
        if round_index < self.warm_up:
            return (round_index + 1) / self.warm_up
        if self.kind == "constant":
            return 1.0
        progress = (round_index - self.warm_up) / max(1, self.rounds - self.warm_up)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """A torch optimiser that takes the steps.

    Attributes:
        name: "sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop" or "yogi".
        learning_rate: on the noisy mean, > 0; None for what the noise of all rounds allows.
        momentum: SGD's and RMSprop's momentum, the first beta of Adam's kin; in [0, 1).
        nesterov: Nesterov's momentum, for SGD.
        weight_decay: added to the gradient times the weight, >= 0.
        schedule: "constant", or "cosine" down to zero at the last round.
        warm_up: rounds at the start in which the learning rate rises.
        ema_decay: release a moving average of the models with this decay, 0.9 for example; None releases the last.
    """

    name: OptimizerName = field(default="sgd", kw_only=False)
    learning_rate: float | None = 1.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warm_up: int = 0
    ema_decay: float | None = None

    def __post_init__(self) -> None:
        _check.one_of(get_args(OptimizerName), optimizer=self.name)
        _check.between(0.0, 1.0, ends="[)", momentum=self.momentum)
        _check.non_negative(weight_decay=self.weight_decay)
        _check.between(0.0, LARGEST_SINGLE, weight_decay=self.weight_decay)
        if self.learning_rate is not None:
            _check.positive(learning_rate=self.learning_rate)
            _check.between(0.0, LARGEST_SINGLE, learning_rate=self.learning_rate)
            if self.name in _CORRECTED:
                _check.between(0.0, LARGEST_SINGLE * (1 - self.momentum), learning_rate=self.learning_rate)
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise InputError("nesterov needs the optimiser sgd and a momentum > 0, 0.9 for example")
        if self.ema_decay is not None:
            _check.between(0.0, 1.0, ends="[)", ema_decay=self.ema_decay)
        _ = self.rate_schedule(1)  # checks its fields

    def rate_schedule(self, rounds: int) -> Schedule | None:
        """How the learning rate goes; None leaves it as it is."""
        made = Schedule(kind=self.schedule, rounds=rounds, warm_up=self.warm_up)
        return None if self.schedule == "constant" and not self.warm_up else made

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Build it."""
        from sfumato.training.server import build

        if self.learning_rate is None:
            raise InputError("learning_rate is open, and no plan has decided it; give one, 1.0 for example")
        return build(self, parameters, self.learning_rate)


OPTIMIZERS = Kinds[Optimizer](
    {"optimizer": Optimizer}, number="learning_rate", text="name", values=get_args(OptimizerName)
)
"""A plan's optimiser may be given by its name or by its rate."""


@dataclass(frozen=True)
class NoiseLimited:
    """An optimiser whose learning rate is that given, or what the noise allows if that is less.

    Attributes:
        optimizer: its settings, with the highest rate.
        noise_std: of a coordinate of the mean in a round, z·C/K; 0 for none.
        rounds: how often it steps.
        variance: largest variance of the sums of the rounds' noise, in that of one round; None for `rounds`.
    """

    optimizer: Optimizer
    noise_std: float
    rounds: int
    variance: float | None = None

    def rate(self, size: int) -> float:
        """The learning rate for so many trained parameters.

        Optimisers that divide by a running norm of their gradients take steps of about 1 whatever the noise is;
        RMSprop and Yogi take longer ones at first, for their running norms begin at zero.
        """
        name, momentum, highest = self.optimizer.name, self.optimizer.momentum, self.optimizer.learning_rate or 0.0
        walked: float = size * self.rounds
        if name == "sgd":
            walked = size * (self.rounds if self.variance is None else self.variance) * self.noise_std**2
        if name == "rmsprop":
            walked = size * sum(1 / (1 - _FORGETS**step) for step in range(1, self.rounds + 1))
        if name == "yogi":
            walked = size * sum(1 / min(1.0, _GROWS * step) for step in range(1, self.rounds + 1))
        carried = 1 / (1 - momentum) if name in ("sgd", "rmsprop") else 1.0
        moved = highest * carried * math.sqrt(walked)
        return highest * min(1.0, MOST_MOVED / moved) if moved and self.noise_std else highest

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Build it at this rate."""
        from sfumato.training.server import build

        return build(self.optimizer, parameters, self.rate(sum(parameter.numel() for parameter in parameters)))
