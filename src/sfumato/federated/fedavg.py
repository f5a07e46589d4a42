"""FedAvg and FedSGD, with and without privacy, and what all federated plans share.

The server's optimiser where nobody chose its learning rate: as fast as the noise of the whole run allows.

A round's noise has std s = z·C/K in each of the model's d coordinates. SGD of rate η and momentum μ carries it as far
as η·s/(1−μ), and T rounds are a walk of T independent steps, so all noise together moves the model by about
η·s·√(d·T)/(1−μ). Noise that is correlated over the rounds walks less far: T is then the largest variance of its prefix
sums. The rate is the highest at which this is at most `MOST_MOVED`, and never above one that is given.
With small cohorts and large models the usual rates move it by thousands: clients then start from weights that are noise
alone, their losses explode, and the run costs privacy for nothing.

The rate follows from public numbers, so it costs nothing. It says that noise does not drown the model, not that the
model learns.

>>> authors = Restrained(learning_rate=0.02, momentum=0.9, noise_std=0.62 / 32, rounds=200)
>>> round(authors.rate(453_632), 4)
0.0108
>>> small_cohort = Restrained(learning_rate=0.02, momentum=0.9, noise_std=7.19 / 4, rounds=200)
>>> f"{small_cohort.rate(5_327_872):.1e}", small_cohort.rate(10)
('3.4e-05', 0.02)
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption, Stated, Unit
from sfumato.clipping import ClippedSum, ConstantClipNorm, NormBound
from sfumato.data import UserDataset
from sfumato.federated.client import ClientData, ClientTrainer, LocalTraining
from sfumato.federated.contribution import LocalContribution
from sfumato.federated.losses import HeadLoss, Loss, OutputLoss, loss_of, without_head
from sfumato.federated.negatives import PublicNegatives
from sfumato.federated.tasks.by_loss import MODEL_FIELDS, task_of
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.sampling import Cohort, FixedSizeSampling, OwnClients, VirtualClients
from sfumato.training import Optimizer, OptimizerName, PrivatePlan, PrivateSum, Rounds, Task, TrainingPlan

MOST_MOVED = 20.0


"""About the L2 norm of a fresh LeNet, so that the noise does not outweigh what the run starts from; what happens beyond
it is in docs/explanation/lab-notes.md."""


_FORGETS = 0.99  # torch's decay of RMSprop's running square


_GROWS = 1 - 0.999  # of the squares, that Yogi's grows by in a step


@dataclass(frozen=True, kw_only=True)
class Restrained(Optimizer):
    """An optimiser whose learning rate is that given, or what the noise allows if that is less.

    Attributes:
        noise_std: of a coordinate of the mean in a round, z·C/K; 0 for none.
        rounds: how often it steps.
        walk: largest variance of the sums of the rounds' noise, in that of one round; None for `rounds`.
    """

    noise_std: float
    rounds: int
    walk: float | None = None

    def rate(self, size: int) -> float:
        """The learning rate for so many trained parameters.

        Optimisers that divide by a running norm of their gradients take steps of about 1 whatever the noise is;
        RMSprop and Yogi take longer ones at first, for their running norms begin at zero.
        """
        walked: float = size * self.rounds
        if self.name == "sgd":
            walked = size * (self.rounds if self.walk is None else self.walk) * self.noise_std**2
        if self.name == "rmsprop":
            walked = size * sum(1 / (1 - _FORGETS**step) for step in range(1, self.rounds + 1))
        if self.name == "yogi":
            walked = size * sum(1 / min(1.0, _GROWS * step) for step in range(1, self.rounds + 1))
        carried = 1 / (1 - self.momentum) if self.name in ("sgd", "rmsprop") else 1.0
        moved = self.learning_rate * carried * math.sqrt(walked)
        return self.learning_rate * min(1.0, MOST_MOVED / moved) if moved and self.noise_std else self.learning_rate

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Build it at this rate."""
        chosen = self.rate(sum(parameter.numel() for parameter in parameters))
        return super(Restrained, replace(self, learning_rate=chosen)).__call__(parameters)


# Fields that all federated plans share: who contributes together, what the server does, and the loss.


