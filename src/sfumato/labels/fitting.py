"""What plans that train on randomised labels have in common: what they take, what identifies a run, what it leaves."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sfumato._check import InputError
from sfumato.accounting import Statement
from sfumato.data import ExampleDataset
from sfumato.data.singles import refuse_not_finite
from sfumato.runs.checkpoint import digest

_PUBLIC = ("model", "model_options", "normalisation", "classes", "outputs", "input_shapes", "version")


@dataclass(frozen=True, eq=False)
class LabelsResult:
    """What a run leaves.

    Attributes:
        model: of the last stage, in evaluation mode.
        statement: what it cost one label.
        reports: the randomised labels, released: classes int64 [rows], or numbers float64 [rows].
        evaluation: of the untrained and the trained model on the test data, and after each stage.
        folder: the run's, or None.
    """

    model: nn.Module
    statement: Statement
    reports: np.ndarray
    evaluation: dict[str, Any]
    folder: Path | None


def refuse_other_data(data: ExampleDataset) -> None:
    """Refuse what is no data set of single examples whose inputs are finite and have no names.

    Raises:
        InputError: tells what.
    """
    if not isinstance(data, ExampleDataset):
        raise InputError(
            f"data must be single examples (ExampleDataset), got {type(data).__name__}; make one with "
            "sfumato.data.examples_from_arrays"
        )
    if data.input_names:
        raise InputError(
            f"the model gets its inputs by position, and these have names, {data.input_names}; leave them out"
        )
    inputs, _ = data.examples(np.arange(len(data)))
    for rows in inputs:
        if rows.dtype.kind == "f":
            refuse_not_finite(rows, "inputs")


def refuse_other_test(test: ExampleDataset, data: ExampleDataset) -> None:
    """Refuse a test that the model cannot be measured on: of other labels, inputs or classes, or empty."""
    if (
        test.targets is None
        or data.targets is None
        or not len(test)
        or (test.num_classes is None) != (data.num_classes is None)
        or test.targets.shape[1:] != data.targets.shape[1:]
    ):
        raise InputError(f"the test has no labels to measure against, got {test}; give some, or leave the test out")
    if test.input_shapes != data.input_shapes:
        raise InputError(
            f"the test has inputs {test.input_shapes}, the data {data.input_shapes}; bring them to one shape"
        )
    if (test.num_classes or 0) > (data.num_classes or 0):
        raise InputError(
            f"the test has {test.num_classes} classes, the data {data.num_classes}; give both the same ones"
        )


def fingerprint_of(
    plan: dict[str, Any], model: nn.Module, data: ExampleDataset, features: np.ndarray | None = None
) -> str:
    """What a run that goes on must find again: the plan, the first weights, inputs, labels and features."""
    told = [json.dumps(plan, sort_keys=True), data.fingerprint(), digest("", dict(model.state_dict()))]
    told.append("" if features is None else hashlib.sha256(np.ascontiguousarray(features).data).hexdigest())
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def public_part(about: dict[str, Any] | None) -> dict[str, Any]:
    """What the released model's file tells of `about`: how to build it, and no paths of private data."""
    return {name: value for name, value in (about or {}).items() if name in _PUBLIC}


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that tells nobody."""
