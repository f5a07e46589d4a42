"""A client's loss: of a head on embeddings, or of a model which gives the outputs itself.

Heads and losses: what turns embeddings into a training signal for one client.

A head is a matrix W [classes, d] without bias. Embeddings and rows are used raw by `softmax`, as inner products (Xu
et al. 2022, section 3); `cosine`, `cosface` and `arcface` normalise both and scale.

>>> e, w = torch.eye(2), torch.eye(2)
>>> round(HeadLoss("softmax")(e, w, torch.tensor([0, 1])).mean().item(), 4)  # log(1 + 1/e)
0.3133

A client's loss by its name: that of a head on embeddings, or that of a model which gives its outputs itself.

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

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from sfumato import _check
from sfumato.data.text import PADDING

HeadKind = Literal["softmax", "cosine", "cosface", "arcface"]
HeadStart = Literal["glorot", "means"]


@dataclass(frozen=True)
class HeadLoss:
    """Cross-entropy on the logits of a head.

    Attributes:
        kind: "softmax" on inner products; "cosine" on scaled cosines; "cosface" and "arcface" with a margin.
        scale: factor on cosines.
        margin: CosFace subtracts it from the true class's cosine, ArcFace adds it (radians) to its angle.
    """

    kind: HeadKind = "softmax"
    scale: float = 30.0
    margin: float = 0.3

    def __post_init__(self) -> None:
        _check.one_of(("softmax", "cosine", "cosface", "arcface"), loss=self.kind)
        _check.positive(scale=self.scale)
        _check.between(0.0, 1.5, margin=self.margin)

    def logits(self, embeddings: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        """Logits [n, classes] from embeddings [n, d], head [classes, d] and labels int64 [n]."""
        if self.kind == "softmax":
            return functional.linear(embeddings, head)
        cosines = functional.linear(functional.normalize(embeddings, dim=1), functional.normalize(head, dim=1))
        if self.kind == "cosine":
            return self.scale * cosines
        true = labels[:, None] == torch.arange(head.shape[0], device=head.device)
        if self.kind == "cosface":
            return self.scale * (cosines - self.margin * true.to(cosines.dtype))
        clamped = cosines.clamp(-1 + 1e-6, 1 - 1e-6)
        shifted = clamped * math.cos(self.margin) - (1 - clamped**2).sqrt() * math.sin(self.margin)
        return self.scale * torch.where(true, shifted, cosines)

    def __call__(self, embeddings: Tensor, head: Tensor, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n]; with `classes` only the head's first so many rows exist."""
        logits = self.logits(embeddings, head, labels)
        if classes is not None:
            logits = logits.masked_fill(torch.arange(head.shape[0], device=head.device) >= classes, -math.inf)
        return functional.cross_entropy(logits, labels, reduction="none")

    def mean(
        self,
        embeddings: Tensor,
        head: Tensor,
        labels: Tensor,
        classes: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch: the mean over its examples, or over those of weight 1 in float [n]."""
        losses = self(embeddings, head, labels, classes)
        return losses.mean() if weights is None else (losses * weights).sum() / weights.sum().clamp(min=1)


def glorot_head(classes: int, dimension: int, generator: torch.Generator) -> Tensor:
    """A fresh head, Glorot uniform, float [classes, dimension]."""
    return torch.nn.init.xavier_uniform_(torch.empty(classes, dimension), generator=generator)


class Means:
    """Heads whose rows begin as the mean direction of their class; a class without an example keeps its row.

    From such a start the first step pulls an example to its class and away from the others. From random rows it pulls
    all examples of a class to a random point first, and the backbone follows.

    Args:
        heads: float [clients, classes, d]; not changed.
    """

    def __init__(self, heads: Tensor) -> None:
        self._heads = heads
        self._sums = torch.zeros_like(heads)
        self._counts = torch.zeros_like(heads[:, :, :1])

    def add(self, embeddings: Tensor, labels: Tensor, taken: Tensor) -> None:
        """Take some examples of every client into account.

        Args:
            embeddings: float [clients, n, d].
            labels: int64 [clients, n], the class of each.
            taken: bool [clients, n]; what is not counts as none.
        """
        device = self._heads.device
        taken = taken.to(device)[:, :, None]
        directions = torch.where(taken, functional.normalize(embeddings, dim=2), 0.0)
        place = labels.to(device)[:, :, None]
        self._sums.scatter_add_(1, place.expand_as(directions), directions)
        self._counts.scatter_add_(1, place, taken.to(self._counts.dtype))

    def heads(self) -> Tensor:
        """The heads, [clients, classes, d]."""
        return torch.where(self._counts > 0, self._sums / self._counts.clamp(min=1), self._heads)


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
