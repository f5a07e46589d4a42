"""Plans of private labels: a run that randomises all labels once, and a model that trains on them.

All is checked before a label is drawn, and a budget refuses the whole cost before the run begins. A plan says what
one label costs, and by its `Learning` which labels it takes and how a model learns from their reports.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato._bar import Progress, silent
from sfumato._check import InputError
from sfumato._parts import to_json
from sfumato.training.supervised import Supervised  # not for types only: the command reads annotations

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato._random import RandomSource
    from sfumato.accounting import Event
    from sfumato.data import ExampleDataset
    from sfumato.labels.priors import Prior
    from sfumato.labels.response import Response
    from sfumato.ledger import Budget
    from sfumato.runs import Checkpoint, Facts, Run
    from sfumato.statement import Statement


_PUBLIC = ("model", "model_options", "normalisation", "classes", "outputs", "input_shapes", "version")
_OWN = "learning/"  # tensors of a checkpoint that are none of the model
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

    @property
    def trouble(self) -> str:
        """Why the model is of no use, a sentence; "" where nothing speaks against it. It follows the test data."""
        from sfumato.training.monitoring import trouble

        return trouble(None, self.evaluation)


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
    """A run's stages: in each, some labels are randomised, and a model learns from all reports so far.

    All that can be refused is refused when it is made; nothing is drawn or written then. A subclass says which labels
    it takes, what is known of them before they are reported, and how they are released and learned from.

    Attributes:
        plan: whose they are.
        model: where training starts; it stays as it is.
        data: public inputs, and private labels.
        features: of clusters, or None.
        test: to measure on, or None.
        device: where to train.
        labels: int64 [rows] in {0, …, classes-1}, private: classes, or places on a grid of numbers.
        classes: how many classes there are, or values of a number.
        parts: the rows of each stage, disjoint.
        rows: what was measured on the test data, by name.
        run: open, and started; every release is its own.
        progress: receives how far it is.
    """

    plan: LabelPlan
    model: nn.Module
    data: ExampleDataset
    features: np.ndarray | None
    test: ExampleDataset | None
    device: str
    labels: np.ndarray = field(init=False)
    classes: int = field(init=False)
    parts: list[np.ndarray] = field(init=False)
    rows: dict[str, Any] = field(init=False, default_factory=dict)
    run: Run = field(init=False)
    progress: Progress = field(init=False)

    by_stages: ClassVar[bool] = False
    """Whether the model of each stage is measured, too."""

    def __post_init__(self) -> None:
        from sfumato.training.supervised import require_outputs

        refuse_other_data(self.data)
        self.labels, self.classes = self.read_labels()
        self.plan.refuse_ordered(self.labels, self.classes)
        self.refuse_features()
        refuse_mixed_ids(self.plan.training, self.data)
        if self.test is not None:
            refuse_other_test(self.test, self.data)
        outputs = self.classes if self.plan.of_classes else None
        require_outputs(self.model, self.data, classes=outputs, whose="model", device=self.device)
        self.parts = [np.arange(len(self.data))]

    def read_labels(self) -> tuple[np.ndarray, int]:
        """The labels, and how many classes there are, or values of a number.

        Raises:
            InputError: the data have others.
        """
        raise NotImplementedError

    def refuse_features(self) -> None:
        """Refuse features that are of no use, or that are missing.

        Raises:
            InputError: they are.
        """
        raise NotImplementedError

    def mechanism(self) -> str:
        """For the statement."""
        raise NotImplementedError

    def prior(self, stage: int, model: nn.Module) -> np.ndarray | None:
        """What is known of a stage's labels before they are reported; None for nothing.

        Args:
            stage: from 0 on.
            model: of the stage before.
        """
        raise NotImplementedError

    def release(self, stage: int, prior: np.ndarray | None) -> np.ndarray:
        """The reports of a stage's rows: a release of the run, which draws none again that were drawn."""
        raise NotImplementedError

    def learn(self, stage: int, model: nn.Module, prior: np.ndarray | None, reports: np.ndarray) -> nn.Module:
        """The model of a stage, on the device and in evaluation mode.

        Args:
            stage: from 0 on.
            model: of the stage before.
            prior: of the stage's labels.
            reports: [rows], of this stage and those before.
        """
        raise NotImplementedError

    def go(self, run: Run, saved: Checkpoint | None, progress: Progress) -> tuple[nn.Module, np.ndarray]:
        """The model on the device, in evaluation mode, and all reports, stage by stage.

        Args:
            run: open, and started.
            saved: of a run that goes on.
            progress: receives how far it is.
        """
        from sfumato.training.trainable import copied

        self.run, self.progress = run, progress
        total, done = len(self.parts), 0 if saved is None else int(saved.state.get("stages", 0))
        model = copied(self.model).to(self.device).eval()
        if saved is not None and run.folder is not None:
            self.rows = run.folder.evaluation()
        if saved is not None and done:
            own = {name: each for name, each in saved.tensors.items() if name.startswith(_OWN)}
            model.load_state_dict({name: each for name, each in saved.tensors.items() if name not in own})
            self.restore({name.removeprefix(_OWN): each for name, each in own.items()})
        else:
            self._measure(model, "untrained")
        reports = np.full(len(self.data), -1, np.int64 if self.plan.of_classes else np.float64)
        for stage, rows in enumerate(self.parts):
            progress("stages", stage, total)
            if stage < done:
                reports[rows] = self.release(stage, None)  # released before: nothing is drawn
                continue
            prior = self.prior(stage, model)
            self._refuse_to_go_on()
            reports[rows] = self.release(stage, prior)
            model = self.learn(stage, model, prior, reports)
            named = {f"stage {stage + 1}": self.by_stages, "trained": stage + 1 == total}
            self._measure(model, *(name for name, holds in named.items() if holds))
            own = {_OWN + name: each for name, each in self.state().items() if stage + 1 < total}
            run.save({**_tensors(model), **own}, {"stages": stage + 1}, complete=stage + 1 == total)
        progress("stages", total, total)
        return model, reports

    def state(self) -> dict[str, Tensor]:
        """What later stages need besides the model and the reports, for a run that goes on."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take `state` of an earlier stage."""

    def watch(self, stage: int) -> Callable[[int, int], None]:
        """What receives each step of a stage's training, and ends a run that is asked to stop."""

        def watch(step: int, steps: int) -> None:
            self._refuse_to_go_on()
            self.progress("steps", stage * steps + step, len(self.parts) * steps)

        return watch

    def counted(self, groups: np.ndarray, count: int) -> np.ndarray | None:
        """The prior of each group of rows by noisy counts, float64 [groups, classes]; None where nothing is counted.

        Args:
            groups: int64 [rows], public.
            count: how many groups there are.
        """
        from sfumato.labels.priors import label_counts

        counts = label_counts(groups, self.labels, groups_count=count, classes=self.classes)
        return self.plan.prior.release(self.run, counts)

    def _refuse_to_go_on(self) -> None:
        if self.run.asked_to_stop:
            raise KeyboardInterrupt

    def _measure(self, model: nn.Module, *names: str) -> None:
        """Measure a model on the test data under these names; under "trained" with what may have gone wrong."""
        from sfumato.training.supervised import measure

        if self.test is None or not names:
            return
        row = measure(model, self.test, log_rates=self.plan.log_rates, device=self.device)
        about = {
            "data": "test",
            "examples": len(self.test),
            **({"classes": self.classes} if self.plan.of_classes else {}),
        }
        for name in names:
            self.rows[name] = {**row, **self._likely_cause(row)} if name == "trained" else row
            if self.run.folder is not None:
                self.run.folder.add_evaluation(name, self.rows[name], about)

    def _likely_cause(self, trained: dict[str, Any]) -> dict[str, str]:
        """Where the trained model is no better than a baseline: the likeliest cause, and what to change."""
        from sfumato.training.monitoring import trouble

        if not trouble(None, {**self.rows, "trained": trained}):
            return {}
        true = 1 / (1 + (self.classes - 1) * math.exp(-self.plan.label_epsilon))  # reports without a prior
        finite = self.test is None or (trained.get("not_finite") or 0) < len(self.test)
        what = f"{self.classes} {'classes' if self.plan.of_classes else 'values'}"
        cause = (
            f"Likeliest cause: noise in the labels, of which {true:.0%} are reported as they are among {what}. Raise "
            "ε, take fewer of them, or give a prior."
            if true < _MOSTLY and finite
            else "Likeliest cause: the learning rate or too few epochs. Try others on public labels."
        )
        return {"likely_cause": cause}


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.cpu() for name, value in model.state_dict().items()}


