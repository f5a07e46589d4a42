"""How much a unit may contribute: norm bounds and the clipped sum."""

from sfumato.clipping.adaptive import AdaptiveClipNorm
from sfumato.clipping.automatic import AutomaticClipNorm
from sfumato.clipping.clipped_sum import ClippedSum
from sfumato.clipping.constant import ConstantClipNorm
from sfumato.clipping.norm_bound import NormBound
from sfumato.clipping.per_layer import PerLayerClipNorm

__all__ = ["AdaptiveClipNorm", "AutomaticClipNorm", "ClippedSum", "ConstantClipNorm", "NormBound", "PerLayerClipNorm"]
