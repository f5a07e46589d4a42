"""Fields of plans whose clients take several steps of SGD before they contribute."""

from dataclasses import dataclass

from sfumato.federated.local.work import LocalTraining
from sfumato.federated.plan import FederatedPlan


@dataclass(frozen=True, kw_only=True)
class LocalStepsPlan(FederatedPlan):
    """Fields beside those of `FederatedPlan`.

    Attributes:
        local_epochs: passes over a client's examples in a round.
        batch_size: examples a local step; None takes all at once.
        learning_rate: local SGD rate of the backbone.
        head_lr_scale: the head's local rate is this times the backbone's.
        momentum: local SGD momentum, in [0, 1).
    """

    local_epochs: int = 1
    batch_size: int | None = 32
    learning_rate: float = 0.005
    head_lr_scale: float = 1.0
    momentum: float = 0.9

    @property
    def local(self) -> LocalTraining:
        """Epochs of SGD on the backbone and the head, if there is one."""
        return LocalTraining(
            epochs=self.local_epochs,
            batch_size=self.batch_size,
            max_examples=self.max_examples,
            learning_rate=self.learning_rate,
            head_lr_scale=self.head_lr_scale,
            momentum=self.momentum,
            loss=self.local_loss,
            head=self.head,
        )
