"""How much a unit may contribute."""

from sfumato.clipping.adaptive import AdaptiveClipNorm
from sfumato.clipping.clipped_sum import ClippedSum
from sfumato.clipping.constant import ConstantClipNorm

__all__ = ["AdaptiveClipNorm", "ClippedSum", "ConstantClipNorm"]
