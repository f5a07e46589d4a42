"""How much a contribution may weigh: bounds, the sum that they bound, and its counts."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.clipping.bounds import CLIPPINGS, Adaptive, Automatic, Flat, NormBound, PerLayer
    from sfumato.clipping.clipped_sum import ClippedSum, Layout, RowCounts, RowSum, Tally

__all__ = [
    "CLIPPINGS",
    "Adaptive",
    "Automatic",
    "ClippedSum",
    "Flat",
    "Layout",
    "NormBound",
    "PerLayer",
    "RowCounts",
    "RowSum",
    "Tally",
]
__getattr__, __dir__ = lazily(__name__)
