"""Noise on sums: drawn anew in every round, or correlated over the rounds."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.mechanisms.correlated import BISR, BLT, NOISES, Auto, Banded, CorrelatedGaussian, Tree
    from sfumato.mechanisms.gaussian import Gaussian, Mechanism

__all__ = [
    "BISR",
    "BLT",
    "NOISES",
    "Auto",
    "Banded",
    "CorrelatedGaussian",
    "Gaussian",
    "Mechanism",
    "Tree",
]
__getattr__, __dir__ = lazily(__name__)
