"""Synthesis: records of people that never lived, drawn from a model of those that did."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
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
__getattr__, __dir__ = lazily(__name__)
