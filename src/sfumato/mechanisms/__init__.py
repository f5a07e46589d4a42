"""Noise on sums: drawn anew in every round, or correlated over the rounds."""

from sfumato._parts import Kinds
from sfumato.mechanisms.correlated import BISR, BLT, Auto, Banded, CorrelatedGaussian, Tree
from sfumato.mechanisms.gaussian import Gaussian, Mechanism

NOISES = Kinds[Mechanism](
    {"gaussian": Gaussian, "tree": Tree, "banded": Banded, "blt": BLT, "bisr": BISR, "auto": Auto},
    number="noise_multiplier",
)
"""By the word that a plan's noise may be given as; a new mechanism is its class and its line here."""

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
