"""Noise on sums: drawn anew in every round, or correlated over the rounds."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.mechanisms.gaussian import Gaussian, Mechanism
    from sfumato.mechanisms.noises import NOISES, Auto
    from sfumato.mechanisms.toeplitz import BISR, BLT, Banded
    from sfumato.mechanisms.tree import Tree

__all__ = [
    "BISR",
    "BLT",
    "NOISES",
    "Auto",
    "Banded",
    "Gaussian",
    "Mechanism",
    "Tree",
]
__getattr__, __dir__ = lazily(__name__)