@dataclass(frozen=True, kw_only=True)
class FederatedPlan(PrivatePlan, Rounds):
    """A plan whose clients train locally; fields beside those of `PrivatePlan` and `Rounds`.

    Attributes:
        clients_per_round: K, planned contributions a round: the public denominator.
        users_per_client: m, users in a virtual client; 1 makes every user a client. The sampling rate is K·m/N.
        server_optimizer: torch optimiser of the server.
        server_learning_rate: its rate on the noisy mean; None for 1 (fedemb: 0.02), or what the noise of all rounds
            allows if that is less.
        server_momentum: its momentum (Adam: first beta).
        ema_decay: release a moving average of the server's models with this decay, 0.9 for example; None releases the
            last.
        clients_at_once: train so many clients in one batched operation, best a multiple of 32; 1 trains one after the
            other, which on a processor is as fast unless clients are tiny.
        client_threads: threads that train clients side by side, each on its own copy of the model; None chooses by
            the number of cores and the size of the model.
        max_examples: processed examples a client and round, at most; None for no cap.
        loss: of a head: "softmax" on inner products, or "cosine", "cosface", "arcface" on scaled cosines; of a model
            that has no head beside it: "next_token" of sequences, "squared" of values, "cross_entropy" of its logits.
        loss_scale: factor on cosines.
        loss_margin: margin of CosFace (cosine) or ArcFace (radians).
    """

    clients_per_round: int = 32
    users_per_client: int = 1
    server_optimizer: OptimizerName = "sgd"
    server_learning_rate: float | None = None
    server_momentum: float = 0.9
    ema_decay: float | None = None
    clients_at_once: int = 1
    client_threads: int | None = None
    max_examples: int | None = 2048
    loss: Loss = "softmax"
    loss_scale: float = 30.0
    loss_margin: float = 0.3

    model_fields: ClassVar[tuple[str, ...]] = MODEL_FIELDS
    highest_server_rate: ClassVar[float] = 1.0
    """What a server_learning_rate of None is at most."""

    def __post_init__(self) -> None:
        _check.whole(
            rounds=self.rounds,
            clients_per_round=self.clients_per_round,
            users_per_client=self.users_per_client,
            clients_at_once=self.clients_at_once,
        )
        if self.client_threads is not None:
            _check.whole(client_threads=self.client_threads)
        if self.ema_decay is not None:
            _check.between(0.0, 1.0, ends="[)", ema_decay=self.ema_decay)
        super().__post_init__()
        _ = self.local, self.server  # both check their fields

    @property
    def server(self) -> Optimizer:
        """The server's optimiser."""
        _check.one_of(get_args(OptimizerName), server_optimizer=self.server_optimizer)
        _check.between(0.0, 1.0, ends="[)", server_momentum=self.server_momentum)
        rate = self.server_learning_rate
        if rate is None:
            return Restrained(
                name=self.server_optimizer,
                learning_rate=self.highest_server_rate,
                momentum=self.server_momentum,
                noise_std=(self.noise_multiplier or 0.0) * (self.clip_norm or 0.0) / self.clients_per_round,
                rounds=self.rounds,
                walk=self.noise_walk(self.rounds),
            )
        _check.positive(server_learning_rate=rate)
        _check.between(0.0, _check.LARGEST_SINGLE, server_learning_rate=rate)
        return Optimizer(name=self.server_optimizer, learning_rate=rate, momentum=self.server_momentum)

    @property
    def average_decay(self) -> float | None:
        """Decay of the moving average."""
        return self.ema_decay

    def default_task(self) -> Task:
        """Recall at a false accept rate, or the accuracy of the next token."""
        return task_of(self.loss)

    def rounds_for(self, population: int) -> int:
        """As planned, for any population."""
        return self.rounds

    @property
    def grouping(self) -> OwnClients | VirtualClients:
        """How sampled users are put together."""
        kind = OwnClients if self.users_per_client == 1 else VirtualClients
        return kind(clients=self.clients_per_round)

    def cohort_size(self, population: int) -> int:
        """Planned users a round, K·m."""
        cohort = self.clients_per_round * self.users_per_client
        if cohort > population:
            raise InputError(
                f"{self.clients_per_round} clients × {self.users_per_client} users = {cohort} users a round, but "
                f"there are {population}; lower clients_per_round or users_per_client"
            )
        return cohort

    @property
    def local(self) -> LocalTraining:
        """What a client does."""
        raise NotImplementedError

    @property
    def local_loss(self) -> HeadLoss | OutputLoss:
        """What turns embeddings and a head, or a model's own logits, into a loss."""
        return loss_of(self.loss, self.loss_scale, self.loss_margin)

    @property
    def head(self) -> Literal["shared", "own", "none"]:
        """Whose the head is."""
        return "none" if without_head(self.loss) else "shared"

    def contribution(
        self,
        model: nn.Module,
        data: UserDataset,
        device: str,
        head_seed: int,
        negatives: PublicNegatives | None = None,
    ) -> LocalContribution:
        """Deltas of local training."""
        return LocalContribution(
            model=model,
            users=data,
            local=self.local,
            trainable=self.trainable,
            global_classes=self.global_classes,
            clients_per_round=self.clients_per_round,
            clients_at_once=self.clients_at_once,
            client_threads=self.client_threads,
            device=device,
            head_seed=head_seed,
            own=self.own_parameters(model),
            negatives=negatives,
            drawn_slots=self.users_per_client > 1,
        )

    def own_parameters(self, model: nn.Module) -> str | None:
        """A regular expression of the parameters that never leave a client; None for none."""
        return None

    @property
    def global_classes(self) -> bool:
        """Whether a head has a row for every label of the data set."""
        return True

    def takes(self, data: UserDataset) -> tuple[str, ...]:
        """Classes, where a head has a row for each."""
        return data.found if self.global_classes and not without_head(self.loss) else ()

    def assumptions(self) -> list[Stated]:
        """A head with a row for every label of the data set rests on a public label space."""
        if self.loss == "next_token":
            return [Assumption("vocabulary_released")]
        if self.loss == "squared":
            return []
        return [Assumption("label_set_public")]


