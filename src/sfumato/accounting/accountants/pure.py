"""Pure differential privacy: the largest privacy loss adds up, and bounds epsilon at every delta, zero included.

Guarantees an upper bound for the unit that the events were made for (basic composition, Dwork and Roth 2014,
Theorem 3.16).

>>> from sfumato.accounting.events import NonPrivate
>>> PureAccountant(NonPrivate()).epsilon(0.0)
inf
"""

import math

from sfumato._types import Adjacency
from sfumato.accounting.doubles import total
from sfumato.accounting.events import Event, terms


class PureAccountant:
    """The largest loss of an event.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
    """

    method = "pure"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        self.largest_loss = total(count * single.largest_loss(adjacency) for single, count in terms(event))

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; inf where the loss is unbounded."""
        return self.largest_loss

    def delta(self, epsilon: float) -> float:
        """0 from the largest loss on; below it what one worst outcome could show (Kairouz et al. 2015)."""
        if epsilon >= self.largest_loss:
            return 0.0
        if math.isinf(self.largest_loss):
            return 1.0
        return -math.expm1(epsilon - self.largest_loss) / (1.0 + math.exp(-self.largest_loss))
