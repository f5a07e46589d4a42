"""The server's step: any torch optimiser, with the noisy mean delta as its gradient, and a plan's settings of it.

>>> theta = torch.zeros(2)
>>> server = Server(Optimizer(learning_rate=0.5), [theta])
>>> server.step([torch.tensor([2.0, -2.0])]); theta.tolist()
[-1.0, 1.0]

The optimiser sees the noisy mean of a round and nothing else. A schedule is a function of the round alone, and a moving
average is made of released models, so both cost no privacy.

>>> Optimizer("sgd", learning_rate=0.5, momentum=0.9, nesterov=True).learning_rate
0.5
>>> schedule = Schedule(kind="cosine", rounds=10, warm_up=2)
>>> [round(schedule.factor(index), 3) for index in (0, 1, 2, 6, 9)]
[0.5, 1.0, 1.0, 0.5, 0.038]

**Rate.** One that is left open is what the noise allows. A round's noise has std s = z·C/K in each of the model's d
coordinates. SGD of rate η and momentum μ carries it as far as η·s/(1−μ), and T rounds are a walk of T independent
steps, so all noise together moves the model by about η·s·√(d·T)/(1−μ). Noise that is correlated over the rounds walks
less far: T is then the largest variance of its prefix sums. The rate is the highest at which this is at most
`MAX_NOISE_NORM`. With small cohorts and large models the usual rates move it by thousands: clients then start from
weights that are noise alone, their losses explode, and the run costs privacy for nothing. The rate follows from public
numbers, so it costs nothing. It ensures that noise does not drown the model, not that the model learns.

>>> authors = NoiseLimited(Optimizer("sgd", learning_rate=0.02, momentum=0.9), noise_std=0.62 / 32, rounds=200)
>>> round(authors.rate(453_632), 4)
0.0108
>>> small_cohort = NoiseLimited(Optimizer("sgd", learning_rate=0.02, momentum=0.9), noise_std=7.19 / 4, rounds=200)
>>> f"{small_cohort.rate(5_327_872):.1e}", small_cohort.rate(10)
('3.4e-05', 0.02)

**Moving average.** Noise in the last steps averages out. In round t the decay is min(d, (1 + t)/(10 + t)), so that the
first models do not weigh on the average for long (De, Berrada, Hayes, Smith and Balle 2022, appendix C).

>>> theta = torch.tensor([1.0])
>>> average = MovingAverage(theta, decay=0.5)
>>> _ = theta.copy_(torch.tensor([3.0])); average.add(0); round(average.vector.item(), 3)  # 0.1·1 + 0.9·3
2.8

References:
    Loshchilov, Hutter: SGDR. ICLR 2017 (cosine). Goyal et al.: Accurate, Large Minibatch SGD. 2017 (warm-up).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from sfumato import _check
from sfumato._check import LARGEST_SINGLE, InputError
from sfumato._lazy import torch
from sfumato._parts import Kinds

if TYPE_CHECKING:
    from torch import Tensor, nn

OptimizerFactory = Callable[[list["nn.Parameter"]], "torch.optim.Optimizer"]
"""Builds an optimiser of some parameters."""

MAX_NOISE_NORM = 20.0
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
        distance = highest * carried * math.sqrt(walked)
        return highest * min(1.0, MAX_NOISE_NORM / distance) if distance and self.noise_std else highest

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Build it at this rate."""
        return build(self.optimizer, parameters, self.rate(sum(parameter.numel() for parameter in parameters)))


class MovingAverage:
    """Follows a parameter vector.

    Args:
        theta: float [size], the vector that the server writes to.
        decay: d, in [0, 1).

    Attributes:
        vector: float [size], the average.
        decay: d.
    """

    def __init__(self, theta: Tensor, *, decay: float) -> None:
        _check.between(0.0, 1.0, ends="[)", ema_decay=decay)
        self._theta = theta
        self.decay = decay
        self.vector = theta.clone()

    def add(self, round_index: int) -> None:
        """Take in the vector as it is after this round, from 0."""
        torch.lerp(self._theta, self.vector, decay_at(self.decay, round_index), out=self.vector)


def build(settings: Optimizer, parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """The optimiser of these settings at this rate.

    Settings that they do not name are torch's: Adam's second beta is 0.999 and its epsilon 1e-8. Yogi is not in torch.
    """
    name, momentum, decay = settings.name, settings.momentum, settings.weight_decay
    if name == "sgd":
        return torch.optim.SGD(
            parameters, learning_rate, momentum=momentum, nesterov=settings.nesterov, weight_decay=decay
        )
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, learning_rate, momentum=momentum, weight_decay=decay)
    if name == "adagrad":
        return torch.optim.Adagrad(parameters, learning_rate, weight_decay=decay)
    if name == "yogi":
        from sfumato.training.yogi import Yogi

        return Yogi(parameters, learning_rate, betas=(momentum, 0.999), weight_decay=decay)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam}
    return kinds[name](parameters, learning_rate, betas=(momentum, 0.999), weight_decay=decay)


