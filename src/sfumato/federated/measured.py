"""What a model's loss says of it: how it is measured, and what its file tells so that it can be built again."""

from sfumato.federated.local.losses import Loss
from sfumato.federated.next_token import NextToken
from sfumato.federated.verification import Verification
from sfumato.training import Task

MODEL_FIELDS = ("model", "embedding_dim", "model_options", "input_shape", "text", "vocabulary_size", "version")
"""Of `about`, in the file of a released model."""


def task_of(loss: Loss) -> Task:
    """Recall at a false accept rate; for the next token its accuracy."""
    return NextToken() if loss == "next_token" else Verification()
