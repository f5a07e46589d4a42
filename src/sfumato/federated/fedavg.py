"""FedAvg and FedSGD, with and without privacy, what all federated plans share, and the baseline on pooled examples.

Unit: one user (or, with cohort.users_per_client > 1, one user inside a virtual client). A shared head has a row for
every label, so the label space must be public; the statement lists that.

References:
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
    Decentralized Data. AISTATS 2017.
    McMahan, Ramage, Talwar, Zhang: Learning Differentially Private Recurrent Language Models. ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds, part, plan
from sfumato._types import Algorithm, Stated, Unit
from sfumato.clipping import CLIPPINGS, Flat, NormBound
from sfumato.federated.client import Client, ClientTraining, LocalHead
from sfumato.federated.losses import Loss, Softmax, without_head
from sfumato.mechanisms import NOISES, Gaussian, Mechanism
from sfumato.sampling import COHORTS, FixedSize, Sampler
from sfumato.training.defaults import fitting_clients
from sfumato.training.plan import Plan
from sfumato.training.server import OPTIMIZERS, Optimizer

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import UserDataset
    from sfumato.federated.contribution import LocalContribution
    from sfumato.federated.negatives import PublicNegatives
    from sfumato.training.contribution import Task

CLIENTS = Kinds[ClientTraining]({"training": ClientTraining})
GRADIENTS = Kinds[Client]({"gradient": Client})
MODEL_FIELDS = (
    "model",
    "embedding_dim",
    "lora_rank",
    "lora_layers",
    "projection",
    "model_options",
    "input_shape",
    "text",
    "vocabulary_size",
    "oov_buckets",
    "item_count",
    "class_count",
    "version",
)
"""Of `about`, in the file of a released model."""


@plan
class FederatedPlan(Plan):
    """A plan whose clients train locally; fields with those of `Plan`.

    Attributes:
        rounds: how often the server steps.
        client: what each client does with its own records in a round.
    """

    rounds: int = 200
    client: Client = part(default=Client(), converter=GRADIENTS)
    server: Optimizer = part(default=Optimizer(learning_rate=None, momentum=0.9), converter=OPTIMIZERS)

    model_fields: ClassVar[tuple[str, ...]] = MODEL_FIELDS
    renamed: ClassVar[Mapping[str, str]] = {
        **Plan.renamed,
        "clients_per_round": "cohort.size",
        "users_per_client": "cohort.users_per_client",
        "server_optimizer": "server.name",
        "server_learning_rate": "server.learning_rate",
        "server_momentum": "server.momentum",
        "ema_decay": "server.ema_decay",
        "clients_at_once": "client.at_once",
        "client_threads": "client.threads",
        "max_examples": "client.max_examples",
        "loss": "client.loss",
        "loss_scale": "client.loss.scale",
        "loss_margin": "client.loss.margin",
        "local_epochs": "client.epochs",
        "batch_size": "client.batch_size",
        "learning_rate": "client.learning_rate",
        "head_lr_scale": "client.head_lr_scale",
        "momentum": "client.momentum",
    }

    def __post_init__(self) -> None:
        _check.whole(rounds=self.rounds)
        super().__post_init__()

    def rounds_for(self, population: int) -> int:
        """As planned, for any population."""
        return self.rounds

    def with_usual_sizes(self, population: int, chosen: Collection[str] = ()) -> Self:
        """With a cohort that so many users are enough for."""
        if {"cohort", "cohort.size", "cohort.users_per_client"} & set(chosen):
            return self
        size, users = fitting_clients(
            population, clients=self.cohort.size, users_per_client=self.cohort.users_per_client
        )
        return replace(self, cohort=replace(self.cohort, size=size, users_per_client=users))

    @property
    def loss(self) -> Loss:
        """What turns embeddings and a head, or a model's own outputs, into a loss."""
        return self.client.loss

    def default_task(self) -> Task:
        """Recall at a false accept rate, or the measure of what the model gives itself."""
        from sfumato.federated.tasks import task_of

        return task_of(self.loss)

    def contribution(
        self,
        model: nn.Module,
        data: UserDataset,
        device: str,
        head_seed: int,
        negatives: PublicNegatives | None = None,
    ) -> LocalContribution:
        """Deltas of local training."""
        from sfumato.federated.contribution import LocalContribution

        return LocalContribution(
            model=model,
            users=data,
            client=self.client,
            trainable=self.trainable,
            global_classes=self.global_classes,
            clients_per_round=self.cohort.size,
            device=device,
            head_seed=head_seed,
            local_parameters=self.local_parameters(model),
            negatives=negatives,
            drawn_slots=self.cohort.users_per_client > 1,
        )

    def local_parameters(self, model: nn.Module) -> str | None:
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
        return [*self.loss.public_classes]


