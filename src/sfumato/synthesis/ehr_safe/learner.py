"""Parameters and their optimiser, whose whole state goes into a checkpoint and comes back bit for bit."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.synthesis.steps import Diverged
from sfumato.training.moving_average import MovingAverage
from sfumato.training.schedule import Schedule
from sfumato.training.server import OptimizerFactory, Server


class Learner:
    """Trains a module by its gradient.

    Args:
        module: whose parameters are trained, in place.
        optimizer: builds the optimiser.
        schedule: of its learning rate; None for a constant one.
        clip_norm: a longer gradient is shortened to it; None for no bound.
        average_decay: of the moving average of the parameters; None for none.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: OptimizerFactory,
        *,
        schedule: Schedule | None = None,
        clip_norm: float | None = None,
        average_decay: float | None = None,
    ) -> None:
        self._parameters = list(module.parameters())
        theta = torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])
        parts = theta.split([parameter.numel() for parameter in self._parameters])
        views = [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]
        for parameter, view in zip(self._parameters, views, strict=True):
            parameter.data = view
        self._theta, self._clip_norm = theta, clip_norm
        average = None if average_decay is None else MovingAverage(theta, decay=average_decay)
        self._server = Server(optimizer, views, schedule=schedule, average=average)

    def step(self, loss: Tensor, index: int) -> float:
        """One step, the `index`-th from 0, against the gradient of a loss; gives the loss.

        Raises:
            Diverged: instead of a step.
        """
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        norm, value = torch.nn.utils.get_total_norm(gradients).item(), loss.item()
        if not (math.isfinite(norm) and math.isfinite(value)):
            raise Diverged
        if self._clip_norm is not None and norm > self._clip_norm:
            gradients = [gradient * (self._clip_norm / norm) for gradient in gradients]
        self._server.step(gradients, index)
        return value

    def settle(self) -> None:
        """Put the moving average in place of the parameters, at the end."""
        self._theta.copy_(self._server.released(self._theta))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors, the parameters among them, and numbers."""
        tensors, numbers = self._server.state()
        return {"parameters": self._theta, **tensors}, numbers

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Put the state back."""
        self._theta.copy_(tensors["parameters"])
        self._server.load({name: value for name, value in tensors.items() if name != "parameters"}, numbers)
