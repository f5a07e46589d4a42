"""Events whose privacy loss is bounded and whose pair is symmetric: a kind of them says the bound and the pair.

Renyi divergences follow from the pair, zCDP from the bound (see `Event`).
"""

import math

from sfumato._types import Adjacency
from sfumato.accounting.events.event import Event, Unknown
from sfumato.accounting.pairs.pair import Pair

_LARGEST = 500.0  # losses beyond it do not fit into the exponent of a double
_SMALLEST = 1e-13  # a loss that is not much above the rounding of one


class BoundedLoss(Event):
    """An event with a finite `largest_loss` and one symmetric pair."""

    __slots__ = ()

    unsampled = ""

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        require_range(self, min(self.largest_loss(adjacency), 1e300))
        return (self._pair(adjacency),)

    def largest_loss(self, adjacency: Adjacency) -> float:
        raise NotImplementedError

    def _pair(self, adjacency: Adjacency) -> Pair:
        raise NotImplementedError


def require_range(event: Event, largest_loss: float) -> None:
    """Refuse losses that no grid can hold.

    Raises:
        Unknown: the largest loss is too large or too small.
    """
    if math.isfinite(largest_loss) and not _SMALLEST <= largest_loss <= _LARGEST:
        size = "large" if largest_loss > _LARGEST else "small"
        raise Unknown(
            f'a loss of {largest_loss:g} in {type(event).__name__} is too {size} for method="pld"; use "rdp" or "pure"'
        )
