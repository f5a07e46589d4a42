"""A mechanism whose rounds share noise, so that they cost something together only."""

import math
from typing import ClassVar

import pytest
import torch

from sfumato import accounting as acc


class Drifting:
    """The noise of a round is a part of what was drawn so far: one Gaussian release of the whole run."""

    stream: ClassVar[bool] = True
    noise_multiplier = multiplier = 1.5

    def __init__(self) -> None:
        self.drawn: torch.Tensor | None = None

    def noise_std(self, scale: float) -> float:
        return self.noise_multiplier * scale

    def release(self, total, *, scale, round, source):
        fresh = torch.from_numpy(source.stream("noise", round).normal(total.numel()))
        self.drawn = fresh if self.drawn is None else 0.5 * self.drawn + fresh
        return total.add_(self.drawn, alpha=self.noise_std(scale))

    def event(self, moved, sampler, rounds):
        if sampler.adjacency == "replace":
            raise ValueError("nothing is proven for this sampler")
        return acc.Gaussian(self.noise_multiplier / (moved * math.sqrt(rounds)))

    def restarts(self, round):
        return False

    def describe(self) -> str:
        return "drifting sums"

    def state(self):
        return {} if self.drawn is None else {"drawn": self.drawn}

    def load(self, state) -> None:
        self.drawn = state.get("drawn")


@pytest.fixture
def drifting() -> type[Drifting]:
    return Drifting
