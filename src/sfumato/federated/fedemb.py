"""DP-FedEmb: user-level private image embeddings.

Each round, sampled users are thrown into K virtual clients. A virtual client trains the backbone beside a fresh head
for the classes that it holds, and only the backbone's delta is clipped, summed and noised; the head never leaves. The
paper's neighbour is a whole virtual client (sensitivity C); the statement's ε is for one user (sensitivity 2C), with
the paper's beside it. Public negatives give a client of one person with one class something to tell apart: then every
person is a client, and the sensitivity is C. The derivation is in docs/explanation/virtual-clients.md.

The defaults are the authors' EMNIST run, but for the server's learning rate: theirs, 0.02, is the highest it is without
being given.

>>> plan = FedEmb(rounds=200, noise_multiplier=0.62)
>>> plan.private_sum(population=3400).sampler.describe()
'Poisson, rate 0.0752941 a round'

References:
    Xu, Collins, Wang, Panait, Oh, Augenstein, Liu, Schroff, McMahan: Learning to Generate Image Embeddings with
    User-level Differential Privacy. arXiv 2211.10844, 2022. Algorithm 1.
    Singhal et al.: Federated Reconstruction. 2021 (`reconstruction_steps`).
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.data import UserDataset
from sfumato.federated.client import LocalTraining
from sfumato.federated.contribution import LocalContribution
from sfumato.federated.fedavg import LocalStepsPlan
from sfumato.federated.losses import HeadStart, without_head
from sfumato.federated.negatives import PublicNegatives
from sfumato.training import ContributionFactory


@dataclass(frozen=True, kw_only=True)
class FedEmb(LocalStepsPlan):
    """Private embeddings with heads that never leave; fields beside those of `LocalStepsPlan`.

    Attributes:
        head_classes: "local" gives a head the classes that its virtual client holds, "global" all labels.
        reconstruction_steps: train the head alone for so many local steps, then the backbone alone; 0 trains both.
        head_start: first rows of a head: "glorot" draws them; "means" takes, for each class, the mean direction of what
            the backbone makes of the client's examples, for cosine logits.
        negatives_per_client: classes of a public data set (`fit(…, negatives=…)`) that a client gets a round, as many
            examples of each as it holds of a class of its own; 0 for none.
    """

    users_per_client: int = 8
    local_epochs: int = 8
    head_lr_scale: float = 100.0
    head_classes: Literal["local", "global"] = "local"
    reconstruction_steps: int = 0
    head_start: HeadStart = "glorot"
    negatives_per_client: int = 0

    name: ClassVar[str] = "fedemb"
    highest_server_rate: ClassVar[float] = 0.02

    def __post_init__(self) -> None:
        _check.one_of(("local", "global"), head_classes=self.head_classes)
        if self.loss == "next_token":
            raise InputError("fedemb trains embeddings, and a next token needs none; for texts use fedavg or fedsgd")
        if without_head(self.loss):
            raise InputError(f"fedemb trains embeddings, and loss={self.loss} needs none; use fedrecon")
        _check.whole(at_least=0, negatives_per_client=self.negatives_per_client)
        super().__post_init__()

    @property
    def local(self) -> LocalTraining:
        """Epochs of SGD on the backbone and a head of the client's own."""
        return replace(super().local, reconstruction_steps=self.reconstruction_steps, head_start=self.head_start)

    @property
    def head(self) -> Literal["own"]:
        """Heads never leave."""
        return "own"

    @property
    def global_classes(self) -> bool:
        """Whether a head has a row for every label of the data set."""
        return self.head_classes == "global"

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
        if self.negatives_per_client and negatives is None:
            raise InputError(
                f"negatives_per_client={self.negatives_per_client} needs public data to draw them from: give negatives "
                "(--negatives)"
            )
        alone = self.users_per_client == 1 and not self.global_classes and negatives is None
        if alone and _single_class(data):
            raise InputError(
                "every user holds one class, so a client of one user has nothing to tell apart; use public negatives "
                "(negatives_per_client), users_per_client > 1, or head_classes=global"
            )
        return super().contribution(model, data, device, head_seed, negatives)

    def negatives_of(self, negatives: UserDataset, data: UserDataset) -> PublicNegatives:
        """What clients draw public classes from.

        Raises:
            InputError: the plan draws none, there are too few, they are no classes of such inputs, or hold a record.
        """
        if not self.negatives_per_client:
            raise InputError(
                "negatives were given, but negatives_per_client=0 takes none of them; set it to 16, for example"
            )
        found = PublicNegatives(negatives, self.negatives_per_client)
        found.refuse_unfit(data)
        return found

    def beside(self, negatives: PublicNegatives) -> ContributionFactory:
        """Deltas of clients that draw public classes."""
        return partial(self.contribution, negatives=negatives)

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
