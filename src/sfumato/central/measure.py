"""How good a classifier is on a data set.

Whatever is measured here on private records is private: only public or consented data belongs in an evaluation that
is released.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato.data import ExampleDataset, to_tensor
from sfumato.metrics import ClassificationCounts

_BATCH = 512


def predict(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Logits of all examples in bounded memory.

    Yields:
        labels int64 [n], logits float32 [n, classes].
    """
    was_training = model.training
    model.eval()
    try:
        for inputs, labels in data.batches(_BATCH):
            with torch.inference_mode():
                yield labels, model(*(to_tensor(x).to(device) for x in inputs)).float().cpu().numpy()
    finally:
        model.train(was_training)


def accuracy_row(model: nn.Module, data: ExampleDataset, *, curve: bool = False, device: str = "cpu") -> dict[str, Any]:
    """Accuracy, mean log loss and, for two classes, the area under the ROC curve, as plain numbers.

    Args:
        model: maps inputs to logits [n, classes].
        data: at least one example.
        curve: add the confusion matrix [true, predicted].
        device: where the model lies.
    """
    counts = ClassificationCounts(data.num_classes)
    for labels, logits in predict(model, data, device=device):
        counts.add(logits[:, : data.num_classes], labels)
    report = counts.report()
    row: dict[str, Any] = report.summary()
    if curve:
        row["confusion"] = report.confusion.tolist()
    return row
