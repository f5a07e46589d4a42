"""How good a model is on labelled public examples: one with plain training, without privacy, has no task that tells."""

from typing import Any

import numpy as np
from torch import nn

from sfumato.data import ExampleDataset
from sfumato.metrics import ClassificationCounts
from sfumato.metrics.attributes import attribute_scores
from sfumato.training.supervised import outputs


def measure(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> dict[str, Any]:
    """Accuracy and log loss of a model of classes; of attributes micro and macro F1 and mean average precision."""
    (inputs,), targets = data.examples(np.arange(len(data)))
    assert targets is not None
    logits = outputs(model, inputs, device=device)
    if targets.ndim == 2:
        return dict(attribute_scores(targets > 0, logits))
    counts = ClassificationCounts(logits.shape[1])
    counts.add(logits, targets)
    return dict(counts.report().summary())
