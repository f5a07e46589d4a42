"""LP-MST: a model learns in stages from labels that are each randomised once.

The rows are divided into disjoint parts, one a stage. The labels of the first part are randomised by a prior that knows
nothing, or by clusters of public inputs; those of a later part by what the model of the stage before says of their
inputs. So each label is randomised in one stage, with the whole epsilon: the stages are parallel, and the cost is that
of one of them.

- **Unit.** One label; inputs are public, and so are the number of rows and the parts.
- **Neighbours.** A label is replaced by any other one. Earlier reports are the same for both neighbours of a label in a
  later part, and later ones are made of them: adaptive, and still parallel.
- **Event.** `PureDP` of what the histogram of clusters leaves, with the first stage; the others cost nothing more.
- **Model.** It sees inputs, reports and priors alone, so training, dropping reports and mixing them is free. A report
  that its prior made is wrong in the same way for all rows of a cluster, and a model learns such errors. With `targets`
  it learns from all that is known of a label instead: its posterior, or the likelihood of its report (forward
  correction, each row by its own probabilities).
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

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._parts import part, plan
from sfumato._random import RandomSource
from sfumato._types import Algorithm
from sfumato.accounting import compose
from sfumato.data.inputs import refuse_not_finite
from sfumato.labels.plan import (
    LabelPlan,
    Learning,
)
from sfumato.training.supervised import FLAT, TRAININGS, Supervised

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event
    from sfumato.labels.priors import Prior
    from sfumato.labels.response import LabelResponse

Targets = Literal["reports", "posterior", "likelihood"]
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
        prior_epsilon: what counting the labels of the clusters costs: an epsilon out of the total, no share of it.
        uniform_share: of the clusters' prior, what is spread over all classes before labels are randomised by it, in
            [0, 1); a strong prior leaves less room for the label itself, which costs where epsilon is large.
        targets: what the model learns from: "reports" as labels; the "posterior" of each label, by its report and
            its prior; or the "likelihood" of each report.
        prior_weight: with "likelihood", the weight of the cross-entropy with the prior in addition, >= 0.
        drop_unlikely: with "reports", leave out earlier ones that the model finds less likely than the mean k* of its
            priors.
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
    uniform_share: float = 0.0
    targets: Targets = "reports"
    prior_weight: float = 0.1
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
        numbers = isinstance(self.stages, tuple | list) and all(isinstance(each, int | float) for each in self.stages)
        if not (numbers and self.stages and abs(sum(self.stages) - 1) <= _OFF and min(self.stages) > 0):  # NaN, too
            raise InputError(f"stages must be shares > 0 that add up to 1, got {self.stages}; 0.65 0.35, for example")
        _check.between(0.0, 1.0, ends="[)", uniform_share=self.uniform_share)
        _check.one_of(get_args(Targets), targets=self.targets)
        _check.non_negative(prior_weight=self.prior_weight)
        if self.uniform_share and not self.clusters:
            raise InputError(f"uniform_share {self.uniform_share:g} is for the prior of clusters; give clusters, too")
        if self.prior_epsilon != type(self).prior_epsilon and not self.clusters:
            raise InputError(f"prior_epsilon {self.prior_epsilon:g} is for the prior of clusters; give clusters, too")
        if self.seed is not None:
            _check.whole(at_least=0, seed=self.seed)
        self.training.refuse_loss("cross_entropy")
        if self.targets == "likelihood" and self.training.label_smoothing:
            raise InputError(
                "training.label_smoothing is for labels, and targets=likelihood has none; leave it out, and give "
                "prior_weight"
            )
        _ = self.label_epsilon  # checks what it is left of

    @property
    def prior(self) -> Prior:
        """How the clusters' labels are counted."""
        from sfumato.labels.priors import Counted, Uniform

        return Counted(epsilon=self.prior_epsilon, clusters=self.clusters) if self.clusters else Uniform()

    def response(self, classes: int) -> LabelResponse:
        """What randomises a label: RRWithPrior."""
        from sfumato.labels.response import LabelResponse

        return LabelResponse(epsilon=self.label_epsilon, classes=classes)

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

    def learner(self) -> type[Stages]:
        """In stages."""
        return Stages


