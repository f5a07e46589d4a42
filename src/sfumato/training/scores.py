"""A model that was trained plainly, without privacy: whether it fits, and how good it is; no task tells it.

>>> from sfumato.data import examples_from_arrays
>>> data = examples_from_arrays(np.zeros((4, 2), np.float32), np.array([0, 1, 2, 0]), num_classes=3)
>>> require_outputs(nn.Linear(2, 3), data, classes=3, whose="model", device="cpu")
"""

from typing import Any

import numpy as np
from torch import nn

from sfumato._check import InputError, first_line
from sfumato.data import ExampleDataset
from sfumato.metrics import ClassificationCounts, CountsSums, RegressionSums
from sfumato.metrics.attributes import attribute_scores
from sfumato.training.supervised import outputs
from sfumato.training.trainable import copied


def measure(model: nn.Module, data: ExampleDataset, *, log_rates: bool = False, device: str = "cpu") -> dict[str, Any]:
    """Accuracy and log loss of a model of classes; of attributes micro and macro F1 and mean average precision; of
    numbers the errors.

    Args:
        model: with one output a class or an attribute, or one for a number.
        data: labelled.
        log_rates: the outputs for numbers are logarithms of rates, which are measured as counts are.
        device: where to compute.
    """
    inputs, targets = data.examples(np.arange(len(data)))
    assert targets is not None
    logits = outputs(model, inputs, device=device)
    if targets.ndim == 1 and data.num_classes is None:
        sums = CountsSums() if log_rates else RegressionSums()
        sums.add(logits, targets)
        return dict(sums.report().summary())
    if targets.ndim == 2:
        return dict(attribute_scores(targets > 0, logits))
    counts = ClassificationCounts(logits.shape[1])
    counts.add(logits, targets)
    return dict(counts.report().summary())


def require_outputs(
    model: nn.Module, data: ExampleDataset, *, classes: int | None, whose: str, device: str, where: str = "the data"
) -> None:
    """Refuse a model that does not give one output a class for an example, or one number.

    Args:
        model: it stays as it is.
        data: examples, of which it is given the first.
        classes: how many there are; None for a number.
        whose: what messages call the model.
        device: where it is going to train.
        where: what messages call the data.

    Raises:
        InputError: it is no module, cannot read the example, or gives something else.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"the {whose} must be a torch module, got {type(model).__name__}")
    inputs, _ = data.examples(np.arange(1))
    try:
        given = outputs(copied(model).to(device), inputs, device=device)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the {whose} cannot read an example of {where}: {first_line(error)}") from None
    if classes is None and given.shape not in ((1,), (1, 1)):
        raise InputError(f"the {whose} must give one output for an example, a number, got {given.shape[1:]}")
    if classes is not None and given.shape != (1, classes):
        raise InputError(f"the {whose} must give {classes} outputs for an example, one a class, got {given.shape[1:]}")