@plan
class FedAvg(FederatedPlan):
    """Federated averaging with a shared head."""

    client: ClientTraining = part(default=ClientTraining(), converter=CLIENTS)  # pyright: ignore

    name: ClassVar[str] = "fedavg"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.client.head, LocalHead):
            raise InputError("heads of fedavg are shared, got client.head=local; use fedemb, whose heads never leave")
        if self.client.negatives:
            raise InputError(f"{self.name} takes no public negatives, which are for fedemb; use client.negatives=0")


@plan
class FedSGD(FederatedPlan):
    """Federated SGD with a shared head: each client sends the gradient of its mean loss at the current model.

    Unit and guarantee as for `FedAvg`; a gradient is the delta of one local step of rate 1 on all examples at once.
    """

    name: ClassVar[str] = "fedsgd"


@plan
class Centralized(FederatedPlan):
    """The baseline without a guarantee: SGD on the pooled examples.

    It runs through the same loop: a unit is an example, a contribution is its gradient, nothing is clipped or noised.
    `rounds` are steps, cohort.size the examples of each, drawn without replacement.
    """

    rounds: int = 2000
    cohort: Sampler = part(default=FixedSize(size=256), converter=COHORTS)
    clipping: NormBound = part(default=Flat(norm=None), converter=CLIPPINGS)
    noise: Mechanism = part(default=Gaussian(noise_multiplier=0.0), converter=NOISES)
    client: Client = part(default=Client(max_examples=None, loss=Softmax()), converter=GRADIENTS)
    server: Optimizer = part(default=Optimizer(learning_rate=0.05, momentum=0.9), converter=OPTIMIZERS)

    name: ClassVar[str] = "centralized"
    unit: ClassVar[Unit] = "example"
    private: ClassVar[bool] = False
    renamed: ClassVar[Mapping[str, str]] = {
        **FederatedPlan.renamed,
        "batch_size": "cohort.size",
        "learning_rate": "server.learning_rate",
        "momentum": "server.momentum",
    }
    hidden: ClassVar[tuple[str, ...]] = ("clipping", "noise", "population", "delta")
    """Fields that are no options of the command."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise.noise_multiplier != 0 or self.clipping.norm is not None or self.cohort.users_per_client != 1:
            raise InputError("centralized has no guarantee: no clipping, no noise, no virtual clients; use fedavg")

    def public_population(self, data: UserDataset) -> int:
        """The number of examples."""
        return int(data.sizes.sum())

    def sampler(self, population: int) -> Sampler:
        """Batches of examples; of all where there are fewer than planned."""
        cohort = replace(self.cohort, size=min(self.cohort.size, population))
        return cohort.planned(population, self.rounds)

    def contribution(
        self, model: nn.Module, data: UserDataset, device: str, head_seed: int, negatives: Any = None
    ) -> LocalContribution:
        """Gradients of pooled examples."""
        from sfumato.federated.contribution import PooledContribution

        return PooledContribution(
            model=model,
            users=data,
            client=replace(self.client, at_once=1, threads=1, max_examples=None),
            trainable=self.trainable,
            global_classes=True,
            clients_per_round=1,
            device=device,
            head_seed=head_seed,
        )

    def takes(self, data: UserDataset) -> tuple[str, ...]:
        """Nothing that a guarantee would cover."""
        return ()

    def assumptions(self) -> list[Stated]:
        """None: there is no guarantee."""
        return []


ALGORITHMS = (
    Algorithm(
        name="fedavg",
        package="sfumato.federated",
        plan="FedAvg",
        records="users",
        title="FedAvg",
        summary="federated averaging with a shared head, private or not",
        about="Federated averaging (DP-FedAvg with noise): backbone and head are both shared, clipped and noised.",
        example="sfumato fedavg --data glyphs --epsilon 8 --cohort 64 --dry-run",
        matters="data model epsilon noise rounds cohort out resume dry_run client.epochs",
    ),
    Algorithm(
        name="fedsgd",
        package="sfumato.federated",
        plan="FedSGD",
        records="users",
        title="FedSGD",
        summary="federated SGD with a shared head, private or not",
        about="Federated SGD (DP-FedSGD with noise): each client sends one clipped gradient of backbone and head.",
        example="sfumato fedsgd --data glyphs --noise 2 --rounds 50 --dry-run",
        matters="data model epsilon noise rounds cohort out resume dry_run server.learning_rate",
    ),
    Algorithm(
        name="centralized",
        package="sfumato.federated",
        plan="Centralized",
        records="users",
        title="Centralized training",
        summary="the baseline without any guarantee: SGD on the pooled examples",
        about="The baseline without any guarantee: SGD on the pooled examples.",
        example="sfumato centralized --data glyphs --rounds 1000 --dry-run",
        matters="data model rounds cohort server.learning_rate test seed out resume dry_run",
    ),
)
