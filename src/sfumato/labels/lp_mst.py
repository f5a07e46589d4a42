"""LP-MST: a model learns in stages from labels that are each randomised once.

The rows are divided into disjoint parts, one a stage. The labels of the first part are randomised by a prior that knows
nothing, or by clusters of public inputs; those of a later part by what the model of the stage before says of their
inputs. So each label is randomised in one stage, with the whole epsilon: the stages are parallel, and the cost is that
of one of them.

- **Unit.** One label; inputs are public, and so are the number of rows and the parts.
- **Neighbours.** A label is replaced by any other one. Earlier reports are the same for both neighbours of a label in a
  later part, and later ones are made of them: adaptive, and still parallel.
- **Event.** `PureDP` of what the histogram of clusters leaves, with the first stage; the others cost nothing more.
- **Model.** It sees inputs and reports alone, so training, dropping reports and mixing them is free.
- **Resume.** Every stage's reports are one release of the run: a run that goes on finds them, and draws none again. The
  model of a stage follows from them, the first weights and the public inputs alone, so the same one is trained again.
- **Released.** The reports, the prior of the clusters, and the last model.
- **Stopped.** Ctrl-C ends a stage at its next step with `KeyboardInterrupt`. What the stages before it have left is in
  the run, and so are this stage's reports if they were drawn: a run that goes on draws none again.
- **A model that diverges** expects nothing: where its outputs are not finite, the next stage's labels have an even
  prior, because the labels that are paid for are worth more than a run that ends.

>>> LPMST(epsilon=2.0, stages=(0.65, 0.35)).label_epsilon
2.0
>>> from torch import nn
>>> from sfumato.data import examples_from_arrays
>>> inputs = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
>>> data = examples_from_arrays(inputs, (inputs[:, 0] > 0).astype(np.int64), num_classes=2)
>>> plan = LPMST(epsilon=3.0, training={"epochs": 3, "batch_size": 32}, seed=0)
>>> result = plan.fit(nn.Linear(2, 2), data)
>>> result.statement.unit, result.statement.epsilon, result.statement.delta
('label', 3.0, 0.0)

References:
    Ghazi, Golowich, Kumar, Manurangsi, Zhang: Deep Learning with Label Differential Privacy. NeurIPS 2021,
    arXiv 2102.06062. Algorithm 4.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato import _check
from sfumato._bar import Progress
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._parts import part, plan
from sfumato._random import RandomSource
from sfumato._types import Algorithm
from sfumato.accounting import compose
from sfumato.labels.plan import (
    FLAT,
    LabelPlan,
    Learning,
    refuse_mixed_ids,
    refuse_other_data,
    refuse_other_test,
    with_likely_cause,
)
from sfumato.training.supervised import TRAININGS, Supervised

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event
    from sfumato.data import ExampleDataset
    from sfumato.labels.priors import NoisyHistogram
    from sfumato.labels.response import LabelResponse
    from sfumato.runs import Checkpoint, Run

_OFF = 1e-9
_TRAINING = Supervised(batch_size=256, learning_rate=0.05, schedule="cosine")


@plan
class LPMST(LabelPlan):
    """The plan.

    Attributes:
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        stages: the share of the rows in each stage, adding up to 1; one number is LP-1ST.
        temperature: by which the model's logits are divided before they are a prior, > 0.
        clusters: so many clusters of public features have a prior of their own in the first stage; 0 starts from a
            uniform prior.
        prior_epsilon: of epsilon, what counting the labels of the clusters costs.
        drop_unlikely: leave out earlier reports that the model finds less likely than the mean k* of its priors.
        warm_start: each stage goes on from the weights of the one before; else from the first ones.
        training: of the model in each stage, on all rows whose labels were reported.
        shuffle: put the rows into a random, secret order first, for data whose order follows from their labels.
        seed: repeatable randomness, for tests and simulation only; None draws from the operating system.
    """

    epsilon: float
    stages: tuple[float, ...] = (0.65, 0.35)
    temperature: float = 0.5
    clusters: int = 0
    prior_epsilon: float = 0.05
    drop_unlikely: bool = True
    warm_start: bool = True
    training: Supervised = part(default=_TRAINING, converter=TRAININGS)
    shuffle: bool = False
    seed: int | None = None

    name: ClassVar[str] = "lp_mst"
    of_classes: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {name: f"training.{name}" for name in (*FLAT, "mixup")}

    def __post_init__(self) -> None:
        from sfumato.labels.response import require_epsilon

        require_epsilon(self.epsilon)
        _check.positive(temperature=self.temperature)
        _check.whole(at_least=0, clusters=self.clusters)
        if not (self.stages and abs(sum(self.stages) - 1) <= _OFF and min(self.stages) > 0):  # NaN, too
            raise InputError(f"stages must be shares > 0 that add up to 1, got {self.stages}; 0.65 0.35, for example")
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        self.training.refuse_loss("cross_entropy")
        _ = self.label_epsilon  # checks what it is left of

    @property
    def histogram(self) -> NoisyHistogram | None:
        """How the clusters' labels are counted; None without clusters."""
        from sfumato.labels.priors import NoisyHistogram

        return NoisyHistogram(epsilon=self.prior_epsilon) if self.clusters else None

    @property
    def label_epsilon(self) -> float:
        """What is left for the reports."""
        from sfumato.labels.table import left_for_labels

        return left_for_labels(self.epsilon, self.histogram)

    def response(self, classes: int) -> LabelResponse:
        """What randomises a label: RRWithPrior."""
        from sfumato.labels.response import LabelResponse

        return LabelResponse(epsilon=self.label_epsilon, classes=classes)

    def events(self, classes: int) -> list[Event]:
        """What is paid for, in this order: the counts of the clusters, and the labels."""
        counted = [] if self.histogram is None else [self.histogram.event()]
        return [*counted, self.response(classes).event()]

    def parts(self, rows: int, order: np.ndarray) -> list[np.ndarray]:
        """The rows of each stage, int64, disjoint.

        Args:
            rows: how many there are.
            order: a public permutation of them.

        Raises:
            InputError: a stage has none.
        """
        ends = np.rint(np.cumsum(self.stages) * rows).astype(int)[:-1]
        parts = np.split(order, ends)
        if min(map(len, parts)) == 0:
            raise InputError(f"a stage of {self.stages} has none of {rows} rows; use fewer stages, or more rows")
        return parts

    def learning(
        self,
        model: nn.Module,
        data: ExampleDataset,
        features: np.ndarray | None,
        test: ExampleDataset | None,
        device: str,
    ) -> Stages:
        """The stages of these rows."""
        return Stages(plan=self, model=model, data=data, features=features, test=test, device=device)


