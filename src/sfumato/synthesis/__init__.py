"""Synthesis: records of people that never lived, drawn from a model of those that did."""

from sfumato.synthesis.independent_columns import IndependentColumns
from sfumato.synthesis.plan import EHRSafe
from sfumato.synthesis.run import EHRSafeResult
from sfumato.synthesis.synthesizer import Synthesizer

__all__ = [
    "EHRSafe",
    "EHRSafeResult",
    "IndependentColumns",
    "Synthesizer",
]
