"""A client's loss: of a head on embeddings, or of a model which gives the outputs itself.

Heads and losses: what turns embeddings into a training signal for one client.

A head is a matrix W [classes, d] without bias. Embeddings and rows are used raw by `softmax`, as inner products (Xu
et al. 2022, section 3); `cosine`, `cosface` and `arcface` normalise both and scale.

>>> import torch
>>> e, w = torch.eye(2), torch.eye(2)
>>> round(Softmax()(e, w, torch.tensor([0, 1])).mean().item(), 4)  # log(1 + 1/e)
0.3133

A client's loss by its name: that of a head on embeddings, or that of a model which gives its outputs itself.

Where the model gives its outputs there is no head. A model of sequences predicts the next token at every place:
a batch's loss is the mean over its tokens, and padding is no token. A model of values, as of ratings, gives one number
an example, and a classifier the logits of all classes.

>>> loss = NextTokenLoss().mean(torch.zeros(2, 3, 5), None, torch.tensor([[4, 2, 1], [3, 0, 0]]))
>>> round(loss.item(), 4)  # log 5
1.6094
>>> SquaredLoss().mean(torch.tensor([3.0, 4.5]), None, torch.tensor([4.0, 4.5])).item()
0.5

Directions that other clients released are negatives, too: with `against` they join the classes that an example must not
lie at, as Σ exp(s · cos(max(θ − ρ, 0))) over them in the denominator (Meng et al. 2022). They are constants, so that a
client's gradient depends on its own examples and on what is public.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import SET_BY_RUN, Kinds
from sfumato._types import Assumption, Stated
from sfumato.data.text import PADDING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

HeadStart = Literal["glorot", "means"]


@dataclass(frozen=True, kw_only=True)
class HeadLoss(ABC):
    """Cross-entropy on the logits of a head."""

    public_classes: ClassVar[tuple[Stated, ...]] = (Assumption("label_set_public"),)
    """For the statement, where a head has a row for every label."""

    @abstractmethod
    def logits(self, embeddings: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        """Logits [n, classes] from embeddings [n, d], head [classes, d] and labels int64 [n]."""

    def other_logits(self, embeddings: Tensor) -> Tensor | None:
        """Logits [n, m] of classes that are in no head, from embeddings [n, d]; None where there are none."""
        return None

    def __call__(self, embeddings: Tensor, head: Tensor, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n]; with `classes` only the head's first so many rows exist."""
        import torch
        from torch.nn import functional

        logits = self.logits(embeddings, head, labels)
        if classes is not None:
            logits = logits.masked_fill(torch.arange(head.shape[0], device=head.device) >= classes, -math.inf)
        if (others := self.other_logits(embeddings)) is not None:
            logits = torch.cat([logits, others], dim=1)
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