@dataclass(frozen=True)
class RowSteps:
    """Steps of SGD or Adam as rows of a table take them.

    Attributes:
        optimizer: its name.
        momentum, nesterov, weight_decay: of torch's SGD.
        adam: both betas and epsilon, of torch's Adam; None for SGD.
        rate: the learning rate, without its schedule.
        schedule: of the rate, or None.
        average: decay of the moving average, or None.
    """

    optimizer: str
    momentum: float
    nesterov: bool
    weight_decay: float
    adam: tuple[float, float, float] | None
    rate: float
    schedule: Schedule | None
    average: float | None

    def at(self, round_index: int) -> tuple[float, float]:
        """The rate, and the decay of the average, in a round, from 0."""
        factor = 1.0 if self.schedule is None else self.schedule.factor(round_index)
        return self.rate * factor, 0.0 if self.average is None else decay_at(self.average, round_index)


def decay_at(decay: float, round_index: int) -> float:
    """The decay of a moving average in a round, from 0: less at first."""
    return min(decay, (1 + round_index) / (10 + round_index))


class Server:
    """Holds the optimiser of the released parameters.

    Args:
        make: builds the optimiser from a list of parameters.
        views: views of the parameter vector, in the parameters' shapes; the optimiser writes through them.
        schedule: multiplies the learning rates, round by round; None leaves them to the optimiser.
        average: a moving average of the parameters, which is then what is released; None for none.
    """

    def __init__(
        self,
        make: OptimizerFactory,
        views: Sequence[Tensor],
        *,
        schedule: Schedule | None = None,
        average: MovingAverage | None = None,
    ) -> None:
        self._parameters = [torch.nn.Parameter(view) for view in views]
        for parameter, view in zip(self._parameters, views, strict=True):
            parameter.data = view
        self._optimizer = make(self._parameters)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._schedule = schedule
        self._average = average

    @property
    def learning_rate(self) -> float | list[float] | None:
        """Of the last step; a list where groups of parameters differ; None where the optimiser does not show it."""
        rates = [float(group["lr"]) for group in self._optimizer.param_groups]
        return rates if len(set(rates)) > 1 else rates[0] if rates else None

    def step(self, gradients: Sequence[Tensor], round_index: int = 0) -> None:
        """One step against the noisy mean of a round, from 0."""
        if self._schedule is not None:
            factor = self._schedule.factor(round_index)
            for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * factor
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(gradient)  # kept from round to round: fresh memory costs more than the step
        self._optimizer.step()
        if self._average is not None:
            self._average.add(round_index)

    def row_steps(self) -> RowSteps:
        """The same steps for tables that train row by row.

        Raises:
            InputError: the optimiser is neither SGD nor Adam.
        """
        groups, name = self._optimizer.param_groups, type(self._optimizer).__name__
        first = groups[0]
        adam = type(self._optimizer) is torch.optim.Adam
        extras = ("amsgrad", "maximize", "decoupled_weight_decay") if adam else ("dampening", "maximize")
        if not (adam or type(self._optimizer) is torch.optim.SGD) or len(groups) > 1 or any(map(first.get, extras)):
            raise InputError(
                f"tables row by row need plain SGD, or Adam with tables=adafest, got {name}; use server=sgd, or "
                "tables=dense"
            )
        return RowSteps(
            optimizer=name,
            momentum=first.get("momentum", 0.0),
            nesterov=first.get("nesterov", False),
            weight_decay=first["weight_decay"],
            adam=(float(first["betas"][0]), float(first["betas"][1]), first["eps"]) if adam else None,
            rate=float(self._rates[0]),
            schedule=self._schedule,
            average=None if self._average is None else self._average.decay,
        )

    def restart(self) -> None:
        """Forget what was gathered from earlier rounds: momentum and running squares."""
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": {}})

    def released(self, theta: Tensor) -> Tensor:
        """What is released of the parameters: their moving average where there is one."""
        return theta if self._average is None else self._average.vector

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers of the optimiser's state."""
        tensors, numbers = {}, {}
        whole = self._optimizer.state_dict()
        groups = {index: {k: v for k, v in g.items() if k != "params"} for index, g in enumerate(whole["param_groups"])}
        for kind, parts in (("server", whole["state"]), ("group", groups)):
            for index, entries in parts.items():
                for name, value in entries.items():
                    if isinstance(value, torch.Tensor):
                        tensors[f"{kind}.{index}.{name}"] = value
                    elif _plain(value):
                        numbers[f"{kind}.{index}.{name}"] = value
                    else:
                        raise InputError(
                            f"the server optimiser {type(self._optimizer).__name__} keeps {name} as "
                            f"{type(value).__name__}, which a checkpoint cannot hold; use another optimiser"
                        )
        if self._average is not None:
            tensors["average"] = self._average.vector
        return tensors, numbers

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Put the state back."""
        whole = self._optimizer.state_dict()
        whole["state"] = {}
        for key, value in [*tensors.items(), *numbers.items()]:
            kind, _, rest = key.partition(".")
            index, _, name = rest.partition(".")
            if kind == "server":
                whole["state"].setdefault(int(index), {})[name] = value
            elif kind == "group":
                whole["param_groups"][int(index)][name] = value
        self._optimizer.load_state_dict(whole)
        if self._average is not None:
            self._average.vector.copy_(tensors["average"])

    def describe(self) -> str:
        """The optimiser and its settings, to distinguish one from another."""
        groups = [
            {k: v for k, v in group.items() if k != "params"} for group in self._optimizer.state_dict()["param_groups"]
        ]
        return f"{type(self._optimizer).__qualname__} {groups}"


def _plain(value: object) -> bool:
    """Whether JSON can hold it."""
    if isinstance(value, list | tuple):
        return all(_plain(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str)
