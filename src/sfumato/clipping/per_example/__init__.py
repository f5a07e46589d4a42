"""Per-example gradient norms and clipped sums in one backward pass."""

from sfumato.clipping.per_example.engine import Recording, covered
from sfumato.clipping.per_example.inspect import layers_of, problems

__all__ = ["Recording", "covered", "layers_of", "problems"]
