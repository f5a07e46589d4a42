"""The student: a model that learns from the released answers and from public rows, and from nothing else.

So what it learns, and how often it is trained, costs nothing beyond the answers.

>>> counts = np.array([[30, -10, 10], [-5, -1, -2]])
>>> soft_labels(counts).astype(float).round(3).tolist()  # noise may leave nothing above zero: then nothing is known
[[0.75, 0.0, 0.25], [0.333, 0.333, 0.333]]

With `method="smooth"` the rows of the pool that have no answer teach, too: the model shall not change its mind between
neighbours, and have one (`smoothness`). Terms are added to the loss of the answers. *Virtual adversarial training*:
what the model says of a row shall not change within a small ball around it; the worst direction is found by one step of
the power iteration. *Low entropy*: the model shall be certain, so that its boundaries run where there are no rows. Both
smooth over wrong labels, too, of which the answers of a noisy vote hold some. Alone they may merge two similar
classes; so the classes shall also be as frequent among the rows as among the answers, up to their cross entropy. No
augmentation is needed, so inputs may be any real numbers. The ball's radius is a share of how far rows lie from their
mean (the root of the mean square), which is public as the rows are.

References:
    Miyato, Maeda, Koyama, Ishii: Virtual Adversarial Training: A Regularization Method for Supervised and Semi-
    Supervised Learning. TPAMI 2018, arXiv 1704.03976 (algorithm 1; "VAT+EntMin", equations 11 and 13).
    Grandvalet, Bengio: Semi-supervised Learning by Entropy Minimization. NeurIPS 2004.
    Hu, Miyato, Tokui, Matsumoto, Sugiyama: Learning Discrete Representations via Information Maximizing Self-Augmented
    Training. ICML 2017, section 3.2: a prior for the classes next to these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._parts import Kinds
from sfumato.training.supervised import AddedLoss, LossAdder, Supervised, batches_in_order

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato._random import RandomSource
    from sfumato.data import ExampleDataset
    from sfumato.data.examples import ExampleRows
    from sfumato.voting.question import Answers

_FIRST = 1e-2  # the power iteration's first step, as a share of the radius: a direction, not yet a distance
_LOOKED_AT = 1024  # rows for the mean distance of rows from their mean
_LEAST = 1e-12


def smoothness(
    rows: ExampleRows,
    *,
    weight: float,
    radius: float,
    batch_size: int,
    attributes: bool,
    answers: np.ndarray | None = None,
    asked: str = "method=smooth",
) -> LossAdder:
    """The terms, for `Supervised.fit`.

    Args:
        rows: public, as a data set stores them, [n, …]; n >= 2, of pictures or real numbers.
        weight: of all terms, > 0.
        radius: of the ball, as a share of the rows' distance from their mean, > 0.
        batch_size: rows a step at most, >= 2.
        attributes: outputs are one logit for each attribute, not for each class.
        answers: classes int64 [n], or soft labels [n, classes], that are as frequent among the rows; None where nothing
            is known of them.
        asked: the setting that asks for it, for messages.

    Raises:
        InputError: fewer rows, or whole numbers, which have no neighbours.
    """
    from sfumato.data import to_tensor

    size = int(rows.shape[0])
    if size < 2:
        raise InputError(f"learning from unlabelled rows needs at least 2 of them, got {size}; leave {asked} out")
    first = to_tensor(np.asarray(rows[np.arange(min(size, _LOOKED_AT))]))
    if not first.is_floating_point():
        raise InputError(f"{asked} moves inputs a little, and {rows.dtype} cannot be; leave it out")
    distance = radius * float((first - first.mean(0)).flatten(1).square().sum(1).mean().sqrt())
    divergence, entropy = _of_attributes if attributes else _of_classes

    @contextmanager
    def adder(model: nn.Module, source: RandomSource, device: torch.device) -> Iterator[AddedLoss]:
        generator = torch.Generator().manual_seed(source.seed64("smoothness"))
        order = batches_in_order(source, "unlabelled", size, -(-size // batch_size))

        def loss(_: float) -> Tensor:
            places = next(order)
            while len(places) < 2:  # alone, batch norm would have no statistics
                places = next(order)
            inputs = to_tensor(np.asarray(rows[places])).to(device)
            logits = model(inputs)
            moved = inputs + _worst(model, inputs, logits.detach(), generator, distance, divergence)
            added = divergence(logits.detach(), model(moved)) + entropy(logits)
            if answers is not None:
                found = torch.nn.functional.softmax(logits, dim=1).mean(0).clamp(min=_LEAST).log()
                added = added - (torch.from_numpy(frequencies(answers, len(found))).to(found) * found).sum()
            return weight * added

        yield AddedLoss((), loss)

    return adder


def frequencies(answers: np.ndarray, classes: int) -> np.ndarray:
    """Shares of the classes in answers, float64 [classes], as if each class had been answered once more.

    >>> frequencies(np.array([1, 1, 0]), 3).round(3).tolist()
    [0.333, 0.5, 0.167]
    """
    found = np.bincount(answers, minlength=classes) if answers.ndim == 1 else answers.sum(0, dtype=np.float64)
    return (found + 1) / (found.sum() + classes)


def _worst(
    model: nn.Module,
    inputs: Tensor,
    logits: Tensor,
    generator: torch.Generator,
    distance: float,
    divergence: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The move of this length that changes the outputs most, to first order of the power iteration."""
    move = torch.randn(inputs.shape, generator=generator).to(inputs)
    move = (_FIRST * distance * _unit(move)).requires_grad_()
    (gradient,) = torch.autograd.grad(divergence(logits, model(inputs + move)), move)
    return distance * _unit(gradient)


def _unit(rows: Tensor) -> Tensor:
    """Each row divided by its length; zeros stay."""
    lengths = rows.flatten(1).norm(dim=1).clamp(min=_LEAST)
    return rows / lengths.view(-1, *[1] * (rows.dim() - 1))


def _class_divergence(before: Tensor, after: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence between two distributions over classes."""
    now, then = torch.nn.functional.log_softmax(after, dim=1), torch.nn.functional.log_softmax(before, dim=1)
    return torch.nn.functional.kl_div(now, then, reduction="batchmean", log_target=True)


def _class_entropy(logits: Tensor) -> Tensor:
    shares = torch.nn.functional.log_softmax(logits, dim=1)
    return -(shares.exp() * shares).sum(1).mean()


def _attribute_divergence(before: Tensor, after: Tensor) -> Tensor:
    """The same for independent attributes, the mean over them."""
    given = torch.sigmoid(before)
    crossed = torch.nn.functional.binary_cross_entropy_with_logits(after, given)
    return crossed - torch.nn.functional.binary_cross_entropy_with_logits(before, given)


def _attribute_entropy(logits: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.sigmoid(logits))


_of_classes = (_class_divergence, _class_entropy)
_of_attributes = (_attribute_divergence, _attribute_entropy)
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


STUDENTS = Kinds[StudentTraining]({"student": StudentTraining})
"""What is short for the student's training: a mapping of its fields."""


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
            answers=None if targets.dtype.kind == "b" else targets,
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
