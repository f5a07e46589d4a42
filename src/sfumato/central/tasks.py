"""What is measured: classes, numbers, counts, or whatever a loss of one's own reads."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.central.examples import outputs_of, predict, refuse_few, refuse_targets
from sfumato.central.losses import LossPerExample, cross_entropy, poisson_loss, squared_error
from sfumato.data import ExampleDataset
from sfumato.data.inputs import refuse_not_finite
from sfumato.metrics import ClassificationCounts, CountsSums, RegressionSums
from sfumato.metrics.regression import COUNTS, OWN, REGRESSION

# Classifiers of single examples: targets are classes, and what counts is how often the model is right.


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

    def assumptions(self, data: ExampleDataset) -> list[Stated]:
        """What was taken to be public when the data were read."""
        return list(data.assumptions)


# Tasks whose targets are no classes: regression, counts, and whatever a loss of one's own reads.
#
# What their measures mean stands in `sfumato.metrics.regression` and `sfumato.metrics.regression`.


class _Numbers:
    """What the tasks have in common."""

    shown: ClassVar[Mapping[str, str]]
    """Measures in the order in which people see them: key of a row → name; the first one is the headline."""

    def about_test(self, data: ExampleDataset, row: dict[str, Any]) -> dict[str, Any]:
        """The number of examples."""
        return {"data": "test", "examples": len(data)}

    def headline(self, row: dict[str, Any]) -> str:
        """The first of the measures."""
        key, name = next(iter(self.shown.items()))
        return f"{name} {row[key]:.4g}" if key in row else ""

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """All measures; one that is infinite or unknown is left out of its row."""
        return list(self.shown.values()), list(self.shown), f"on {evaluation['examples']:,} test examples"

    def assumptions(self, data: ExampleDataset) -> list[Stated]:
        """What was taken to be public when the data were read."""
        return list(data.assumptions)


class Regression(_Numbers):
    """A model maps inputs to numbers [n, k], or [n] or [n, 1] for one each; targets are of that shape."""

    shown: ClassVar = REGRESSION

    def check(self, data: ExampleDataset) -> None:
        """Refuse data in which nobody can hide, or whose targets are no numbers."""
        _refuse_no_numbers(data, "regression")

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Errors, and how much of the targets' spread is explained."""
        sums = RegressionSums()
        for targets, outputs in predict(model, data, device=device):
            sums.add(outputs, targets)
        return sums.report().summary()


class Counts(_Numbers):
    """A model maps inputs to logarithms of rates [n, k], or [n] or [n, 1] for one each; targets are >= 0."""

    shown: ClassVar = COUNTS

    def check(self, data: ExampleDataset) -> None:
        """Refuse data in which nobody can hide, or whose targets are no counts."""
        targets = _refuse_no_numbers(data, "counts")
        for start in range(0, len(targets), _BLOCK):
            block = np.asarray(targets[start : start + _BLOCK])
            wrong = (block < 0).reshape(len(block), -1)
            if wrong.any():
                row = int(wrong.any(axis=1).argmax())
                told = block.reshape(len(block), -1)[row][wrong[row]][0]
                raise InputError(
                    f"task=counts needs targets >= 0, got {told:g} in example {start + row}; correct it, or use "
                    "task=regression"
                )

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """The Poisson log loss, also beside that of the best constant rate; and the mean of the rates."""
        sums = CountsSums()
        for targets, outputs in predict(model, data, device=device):
            sums.add(outputs, targets)
        return sums.report().summary()


class OwnLoss(_Numbers):
    """A model and a loss of one's own; targets are of any kind, or there are none.

    Args:
        loss: from the model's outputs and the targets to one loss an example, [n].
    """

    shown: ClassVar = OWN

    def __init__(self, loss: LossPerExample | None = None) -> None:
        self._loss = loss

    def check(self, data: ExampleDataset) -> None:
        """Refuse data in which nobody can hide, and a task without its loss."""
        refuse_few(data)
        self._given()

    def measure(self, model: nn.Module, data: ExampleDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """The mean loss; left out where the loss of an example is not finite."""
        loss, total, wrong = self._given(), 0.0, 0
        for outputs, targets in outputs_of(model, data, device=device):
            with torch.inference_mode():
                losses = loss(outputs, targets).double()
            good = torch.isfinite(losses)
            total += float(losses[good].sum())
            wrong += int((~good).sum())
        return {**({} if wrong else {"loss": total / len(data)}), "not_finite": wrong}

    def _given(self) -> LossPerExample:
        if self._loss is None:
            raise InputError(
                "task=own needs a loss: DPSGD(task='own', …).fit(model, data, loss=…) in Python; a command has "
                "classes, regression and counts"
            )
        return self._loss


def _refuse_no_numbers(data: ExampleDataset, task: str) -> np.ndarray:
    """The targets, if they are numbers."""
    refuse_few(data)
    if data.targets is None or data.num_classes is not None:
        remedy = "use task=own with a loss" if data.targets is None else "use task=classes, or read them as numbers"
        refuse_targets(data, task, "numbers", remedy)
    refuse_not_finite(data.targets, "targets")
    return data.targets


_TASKS: dict[str, tuple[type[Classification] | type[Regression] | type[Counts], LossPerExample]] = {
    "classes": (Classification, cross_entropy),
    "regression": (Regression, squared_error),
    "counts": (Counts, poisson_loss),
}
"""How a model is measured, and the loss that it is trained by."""


def task_named(name: str) -> Classification | Regression | Counts | OwnLoss:
    """What the targets must be, and the measures of them."""
    return OwnLoss() if name == "own" else _TASKS[name][0]()


def loss_named(name: str, data: ExampleDataset) -> LossPerExample:
    """The loss of a task.

    Raises:
        InputError: the loss has to be given.
    """
    if name == "own":
        OwnLoss().check(data)  # says what to do
    return _TASKS[name][1]
