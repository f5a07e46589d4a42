"""Optimisers by name; one sees the noisy mean of a round and nothing else.

Settings that are not named here are torch's: Adam's second beta is 0.999 and its epsilon 1e-8. Yogi is not in torch.

>>> Optimizer(name="sgd", learning_rate=0.5, momentum=0.9, nesterov=True)([nn.Parameter(torch.zeros(1))]).defaults["lr"]
0.5
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from sfumato import _check
from sfumato._check import LARGEST_SINGLE, InputError
from sfumato.training.optimizers.yogi import Yogi

OptimizerName = Literal["sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop", "yogi"]

_CORRECTED = ("adam", "adamw", "nadam")
"""Those that divide the rate of their first step by 1 - momentum, which has to stay a number of single precision."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """A torch optimiser.

    Attributes:
        name: "sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop" or "yogi".
        learning_rate: > 0.
        momentum: SGD's and RMSprop's momentum, the first beta of Adam's kin; in [0, 1).
        nesterov: Nesterov's momentum, for SGD.
        weight_decay: >= 0.
    """

    name: OptimizerName = "sgd"
    learning_rate: float = 1.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check.one_of(get_args(OptimizerName), optimizer=self.name)
        _check.positive(learning_rate=self.learning_rate)
        _check.between(0.0, LARGEST_SINGLE, learning_rate=self.learning_rate)
        _check.between(0.0, 1.0, ends="[)", momentum=self.momentum)
        _check.non_negative(weight_decay=self.weight_decay)
        _check.between(0.0, LARGEST_SINGLE, weight_decay=self.weight_decay)
        if self.name in _CORRECTED:
            _check.between(0.0, LARGEST_SINGLE * (1 - self.momentum), learning_rate=self.learning_rate)
        if self.nesterov and (self.name != "sgd" or self.momentum == 0):
            raise InputError("nesterov needs optimizer=sgd and a momentum > 0, 0.9 for example")

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Build it."""
        rate, decay = self.learning_rate, self.weight_decay
        if self.name == "sgd":
            return torch.optim.SGD(parameters, rate, momentum=self.momentum, nesterov=self.nesterov, weight_decay=decay)
        if self.name == "rmsprop":
            return torch.optim.RMSprop(parameters, rate, momentum=self.momentum, weight_decay=decay)
        if self.name == "adagrad":
            return torch.optim.Adagrad(parameters, rate, weight_decay=decay)
        if self.name == "yogi":
            return Yogi(parameters, rate, betas=(self.momentum, 0.999), weight_decay=decay)
        kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam}
        return kinds[self.name](parameters, rate, betas=(self.momentum, 0.999), weight_decay=decay)
