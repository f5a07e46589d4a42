"""Losses that are one number an example, and the outputs that they read.

Outputs are [n, k], or [n] or [n, 1] for one each, as the targets are; a loss of several numbers is the mean of theirs.

>>> [round(loss, 4) for loss in cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()]
[1.3863, 1.3863]
>>> squared_error(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 2.5])).tolist()
[4.0, 0.25]
>>> [round(loss, 4) for loss in poisson_loss(torch.tensor([[0.0], [1.0]]), torch.tensor([3, 2])).tolist()]
[1.0, 0.7183]
"""

from collections.abc import Callable
from typing import Any

import torch  # noqa: F401  # for the doctest
from torch import Tensor
from torch.nn import functional

from sfumato._check import InputError
from sfumato.data import ExampleDataset

LossPerExample = Callable[[Any, Any], Tensor]
"""From the model's outputs [n, …] and targets [n] or [n, k], or None without targets, to one loss an example, [n]."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of classifiers: logits [n, classes], labels int64 [n] → [n]."""
    return functional.cross_entropy(logits, labels, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of regression: (output − target)², the mean over an example's numbers → [n]."""
    return _mean((outputs.reshape(targets.shape) - targets).square())


def poisson_loss(log_rates: Tensor, counts: Tensor) -> Tensor:
    """The loss of counts: exp(s) − y·s for the logarithm s of the rate, the mean over an example's counts → [n].

    The negative log-likelihood of Poisson counts without log y!, which no model changes.
    """
    rates = log_rates.reshape(counts.shape)
    return _mean(functional.poisson_nll_loss(rates, counts.to(rates.dtype), log_input=True, reduction="none"))


def refuse_outputs(loss: LossPerExample, outputs: Any, data: ExampleDataset, examples: int) -> None:
    """Refuse outputs that a loss of this module cannot read; what another one reads is its own affair.

    Args:
        loss: of the model.
        outputs: of so many examples.
        data: tells classes and targets.
        examples: how many.

    Raises:
        InputError: with the shape that is needed.
    """
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if loss is cross_entropy:
        if not isinstance(outputs, Tensor) or outputs.dim() != 2 or len(outputs) != examples:
            raise InputError(
                f"the model must give logits [n, classes] for n examples, got {shape}; flatten, or give a loss"
            )
        if outputs.shape[1] < (data.num_classes or 1):
            raise InputError(
                f"the data has {data.num_classes} classes but the model gives {outputs.shape[1]} logits; "
                "build it for that many classes"
            )
    elif loss in (squared_error, poisson_loss) and data.targets is not None:
        wanted = (examples, *data.targets.shape[1:])
        each = 1 if len(wanted) == 1 else wanted[1]
        if shape not in ({(examples,), (examples, 1)} if each == 1 else {wanted}):
            raise InputError(
                f"the model gives outputs {shape} for {examples} examples with targets {wanted}; build it with "
                f"{each} output{'s' * (each != 1)}, or give a loss"
            )


def _mean(losses: Tensor) -> Tensor:
    """The mean over all dimensions but the first."""
    return losses if losses.dim() == 1 else losses.mean(dim=1)
