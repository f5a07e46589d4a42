"""LP-MST: a model learns in stages from labels that are each randomised once; what it costs stands in `labels.stages`.

- **Resume.** Every stage's reports are one release of the run: a run that goes on finds them, and draws none again. The
  model of a stage follows from them, the first weights and the public inputs alone, so it is trained again alike.
- **Released.** The reports, the prior of the clusters, and the last model.

>>> from torch import nn
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

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.labels.plan import LabelPlan
from sfumato.labels.stages import StagesSettings

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event
    from sfumato.data import ExampleDataset
    from sfumato.labels.plan import Given
    from sfumato.labels.stages import Progress
    from sfumato.runs import Checkpoint, Run


@dataclass(frozen=True)
class Rows:
    """Private labels, int64 [rows], how many classes there are, and the rows of each stage."""

    labels: np.ndarray
    classes: int
    parts: list[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class LPMST(StagesSettings, LabelPlan[Rows]):
    """The plan; its fields are those of `StagesSettings`."""

    def ready(self, given: Given) -> Rows:
        """What fits together."""
        from sfumato.labels.plan import refuse_other_test
        from sfumato.training.supervised import require_outputs

        data = given.data
        labels, classes = _labels(data)
        self.refuse_ordered(labels, classes)
        _refuse_features(given.features, data, wanted=bool(self.clusters))
        if self.clusters > len(data):
            raise InputError(f"clusters must be at most the number of rows, {len(data):,}, got {self.clusters:,}")
        if self.mixup and any(kind.kind == "i" for kind in data.dtypes):
            raise InputError(f"mixup={self.mixup:g} mixes numbers and pictures, and some inputs are ids; leave it at 0")
        require_outputs(given.model, data, classes=classes, whose="model", device=given.device)
        if given.test is not None:
            refuse_other_test(given.test, data)
        order = RandomSource.from_seed(0).stream("stages").permutation(len(data))
        return Rows(labels, classes, self.parts(len(data), order))

    def costs(self, ready: Rows) -> list[Event]:
        """The counts of the clusters, and the labels."""
        return self.events(ready.classes)

    def mechanism(self, ready: Rows) -> str:
        """For the statement."""
        told = f"randomised response with priors on {ready.classes} classes, epsilon {self.label_epsilon:.6g}, "
        told += "in one stage" if len(self.stages) == 1 else f"in {len(self.stages)} stages on disjoint rows"
        return told if self.histogram is None else f"{told}; the first prior is a histogram with discrete Laplace noise"

    def learn(
        self, ready: Rows, given: Given, run: Run, saved: Checkpoint | None, progress: Progress
    ) -> tuple[nn.Module, np.ndarray, dict[str, Any]]:
        """Stage by stage."""
        from sfumato.labels.stages import Learning

        done = saved is not None and saved.complete
        learning = Learning(
            settings=self,
            data=given.data,
            labels=ready.labels,
            classes=ready.classes,
            parts=ready.parts,
            groups=None if done else self._groups(given.data, given.features),
            test=given.test,
            run=run,
            device=given.device,
            progress=progress,
        )
        trained, reports = learning.go(given.model, saved)
        return trained, reports, learning.rows

    def _groups(self, data: ExampleDataset, features: np.ndarray | None) -> np.ndarray | None:
        """The cluster of each row; None without clusters."""
        from sfumato.labels.priors import clusters

        if not self.clusters:
            return None
        if features is None:
            (inputs,), _ = data.examples(np.arange(len(data)))
            features = inputs.reshape(len(data), -1).astype(np.float32)
        return clusters(features, count=self.clusters, seed=0)


def _labels(data: ExampleDataset) -> tuple[np.ndarray, int]:
    """The private labels, int64 [rows], and how many classes there are."""
    from sfumato.labels.plan import refuse_other_data
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
