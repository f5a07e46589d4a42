"""Plans of private labels: a run that randomises all labels once, and a model that trains on them.

All is checked before a label is drawn, and a budget refuses the whole cost before the run begins. A plan says by its
`Learning` what labels it takes, what their reports cost, and how a model learns from them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato._bar import Progress, silent
from sfumato._check import InputError
from sfumato._parts import to_json

if TYPE_CHECKING:
    from torch import nn

    from sfumato._random import RandomSource
    from sfumato.accounting import Event
    from sfumato.data import ExampleDataset
    from sfumato.ledger import Budget
    from sfumato.runs import Checkpoint, Facts, Run
    from sfumato.statement import Statement
    from sfumato.training import Supervised


_PUBLIC = ("model", "model_options", "normalisation", "classes", "outputs", "input_shapes", "version")
FLAT = ("epochs", "batch_size", "learning_rate", "optimizer", "momentum", "weight_decay", "schedule")
"""Fields of the training that were fields of plans in earlier versions."""

_MOSTLY = 0.9  # a share of labels reported as they are above which noise is hardly the cause


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
        InputError: names what is wrong.
    """
    from sfumato.data import ExampleDataset
    from sfumato.data.inputs import refuse_not_finite

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


def with_likely_cause(rows: dict[str, Any], kept: float, of: str) -> dict[str, Any]:
    """The row of the trained model; where it is no better than a baseline, with the likeliest cause and what to change.

    Args:
        rows: of the models "untrained" and "trained".
        kept: probability that a report is the label, without a prior.
        of: what labels are reported among, as "10 classes".
    """
    from sfumato.training.monitoring import trouble

    row = rows["trained"]
    if not trouble(None, rows):
        return row
    cause = (
        f"Likeliest cause: noise in the labels, of which {kept:.0%} are reported as they are among {of}. Raise ε, take "
        "fewer of them, or give a prior."
        if kept < _MOSTLY
        else "Likeliest cause: the learning rate or too few epochs. Try others on public labels."
    )
    return {**row, "likely_cause": cause}


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


def refuse_mixed_ids(training: Supervised, data: ExampleDataset) -> None:
    """Refuse to mix inputs that are ids."""
    if training.mixup and any(kind.kind == "i" for kind in data.dtypes):
        raise InputError(f"mixup={training.mixup:g} mixes numbers and pictures, and some inputs are ids; leave it at 0")


def fingerprint_of(
    plan: dict[str, Any], model: nn.Module, data: ExampleDataset, features: np.ndarray | None = None
) -> str:
    """What a run that goes on must find again: the plan, the first weights, inputs, labels and features."""
    from sfumato.runs.checkpoint import digest

    content = [json.dumps(plan, sort_keys=True), data.fingerprint(), digest("", dict(model.state_dict()))]
    content.append("" if features is None else hashlib.sha256(np.ascontiguousarray(features).data).hexdigest())
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def public_part(about: dict[str, Any] | None) -> dict[str, Any]:
    """What the released model's file states of `about`: how to build it, and no paths of private data."""
    return {name: value for name, value in (about or {}).items() if name in _PUBLIC}


@dataclass(kw_only=True, eq=False)
class Learning:
    """What a plan learns from, where all fits together; nothing is drawn or written when it is made.

    Attributes:
        model: where training starts; it stays as it is.
        data: public inputs, and private labels.
        features: of clusters, or None.
        test: to measure on, or None.
        device: where to train.
        rows: what was measured on the test data, by name.
    """

    model: nn.Module
    data: ExampleDataset
    features: np.ndarray | None
    test: ExampleDataset | None
    device: str
    rows: dict[str, Any] = field(init=False, default_factory=dict)

    def costs(self) -> Sequence[Event]:
        """What one label is charged, in this order."""
        raise NotImplementedError

    def mechanism(self) -> str:
        """For the statement."""
        raise NotImplementedError

    def go(self, run: Run, saved: Checkpoint | None, progress: Progress) -> tuple[nn.Module, np.ndarray]:
        """The model on the device, in evaluation mode, and all reports.

        Args:
            run: open, and started; every release is its own.
            saved: of a run that goes on.
            progress: receives how far it is.
        """
        raise NotImplementedError


