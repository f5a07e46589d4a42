"""Federated Reconstruction: a part of the model never leaves the people whose it is.

The module's parameters are divided by name. In each round a sampled user begins with the same public values of their
own part, rebuilds it on one part of their records while the shared one stays, then updates the shared one on the rest;
only the delta of the shared part is clipped, summed and noised. The own part is thrown away, so people who never took
part are served in the same way.

Unit: a user. Sensitivity: C, one bounded vector each, whatever the own part is. The own part, the division of records
and the number of local steps follow from the user's own records, the released model and the user's slot; they leave in
nothing but that vector and cost nothing. Every user weighs the same: weights by number of examples would tell it.

A head that each client draws afresh is the same with one phase: that is `FedEmb`, by the same engine.

>>> plan = FedRecon(rounds=500, clients_per_round=100, noise_multiplier=1.0)
>>> plan.local.phases[0].records, plan.local.phases[1].records
('support', 'query')

References:
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021. Algorithm 1; the defaults are its MovieLens run.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._types import Assumption, Stated
from sfumato.data import UserDataset
from sfumato.federated.client import LocalTraining, Phase, Reconstruction
from sfumato.federated.fedavg import LocalStepsPlan
from sfumato.federated.losses import Loss
from sfumato.federated.serving import Serving
from sfumato.federated.tasks.by_loss import task_of
from sfumato.federated.tasks.outputs import OutputTask
from sfumato.federated.tasks.personalised import Personalised, own_parameters


@dataclass(frozen=True, kw_only=True)
class FedRecon(LocalStepsPlan):
    """Models of which a part stays with each user; fields beside those of `LocalStepsPlan`.

    Attributes:
        local_parameters: a regular expression of whole names: these parameters are each user's own. None takes what
            the model says in its attribute `local_parameters`.
        support_share: of a user's records that rebuild the own part, in (0, 1); the rest updates the shared part.
        support_count: so many records instead of a share.
        support_order: "random" divides the records anew each round, "first" takes the oldest.
        reconstruction_steps: steps of SGD on the own part at most; 0 leaves it as everybody begins.
        reconstruction_epochs: passes over the support; None passes over it until all steps are done.
        reconstruction_batch_size: records a step.
        reconstruction_learning_rate: rate of the own part.
        joint: train both parts together on all records, instead of one after the other.
    """

    clients_per_round: int = 100
    loss: Loss = "squared"
    batch_size: int | None = 5
    learning_rate: float = 0.5
    momentum: float = 0.0
    max_examples: int | None = 250
    clients_at_once: int = 512
    server_momentum: float = 0.0
    local_parameters: str | None = None
    support_share: float = 0.5
    support_count: int | None = None
    support_order: Literal["random", "first"] = "random"
    reconstruction_steps: int = 50
    reconstruction_epochs: int | None = 1
    reconstruction_batch_size: int = 5
    reconstruction_learning_rate: float = 0.1
    joint: bool = False

    name: ClassVar[str] = "fedrecon"

    def __post_init__(self) -> None:
        if self.users_per_client != 1:
            raise InputError(f"an own part belongs to one user, got users_per_client={self.users_per_client}; use 1")
        super().__post_init__()

    @property
    def local(self) -> LocalTraining:
        """Rebuild the own part, then update the shared one."""
        return replace(
            super().local,
            reconstruction=Reconstruction(
                support_share=self.support_share,
                support_count=self.support_count,
                support_order=self.support_order,
                steps=self.reconstruction_steps,
                epochs=self.reconstruction_epochs,
                batch_size=self.reconstruction_batch_size,
                learning_rate=self.reconstruction_learning_rate,
                joint=self.joint,
            ),
        )

    def own_parameters(self, model: nn.Module) -> str:
        """Those that never leave a user."""
        return own_parameters(model, self.local_parameters)

    def default_task(self) -> Personalised:
        """The measure of the loss, with an own part for each of the people that it is measured on.

        Raises:
            InputError: the loss is of embeddings.
        """
        inner = task_of(self.loss)
        if not isinstance(inner, OutputTask):
            raise InputError(
                f"fedrecon trains models that give their outputs themselves, got loss={self.loss}; use squared, "
                "cross_entropy or next_token, or fedemb, whose heads are rebuilt by each client"
            )
        return Personalised(
            inner=inner,
            local=self.local,
            trainable=self.trainable,
            own=self.local_parameters,
            at_once=self.clients_at_once,
        )

    def assumptions(self) -> list[Stated]:
        """The own part costs nothing, and why."""
        counted = "own_parameters_counted" if self.clipping == "adaptive" else "own_parameters"
        return [*super().assumptions(), Assumption(counted)]

    def personalise(self, model: nn.Module, users: UserDataset, *, device: str = "cpu") -> "Personal":
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
        own = self.serving(model, users, device=device).own_parts(users, self.serving_phases)
        return Personal(own=own, users=users, model=model)

    def serving(self, model: nn.Module, users: UserDataset, *, device: str = "cpu") -> Serving:
        """The model as these people are served by it; arguments and errors as for `personalise`."""
        self.default_task().inner.refuse_other(users)
        return Serving(
            model,
            self.local,
            trainable=self.trainable,
            own=self.own_parameters(model),
            at_once=self.clients_at_once,
            device=device,
        )

    @property
    def serving_phases(self) -> tuple[Phase, ...]:
        """How the own part of somebody who is served is rebuilt: from all of their records."""
        rebuild = replace(self.local.rebuilding, records="all")
        return (rebuild,) if rebuild.most else ()


@dataclass(frozen=True, eq=False)
class Personal:
    """People's own parts.

    Attributes:
        own: [users, …] by the parameter's name; private to each of them.
        users: the records that it was rebuilt from.
        model: as it was released.
    """

    own: dict[str, Tensor]
    users: UserDataset
    model: nn.Module

    def state(self, user: int) -> dict[str, Any]:
        """One user's own part by the parameter's name, for `load_state_dict(…, strict=False)`."""
        return {name: values[user] for name, values in self.own.items()}
