"""Fields that all federated plans share: who contributes together, what the server does, and the loss."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.deltas import LocalContribution
from sfumato.federated.local.heads import HeadLoss
from sfumato.federated.local.losses import Loss, OutputLoss, loss_of, without_head
from sfumato.federated.local.negatives import PublicNegatives
from sfumato.federated.local.work import LocalTraining
from sfumato.federated.restrained import Restrained
from sfumato.federated.tasks.by_loss import MODEL_FIELDS, task_of
from sfumato.sampling import OwnClients, VirtualClients
from sfumato.training import Optimizer, OptimizerName, PrivatePlan, Rounds, Task


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

    def assumptions(self) -> list[str]:
        """A head with a row for every label of the data set rests on a public label space."""
        if self.loss == "next_token":
            return [
                "The vocabulary is public, or was released by this run: the model has an output for each of its ids."
            ]
        if self.loss == "squared":
            return []
        return [
            "The set of labels is public: heads have a row for each. Where labels are people, it tells who may have "
            "taken part."
        ]