class LabelPlan:
    """A plan that can run; a subclass has its fields, and what it learns by."""

    name: ClassVar[str]
    of_classes: ClassVar[bool]
    epsilon: float
    training: Supervised
    shuffle: bool
    seed: int | None
    log_rates = False
    """Whether the model's outputs are logarithms of rates."""

    def to_json(self) -> dict[str, Any]:
        """All fields, with the plan's name."""
        return {"plan": self.name, **to_json(self)}

    @property
    def prior(self) -> Prior:
        """What is known of labels before anything is learned."""
        raise NotImplementedError

    def response(self, classes: int) -> Response:
        """What randomises a label of so many classes, or values of a number."""
        raise NotImplementedError

    def learner(self) -> type[Learning]:
        """How the model learns."""
        raise NotImplementedError

    @property
    def label_epsilon(self) -> float:
        """What is left for the reports."""
        return self.prior.left_of(self.epsilon)

    def events(self, classes: int) -> list[Event]:
        """What one label is charged, in this order: the counts, and the reports."""
        return [*self.prior.events(), self.response(classes).event()]

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
            shuffled, rows = self._shuffled(data, features, run.source)
            learning = self.learner()(plan=self, model=model, data=shuffled, features=rows, test=test, device=device)
            saved = run.begin(
                fingerprint_of(self.to_json(), model, data, features),
                "replace",
                resume=resume,
                what="the prior and the labels",
                costs=self.events(learning.classes),
            )
            trained, reports = learning.go(run, saved, progress or silent)
            statement = run.finish(_tensors(trained), self._facts(learning, data), metadata=public_part(about))
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

        learning = self.learner()(plan=self, model=model, data=data, features=features, test=test, device=device)
        event = functools.reduce(operator.add, self.events(learning.classes))
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