@dataclass(frozen=True, kw_only=True)
class Softmax(HeadLoss):
    """On inner products of raw embeddings and rows."""

    def logits(self, embeddings: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        """Inner products."""
        from torch.nn import functional

        return functional.linear(embeddings, head)


@dataclass(frozen=True, kw_only=True)
class Cosine(HeadLoss):
    """On scaled cosines.

    Attributes:
        scale: factor on cosines, > 0.
        negatives: public directions that no example may lie at, float [m, d] of length 1, set by `against`.
        radius: angle ρ around a negative within which nothing pushes an example away, in [0, π), set by `against`.
    """

    scale: float = 30.0
    negatives: Any = field(default=None, metadata={SET_BY_RUN: True}, compare=False, repr=False)
    radius: float = field(default=0.0, metadata={SET_BY_RUN: True}, repr=False)

    def __post_init__(self) -> None:
        _check.positive(scale=self.scale)

    def against(self, negatives: Tensor | None, radius: float = 0.0) -> Self:
        """The loss with more classes that no example is of.

        Args:
            negatives: their directions, float [m, d]; they are normalised. None or no row for none.
            radius: ρ in [0, π); 0 makes them classes like all others.

        Raises:
            InputError: a direction is zero or not finite, or no such radius.
        """
        import torch
        from torch.nn import functional

        _check.between(0.0, math.pi, ends="[)", radius=radius)
        if negatives is None or not len(negatives):
            return replace(self, negatives=None, radius=0.0)
        lengths = torch.linalg.vector_norm(negatives.double(), dim=-1)
        if negatives.dim() != 2 or not (torch.isfinite(lengths) & (lengths > 0)).all():
            raise InputError(
                f"negatives must be finite directions [m, d] other than zero, got {tuple(negatives.shape)}; leave out "
                "those that are not"
            )
        return replace(self, negatives=functional.normalize(negatives.detach(), dim=1), radius=radius)

    def other_logits(self, embeddings: Tensor) -> Tensor | None:
        """Of the negatives: s · cos(max(θ − ρ, 0)), with finite gradients at every angle θ."""
        import torch
        from torch.nn import functional

        if self.negatives is None:
            return None
        directions = self.negatives.to(embeddings.device, embeddings.dtype)
        cosines = functional.linear(functional.normalize(embeddings, dim=1), directions)
        if not self.radius:
            return self.scale * cosines
        sines = (1 - cosines**2).clamp(min=1e-6).sqrt()  # the derivative of a root has no end at 0
        turned = cosines * math.cos(self.radius) + sines * math.sin(self.radius)
        return self.scale * torch.where(cosines >= math.cos(self.radius), 1.0, turned)

    def logits(self, embeddings: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        """Scaled cosines."""
        return self.scale * _cosines(embeddings, head)


@dataclass(frozen=True, kw_only=True)
class CosFace(Cosine):
    """On scaled cosines, with a margin on that of the true class (Wang et al. 2018).

    Attributes:
        margin: subtracted from the true class's cosine, in [0, 1.5].
    """

    margin: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.between(0.0, 1.5, margin=self.margin)

    def logits(self, embeddings: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        """Scaled cosines less the margin."""
        cosines, true = _cosines(embeddings, head), _true(labels, head)
        return self.scale * (cosines - self.margin * true.to(cosines.dtype))


@dataclass(frozen=True, kw_only=True)
class ArcFace(CosFace):
    """On scaled cosines, with a margin on the angle of the true class (Deng et al. 2019).

    Attributes:
        margin: added to the true class's angle, in radians, in [0, 1.5].
    """

    def logits(self, embeddings: Tensor, head: Tensor, labels: Tensor) -> Tensor:
        """Scaled cosines of the larger angle."""
        import torch

        cosines = _cosines(embeddings, head)
        clamped = cosines.clamp(-1 + 1e-6, 1 - 1e-6)
        shifted = clamped * math.cos(self.margin) - (1 - clamped**2).sqrt() * math.sin(self.margin)
        return self.scale * torch.where(_true(labels, head), shifted, cosines)


def _cosines(embeddings: Tensor, head: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.linear(functional.normalize(embeddings, dim=1), functional.normalize(head, dim=1))


def _true(labels: Tensor, head: Tensor) -> Tensor:
    """Which logit is that of the true class, bool [n, classes]."""
    import torch

    return labels[:, None] == torch.arange(head.shape[0], device=head.device)


def glorot_head(classes: int, dimension: int, generator: torch.Generator) -> Tensor:
    """A fresh head, Glorot uniform, float [classes, dimension]."""
    import torch

    return torch.nn.init.xavier_uniform_(torch.empty(classes, dimension), generator=generator)


class Means:
    """Heads whose rows begin as the mean direction of their class; a class without an example keeps its row.

    From such a start the first step pulls an example to its class and away from the others. From random rows it pulls
    all examples of a class to a random point first, and the backbone follows.

    Args:
        heads: float [clients, classes, d]; not changed.
    """

    def __init__(self, heads: Tensor) -> None:
        import torch

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
        import torch
        from torch.nn import functional

        device = self._heads.device
        taken = taken.to(device)[:, :, None]
        directions = torch.where(taken, functional.normalize(embeddings, dim=2), 0.0)
        place = labels.to(device)[:, :, None]
        self._sums.scatter_add_(1, place.expand_as(directions), directions)
        self._counts.scatter_add_(1, place, taken.to(self._counts.dtype))

    def heads(self) -> Tensor:
        """The heads, [clients, classes, d]."""
        import torch

        return torch.where(self._counts > 0, self._sums / self._counts.clamp(min=1), self._heads)


@dataclass(frozen=True, kw_only=True)
class OutputLoss(ABC):
    """A loss of what the model gives itself; called as `HeadLoss` is, without a head."""

    public_classes: ClassVar[tuple[Stated, ...]] = HeadLoss.public_classes
    """For the statement; none where nothing is assumed of the targets."""

    @abstractmethod
    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n]."""

    def counts(self, labels: Tensor) -> Tensor:
        """How many things each example's loss is the sum of, [n]; one unless overridden."""
        import torch

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
        """Labels for placeholder inputs [n, …], to compute a loss without any record."""
        import torch

        return torch.zeros(len(inputs), dtype=torch.int64)


@dataclass(frozen=True, kw_only=True)
class NextTokenLoss(OutputLoss):
    """Cross-entropy of the next token."""

    public_classes: ClassVar[tuple[Stated, ...]] = (Assumption("vocabulary_released"),)

    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each sequence, the sum of its tokens', [n], from logits [n, T, ids] and labels int64 [n, T]."""
        from torch.nn import functional

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


@dataclass(frozen=True, kw_only=True)
class SquaredLoss(OutputLoss):
    """The squared error of a value."""

    public_classes: ClassVar[tuple[Stated, ...]] = ()

    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n], from predictions [n] and values [n]."""
        return (outputs - labels) ** 2

    def outputs_of(self, inputs: tuple[int, ...], classes: int) -> tuple[tuple[int, ...], str, str]:
        """One number."""
        return (), "one number an example", "leave out its last dimension"

    def labels_like(self, inputs: Tensor) -> Tensor:
        """Values of 0."""
        import torch

        return torch.zeros(len(inputs))


@dataclass(frozen=True, kw_only=True)
class ClassLoss(OutputLoss):
    """Cross-entropy of a classifier's logits."""

    def __call__(self, outputs: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each example, [n], from logits [n, classes] and labels int64 [n]."""
        from torch.nn import functional

        return functional.cross_entropy(outputs, labels, reduction="none")

    def outputs_of(self, inputs: tuple[int, ...], classes: int) -> tuple[tuple[int, ...], str, str]:
        """Logits of every class."""
        return (classes,), f"logits for each of the data's {classes:,} classes", "build it for so many classes"


Loss = HeadLoss | OutputLoss

LOSSES = Kinds[Loss](
    {
        "softmax": Softmax,
        "cosine": Cosine,
        "cosface": CosFace,
        "arcface": ArcFace,
        "next_token": NextTokenLoss,
        "squared": SquaredLoss,
        "cross_entropy": ClassLoss,
    }
)
"""By the word that a client's loss may be given as."""


def without_head(loss: Loss) -> bool:
    """Whether the model gives the outputs itself."""
    return isinstance(loss, OutputLoss)
