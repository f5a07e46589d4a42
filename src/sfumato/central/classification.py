"""Classifiers of single examples: labels are whole numbers, and what counts is how often the model is right."""

from typing import Any

import numpy as np
from torch import nn

from sfumato._check import InputError
from sfumato.central.measure import accuracy_row
from sfumato.data import ExampleDataset

_BLOCK = 1 << 16


class Classification:
    """A model maps inputs to logits [n, classes]; data sets are `ExampleDataset`s."""

    def check(self, data: ExampleDataset) -> None:
        """Refuse data in which nobody can hide, or whose labels are out of range."""
        if len(data) < 2:
            raise InputError(f"the data set has {len(data)} examples; a private sum needs at least 2")
        for start in range(0, len(data), _BLOCK):
            labels = np.asarray(data.labels[start : start + _BLOCK])
            wrong = (labels < 0) | (labels >= data.num_classes)
            if wrong.any():
                raise InputError(
                    f"labels must be in 0 … {data.num_classes - 1}, got {int(labels[wrong.argmax()])} in example "
                    f"{start + int(wrong.argmax())}; number the classes from 0"
                )

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Accuracy and log loss."""
        return accuracy_row(model, data, curve=curve, device=device)

    def about_test(self, data: ExampleDataset, row: dict[str, Any]) -> dict[str, Any]:
        """Counts of examples and classes."""
        return {"data": "test", "examples": len(data), "classes": data.num_classes}

    def headline(self, row: dict[str, Any]) -> str:
        """Accuracy."""
        return f"accuracy {row['accuracy']:.4f}" if "accuracy" in row else ""

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Accuracy, log loss and, for two classes, the area under the ROC curve."""
        last = evaluation.get("trained") or evaluation["untrained"]
        keys = [name for name in ("accuracy", "log_loss", "auc") if name in last]
        told = f"on {evaluation['examples']:,} test examples of {evaluation['classes']:,} classes"
        return [key.replace("_", " ") for key in keys], keys, told

    def assumptions(self, data: ExampleDataset) -> list[str]:
        """What was taken to be public when the data were read."""
        return list(data.assumptions)
