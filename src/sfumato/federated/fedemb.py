"""DP-FedEmb: user-level private image embeddings.

Each round, sampled users are thrown into K virtual clients. A virtual client trains the backbone beside a fresh head
for the classes that it holds, and only the backbone's delta is clipped, summed and noised; the head never leaves. The
paper's neighbour is a whole virtual client (sensitivity C); the statement's ε is for one user (sensitivity 2C), with
the paper's beside it. The derivation is in docs/explanation/virtual-clients.md.

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
from typing import ClassVar, Literal

from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato.data import UserDataset
from sfumato.federated.deltas import LocalContribution
from sfumato.federated.local.losses import without_head
from sfumato.federated.local.work import LocalTraining
from sfumato.federated.local_steps import LocalStepsPlan


@dataclass(frozen=True, kw_only=True)
class FedEmb(LocalStepsPlan):
    """Private embeddings with heads that never leave; fields beside those of `LocalStepsPlan`.

    Attributes:
        head_classes: "local" gives a head the classes that its virtual client holds, "global" all labels.
        reconstruction_steps: train the head alone for so many local steps, then the backbone alone; 0 trains both.
    """

    users_per_client: int = 8
    local_epochs: int = 8
    head_lr_scale: float = 100.0
    head_classes: Literal["local", "global"] = "local"
    reconstruction_steps: int = 0

    name: ClassVar[str] = "fedemb"
    highest_server_rate: ClassVar[float] = 0.02

    def __post_init__(self) -> None:
        _check.one_of(("local", "global"), head_classes=self.head_classes)
        if self.loss == "next_token":
            raise InputError("fedemb trains embeddings, and a next token needs none; for texts use fedavg or fedsgd")
        if without_head(self.loss):
            raise InputError(f"fedemb trains embeddings, and loss={self.loss} needs none; use fedrecon")
        super().__post_init__()

    @property
    def local(self) -> LocalTraining:
        """Epochs of SGD on the backbone and a head of the client's own."""
        return replace(super().local, reconstruction_steps=self.reconstruction_steps)

    @property
    def head(self) -> Literal["own"]:
        """Heads never leave."""
        return "own"

    @property
    def global_classes(self) -> bool:
        """Whether a head has a row for every label of the data set."""
        return self.head_classes == "global"

    def contribution(self, model: nn.Module, data: UserDataset, device: str, head_seed: int) -> LocalContribution:
        """Deltas of the backbone, clipped.

        Raises:
            InputError: every client would hold a single class, from which nothing can be learned.
        """
        if self.users_per_client == 1 and not self.global_classes and _single_class(data):
            raise InputError(
                "every user holds one class, so a client of one user has nothing to tell apart; "
                "use users_per_client > 1, or head_classes=global"
            )
        return super().contribution(model, data, device, head_seed)

    def assumptions(self) -> list[str]:
        """A head stays with its client; only one with a row for every label lets the label space shape the deltas."""
        return super().assumptions() if self.global_classes else []


def _single_class(users: UserDataset) -> bool:
    """Whether no user among the first thousand holds two classes."""
    for user in range(min(len(users), 1000)):
        labels = users.examples(user)[1]
        if len(labels) and (labels != labels[0]).any():
            return False
    return True
