"""AE-DPFL: every agent trains a model of its own, and votes with it.

- **Unit.** An agent with all of its records; or one record, whose absence may change its agent's whole vote.
- **Sensitivity.** 1 for an agent that comes or goes, sqrt(2) where it is replaced, and sqrt(2) for one record under
  every adjacency: the model is trained anew without it. A soft vote is a distribution, so the same bounds hold.
- **What an agent's training may use.** Its own records, the public weights it starts from and the public pool. Nothing
  of another agent enters it, so its vote moves by its own records only.

>>> plan = AEDPFL(queries=500).calibrate(epsilon=3.0, delta=1e-3, population=200)
>>> round(plan.noise_std, 2)
23.19

References:
    Zhu, Yu, Tsai, Pittaluga, Faraki, Chandraker, Wang: Voting-based Approaches for Differentially Private Federated
    Learning. 2021, arXiv 2010.04851. Algorithm 1.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import ExampleDataset, UserDataset
from sfumato.training import OptimizerName
from sfumato.training.scores import require_outputs
from sfumato.training.supervised import Supervised
from sfumato.voting.fit import VotingPlan
from sfumato.voting.voters.dann import DANN
from sfumato.voting.voters.trained import TrainedVoter


@dataclass(frozen=True, kw_only=True)
class AEDPFL(VotingPlan):
    """Fields beside those of `VotingPlan`.

    Attributes:
        votes: "hard", for the likeliest class; or "soft", the model's probabilities.
        epochs: passes of an agent over its records.
        batch_size: records a step.
        learning_rate: of an agent's optimiser.
        optimizer: an agent's torch optimiser.
        momentum: its momentum (Adam: first beta), in [0, 1).
        weight_decay: its weight decay.
        schedule: of the learning rate, "constant" or "cosine" down to zero.
        label_smoothing: the share of a label that goes to all classes evenly.
        adaptation_weight: weight of domain adaptation to the pool while an agent trains (DANN); None for none.
        adaptation_layer: name of the layer whose input are the features that adapt; None for the last linear one.
    """

    votes: Literal["hard", "soft"] = "hard"
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 0.02
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    label_smoothing: float = 0.0
    adaptation_weight: float | None = None
    adaptation_layer: str | None = None

    name: ClassVar[str] = "ae_dpfl"
    title: ClassVar[str] = "AE-DPFL"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("hard", "soft"), votes=self.votes)
        _ = self.training, self.adaptation  # both check their fields

    @property
    def training(self) -> Supervised:
        """How an agent trains."""
        names = [each.name for each in dataclasses.fields(Supervised) if hasattr(self, each.name)]
        return Supervised(**{name: getattr(self, name) for name in names})

    @property
    def adaptation(self) -> DANN | None:
        """Domain adaptation to the pool while it trains; None for none."""
        if self.adaptation_weight is not None:
            return DANN(weight=self.adaptation_weight, layer=self.adaptation_layer)
        if self.adaptation_layer is not None:
            raise InputError("adaptation_layer is for domain adaptation; give adaptation_weight, 1 for example")
        return None

    def assumptions(self) -> tuple[str, ...]:
        return (
            "Each agent trains on its own records, the public weights and the public pool alone, and leaves nothing "
            "but its ballot; its model is not released.",
        )

    def is_hard(self, agents: UserDataset) -> bool:
        return self.votes == "hard" and not agents.of_attributes

    def voter(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        queries: np.ndarray,
        how: Any,
        source: RandomSource,
        device: str,
    ) -> TrainedVoter:
        require_outputs(how, pool, classes=agents.num_classes, whose="model", device=device, where="the pool")
        return TrainedVoter(
            agents,
            pool,
            queries,
            how,
            self.training,
            soft=self.votes == "soft",
            adaptation=self.adaptation,
            device=device,
            source=source,
        )
