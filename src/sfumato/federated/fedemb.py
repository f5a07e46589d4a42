"""DP-FedEmb: user-level private image embeddings.

Each round, sampled users are thrown into K virtual clients. A virtual client trains the backbone with a fresh head
for the classes that it holds, and only the backbone's delta is clipped, summed and noised; the head never leaves. The
paper's neighbour is a whole virtual client (sensitivity C); the statement's ε is for one user (sensitivity 2C), next
to the paper's. Public negatives give a client of one person with one class other classes to distinguish: then every
person is a client, and the sensitivity is C. The derivation is in docs/explanation/virtual-clients.md.

The defaults are the authors' EMNIST run, but for the server's learning rate: theirs, 0.02, is the highest it is without
being given.

>>> plan = FedEmb(rounds=200, noise=0.62)
>>> plan.private_sum(population=3400).sampler.describe()
'Poisson, rate 0.0752941 a round'

References:
    Xu, Collins, Wang, Panait, Oh, Augenstein, Liu, Schroff, McMahan: Learning to Generate Image Embeddings with
    User-level Differential Privacy. arXiv 2211.10844, 2022. Algorithm 1.
    Singhal et al.: Federated Reconstruction. 2021 (`LocalHead.steps_alone`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from sfumato._check import InputError
from sfumato._parts import part, plan
from sfumato._types import Algorithm, Stated
from sfumato.federated.client import ClientTraining, LocalHead
from sfumato.federated.fedavg import CLIENTS, FederatedPlan
from sfumato.federated.losses import NextTokenLoss, without_head
from sfumato.sampling import COHORTS, Poisson, Sampler

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import UserDataset
    from sfumato.federated.contribution import LocalContribution
    from sfumato.federated.negatives import PublicNegatives


@plan
class FedEmb(FederatedPlan):
    """Private embeddings with heads that never leave."""

    cohort: Sampler = part(default=Poisson(users_per_client=8), converter=COHORTS)
    client: ClientTraining = part(  # pyright: ignore
        default=ClientTraining(epochs=8, head_lr_scale=100.0, head=LocalHead()), converter=CLIENTS
    )

    name: ClassVar[str] = "fedemb"
    highest_rate: ClassVar[float] = 0.02
    renamed: ClassVar[Mapping[str, str]] = {
        **FederatedPlan.renamed,
        "head_classes": "client.head.classes",
        "reconstruction_steps": "client.head.steps_alone",
        "head_start": "client.head.start",
        "negatives_per_client": "client.negatives",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.loss, NextTokenLoss):
            raise InputError("fedemb trains embeddings, and a next token needs none; for texts use fedavg or fedsgd")
        if without_head(self.loss):
            raise InputError("fedemb trains embeddings, and this client.loss needs none; use fedrecon")
        if not isinstance(self.client.head, LocalHead):
            raise InputError("heads of fedemb never leave their client, got client.head=shared; use fedavg")

    @property
    def global_classes(self) -> bool:
        """Whether a head has a row for every label of the data set."""
        return isinstance(self.client.head, LocalHead) and self.client.head.classes == "global"

    def contribution(
        self,
        model: nn.Module,
        data: UserDataset,
        device: str,
        head_seed: int,
        negatives: PublicNegatives | None = None,
    ) -> LocalContribution:
        """Deltas of the backbone, clipped.

        Raises:
            InputError: every client would hold a single class, from which nothing can be learned; or there should be
                negatives and are none.
        """
        if self.client.negatives and negatives is None:
            raise InputError(
                f"client.negatives={self.client.negatives} needs public data to draw them from: give negatives "
                "(--negatives)"
            )
        alone = self.cohort.users_per_client == 1 and not self.global_classes and negatives is None
        if alone and _single_class(data):
            raise InputError(
                "every user holds one class, so a client of one user has nothing to distinguish; use public negatives "
                "(client.negatives), cohort.users_per_client > 1, or client.head.classes=global"
            )
        return super().contribution(model, data, device, head_seed, negatives)

    def with_negatives(self, negatives: UserDataset, data: UserDataset) -> PublicNegatives:
        """What clients draw public classes from.

        Raises:
            InputError: the plan draws none, there are too few, they are no classes of such inputs, or hold a record.
        """
        from sfumato.federated.negatives import PublicNegatives

        if not self.client.negatives:
            raise InputError(
                "negatives were given, but client.negatives=0 takes none of them; set it to 16, for example"
            )
        found = PublicNegatives(negatives, self.client.negatives)
        found.refuse_unfit(data)
        return found

    def assumptions(self) -> list[Stated]:
        """A head stays with its client; only one with a row for every label lets the label space shape the deltas."""
        return super().assumptions() if self.global_classes else []


def _single_class(users: UserDataset) -> bool:
    """Whether no user among the first thousand holds two classes."""
    for user in range(min(len(users), 1000)):
        labels = users.examples(user)[1]
        if len(labels) and (labels != labels[0]).any():
            return False
    return True


ALGORITHM = Algorithm(
    name="fedemb",
    package="sfumato.federated",
    plan="FedEmb",
    records="users",
    title="FedEmb",
    summary="train private embeddings; each person's data stays with a virtual client",
    about="Train private embeddings (DP-FedEmb). In each round, users are put into virtual clients. A client trains "
    "the backbone with a head of its own. Only the backbone's clipped, noisy mean update leaves.",
    example="sfumato fedemb --data glyphs --epsilon 8 --dry-run",
    matters="data model epsilon noise rounds cohort out resume dry_run cohort.users_per_client",
)
