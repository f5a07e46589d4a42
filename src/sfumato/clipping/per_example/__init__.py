"""Per-example gradient norms and clipped sums in one backward pass."""

from sfumato.clipping.per_example.engine import Recording, covered
from sfumato.clipping.per_example.inspect import layers_of, problems
from sfumato.clipping.per_example.self_check import SelfCheck, self_check

__all__ = ["Recording", "SelfCheck", "covered", "layers_of", "problems", "self_check"]
