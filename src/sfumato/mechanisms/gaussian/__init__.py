"""Gaussian noise on the sums of rounds: fresh in each round, or correlated over them."""

from sfumato.mechanisms.gaussian.correlated_gaussian import CorrelatedGaussian, in_words
from sfumato.mechanisms.gaussian.independent import IndependentGaussian
from sfumato.mechanisms.gaussian.mechanism import Mechanism

__all__ = ["CorrelatedGaussian", "IndependentGaussian", "Mechanism", "in_words"]
