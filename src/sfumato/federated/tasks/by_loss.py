"""How a model is measured, by its loss."""

from sfumato.federated.losses import ClassLoss, Loss, NextTokenLoss, OutputLoss, SquaredLoss
from sfumato.federated.tasks.outputs import Classes, NextToken, OutputTask, Values
from sfumato.federated.tasks.verification import Verification

_TASKS: dict[type[OutputLoss], type[OutputTask]] = {NextTokenLoss: NextToken, SquaredLoss: Values, ClassLoss: Classes}


def task_of(loss: Loss) -> OutputTask | Verification:
    """Of what the model gives itself; of embeddings, recall at a false accept rate."""
    return _TASKS[type(loss)]() if isinstance(loss, OutputLoss) else Verification()