# Fields of plans whose clients take several steps of SGD before they contribute.


@dataclass(frozen=True, kw_only=True)
class LocalStepsPlan(FederatedPlan):
    """Fields beside those of `FederatedPlan`.

    Attributes:
        local_epochs: passes over a client's examples in a round.
        batch_size: examples a local step; None takes all at once.
        learning_rate: local SGD rate of the backbone.
        head_lr_scale: the head's local rate is this times the backbone's.
        momentum: local SGD momentum, in [0, 1).
    """

    local_epochs: int = 1
    batch_size: int | None = 32
    learning_rate: float = 0.005
    head_lr_scale: float = 1.0
    momentum: float = 0.9

    @property
    def local(self) -> LocalTraining:
        """Epochs of SGD on the backbone and the head, if there is one."""
        return LocalTraining(
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            max_examples=self.max_examples,
            learning_rate=self.learning_rate,
            head_lr_scale=self.head_lr_scale,
            momentum=self.momentum,
            loss=self.local_loss,
            head=self.head,
        )


# FedAvg and DP-FedAvg: backbone and head are both shared, clipped and noised.
#
# Unit: one user (or, with users_per_client > 1, one user inside a virtual client). The head has a row for every label,
# so the label space must be public; the statement lists that.
#
# References:
#     McMahan, Ramage, Talwar, Zhang: Learning Differentially Private Recurrent Language Models. ICLR 2018.


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalStepsPlan):
    """Federated averaging with a shared head."""

    name: ClassVar[str] = "fedavg"


# FedSGD: each client sends the gradient of its mean loss at the current model.
#
# Unit and guarantee as for `FedAvg`; a gradient is the delta of one local step of rate 1 on all examples at once.


@dataclass(frozen=True, kw_only=True)
class FedSGD(FederatedPlan):
    """Federated SGD with a shared head; fields are those of `FederatedPlan`."""

    name: ClassVar[str] = "fedsgd"

    @property
    def local(self) -> LocalTraining:
        """One step that leaves the gradient as its delta."""
        return LocalTraining(
            batch_size=None,
            max_examples=self.max_examples,
            learning_rate=1.0,
            loss=self.local_loss,
            head=self.head,
        )


# The centralized baseline: plain SGD on the pooled examples, without any guarantee.
#
# It runs through the same loop: a unit is an example, a contribution is its gradient, nothing is clipped or noised.


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
