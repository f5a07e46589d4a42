"""Noise for a sum, and what it costs."""

from sfumato.mechanisms.correlated_gaussian import CorrelatedGaussian, in_words
from sfumato.mechanisms.independent import IndependentGaussian
from sfumato.mechanisms.mechanism import Mechanism

__all__ = ["CorrelatedGaussian", "IndependentGaussian", "Mechanism", "in_words"]
