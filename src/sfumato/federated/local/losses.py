"""A client's loss by its name: that of a head on embeddings, or that of a model that tells the next token.

A model of sequences gives its logits itself, at every place; there is no head beside it, so all of it is shared,
clipped and noised. A batch's loss is the mean over its tokens, and padding is no token.

>>> import torch
>>> told = NextTokenLoss().mean(torch.zeros(2, 3, 5), None, torch.tensor([[4, 2, 1], [3, 0, 0]]))
>>> round(told.item(), 4)  # log 5
1.6094
"""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor
from torch.nn import functional

from sfumato import _check
from sfumato.data.text.encoding import PADDING
from sfumato.federated.local.heads import HeadLoss

Loss = Literal["softmax", "cosine", "cosface", "arcface", "next_token"]


@dataclass(frozen=True)
class NextTokenLoss:
    """Cross-entropy of the next token; called as `HeadLoss` is, without a head."""

    def __call__(self, logits: Tensor, head: None, labels: Tensor, classes: Tensor | None = None) -> Tensor:
        """Loss of each sequence, the sum of its tokens', [n], from logits [n, T, ids] and labels int64 [n, T]."""
        losses = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=PADDING
        )
        return losses.view(labels.shape).sum(1)

    def mean(
        self,
        logits: Tensor,
        head: None,
        labels: Tensor,
        classes: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Loss of a batch: the mean over all of its tokens, or over those of sequences of weight 1 in float [n]."""
        losses, tokens = self(logits, head, labels), (labels != PADDING).sum(1)
        if weights is not None:
            losses, tokens = losses * weights, tokens * weights
        return losses.sum() / tokens.sum().clamp(min=1)


def loss_of(kind: Loss, scale: float, margin: float) -> HeadLoss | NextTokenLoss:
    """The loss of a plan.

    Args:
        kind: which.
        scale: factor on cosines.
        margin: of CosFace or ArcFace.

    Raises:
        InputError: there is no such loss, or a number is out of range.
    """
    _check.one_of(get_args(Loss), loss=kind)
    return NextTokenLoss() if kind == "next_token" else HeadLoss(kind, scale, margin)
