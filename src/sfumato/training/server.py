"""The server's step: any torch optimiser, with the noisy mean delta as its gradient.

>>> from sfumato.training.optimizers.optimizer import Optimizer
>>> theta = torch.zeros(2)
>>> server = Server(Optimizer(learning_rate=0.5), [theta])
>>> server.step([torch.tensor([2.0, -2.0])]); theta.tolist()
[-1.0, 1.0]
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.training.moving_average import MovingAverage
from sfumato.training.schedule import Schedule

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
