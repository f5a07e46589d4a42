"""A server that shows the first noisy mean, and goes no further."""

from typing import Any

import torch
from torch import Tensor


class Seen(BaseException):
    """The process ends when its first noisy mean was seen."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.mean = mean


class Watched(torch.optim.SGD):
    """Shows the noisy mean and goes no further."""

    def step(self, closure: Any = None) -> None:
        gradients = [p.grad.flatten() for group in self.param_groups for p in group["params"]]
        raise Seen(torch.cat(gradients).clone())
