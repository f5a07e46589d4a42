"""Noise for a sum, responses for labels, and what they cost."""

from sfumato.mechanisms.correlated_gaussian import CorrelatedGaussian, in_words
from sfumato.mechanisms.discrete_laplace import discrete_laplace
from sfumato.mechanisms.independent import IndependentGaussian
from sfumato.mechanisms.mechanism import Mechanism
from sfumato.mechanisms.randomized_response.bins import BinnedResponse
from sfumato.mechanisms.randomized_response.corrections import backward_loss, forward_loss, unbiased_targets
from sfumato.mechanisms.randomized_response.grid_laplace import GridLaplace
from sfumato.mechanisms.randomized_response.response import LabelResponse

__all__ = [
    "BinnedResponse",
    "CorrelatedGaussian",
    "GridLaplace",
    "IndependentGaussian",
    "LabelResponse",
    "Mechanism",
    "backward_loss",
    "discrete_laplace",
    "forward_loss",
    "in_words",
    "unbiased_targets",
]
