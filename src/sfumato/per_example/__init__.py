"""Per-example gradient norms and clipped sums in one backward pass."""

from sfumato.per_example.coverage import covered, layers_of, problems
from sfumato.per_example.engine import Recording
from sfumato.per_example.rule import Layer

__all__ = ["Layer", "Recording", "covered", "layers_of", "problems"]
