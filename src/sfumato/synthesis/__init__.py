"""Synthesis: records of people that never lived, drawn from a model of those that did."""

from sfumato.synthesis.ehr_safe.plan import EHRSafe
from sfumato.synthesis.ehr_safe.run import EHRSafeResult
from sfumato.synthesis.ehr_safe.synthesizer import Synthesizer
from sfumato.synthesis.independent_columns import IndependentColumns

__all__ = [
    "EHRSafe",
    "EHRSafeResult",
    "IndependentColumns",
    "Synthesizer",
]
