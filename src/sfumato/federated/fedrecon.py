"""Federated Reconstruction: a part of the model never leaves the people whose it is.

The module's parameters are divided by name. In each round a sampled user begins with the same public values of their
own part, rebuilds it on one part of their records while the shared one stays, then updates the shared one on the rest;
only the delta of the shared part is clipped, summed and noised. The own part is thrown away, so people who never took
part are served in the same way.

Unit: a user. Sensitivity: C, one bounded vector each, whatever the own part is. The own part, the division of records
and the number of local steps follow from the user's own records, the released model and the user's slot; they leave in
nothing but that vector and cost nothing. Every user weighs the same: weights by number of examples would reveal it.

A head that each client draws afresh is the same with one phase: that is `FedEmb`, by the same engine.

>>> plan = FedRecon(rounds=500, cohort=100, noise=1.0)
>>> plan.client.phases[0].records, plan.client.phases[1].records
('support', 'query')

References:
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021. Algorithm 1; the defaults are its MovieLens run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato._check import InputError
from sfumato._parts import Kinds, part, plan
from sfumato._types import Algorithm, Assumption, Stated
from sfumato.clipping import Adaptive
from sfumato.federated.client import PartlyLocalTraining, Phase
from sfumato.federated.fedavg import FederatedPlan
from sfumato.federated.losses import SquaredLoss
from sfumato.sampling import COHORTS, Poisson, Sampler
from sfumato.training.server import OPTIMIZERS, Optimizer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.data import UserDataset
    from sfumato.federated.serving import Serving
    from sfumato.federated.tasks import Personalised


@plan
class FedRecon(FederatedPlan):
    """Models of which a part stays with each user."""

    cohort: Sampler = part(default=Poisson(size=100), converter=COHORTS)
    client: PartlyLocalTraining = part(  # pyright: ignore
        default=PartlyLocalTraining(
            loss=SquaredLoss(), batch_size=5, learning_rate=0.5, momentum=0.0, max_examples=250, at_once=512
        ),
        converter=Kinds[PartlyLocalTraining]({"training": PartlyLocalTraining}),
    )
    server: Optimizer = part(default=Optimizer(learning_rate=None), converter=OPTIMIZERS)

    name: ClassVar[str] = "fedrecon"
    highest_rate: ClassVar[float] = 4.0  # few of a cohort have rated one item, so its mean update is short
    renamed: ClassVar[Mapping[str, str]] = {
        **FederatedPlan.renamed,
        "local_parameters": "client.local.parameters",
        "support_share": "client.local.support_share",
        "support_count": "client.local.support_count",
        "support_order": "client.local.support_order",
        "reconstruction_steps": "client.local.steps",
        "reconstruction_epochs": "client.local.epochs",
        "reconstruction_batch_size": "client.local.batch_size",
        "reconstruction_learning_rate": "client.local.learning_rate",
        "joint": "client.local.joint",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort.users_per_client != 1:
            raise InputError(
                f"an own part belongs to one user, got cohort.users_per_client={self.cohort.users_per_client}; use 1"
            )

    def local_parameters(self, model: nn.Module) -> str:
        """Those that never leave a user."""
        from sfumato.federated.tasks import local_parameters_of

        return local_parameters_of(model, self.client.local.parameters)

    def default_task(self) -> Personalised:
        """The measure of the loss, with an own part for each of the people that it is measured on.

        Raises:
            InputError: the loss is of embeddings.
        """
        from sfumato.federated.tasks import OutputTask, Personalised, task_of

        inner = task_of(self.loss)
        if not isinstance(inner, OutputTask):
            raise InputError(
                "fedrecon needs a model that gives the outputs itself, got a client.loss of embeddings; use "
                "squared, cross_entropy or next_token, or use fedemb"
            )
        return Personalised(
            inner=inner,
            client=self.client,
            trainable=self.trainable,
            local_parameters=self.client.local.parameters,
            at_once=self.client.at_once,
        )

    def assumptions(self) -> list[Stated]:
        """The own part costs nothing, and why."""
        counted = "own_parameters_counted" if isinstance(self.clipping, Adaptive) else "own_parameters"
        return [*super().assumptions(), Assumption(counted)]

    def personalise(self, model: nn.Module, users: UserDataset, *, device: str = "cpu") -> Personal:
        """Serve people, whether they took part in the training or not.

        Args:
            model: as it was released (`result.model`).
            users: all records that are known of each of them.
            device: where to compute.

        Returns:
            everybody's own part, and what the model gives with it.

        Raises:
            InputError: the records are not those of the model, or it has no own part.
        """
        values = self.serving(model, users, device=device).local_values(users, self.serving_phases)
        return Personal(local_parameters=values, users=users, model=model)

    def serving(self, model: nn.Module, users: UserDataset, *, device: str = "cpu") -> Serving:
        """The model as these people are served by it; arguments and errors as for `personalise`."""
        from sfumato.federated.serving import Serving

        self.default_task().inner.refuse_other(users)
        return Serving(
            model,
            self.client,
            trainable=self.trainable,
            local_parameters=self.local_parameters(model),
            at_once=self.client.at_once,
            device=device,
        )

    @property
    def serving_phases(self) -> tuple[Phase, ...]:
        """How the own part of somebody who is served is rebuilt: from all of their records."""
        rebuild = replace(self.client.local.phase, records="all")
        return (rebuild,) if rebuild.most else ()


@dataclass(frozen=True, eq=False)
class Personal:
    """People's own parts.

    Attributes:
        local_parameters: [users, …] by the parameter's name; private to each of them.
        users: the records that it was rebuilt from.
        model: as it was released.
    """

    local_parameters: dict[str, Tensor]
    users: UserDataset
    model: nn.Module

    def state(self, user: int) -> dict[str, Any]:
        """One user's own part by the parameter's name, for `load_state_dict(…, strict=False)`."""
        return {name: values[user] for name, values in self.local_parameters.items()}


ALGORITHM = Algorithm(
    name="fedrecon",
    package="sfumato.federated",
    plan="FedRecon",
    records="users",
    title="FedRecon",
    summary="train models of which a part never leaves: ratings, texts, classes of one's own",
    about="Federated Reconstruction: each user rebuilds a part of the model that is their own, and never sends it. "
    "Only the shared part's clipped, noisy mean update leaves. Users who never took part are served, too.",
    example="sfumato fedrecon --data ml-latest-small --items films.txt --model matrix_factorization --epsilon 8 "
    "--dry-run",
    matters="data model epsilon noise rounds cohort out resume dry_run client.local.parameters",
)