class LabelPlan:
    """A plan that can run; a subclass has its fields, and what it learns from."""

    name: ClassVar[str]
    shuffle: bool
    seed: int | None

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **to_json(self)}

    def learning(
        self,
        model: nn.Module,
        data: ExampleDataset,
        features: np.ndarray | None,
        test: ExampleDataset | None,
        device: str,
    ) -> Learning:
        """What the model learns from; the arguments are those of `fit`.

        Raises:
            InputError: something does not fit together.
        """
        raise NotImplementedError

    def refuse_ordered(self, labels: np.ndarray, classes: int) -> None:
        """Refuse rows whose order follows from their labels, unless they are shuffled.

        Args:
            labels: int64 [rows] in {0, …, classes-1}.
            classes: how many there are.

        Raises:
            InputError: it does.
        """
        from sfumato.labels.table import RowOrder

        if not self.shuffle:
            order = RowOrder(classes)
            order.add(labels)
            order.refuse_ordered("data")

    def fit(
        self,
        model: nn.Module,
        data: ExampleDataset,
        *,
        features: np.ndarray | None = None,
        test: ExampleDataset | None = None,
        out: Path | str | None = None,
        resume: bool = False,
        budget: Budget | None = None,
        about: dict[str, Any] | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
    ) -> LabelsResult:
        """Randomise all labels once, and train on the reports.

        Args:
            model: where training starts, with one output a class, or one for numbers; its weights are public. It stays
                as it is.
            data: public inputs, and private labels [rows].
            features: float [rows, d], public, to find clusters by; None takes the inputs as they are.
            test: labelled examples that are not covered, to measure on.
            out: the run's folder; None keeps all in memory.
            resume: go on with the run in `out`.
            budget: what the run may cost.
            about: JSON for plan.json and the model's file; public.
            device: where to train.
            progress: receives how far the run is.

        Raises:
            InputError: a mistake in plan, data, model or folder; nothing is lost.
            KeyboardInterrupt: a signal stopped it; the run in `out` can go on.
        """
        from sfumato.runs import Run

        record = {**self.to_json(), "about": about or {}}
        with Run.open(out, plan=record, seed=self.seed, resume=resume, budget=budget) as run:
            learning = self.learning(model, *self._shuffled(data, features, run.source), test, device)
            saved = run.begin(
                fingerprint_of(self.to_json(), model, data, features),
                "replace",
                resume=resume,
                what="the prior and the labels",
                costs=learning.costs(),
            )
            trained, reports = learning.go(run, saved, progress or silent)
            state = {name: value.cpu() for name, value in trained.state_dict().items()}
            statement = run.finish(state, self._facts(learning, data), metadata=public_part(about))
            folder = None if run.folder is None else run.folder.path
        return LabelsResult(trained, statement, reports, learning.rows, folder)

    def try_out(
        self,
        model: nn.Module,
        data: ExampleDataset,
        *,
        features: np.ndarray | None = None,
        test: ExampleDataset | None = None,
        device: str = "cpu",
    ) -> Statement:
        """What `fit` would state at its end; no label is drawn, and nothing is written. The arguments are its own.

        Raises:
            InputError: as `fit`, for a mistake in the plan, the data or the model.
        """
        from sfumato.statement.facts import make_statement

        learning = self.learning(model, data, features, test, device)
        event = functools.reduce(operator.add, learning.costs())
        source = "os" if self.seed is None else "seeded"
        return make_statement(event, self._facts(learning, data), noise_source=source)

    def _shuffled(
        self, data: ExampleDataset, features: np.ndarray | None, source: RandomSource
    ) -> tuple[ExampleDataset, np.ndarray | None]:
        """Data and features in the order that a run draws for their rows."""
        if not self.shuffle:
            return data, features
        refuse_other_data(data)
        order = source.stream("row order").permutation(len(data))
        if features is not None and len(features) == len(order):  # else they are refused
            features = features[order]
        return data.subset(order), features

    def _facts(self, learning: Learning, data: ExampleDataset) -> Facts:
        from sfumato.data.domain import BUILT
        from sfumato.labels.response import label_facts

        assumptions = (*data.assumptions, *([BUILT] if data.found else []))
        return label_facts(
            population=len(data),
            mechanism=learning.mechanism(),
            assumptions=assumptions,
            trained=True,
            shuffled=self.shuffle,
        )
