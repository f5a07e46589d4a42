"""How much a contribution may weigh: bounds, the sum that they bound, and its counts."""

from sfumato.clipping.adaptive import AdaptiveClipNorm
from sfumato.clipping.automatic import AutomaticClipNorm
from sfumato.clipping.clipped_sum import ClippedSum
from sfumato.clipping.constant import ConstantClipNorm
from sfumato.clipping.layout import Layout
from sfumato.clipping.norm_bound import NormBound
from sfumato.clipping.per_layer import PerLayerClipNorm
from sfumato.clipping.quantile import QuantileRule
from sfumato.clipping.tally import Tally

__all__ = [
    "AdaptiveClipNorm",
    "AutomaticClipNorm",
    "ClippedSum",
    "ConstantClipNorm",
    "Layout",
    "NormBound",
    "PerLayerClipNorm",
    "QuantileRule",
    "Tally",
]
