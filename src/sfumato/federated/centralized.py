"""The centralized baseline: plain SGD on the pooled examples, without any guarantee.

It runs through the same loop: a unit is an example, a contribution is its gradient, nothing is clipped or noised.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from sfumato import _check
from sfumato._random import RandomSource
from sfumato._types import Unit
from sfumato.clipping import ClippedSum, ConstantClipNorm, NormBound
from sfumato.data import UserDataset
from sfumato.federated.client import ClientData, ClientTrainer, LocalTraining
from sfumato.federated.contribution import LocalContribution
from sfumato.federated.losses import Loss, loss_of, without_head
from sfumato.federated.tasks.by_loss import MODEL_FIELDS, task_of
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.sampling import Cohort, FixedSizeSampling, OwnClients
from sfumato.training import Optimizer, PrivateSum, Rounds, Task, TrainingPlan


@dataclass(frozen=True, kw_only=True)
class Centralized(Rounds, TrainingPlan):
    """SGD with momentum on all examples; `rounds` are steps.

    Attributes:
        batch_size: examples a step, drawn without replacement.
        learning_rate: rate of the backbone and the head.
        momentum: in [0, 1).
        loss: of a head: "softmax" on inner products, or "cosine", "cosface", "arcface" on scaled cosines; of a model
            that has no head beside it: "next_token" of sequences, "squared" of values, "cross_entropy" of its logits.
        loss_scale: factor on cosines.
        loss_margin: margin of CosFace (cosine) or ArcFace (radians).
    """

    rounds: int = 2000
    batch_size: int = 256
    learning_rate: float = 0.05
    momentum: float = 0.9
    loss: Loss = "softmax"
    loss_scale: float = 30.0
    loss_margin: float = 0.3

    name: ClassVar[str] = "centralized"
    unit: ClassVar[Unit] = "example"
    model_fields: ClassVar[tuple[str, ...]] = MODEL_FIELDS

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole(rounds=self.rounds, batch_size=self.batch_size)
        _ = self.server, self._local  # both check their fields

    @property
    def server(self) -> Optimizer:
        """SGD on the mean gradient."""
        return Optimizer(name="sgd", learning_rate=self.learning_rate, momentum=self.momentum)

    @property
    def _local(self) -> LocalTraining:
        return LocalTraining(
            batch_size=None,
            learning_rate=1.0,
            loss=loss_of(self.loss, self.loss_scale, self.loss_margin),
            head="none" if without_head(self.loss) else "shared",
        )

    def default_task(self) -> Task:
        """Recall at a false accept rate, or the accuracy of the next token."""
        return task_of(self.loss)

    def public_population(self, data: UserDataset) -> int:
        """The number of examples."""
        return int(data.sizes.sum())

    def private_sum(self, population: int) -> PrivateSum:
        """Batches of examples; no bound and no noise."""
        size = min(self.batch_size, population)
        return PrivateSum(
            sampler=FixedSizeSampling(size=size, population=population),
            grouping=OwnClients(clients=size),
            bound=ConstantClipNorm(clip_norm=None),
            mechanism=IndependentGaussian(noise_multiplier=0.0),
            rounds=self.rounds,
        )

    def contribution(self, model: nn.Module, data: UserDataset, device: str, head_seed: int) -> "PooledContribution":
        """Gradients of pooled examples."""
        return PooledContribution(
            model=model,
            users=data,
            local=self._local,
            trainable=self.trainable,
            global_classes=True,
            clients_per_round=1,
            clients_at_once=1,
            client_threads=1,
            device=device,
            head_seed=head_seed,
        )


class PooledContribution(LocalContribution):
    """The summed gradient of a batch of pooled examples."""

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]
        self._single = ClientTrainer(self.local, self.trained)
        self._ends = np.cumsum(self.users.sizes)
        self.population = int(self._ends[-1])

    def clipped_sum(
        self,
        theta: Tensor,
        cohort: Cohort,
        round: int,
        bound: NormBound,
        clip_norm: float | None,
        source: RandomSource,
        out: Tensor | None,
    ) -> ClippedSum:
        """The sum of the examples' gradients; each contributor is one example."""
        share = ClippedSum(bound, None, self.trained.layout, device=theta.device, out=out)
        if len(cohort):
            batch = self._batch(cohort.units)
            # One step of rate 1 on the mean loss leaves the mean gradient as its delta.
            gradient, loss, _ = self._single.delta(theta, batch, source.seed64("local", round))
            share.add(gradient * len(cohort))
            share.tally.add(loss=loss, examples=len(cohort))
        return share

    def _batch(self, examples: np.ndarray) -> ClientData:
        owners = np.searchsorted(self._ends, examples, side="right")
        places = examples - (self._ends[owners] - self.users.sizes[owners])
        inputs, labels = [], []
        for user, place in zip(owners.tolist(), places.tolist(), strict=True):
            x, y = self.users.examples(user)
            inputs.append(x[place])
            labels.append(y[place])
        size, classes = np.array([0, len(labels)]), np.array([self.users.num_classes])
        return ClientData(np.stack(inputs), np.array(labels), size, classes)
