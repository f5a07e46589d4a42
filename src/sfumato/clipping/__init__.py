"""How much a contribution may weigh: bounds, the sum that they bound, and its counts."""

from sfumato._parts import Kinds
from sfumato.clipping.bounds import Adaptive, Automatic, Flat, NormBound, PerLayer
from sfumato.clipping.clipped_sum import ClippedSum, Layout, Tally

CLIPPINGS = Kinds[NormBound](
    {"flat": Flat, "per_layer": PerLayer, "automatic": Automatic, "adaptive": Adaptive}, number="norm"
)
"""By the word that a plan's clipping may be given as; a new bound is its class and its line here."""

__all__ = [
    "CLIPPINGS",
    "Adaptive",
    "Automatic",
    "ClippedSum",
    "Flat",
    "Layout",
    "NormBound",
    "PerLayer",
    "Tally",
]
