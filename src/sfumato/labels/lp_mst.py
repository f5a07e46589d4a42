"""LP-MST: a model learns in stages from labels that are each randomised once; what it costs stands in `labels.stages`.

- **Resume.** Every stage's reports are one release of the run: a run that goes on finds them, and draws none again. The
  model of a stage follows from them, the first weights and the public inputs alone, so it is trained again alike.
- **Released.** The reports, the prior of the clusters, and the last model.

>>> from sfumato.data import examples_from_arrays
>>> inputs = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
>>> data = examples_from_arrays(inputs, (inputs[:, 0] > 0).astype(np.int64), num_classes=2)
>>> plan = LPMST(epsilon=3.0, epochs=3, batch_size=32, seed=0)
>>> result = plan.fit(nn.Linear(2, 2), data)
>>> result.statement.unit, result.statement.epsilon, result.statement.delta
('label', 3.0, 0.0)

References:
    Ghazi et al. 2021, arXiv 2102.06062. Algorithm 4.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Budget, Event, Statement, compose
from sfumato.data import ExampleDataset
from sfumato.labels.clusters import clusters, label_counts
from sfumato.labels.phase import label_facts, reports_of, words_of
from sfumato.labels.stages import StagesSettings
from sfumato.mechanisms.randomized_response.priors import ranked
from sfumato.runs import Run
from sfumato.runs.checkpoint import digest
from sfumato.training.scores import measure
from sfumato.training.supervised import outputs
from sfumato.training.trainable import copied

Progress = Callable[[str, int, int], None]
"""Is told what goes on, how much of it is done, and of how much."""

_NOTHING: Event = compose({})
"""What later stages add: their labels are others than those of the first one, whose cost covers all."""


@dataclass(frozen=True, eq=False)
class LabelsResult:
    """What a run leaves.

    Attributes:
        model: of the last stage, in evaluation mode.
        statement: what it cost one label.
        reports: int64 [rows], the randomised labels; released.
        evaluation: of the untrained and the trained model on the test data, and after each stage.
        folder: the run's, or None.
    """

    model: nn.Module
    statement: Statement
    reports: np.ndarray
    evaluation: dict[str, Any]
    folder: Path | None


@dataclass(frozen=True, kw_only=True)
class LPMST(StagesSettings):
    """The plan; its fields are those of `StagesSettings`."""

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
        """Randomise all labels once, stage by stage, and train on the reports.

        Args:
            model: where training starts, with one output a class; its weights are public. It stays as it is.
            data: public inputs, and private classes.
            features: float [rows, d], public, to find clusters by; None takes the inputs as they are.
            test: labelled examples that are not covered, to measure on.
            out: the run's folder; None keeps all in memory.
            resume: go on with the run in `out`.
            budget: what the run may cost.
            about: JSON for plan.json and the model's file; public.
            device: where to train.
            progress: is told how far the run is.

        Raises:
            InputError: a mistake in plan, data, model or folder; nothing is lost.
        """
        labels = _labels(data)
        if test is not None and test.targets is None:
            raise InputError("the test has no labels to measure against; give some, or leave the test out")
        order = RandomSource.from_seed(0).stream("stages").permutation(len(data))
        parts = self.parts(len(data), order)
        groups = self._groups(data, features)
        told = {**self.to_json(), "about": about or {}}
        with Run.open(out, plan=told, seed=self.seed, resume=resume, budget=budget) as run:
            run.between("replace")
            fingerprint = self._fingerprint(model, data, features)
            saved = run.saved(fingerprint) if resume else None
            run.start(fingerprint)
            stages = _Stages(self, data, labels, parts, groups, run, device, progress or _silent)
            if saved is not None and saved.complete:  # its key is gone, so the model is not trained again
                trained, reports, rows = stages.again(model, saved.tensors)
            else:
                trained, reports, rows = stages.go(model, test)
            facts = label_facts(population=len(data), mechanism=self.describe(data.num_classes or 0))
            state = {name: value.cpu() for name, value in trained.state_dict().items()}
            run.save(state, {"stages": len(parts)}, complete=True)
            statement = run.finish(state, facts, metadata=about or {})
            if run.folder is not None:
                for name, row in rows.items():
                    run.folder.add_evaluation(name, row, {"data": "test", "examples": len(test or ())})
                rows = run.folder.evaluation()
            folder = None if run.folder is None else run.folder.path
        return LabelsResult(trained, statement, reports, rows, folder)

    def describe(self, classes: int) -> str:
        """The mechanism, for the statement."""
        told = f"randomised response with priors on {classes} classes, epsilon {self.label_epsilon:.6g}, "
        told += "in one stage" if len(self.stages) == 1 else f"in {len(self.stages)} stages on disjoint rows"
        return told if self.histogram is None else f"{told}; the first prior is a histogram with discrete Laplace noise"

    def _groups(self, data: ExampleDataset, features: np.ndarray | None) -> np.ndarray | None:
        """The cluster of each row; None without clusters."""
        if not self.clusters:
            if features is not None:
                raise InputError("features are for clusters; give the plan clusters, or leave them out")
            return None
        if features is None:
            (inputs,), _ = data.examples(np.arange(len(data)))
            features = inputs.reshape(len(data), -1).astype(np.float64)
        if len(features) != len(data):
            raise InputError(f"features must have one row for each of the {len(data)} examples, got {len(features)}")
        return clusters(features, count=self.clusters, seed=0)

    def _fingerprint(self, model: nn.Module, data: ExampleDataset, features: np.ndarray | None) -> str:
        told = [json.dumps(self.to_json(), sort_keys=True), data.fingerprint(), digest("", dict(model.state_dict()))]
        told.append("" if features is None else hashlib.sha256(np.ascontiguousarray(features).data).hexdigest())
        return hashlib.sha256("\n".join(told).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class _Stages:
    """A run's stages."""

    plan: LPMST
    data: ExampleDataset
    labels: np.ndarray
    parts: list[np.ndarray]
    groups: np.ndarray | None
    run: Run
    device: str
    progress: Progress

    def go(self, model: nn.Module, test: ExampleDataset | None) -> tuple[nn.Module, np.ndarray, dict[str, Any]]:
        """The last model, all reports, and what was measured."""
        rows = {} if test is None else {"untrained": measure(model, test, device=self.device)}
        reports = np.full(len(self.data), -1, np.int64)
        trained = copied(model).eval()
        for stage, part in enumerate(self.parts):
            self.progress("stages", stage, len(self.parts))
            prior = self._prior(trained, part, stage)
            reports[part] = self._reported(part, prior, stage)
            known = np.sort(np.concatenate(self.parts[: stage + 1]))
            drops = bool(stage) and self.plan.drop_unlikely
            kept = self._likely(trained, known, part, prior, reports) if drops and prior is not None else known
            start = trained if self.plan.warm_start else model
            (inputs,), _ = self.data.examples(kept)
            trained = self.plan.training.fit(
                start, inputs, reports[kept], source=self.run.source.within(f"stage {stage}"), device=self.device
            )
            if test is not None:
                rows[f"stage {stage + 1}"] = measure(trained, test, device=self.device)
        self.progress("stages", len(self.parts), len(self.parts))
        if test is not None:
            rows["trained"] = rows[f"stage {len(self.parts)}"]
        return trained, reports, rows

    def again(self, model: nn.Module, state: dict[str, torch.Tensor]) -> tuple[nn.Module, np.ndarray, dict[str, Any]]:
        """What a run that is complete has left."""
        reports, trained = np.full(len(self.data), -1, np.int64), copied(model).eval()
        for stage, part in enumerate(self.parts):
            reports[part] = self._reported(part, None, stage)  # released before: nothing is drawn
        trained.load_state_dict(state)
        return trained, reports, {}

    def _prior(self, model: nn.Module, part: np.ndarray, stage: int) -> np.ndarray | None:
        """What is thought of the labels of a part before they are seen, float64 [rows, classes]; None for nothing."""
        if stage:
            return self._expected(model, part)
        histogram, classes = self.plan.histogram, self.data.num_classes or 0
        if histogram is None or self.groups is None:
            return None
        counts = label_counts(self.groups, self.labels, groups_count=self.plan.clusters, classes=classes)
        return histogram.release(self.run, counts)[self.groups[part]]

    def _reported(self, part: np.ndarray, prior: np.ndarray | None, stage: int) -> np.ndarray:
        """The reports of a part: a release of the run; the first one's cost is that of all."""
        response = self.plan.response(self.data.num_classes or 0)

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            return {"labels": torch.from_numpy(reports_of(response, self.labels[part], words_of(source), prior))}

        event = response.event() if not stage else _NOTHING
        phase = f"labels of stage {stage + 1}"
        return self.run.release(phase, event, draw, rows=len(part), parallel=bool(stage))["labels"].numpy()

    def _likely(
        self, model: nn.Module, known: np.ndarray, part: np.ndarray, prior: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        """Of these rows, those of this stage and those whose report is among the classes that the model holds likely:
        as many of them as the priors of this stage keep in the mean."""
        _, sizes = ranked(prior, self.plan.label_epsilon)
        keep = max(1, round(float(sizes.mean())))
        expected = self._expected(model, known)
        own = np.take_along_axis(expected, reports[known][:, None], axis=1)
        likely = (expected > own).sum(axis=1) < keep
        return known[likely | np.isin(known, part)]

    def _expected(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """The model's probabilities of the classes, float64 [rows, classes]."""
        (inputs,), _ = self.data.examples(rows)
        logits = torch.from_numpy(outputs(model, inputs, device=self.device)).double() / self.plan.temperature
        return torch.softmax(logits, dim=1).numpy()


def _labels(data: ExampleDataset) -> np.ndarray:
    if not isinstance(data, ExampleDataset):
        raise InputError(
            f"data must be single examples (ExampleDataset), got {type(data).__name__}; make one with "
            "sfumato.data.examples_from_arrays"
        )
    if data.num_classes is None or data.targets is None:
        raise InputError(f"labels must be classes, got {data}; numbers are randomised by sfumato labeldp randomize")
    if data.num_classes < 2:
        raise InputError("with one class there is nothing to hide and nothing to learn; give at least 2 classes")
    if len(data.inputs) != 1:
        raise InputError(f"examples must have one input, got {len(data.inputs)}")
    return np.asarray(data.targets, np.int64)


def _silent(what: str, done: int, total: int) -> None:
    pass
