"""Noise for a sum, responses for labels, and what they cost.

Each is imported when it is first asked for: discrete noise needs no torch, and a tallier starts without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.mechanisms.correlated_gaussian import CorrelatedGaussian, in_words
    from sfumato.mechanisms.independent import IndependentGaussian
    from sfumato.mechanisms.mechanism import Mechanism

__all__ = ["CorrelatedGaussian", "IndependentGaussian", "Mechanism", "in_words"]


def __getattr__(name: str) -> Any:
    """What this room makes public under this name."""
    if name in __all__:
        for module in ("independent", "correlated_gaussian", "mechanism"):
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
