"""Votes for several attributes, each with its bound on what one vote may weigh, and the share that makes one hold."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from census import World, world
from torch import nn

from sfumato.voting import AEDPFL, KNNDPFL

AE, KNN = "AE-DPFL", "kNN-DPFL"
NEXT_TO_NOTHING = 0.001
"""Noise on a count, in votes, of rows that are to show what votes can show at best."""
_SHARED: dict[str, Any] = {"student": {"epochs": 20, "optimizer": "adam", "learning_rate": 0.01}}
PLANS: dict[str, AEDPFL | KNNDPFL] = {
    AE: AEDPFL(
        votes="soft",
        training={"epochs": 20, "batch_size": 100, "learning_rate": 0.01, "optimizer": "adam"},
        **_SHARED,
    ),
    KNN: KNNDPFL(neighbours=16, **_SHARED),
}
HIDDEN = 32


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row.

    Attributes:
        voter: how an agent votes.
        attributes: tau, the most that one vote may weigh.
        epsilon: budget of one unit; None for noise next to nothing, which promises nothing.
        queries: how many rows of the pool are asked about.
        cut: the share of the votes from which on an attribute holds.
    """

    voter: str
    attributes: int
    epsilon: float | None
    queries: int
    cut: float

    def fit(self, seed: int, *, part: Literal["validation", "test"], out: Path | None = None) -> dict[str, Any]:
        """Run it; what was measured on a part of the server's rows."""
        here = world()
        plan = dataclasses.replace(
            PLANS[self.voter], queries=self.queries, attributes=self.attributes, cut=self.cut, seed=seed
        )
        if self.epsilon is None:
            plan = dataclasses.replace(plan, noise_std=NEXT_TO_NOTHING)
        else:
            plan = plan.calibrate(epsilon=self.epsilon, population=plan.population_of(here.agents))
        how = "pixels" if self.voter == KNN else network(here, seed)
        student = network(here, seed)
        common: dict[str, Any] = {"test": getattr(here, part), "out": out, "threads": 1}
        return plan.fit(here.agents, here.pool, how, student=student, **common).evaluation


def network(here: World, seed: int) -> nn.Sequential:
    """One hidden layer, an output an attribute."""
    torch.manual_seed(seed)
    inputs, outputs = here.agents.input_shape[0], here.agents.num_classes
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))