_NOTHING: Event = compose({})
"""What later stages add: their labels are others than those of the first one, whose cost covers all."""


class Stages(Learning):
    """A run's stages, each with the prior of the ones before."""

    plan: LPMST
    by_stages = True

    def __post_init__(self) -> None:
        super().__post_init__()
        order = RandomSource.from_seed(0).stream("stages").permutation(len(self.data))
        self.parts = self.plan.parts(len(self.data), order)
        shapes = {"reports": (0,), "posterior": (len(self.data), self.classes)}
        shape = shapes.get(self.plan.targets, (len(self.data), 2, self.classes))
        self._targets = np.zeros(shape, np.float32)  # of rows whose labels were reported

    def state(self) -> dict[str, torch.Tensor]:
        """What is learned from, of rows so far: it follows from models that are gone."""
        return {} if self.plan.targets == "reports" else {"targets": torch.from_numpy(self._targets)}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        if "targets" in tensors:
            self._targets = tensors["targets"].numpy().copy()

    def read_labels(self) -> tuple[np.ndarray, int]:
        from sfumato.labels.response import require_labels

        data = self.data
        if data.num_classes is None or data.targets is None:
            raise InputError(f"labels must be classes, got {data}; numbers are for sfumato labeldp regress (RROnBins)")
        if data.num_classes < 2:
            raise InputError("with one class there is nothing to hide and nothing to learn; give at least 2 classes")
        labels = np.asarray(data.targets, np.int64)
        require_labels(labels, data.num_classes)
        return labels, data.num_classes

    def refuse_features(self) -> None:
        data, clusters = self.data, self.plan.clusters
        if self.features is None:
            if clusters and (len(data.inputs) > 1 or data.dtypes[0].kind == "i"):
                raise InputError(f"clusters need one input of numbers or pictures, got {data}; give features of them")
        elif not clusters:
            raise InputError("features are for clusters; give the plan clusters, or leave them out")
        elif len(self.features) != len(data):
            raise InputError(
                f"features must have one row for each of the {len(data)} examples, got {len(self.features)}"
            )
        else:
            refuse_not_finite(self.features, "features")
        if clusters > len(data):
            raise InputError(f"clusters must be at most the number of rows, {len(data):,}, got {clusters:,}")

    def mechanism(self) -> str:
        """For the statement."""
        plan = self.plan
        phrase = f"randomised response with priors on {self.classes} classes, epsilon {plan.label_epsilon:.6g}, "
        phrase += "in one stage" if len(plan.stages) == 1 else f"in {len(plan.stages)} stages on disjoint rows"
        if not plan.prior.events():
            return phrase
        return f"{phrase}; the first prior is a histogram with discrete Laplace noise"

    def prior(self, stage: int, model: nn.Module) -> np.ndarray | None:
        """Float64 [rows of the stage, classes]: of the rows' clusters, then what the model predicts."""
        part = self.parts[stage]
        if stage:
            return self._expected(model, part)
        if not self.plan.clusters:
            return None
        groups = self._clusters()
        counted = self.counted(groups, self.plan.clusters)
        if counted is None:
            return None
        share = self.plan.uniform_share
        return ((1 - share) * counted + share / self.classes)[groups[part]]

    def release(self, stage: int, prior: np.ndarray | None) -> np.ndarray:
        """The first stage's cost is that of all."""
        from sfumato.labels.response import reports_of, words_of

        part, response, threads = self.parts[stage], self.plan.response(self.classes), torch.get_num_threads()

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            found = reports_of(response, self.labels[part], words_of(source), prior, threads=threads)
            return {"labels": torch.from_numpy(found)}

        event = response.event() if not stage else _NOTHING
        phase = f"labels of stage {stage + 1}"
        public = {"stage": stage + 1, "rows": len(part), "parallel": bool(stage)}
        return self.run.release(phase, event, draw, **public)["labels"].numpy()

    def learn(self, stage: int, model: nn.Module, prior: np.ndarray | None, reports: np.ndarray) -> nn.Module:
        """From all reports so far, but for those that the model finds unlikely, where reports are labels."""
        from sfumato.labels.response import ranked

        plan, part = self.plan, self.parts[stage]
        if prior is None:
            prior = np.full((1, self.classes), 1 / self.classes)
        reported = float(ranked(prior, plan.label_epsilon)[1].mean())
        rows = np.sort(np.concatenate(self.parts[: stage + 1]))
        training, targets = plan.training, reports
        if plan.targets == "reports":
            if stage and plan.drop_unlikely:
                rows = self._likely(model, rows, part, max(1, round(reported)), reports)
        else:
            self._note_targets(stage, prior, reports[part])
            targets = self._targets
            if plan.targets == "likelihood":
                training = replace(training, loss="likelihood")
        inputs, _ = self.data.examples(rows)
        trained = training.fit(
            model if plan.warm_start else self.model,
            inputs,
            targets[rows],
            source=self.run.source.within(f"stage {stage}"),
            device=self.device,
            watch=self.watch(stage),
        )
        counts = {"labels": len(part), "trained_on": len(rows), "classes_reported": reported}
        self.run.note({"round": stage + 1, **counts})
        return trained

    def _note_targets(self, stage: int, prior: np.ndarray, reports: np.ndarray) -> None:
        """What is known of the labels of a stage, by the prior that they were randomised by and their reports."""
        plan, part = self.plan, self.parts[stage]
        drawn_by = np.broadcast_to(prior, (len(part), self.classes))
        likelihoods = plan.response(self.classes).likelihoods(reports, drawn_by)
        # A run that goes on elsewhere may find other digits in a prior, and so a report that this prior never gives.
        likelihoods[~likelihoods.any(axis=1)] = 1 / self.classes
        known = drawn_by
        if not stage and plan.clusters:  # what is known is the prior before it was mixed
            share = plan.uniform_share
            known = np.maximum(drawn_by - share / self.classes, 0.0) / (1 - share)
        if plan.targets == "posterior":
            both = known * likelihoods
            none = ~(both.sum(axis=1) > 0)  # the prior excludes the labels that the report leaves
            both[none] = likelihoods[none]
            self._targets[part] = both / both.sum(axis=1, keepdims=True)
        else:
            self._targets[part] = np.stack([likelihoods, plan.prior_weight * known], axis=1)

    def _likely(
        self, model: nn.Module, rows: np.ndarray, part: np.ndarray, count: int, reports: np.ndarray
    ) -> np.ndarray:
        """Of these rows, those of this stage, and those whose report is among the `count` classes that the model finds
        likeliest."""
        expected = self._expected(model, rows)
        reported = np.take_along_axis(expected, reports[rows][:, None], axis=1)
        likely = (expected > reported).sum(axis=1) < count
        return rows[likely | np.isin(rows, part)]

    def _expected(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """The model's probabilities of the classes, float64 [rows, classes]; even ones where it gives none."""
        from sfumato.training.supervised import outputs

        inputs, _ = self.data.examples(rows)
        logits = torch.from_numpy(outputs(model, inputs, device=self.device)).double() / self.plan.temperature
        finite = torch.isfinite(logits).all(dim=1)
        if not finite.all():
            warnings.warn(
                f"the model gives no finite outputs for {int((~finite).sum()):,} of {len(rows):,} rows, so their "
                "labels have equal priors; lower the learning rate in the next run",
                stacklevel=2,
            )
            logits[~finite] = 0.0
        return torch.softmax(logits, dim=1).numpy()

    def _clusters(self) -> np.ndarray:
        """The cluster of each row, by the features, or by the inputs where there are none."""
        from sfumato.labels.priors import clusters

        features = self.features
        if features is None:
            (inputs,), _ = self.data.examples(np.arange(len(self.data)))
            features = inputs.reshape(len(self.data), -1).astype(np.float32)
        return clusters(features, count=self.plan.clusters, seed=0)


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
