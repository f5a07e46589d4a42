"""Fields that all federated plans share: what a client does locally."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.deltas import LocalContribution
from sfumato.federated.embedding_plan import EmbeddingPlan
from sfumato.federated.local.heads import HeadLoss, Loss
from sfumato.federated.local.work import LocalTraining
from sfumato.sampling import OwnClients, VirtualClients
from sfumato.training import PrivatePlan, Rounds, ServerOptimizer


@dataclass(frozen=True, kw_only=True)
class FederatedPlan(PrivatePlan, EmbeddingPlan, Rounds):
    """A plan whose clients train locally; fields beside those of `PrivatePlan` and `Rounds`.

    Attributes:
        clients_per_round: K, planned contributions a round: the public denominator.
        users_per_client: m, users in a virtual client; 1 makes every user a client. The sampling rate is K·m/N.
        server_optimizer: torch optimiser of the server.
        server_learning_rate: its rate on the noisy mean.
        server_momentum: its momentum (Adam: first beta).
        clients_at_once: train so many clients in one batched operation; 1 trains one after the other.
        client_threads: threads that train clients side by side, each on its own copy of the model; None chooses by
            the number of cores and the size of the model.
        local_epochs: passes over a client's examples in a round.
        batch_size: examples a local step; None takes all at once.
        max_examples: processed examples a client and round, at most; None for no cap.
        learning_rate: local SGD rate of the backbone.
        head_lr_scale: the head's local rate is this times the backbone's.
        momentum: local SGD momentum, in [0, 1).
        loss: "softmax" on inner products, or "cosine", "cosface", "arcface" on scaled cosines.
        loss_scale: factor on cosines.
        loss_margin: margin of CosFace (cosine) or ArcFace (radians).
    """

    clients_per_round: int = 32
    users_per_client: int = 1
    server_optimizer: Literal["sgd", "adam", "adamw", "adagrad", "rmsprop"] = "sgd"
    server_learning_rate: float = 1.0
    server_momentum: float = 0.9
    clients_at_once: int = 1
    client_threads: int | None = None
    local_epochs: int = 1
    batch_size: int | None = 32
    max_examples: int | None = 2048
    learning_rate: float = 0.005
    head_lr_scale: float = 1.0
    momentum: float = 0.9
    loss: Loss = "softmax"
    loss_scale: float = 30.0
    loss_margin: float = 0.3

    def __post_init__(self) -> None:
        _check.whole(
            rounds=self.rounds,
            clients_per_round=self.clients_per_round,
            users_per_client=self.users_per_client,
            clients_at_once=self.clients_at_once,
        )
        if self.client_threads is not None:
            _check.whole(client_threads=self.client_threads)
        super().__post_init__()
        _ = self.local, self.server  # both check their fields

    @property
    def server(self) -> ServerOptimizer:
        """The server's optimiser."""
        return ServerOptimizer(
            name=self.server_optimizer, learning_rate=self.server_learning_rate, momentum=self.server_momentum
        )

    def rounds_for(self, population: int) -> int:
        """As planned, for any population."""
        return self.rounds

    @property
    def grouping(self) -> OwnClients | VirtualClients:
        """How sampled users are put together."""
        kind = OwnClients if self.users_per_client == 1 else VirtualClients
        return kind(clients=self.clients_per_round)

    def cohort(self, population: int) -> int:
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
        return self._local(shared_head=True)

    def _local(self, *, shared_head: bool, reconstruction_steps: int = 0) -> LocalTraining:
        return LocalTraining(
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            max_examples=self.max_examples,
            learning_rate=self.learning_rate,
            head_lr_scale=self.head_lr_scale,
            momentum=self.momentum,
            reconstruction_steps=reconstruction_steps,
            loss=HeadLoss(self.loss, self.loss_scale, self.loss_margin),
            shared_head=shared_head,
        )

    def contribution(self, model: nn.Module, data: UserDataset, device: str, head_seed: int) -> LocalContribution:
        """Deltas of local training, clipped."""
        return LocalContribution(
            model=model,
            users=data,
            local=self.local,
            trainable=self.trainable,
            global_classes=self.global_classes,
            clients_at_once=self.clients_at_once,
            client_threads=self.client_threads,
            device=device,
            head_seed=head_seed,
        )

    @property
    def global_classes(self) -> bool:
        """Whether a head has a row for every label of the data set."""
        return True

    def assumptions(self) -> list[str]:
        """A head with a row for every label of the data set rests on a public label space."""
        return [
            "The set of labels is public: heads have a row for each. Where labels are people, it tells who may have "
            "taken part."
        ]
