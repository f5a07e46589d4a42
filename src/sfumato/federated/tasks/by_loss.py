"""What a model's loss says of it: how it is measured, and what its file tells so that it can be built again."""

from sfumato.federated.losses import Loss
from sfumato.federated.tasks.outputs import Classes, NextToken, OutputTask, Values
from sfumato.federated.tasks.verification import Verification

MODEL_FIELDS = (
    "model",
    "embedding_dim",
    "lora_rank",
    "lora_layers",
    "projection",
    "model_options",
    "input_shape",
    "text",
    "vocabulary_size",
    "oov_buckets",
    "item_count",
    "class_count",
    "version",
)
"""Of `about`, in the file of a released model."""

_TASKS: dict[str, type[OutputTask]] = {"next_token": NextToken, "squared": Values, "cross_entropy": Classes}


def task_of(loss: Loss) -> OutputTask | Verification:
    """Of what the model gives itself; of embeddings, recall at a false accept rate."""
    return _TASKS[loss]() if loss in _TASKS else Verification()
