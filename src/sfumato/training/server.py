"""The server's step: any torch optimiser, with the noisy mean delta as its gradient.

>>> theta = torch.zeros(2)
>>> from sfumato.training.optimizer import Optimizer
>>> server = Server(Optimizer(learning_rate=0.5), [theta])
>>> server.step([torch.tensor([2.0, -2.0])]); theta.tolist()
[-1.0, 1.0]

A moving average of the parameters: it is made of released models, so it costs no privacy.

Noise in the last steps averages out. In round t the decay is min(d, (1 + t)/(10 + t)), so that the first models do not
weigh on the average for long (De, Berrada, Hayes, Smith and Balle 2022, appendix C).

>>> theta = torch.tensor([1.0])
>>> average = MovingAverage(theta, decay=0.5)
>>> _ = theta.copy_(torch.tensor([3.0])); average.add(0); round(average.vector.item(), 3)  # 0.1·1 + 0.9·3
2.8

Yogi: Adam whose second moment moves by a step of the gradient's square and not towards it.

Where updates are sparse or noisy, Adam's second moment forgets too fast. As the server's optimiser it is FedYogi, which
begins with moments of `start`² and has no correction of the first steps.

>>> weight = torch.nn.Parameter(torch.zeros(1))
>>> weight.grad = torch.tensor([0.5])
>>> Yogi([weight], 0.01, betas=(0.9, 0.999)).step(); round(weight.item(), 4)  # 0.01 · 0.05 / (√0.000251 + 0.001)
-0.0297

References:
    Zaheer, Reddi, Sachan, Kale, Kumar: Adaptive Methods for Nonconvex Optimization. NeurIPS 2018.
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization. ICLR 2021,
    algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sfumato import _check
from sfumato._check import InputError

if TYPE_CHECKING:
    from sfumato.training.optimizer import Optimizer, Schedule


class MovingAverage:
    """Follows a parameter vector.

    Args:
        theta: float [size], the vector that the server writes to.
        decay: d, in [0, 1).

    Attributes:
        vector: float [size], the average.
    """

    def __init__(self, theta: Tensor, *, decay: float) -> None:
        _check.between(0.0, 1.0, ends="[)", ema_decay=decay)
        self._theta = theta
        self._decay = decay
        self.vector = theta.clone()

    def add(self, round_index: int) -> None:
        """Take in the vector as it is after this round, from 0."""
        decay = min(self._decay, (1 + round_index) / (10 + round_index))
        torch.lerp(self._theta, self.vector, decay, out=self.vector)


class Yogi(torch.optim.Optimizer):
    """The optimiser.

    Args:
        params: what it steps.
        lr: learning rate.
        betas: of the moments.
        eps: τ, added to the root of the second moment, which begins at its square.
        weight_decay: added to the gradient, times the weight.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first_decay, second_decay = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["first"] = torch.zeros_like(weight)
                    state["second"] = torch.full_like(weight, group["eps"] ** 2)
                gradient = weight.grad
                if group["weight_decay"]:
                    gradient = gradient.add(weight, alpha=group["weight_decay"])
                square = gradient**2
                state["first"].lerp_(gradient, 1 - first_decay)
                state["second"].addcmul_(square, torch.sign(state["second"] - square), value=second_decay - 1)
                weight.addcdiv_(state["first"], state["second"].sqrt().add_(group["eps"]), value=-group["lr"])
        return loss


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
        return Yogi(parameters, learning_rate, betas=(momentum, 0.999), weight_decay=decay)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam}
    return kinds[name](parameters, learning_rate, betas=(momentum, 0.999), weight_decay=decay)


OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


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
        self._parameters = [nn.Parameter(view) for view in views]
        for parameter, view in zip(self._parameters, views, strict=True):
            parameter.data = view
        self._optimizer = make(self._parameters)
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._schedule = schedule
        self._average = average

    @property
    def learning_rate(self) -> float | list[float] | None:
        """Of the last step; a list where groups of parameters differ; None where the optimiser does not tell."""
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
                    if isinstance(value, Tensor):
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
        """The optimiser and its settings, to tell one from another."""
        groups = [
            {k: v for k, v in group.items() if k != "params"} for group in self._optimizer.state_dict()["param_groups"]
        ]
        return f"{type(self._optimizer).__qualname__} {groups}"


def _plain(value: object) -> bool:
    """Whether JSON can hold it."""
    if isinstance(value, list | tuple):
        return all(_plain(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str)
