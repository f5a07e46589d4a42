"""Per-example gradient norms and clipped sums in one backward pass."""

from sfumato.per_example.checks.self_check import SelfCheck, self_check
from sfumato.per_example.coverage import layers_of, problems
from sfumato.per_example.engine import Recording, covered

__all__ = ["Recording", "SelfCheck", "covered", "layers_of", "problems", "self_check"]
