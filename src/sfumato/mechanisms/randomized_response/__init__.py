"""Randomised response on labels: exact thresholds, priors, bins for numbers, losses that undo it."""

from sfumato.mechanisms.randomized_response.bins import BinnedResponse
from sfumato.mechanisms.randomized_response.corrections import (
    backward_loss,
    forward_loss,
    unbiased_numbers,
    unbiased_targets,
)
from sfumato.mechanisms.randomized_response.grid_laplace import GridLaplace
from sfumato.mechanisms.randomized_response.response import LabelResponse

__all__ = [
    "BinnedResponse",
    "GridLaplace",
    "LabelResponse",
    "backward_loss",
    "forward_loss",
    "unbiased_numbers",
    "unbiased_targets",
]