_NOTHING: Event = compose({})
"""What later stages add: their labels are others than those of the first one, whose cost covers all."""


@dataclass(kw_only=True, eq=False)
class Stages(Learning):
    """A run's stages.

    Attributes:
        plan: whose they are.
        labels: int64 [rows], private.
        classes: how many there are.
        parts: the rows of each stage.
        groups: the cluster of each row, which a run that is not complete finds; None without clusters.
        run: whose releases they are.
        progress: receives how far it is.
    """

    plan: LPMST
    labels: np.ndarray = field(init=False)
    classes: int = field(init=False)
    parts: list[np.ndarray] = field(init=False)
    groups: np.ndarray | None = field(init=False, default=None)
    run: Run = field(init=False)
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        from sfumato.training.supervised import require_outputs

        plan, data = self.plan, self.data
        self.labels, self.classes = _labels(data)
        plan.refuse_ordered(self.labels, self.classes)
        _refuse_features(self.features, data, wanted=bool(plan.clusters))
        if plan.clusters > len(data):
            raise InputError(f"clusters must be at most the number of rows, {len(data):,}, got {plan.clusters:,}")
        refuse_mixed_ids(plan.training, data)
        require_outputs(self.model, data, classes=self.classes, whose="model", device=self.device)
        if self.test is not None:
            refuse_other_test(self.test, data)
        order = RandomSource.from_seed(0).stream("stages").permutation(len(data))
        self.parts = plan.parts(len(data), order)

    def costs(self) -> list[Event]:
        """The counts of the clusters, and the labels."""
        return self.plan.events(self.classes)

    def mechanism(self) -> str:
        """For the statement."""
        plan = self.plan
        phrase = f"randomised response with priors on {self.classes} classes, epsilon {plan.label_epsilon:.6g}, "
        phrase += "in one stage" if len(plan.stages) == 1 else f"in {len(plan.stages)} stages on disjoint rows"
        if plan.histogram is None:
            return phrase
        return f"{phrase}; the first prior is a histogram with discrete Laplace noise"

    def go(self, run: Run, saved: Checkpoint | None, progress: Progress) -> tuple[nn.Module, np.ndarray]:
        """Stage by stage."""
        from sfumato.training.trainable import copied

        self.run, self.progress, first = run, progress, self.model
        if saved is None or not saved.complete:
            self.groups = self._clusters()
        total, done = len(self.parts), 0 if saved is None else int(saved.state.get("stages", 0))
        trained = copied(first).to(self.device).eval()
        if self.run.folder is not None and saved is not None:
            self.rows = self.run.folder.evaluation()
        if saved is None or not done:
            self._measure("untrained", trained)
        else:
            trained.load_state_dict(saved.tensors)
        reports = np.full(len(self.data), -1, np.int64)
        for stage, rows in enumerate(self.parts):
            self.progress("stages", stage, total)
            if stage < done:
                reports[rows] = self._reported(rows, None, stage)  # released before: nothing is drawn
                continue
            trained = self._stage(trained, first, reports, stage)
            state = {name: value.cpu() for name, value in trained.state_dict().items()}
            if stage + 1 == total and self.test is not None:
                rows = {**self.rows, "trained": self.rows[f"stage {total}"]}
                kept = 1 / (1 + (self.classes - 1) * math.exp(-self.plan.label_epsilon))
                self._keep("trained", with_likely_cause(rows, kept, f"{self.classes} classes"))
            self.run.save(state, {"stages": stage + 1}, complete=stage + 1 == total)
        self.progress("stages", total, total)
        return trained, reports

    def _stage(self, before: nn.Module, first: nn.Module, reports: np.ndarray, stage: int) -> nn.Module:
        """The model of a stage; its reports are put among the others."""
        from sfumato.labels.response import ranked

        part = self.parts[stage]
        prior = self._prior(before, part, stage)
        self._refuse_to_go_on()
        reports[part] = self._reported(part, prior, stage)
        known = np.sort(np.concatenate(self.parts[: stage + 1]))
        if prior is None:
            prior = np.full((1, self.classes), 1 / self.classes)
        reported = float(ranked(prior, self.plan.label_epsilon)[1].mean())
        kept = known
        if stage and self.plan.drop_unlikely:
            kept = self._likely(before, known, part, max(1, round(reported)), reports)
        inputs, _ = self.data.examples(kept)

        def watch(step: int, steps: int) -> None:
            self._refuse_to_go_on()
            self.progress("steps", stage * steps + step, len(self.parts) * steps)

        trained = self.plan.training.fit(
            before if self.plan.warm_start else first,
            inputs,
            reports[kept],
            source=self.run.source.within(f"stage {stage}"),
            device=self.device,
            watch=watch,
        )
        counts = {"labels": len(part), "trained_on": len(kept), "classes_reported": reported}
        self.run.note({"round": stage + 1, **counts})
        self._measure(f"stage {stage + 1}", trained)
        return trained

    def _refuse_to_go_on(self) -> None:
        if self.run.asked_to_stop:
            raise KeyboardInterrupt

    def _measure(self, name: str, model: nn.Module) -> None:
        from sfumato.training.supervised import measure

        if self.test is not None:
            self._keep(name, measure(model, self.test, device=self.device))

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row
        if self.run.folder is not None:
            about = {"data": "test", "examples": len(self.test or ()), "classes": self.classes}
            self.run.folder.add_evaluation(name, row, about)

    def _prior(self, model: nn.Module, part: np.ndarray, stage: int) -> np.ndarray | None:
        """What is thought of the labels of a part before they are seen, float64 [rows, classes]; None for nothing."""
        from sfumato.labels.priors import label_counts

        if stage:
            return self._expected(model, part)
        if self.plan.histogram is None or self.groups is None:
            return None
        counts = label_counts(self.groups, self.labels, groups_count=self.plan.clusters, classes=self.classes)
        return self.plan.histogram.release(self.run, counts)[self.groups[part]]

    def _reported(self, part: np.ndarray, prior: np.ndarray | None, stage: int) -> np.ndarray:
        """The reports of a part: a release of the run; the first one's cost is that of all."""
        from sfumato.labels.response import reports_of, words_of

        response, threads = self.plan.response(self.classes), torch.get_num_threads()

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            found = reports_of(response, self.labels[part], words_of(source), prior, threads=threads)
            return {"labels": torch.from_numpy(found)}

        event = response.event() if not stage else _NOTHING
        phase = f"labels of stage {stage + 1}"
        public = {"stage": stage + 1, "rows": len(part), "parallel": bool(stage)}
        return self.run.release(phase, event, draw, **public)["labels"].numpy()

    def _likely(
        self, model: nn.Module, known: np.ndarray, part: np.ndarray, keep: int, reports: np.ndarray
    ) -> np.ndarray:
        """Of these rows, those of this stage, and those whose report is among so many classes that the model holds
        likely."""
        expected = self._expected(model, known)
        own = np.take_along_axis(expected, reports[known][:, None], axis=1)
        likely = (expected > own).sum(axis=1) < keep
        return known[likely | np.isin(known, part)]

    def _expected(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """The model's probabilities of the classes, float64 [rows, classes]; even ones where it gives none."""
        from sfumato.training.supervised import outputs

        inputs, _ = self.data.examples(rows)
        logits = torch.from_numpy(outputs(model, inputs, device=self.device)).double() / self.plan.temperature
        given = torch.isfinite(logits).all(dim=1)
        if not given.all():
            warnings.warn(
                f"the model gives no finite outputs for {int((~given).sum()):,} of {len(rows):,} rows, so their labels "
                "have equal priors; lower the learning rate in the next run",
                stacklevel=2,
            )
            logits[~given] = 0.0
        return torch.softmax(logits, dim=1).numpy()

    def _clusters(self) -> np.ndarray | None:
        """The cluster of each row; None without clusters."""
        from sfumato.labels.priors import clusters

        if not self.plan.clusters:
            return None
        features = self.features
        if features is None:
            (inputs,), _ = self.data.examples(np.arange(len(self.data)))
            features = inputs.reshape(len(self.data), -1).astype(np.float32)
        return clusters(features, count=self.plan.clusters, seed=0)


def _labels(data: ExampleDataset) -> tuple[np.ndarray, int]:
    """The private labels, int64 [rows], and how many classes there are."""
    from sfumato.labels.response import require_labels

    refuse_other_data(data)
    if data.num_classes is None or data.targets is None:
        raise InputError(f"labels must be classes, got {data}; numbers are for sfumato labeldp regress (RROnBins)")
    if data.num_classes < 2:
        raise InputError("with one class there is nothing to hide and nothing to learn; give at least 2 classes")
    labels = np.asarray(data.targets, np.int64)
    require_labels(labels, data.num_classes)
    return labels, data.num_classes


def _refuse_features(features: np.ndarray | None, data: ExampleDataset, *, wanted: bool) -> None:
    if features is None:
        if wanted and (len(data.inputs) > 1 or data.dtypes[0].kind == "i"):
            raise InputError(f"clusters need one input of numbers or pictures, got {data}; give features of them")
        return
    if not wanted:
        raise InputError("features are for clusters; give the plan clusters, or leave them out")
    if len(features) != len(data):
        raise InputError(f"features must have one row for each of the {len(data)} examples, got {len(features)}")


ALGORITHM = Algorithm(
    name="lp_mst",
    package="sfumato.labels",
    plan="LPMST",
    records="labels",
    title="LP-MST",
    summary="train a model of public inputs whose labels are private (label DP)",
    about="Randomise private labels of public inputs, each once, and train on the reports (LP-MST). What is "
    "known before randomises the labels of the first rows, what the model predicts those of the next.",
    example="sfumato labeldp train --data glyphs --epsilon 2 --shuffle --dry-run",
    matters="data model epsilon training.epochs training.batch_size training.learning_rate out resume dry_run stages",
    command="labeldp train",
)
