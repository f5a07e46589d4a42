"""FedSGD: each client sends the gradient of its mean loss at the current model.

Unit and guarantee as for `FedAvg`; a gradient is the delta of one local step of rate 1 on all examples at once.
"""

from dataclasses import dataclass
from typing import ClassVar

from sfumato.federated.local.work import LocalTraining
from sfumato.federated.plan import FederatedPlan


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
