"""Models that draw random numbers: those that examples share, and those of each example's own."""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adversarial.specimens import Dense, compiled


def depth(shape: Callable[[Tensor], tuple[int, ...]]) -> Callable[[Tensor], Tensor]:
    return lambda hidden: hidden * (torch.rand(shape(hidden)) < 0.5)


def seeded(hidden: Tensor) -> Tensor:
    torch.manual_seed(0)
    return hidden * (torch.rand(len(hidden), 1) < 0.5)


def from_its_own(hidden: Tensor) -> Tensor:
    return hidden * (torch.rand(len(hidden), 1, generator=torch.Generator().manual_seed(0)) < 0.5)


SHARED: dict[str, Callable[[], nn.Module]] = {
    "a gate": lambda: Dense(depth(lambda h: (1,))),
    "a number": lambda: Dense(depth(lambda h: ())),
    "a mask of the units": lambda: Dense(depth(lambda h: h.shape[1:])),
    "dropout on what is broadcast": lambda: Dense(lambda h: h * F.dropout(torch.ones(1, 8), 0.5)),
    "a layer's dropout on what is broadcast": lambda: Dense(lambda h: h * nn.Dropout(0.5)(torch.ones(1, 8))),
    "a block that the batch skips": lambda: Dense(lambda h: -h if torch.rand(()) < 0.5 else h),
    "Python's random": lambda: Dense(lambda h: h.tanh() if random.random() < 0.01 else h),
    "numpy.random": lambda: Dense(lambda h: h.tanh() if np.random.rand() < 0.01 else h),  # noqa: NPY002
    "an order": lambda: Dense(lambda h: h * (torch.randperm(len(h)) < len(h) / 2)[:, None]),
    "a choice": lambda: Dense(lambda h: h * torch.ones(len(h)).multinomial(len(h), replacement=True)[:, None]),
    "a direction": lambda: Dense(lambda h: h + torch.randn_like(h[0])),
    "numbers for the places of a batch": lambda: Dense(seeded),
    "a generator of its own": lambda: Dense(from_its_own),
    "compiled": lambda: compiled(Dense(depth(lambda h: (1,)))),
}

MIXED: dict[str, Callable[[], nn.Module]] = {
    "exactly half of the batch": lambda: Dense(
        lambda h: h * ((drawn := torch.rand(len(h))) <= drawn.median())[:, None]
    ),
    "in order": lambda: Dense(lambda h: h * (torch.rand(len(h)).sort().values < 0.5)[:, None]),
    "as shares of the batch": lambda: Dense(lambda h: h * torch.rand(len(h)).softmax(dim=0)[:, None] * len(h)),
    "dropout without its mean": lambda: Dense(
        lambda h: h * (kept := F.dropout(torch.ones_like(h))) / (kept.mean() + 1)
    ),
}

OWN: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: Dense(lambda h: F.dropout(h, 0.5)),
    "alpha dropout": lambda: Dense(lambda h: F.alpha_dropout(h, 0.5, True)),
    "depth": lambda: Dense(depth(lambda h: (len(h), 1))),
    "noise": lambda: Dense(lambda h: h + torch.randn_like(h)),
    "noise with a size of its own": lambda: Dense(lambda h: torch.normal(h, 0.1 + h.detach().abs())),
    "bits of their own chance": lambda: Dense(lambda h: h * torch.bernoulli(h.detach().sigmoid())),
    "a class drawn from the scores": lambda: Dense(
        lambda h: h * h.detach().softmax(dim=1).multinomial(2).sum(1)[:, None]
    ),
    "channels": lambda: Dense(lambda h: F.dropout1d(h.view(-1, 4, 2), 0.5).flatten(1)),
    "time first": lambda: Dense(
        lambda h: F.dropout(h.view(len(h), 4, 2).transpose(0, 1), 0.5).transpose(0, 1).flatten(1)
    ),
    "several rows an example": lambda: Dense(lambda h: F.dropout(h.reshape(-1, 2), 0.5).reshape(h.shape)),
    "several rows an example, time first": lambda: Dense(
        lambda h: (
            F.dropout(h.view(len(h), 4, 2).transpose(0, 1).reshape(-1, 2), 0.5)
            .view(4, len(h), 2)
            .transpose(0, 1)
            .flatten(1)
        )
    ),
    "only for some examples": lambda: Dense(
        lambda h: h.index_put(((h[:, 0] > 0).nonzero()[:, 0],), F.dropout(h[h[:, 0] > 0], 0.5))
    ),
    "slopes": lambda: Dense(lambda h: F.rrelu(h, training=True)),
    "a soft class drawn from the scores": lambda: Dense(F.gumbel_softmax),
    "several layers": lambda: Dense(nn.Sequential(nn.Dropout(0.3), nn.AlphaDropout(0.2))),
    "compiled": lambda: compiled(Dense(lambda h: F.dropout(h, 0.5))),
    "nothing": Dense,
}
