"""How good a classifier is on a data set: accuracy, log loss and, for two classes, the area under the ROC curve.

Whatever is measured here on private records is private: only public or consented data belongs in an evaluation that
is released.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from sfumato.data import to_tensor

if TYPE_CHECKING:
    from sfumato.data.example_dataset import ExampleDataset

_BATCH = 512


def predict(
    model: nn.Module, data: "ExampleDataset", *, device: str = "cpu"
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Log-probabilities of all examples in bounded memory.

    Yields:
        labels int64 [n], log-probabilities float32 [n, classes].
    """
    was_training = model.training
    model.eval()
    try:
        for inputs, labels in data.batches(_BATCH):
            with torch.inference_mode():
                logits = model(*(to_tensor(x).to(device) for x in inputs))
                yield labels, nn.functional.log_softmax(logits.float(), dim=1).cpu().numpy()
    finally:
        model.train(was_training)


def accuracy_row(
    model: nn.Module, data: "ExampleDataset", *, curve: bool = False, device: str = "cpu"
) -> dict[str, Any]:
    """Accuracy and mean log loss, as plain numbers; with `curve` also the confusion matrix [true, predicted].

    Args:
        model: maps inputs to logits [n, classes].
        data: at least one example.
        curve: add the confusion matrix, and for two classes the area under the ROC curve.
        device: where the model lies.
    """
    confusion = np.zeros((data.num_classes, data.num_classes), np.int64)
    loss, examples = 0.0, 0
    for labels, scores in predict(model, data, device=device):
        predicted = scores.argmax(axis=1)
        np.add.at(confusion, (labels, np.minimum(predicted, data.num_classes - 1)), 1)
        loss -= float(scores[np.arange(len(labels)), labels].astype(np.float64).sum())
        examples += len(labels)
    row: dict[str, Any] = {"accuracy": float(np.trace(confusion) / examples), "log_loss": loss / examples}
    if curve:
        row["confusion"] = confusion.tolist()
    return row
