"""A client's loss by its name: that of a head on embeddings, or that of a model which gives its outputs itself.

Where the model gives its outputs there is no head beside it. A model of sequences tells the next token at every place:
a batch's loss is the mean over its tokens, and padding is no token. A model of values, as of ratings, gives one number
an example, and a classifier the logits of all classes.

>>> import torch
>>> told = NextTokenLoss().mean(torch.zeros(2, 3, 5), None, torch.tensor([[4, 2, 1], [3, 0, 0]]))
>>> round(told.item(), 4)  # log 5
1.6094
>>> SquaredLoss().mean(torch.tensor([3.0, 4.5]), None, torch.tensor([4.0, 4.5])).item()
0.5
"""

from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from sfumato import _check
from sfumato.data.text.encoding import PADDING
from sfumato.federated.local.heads import HeadLoss

Loss = Literal["softmax", "cosine", "cosface", "arcface", "next_token", "squared", "cross_entropy"]


class OutputLoss(ABC):
    """A loss of what the model gives itself; called as `HeadLoss` is, without a head."""

    @abstractmethod
    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n]."""

    def counts(self, labels: Tensor) -> Tensor:
        """How many things each example's loss is the sum of, [n]; one unless said otherwise."""
        return torch.ones(len(labels), device=labels.device)

    def mean(
        self,
        outputs: Tensor,
        head: None,
        labels: Tensor,
        classes: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch: the mean over all things in its examples, or in those of weight 1 in float [n]."""
        losses, counts = self(outputs, head, labels), self.counts(labels)
        if weights is not None:
            losses, counts = losses * weights, counts * weights
        return losses.sum() / counts.sum().clamp(min=1)

    @abstractmethod
    def outputs_of(self, inputs: tuple[int, ...], classes: int) -> tuple[tuple[int, ...], str, str]:
        """The shape of what the model gives for one example of this shape, what it is, and how to build such a one."""

    def labels_like(self, inputs: Tensor) -> Tensor:
        """Labels that go with made-up inputs [n, …], to compute a loss of nobody."""
        return torch.zeros(len(inputs), dtype=torch.int64)


class NextTokenLoss(OutputLoss):
    """Cross-entropy of the next token."""

    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each sequence, the sum of its tokens', [n], from logits [n, T, ids] and labels int64 [n, T]."""
        losses = functional.cross_entropy(
            outputs.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=PADDING
        )
        return losses.view(labels.shape).sum(1)

    def counts(self, labels: Tensor) -> Tensor:
        """Tokens of each sequence."""
        return (labels != PADDING).sum(1)

    def outputs_of(self, inputs: tuple[int, ...], classes: int) -> tuple[tuple[int, ...], str, str]:
        """Logits of every id at every place."""
        what = f"logits for each of the data's {classes:,} ids at every place"
        return (*inputs, classes), what, f"build it with vocabulary_size={classes}"

    def labels_like(self, inputs: Tensor) -> Tensor:
        """The inputs are ids themselves."""
        return inputs


class SquaredLoss(OutputLoss):
    """The squared error of a value."""

    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n], from predictions [n] and values [n]."""
        return (outputs - labels) ** 2

    def outputs_of(self, inputs: tuple[int, ...], classes: int) -> tuple[tuple[int, ...], str, str]:
        """One number."""
        return (), "one number an example", "leave out its last dimension"

    def labels_like(self, inputs: Tensor) -> Tensor:
        """Values of 0."""
        return torch.zeros(len(inputs))


class ClassLoss(OutputLoss):
    """Cross-entropy of a classifier's logits."""

    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n], from logits [n, classes] and labels int64 [n]."""
        return functional.cross_entropy(outputs, labels, reduction="none")

    def outputs_of(self, inputs: tuple[int, ...], classes: int) -> tuple[tuple[int, ...], str, str]:
        """Logits of every class."""
        return (classes,), f"logits for each of the data's {classes:,} classes", "build it for so many classes"


_OUTPUT_LOSSES = {"next_token": NextTokenLoss, "squared": SquaredLoss, "cross_entropy": ClassLoss}


def without_head(kind: Loss) -> bool:
    """Whether the model gives the outputs itself."""
    return kind in _OUTPUT_LOSSES


def loss_of(kind: Loss, scale: float, margin: float) -> HeadLoss | OutputLoss:
    """The loss of a plan.

    Args:
        kind: which.
        scale: factor on cosines.
        margin: of CosFace or ArcFace.

    Raises:
        InputError: there is no such loss, or a number is out of range.
    """
    _check.one_of(get_args(Loss), loss=kind)
    if kind in ("next_token", "squared", "cross_entropy"):
        return _OUTPUT_LOSSES[kind]()
    return HeadLoss(kind, scale, margin)
