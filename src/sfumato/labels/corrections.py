"""Losses that undo the noise of randomised labels, so that a model learns what the true ones would teach it.

With P the probabilities of reports for labels (`LabelResponse.probabilities`), after Patrini et al. 2017:

- **Backward** (Theorem 1): a report r counts with the losses of all classes, weighted by row r of P^-1. In the mean
  this is the loss of the true label, whatever the model says. P must have an inverse: RR has one; where the prior keeps
  fewer than all labels, reports do not tell the rest apart, and there is none. Weights are negative and large for a
  small epsilon.
- **Forward** (Theorem 2): the model's probabilities go through P, and the loss is that of the report. It needs no
  inverse, and serves any prior, one for each row as well (`LabelResponse.likelihoods`).

Both are post-processing of the reports: they cost nothing.

>>> from sfumato.labels.response import LabelResponse
>>> unbiased = unbiased_targets(LabelResponse(epsilon=1.0, classes=3, size=3).probabilities())
>>> unbiased[0].round(3).tolist()      # for a report of class 0
[2.164, -0.582, -0.582]
"""

import numpy as np
import torch
from torch import Tensor

from sfumato._check import InputError

_LEAST = 1e-6  # a label's weight where the prior has none
_LARGEST = 1e8  # a condition number beyond which the inverse is noise


def unbiased_targets(probabilities: np.ndarray) -> np.ndarray:
    """Targets for reports whose mean is the true label's one-hot vector: P^-1.

    Args:
        probabilities: float [labels, reports], square; rows add up to 1.

    Returns:
        float64 [reports, labels]; multiplied by the numbers that labels stand for, it gives unbiased numbers.

    Raises:
        InputError: reports do not tell all labels apart.
    """
    table = np.asarray(probabilities, np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InputError(f"probabilities must be [labels, reports] with as many of both, got {list(table.shape)}")
    if not np.linalg.cond(table) < _LARGEST:
        raise InputError(
            "reports of this response do not tell all labels apart, so no weights undo it; use forward_loss, or a "
            "response that reports all classes"
        )
    return np.linalg.inv(table)


def unbiased_numbers(probabilities: np.ndarray, values: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Numbers for reports whose mean, for each label, is what the label stands for, or as near to it as can be.

    Labels that no report tells apart, as those of one bin, get their mean under the prior.

    Args:
        probabilities: float [labels, reports]; rows add up to 1.
        values: float [labels], what labels stand for.
        prior: float [labels], by which labels weigh where not all means can be right; zeros count as a millionth.

    Returns:
        float64 [reports].

    >>> noisy = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> unbiased_numbers(noisy, np.array([1.0, 5.0]), np.array([0.5, 0.5])).round(6).tolist()
    [-1.0, 7.0]
    """
    weights = np.sqrt(np.maximum(prior, _LEAST))
    return np.linalg.lstsq(probabilities * weights[:, None], values * weights, rcond=None)[0]


def backward_loss(losses: Tensor, reports: Tensor, targets: Tensor) -> Tensor:
    """The unbiased loss of each row, [n].

    Args:
        losses: float [n, classes], the loss that each row would have with each class as its label.
        reports: int64 [n].
        targets: float [classes, classes], of `unbiased_targets`.
    """
    return (targets.to(losses)[reports] * losses).sum(dim=1)


def forward_loss(logits: Tensor, likelihoods: Tensor) -> Tensor:
    """The cross-entropy of each row's report, [n].

    Args:
        logits: float [n, classes], of the true label.
        likelihoods: float [n, classes], the probability of the row's report for each label; with one prior, column r
            of P for a report r.
    """
    logs = torch.log_softmax(logits, dim=1)
    return -torch.logsumexp(logs + likelihoods.to(logits).log(), dim=1)
