"""What is compared: votes of nearest records, and noisy gradients with and without a server that is trusted."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from domains import CLASSES, Scaling, world
from torch import nn

from sfumato._files import write_json
from sfumato.accounting import guarantee
from sfumato.central import DPSGD
from sfumato.data import UserDataset, examples_from_users
from sfumato.training import RunOptions
from sfumato.voting import KNNDPFL

NEXT_TO_NOTHING = 0.001
"""Noise on a count, in votes, of the row that is to show what votes can show at best."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row.

    Attributes:
        plan: its settings, without noise.
        epsilon: budget for one record; None for a row that promises nothing: noise of 0.001 votes, or no noise.
        no_one_trusted: DP-SGD: every agent adds the noise of its own records' guarantee to its sum of clipped
            gradients, before anybody sees it. The noises of N agents add up to sqrt(N) times one.
        scaling: of the features.
        records: of an agent.
    """

    plan: KNNDPFL | DPSGD
    epsilon: float | None
    no_one_trusted: bool = False
    scaling: Scaling = "standardised"
    records: int = 50

    def fit(
        self,
        server: str,
        kept: Path,
        seed: int,
        *,
        part: Literal["validation", "test"],
        out: Path | None = None,
        quick: bool = False,
    ) -> dict[str, Any]:
        """Run it for one server domain; what was measured on a part of that domain.

        Args:
            server: the server's domain.
            kept: folder for features of digits.
            seed: of the noise, the sampling and where the model starts.
            part: what is measured on.
            out: folder of the run; None keeps all in memory.
            quick: two passes of DP-SGD only.
        """
        here = world(server, kept, scaling=self.scaling, records=self.records)
        torch.manual_seed(seed)
        model = nn.Linear(here.agents.input_shape[0], CLASSES)
        common: dict[str, Any] = {"test": getattr(here, part), "out": out}
        if isinstance(self.plan, KNNDPFL):
            # Copies are asked once, and half a domain may be fewer than the plan asks about.
            different = len(np.unique(np.asarray(here.pool.inputs[0]), axis=0))
            plan = dataclasses.replace(self.plan, queries=min(self.plan.queries, different), seed=seed)
            plan = self._with_noise(plan, here.agents.num_examples)
            return plan.fit(here.agents, here.pool, "pixels", student=model, threads=1, **common).evaluation
        plan = dataclasses.replace(self.plan, seed=seed, **({"epochs": 2} if quick else {}))
        plan = self._with_noise(plan, here.agents.num_examples)
        reported = plan
        if self.no_one_trusted:
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                write_json(guarantee_file(out), own_guarantee(plan, here.agents.num_examples))
            reported = plan.replace(noise=noise_of_all(plan, here.agents))
        return reported.fit(
            model, examples_from_users(here.agents), options=RunOptions(checkpoint_every=1000), **common
        ).evaluation

    def _with_noise(self, plan: Any, population: int) -> Any:
        """The plan with the noise that its budget asks for; one in a hundred times the records as delta."""
        delta = 0.01 / population
        if self.epsilon is not None:
            return plan.calibrate(epsilon=self.epsilon, delta=delta, population=population)
        if isinstance(plan, KNNDPFL):
            return dataclasses.replace(plan, delta=delta, noise_std=NEXT_TO_NOTHING)
        return plan.replace(delta=delta, noise=0.0)


def guarantee_file(folder: Path) -> Path:
    """Where what an agent's own noise promises is kept: the statement in the folder is of the sum of all noises."""
    return folder.with_name(f"{folder.name}-own-guarantee.json")


def noise_of_all(plan: DPSGD, agents: UserDataset) -> float:
    """The noise multiplier of a sum to which every agent adds the noise of the plan."""
    return plan.noise.multiplier * len(agents) ** 0.5


def own_guarantee(plan: DPSGD, population: int) -> dict[str, float | None]:
    """What an agent's own noise promises one of its records against everybody else, the server included.

    An agent draws its records at the plan's rate, in secret, and sends their clipped sum with the plan's noise.
    """
    rounds, adjacency = plan.rounds_for(population), plan.sampler(population).adjacency
    delta = plan.delta_for(population)
    promise = guarantee(plan.private_sum(population).event(rounds), adjacency=adjacency)
    return {"epsilon": promise.epsilon(delta), "delta": delta}
