"""Classifiers of single examples: targets are classes, and what counts is how often the model is right."""

from typing import Any

import numpy as np
from torch import nn

from sfumato._check import InputError
from sfumato.central.measure import predict, refuse_few, refuse_targets
from sfumato.data import ExampleDataset
from sfumato.metrics import ClassificationCounts

_BLOCK = 1 << 16


class Classification:
    """A model maps inputs to logits [n, classes]; data sets are `ExampleDataset`s."""

    def check(self, data: ExampleDataset) -> None:
        """Refuse data in which nobody can hide, whose targets are no classes, or are out of range."""
        refuse_few(data)
        if data.targets is None or data.num_classes is None:
            remedy = "use task=own with a loss" if data.targets is None else "use task=regression or task=counts"
            refuse_targets(data, "classes", "class numbers", f"number the classes from 0, or {remedy}")
        for start in range(0, len(data), _BLOCK):
            labels = np.asarray(data.targets[start : start + _BLOCK])
            wrong = (labels < 0) | (labels >= data.num_classes)
            if wrong.any():
                raise InputError(
                    f"labels must be in 0 … {data.num_classes - 1}, got {int(labels[wrong.argmax()])} in example "
                    f"{start + int(wrong.argmax())}; number the classes from 0"
                )

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Accuracy, mean log loss and, for two classes, the area under the ROC curve; with `curve` the confusion."""
        if data.num_classes is None:
            raise InputError(f"there are no classes to measure on: {data}; give test data like those of the training")
        counts = ClassificationCounts(data.num_classes)
        for labels, logits in predict(model, data, device=device):
            counts.add(logits[:, : data.num_classes], labels)
        report = counts.report()
        row: dict[str, Any] = report.summary()
        if curve and report.confusion is not None:
            row["confusion"] = report.confusion.tolist()
        return row

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
