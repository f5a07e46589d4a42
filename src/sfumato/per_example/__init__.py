"""Per-example gradient norms and clipped sums in one backward pass."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.per_example.engine import Recording, covered, layers_of, problems
    from sfumato.per_example.rule import Layer

__all__ = ["Layer", "Recording", "covered", "layers_of", "problems"]
__getattr__, __dir__ = lazily(__name__)
