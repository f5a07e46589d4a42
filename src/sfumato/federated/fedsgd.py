"""FedSGD: each client sends the gradient of its mean loss at the current model.

Unit and guarantee as for `FedAvg`; a gradient is the delta of one local step of rate 1 on all examples at once.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato.federated.local.work import LocalTraining
from sfumato.federated.plan import FederatedPlan


@dataclass(frozen=True, kw_only=True)
class FedSGD(FederatedPlan):
    """Federated SGD with a shared head; local epochs, batch size, rate and momentum have no meaning here."""

    name: ClassVar[str] = "fedsgd"

    @property
    def local(self) -> LocalTraining:
        """One step that leaves the gradient as its delta."""
        local = self._local(shared_head=True)
        return replace(local, epochs=1, batch_size=None, learning_rate=1.0, head_lr_scale=1.0, momentum=0.0)
