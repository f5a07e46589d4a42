"""Dominating pairs: two distributions whose hockey-stick curve is the worst that an event can show."""

from sfumato.accounting.pairs.discrete_gaussian import DiscreteGaussianPair
from sfumato.accounting.pairs.discrete_laplace import DiscreteLaplacePair
from sfumato.accounting.pairs.exponential import BoundedRange
from sfumato.accounting.pairs.finite import FinitePair, TabledPair
from sfumato.accounting.pairs.labelled import Labelled
from sfumato.accounting.pairs.laplace import LaplacePair
from sfumato.accounting.pairs.mixture import MixedGaussian
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.sampled import SampledPair
from sfumato.accounting.pairs.sampled_gaussian import Direction, SampledGaussian

__all__ = [
    "BoundedRange",
    "Direction",
    "DiscreteGaussianPair",
    "DiscreteLaplacePair",
    "FinitePair",
    "Labelled",
    "LaplacePair",
    "MixedGaussian",
    "Pair",
    "SampledGaussian",
    "SampledPair",
    "TabledPair",
]
