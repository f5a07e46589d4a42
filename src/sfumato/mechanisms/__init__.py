"""Noise for a sum, and what it costs."""

from sfumato.mechanisms.independent import IndependentGaussian
from sfumato.mechanisms.mechanism import Mechanism

__all__ = ["IndependentGaussian", "Mechanism"]
