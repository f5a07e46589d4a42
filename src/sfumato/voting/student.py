"""The student: a model that learns from the released answers and from public rows, and from nothing else.

So what it learns, and how often it is trained, costs nothing beyond the answers. With `method="smooth"` the rows of the
pool that have no answer teach, too: the model must not change its mind between neighbours (`voting.smoothness`).

>>> counts = np.array([[30, -10, 10], [-5, -1, -2]])
>>> soft_labels(counts).astype(float).round(3).tolist()  # noise may leave nothing above zero: then nothing is known
[[0.75, 0.0, 0.25], [0.333, 0.333, 0.333]]
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from torch import nn

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import ExampleDataset
from sfumato.training.supervised import Supervised
from sfumato.voting.question import Answers
from sfumato.voting.smoothness import smoothness

Method = Literal["supervised", "smooth"]
"""Whether the student learns from the answers alone, or from the pool's other rows, too."""


@dataclass(frozen=True, kw_only=True)
class StudentTraining(Supervised):
    """How the student learns: the settings of `Supervised`, with defaults for some hundred answers, and these.

    Attributes:
        method: "supervised", on the answers alone; or "smooth": also not to change its mind between neighbours, and to
            have one, on all rows of the pool. That needs inputs that are real numbers or pictures.
        smoothness: weight of these two terms, > 0.
        radius: how far neighbours lie, as a share of the rows' distance from their mean, > 0.
        unlabelled_batch_size: rows of the pool a step at most, >= 2.
    """

    epochs: int = 60
    schedule: Literal["constant", "cosine"] = "cosine"
    method: Method = "supervised"
    smoothness: float = 1.0
    radius: float = 0.3
    unlabelled_batch_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(get_args(Method), method=self.method)
        _check.positive(smoothness=self.smoothness, radius=self.radius)
        _check.whole(at_least=2, unlabelled_batch_size=self.unlabelled_batch_size)


def train_student(
    model: nn.Module,
    pool: ExampleDataset,
    queries: np.ndarray,
    answers: Answers,
    training: StudentTraining,
    *,
    source: RandomSource,
    device: str = "cpu",
) -> nn.Module:
    """Train a student of the answers.

    Args:
        model: where it starts; it stays as it is. One output for each class or attribute.
        pool: public examples; labels are not read.
        queries: int64 [queries], positions in the pool.
        answers: what was released: classes, attributes, or noisy counts of classes, which are taken as soft labels.
        training: the settings.
        source: of this training alone.
        device: where to train.

    Returns:
        the trained copy, in evaluation mode.

    Raises:
        InputError: no query was answered, or the model, the method and the pool do not fit together.
    """
    targets = targets_of(answers)
    if not len(targets):
        raise InputError("no query was answered, so a student has nothing to learn from; ask again with less noise")
    (inputs,), _ = pool.examples(queries[answers.answered])
    added = None
    if training.method == "smooth":
        added = smoothness(
            pool.inputs[0],
            weight=training.smoothness,
            radius=training.radius,
            batch_size=training.unlabelled_batch_size,
            attributes=targets.dtype.kind == "b",
        )
    return training.fit(model, inputs, targets, source=source, device=device, added=added)


def targets_of(answers: Answers) -> np.ndarray:
    """What the answered queries teach: int64 [n], bool [n, attributes], or soft labels float32 [n, classes]."""
    if answers.counts is not None:
        return soft_labels(answers.counts[answers.answered])
    assert answers.labels is not None
    return answers.labels[answers.answered]


def soft_labels(counts: np.ndarray) -> np.ndarray:
    """Distributions from noisy counts: what noise made negative is 0, and each row is divided by its sum.

    Args:
        counts: [n, classes], in any unit.

    Returns:
        float32 [n, classes]; a row without any positive count is even.
    """
    known = np.maximum(counts, 0).astype(np.float64)
    sums = known.sum(axis=1, keepdims=True)
    even = 1.0 / counts.shape[1]
    return np.where(sums > 0, known / np.maximum(sums, np.finfo(np.float64).tiny), even).astype(np.float32)
