"""The contract of a recurrence: what a round releases is its own fresh noise and a few vectors that are kept.

The noise of round t is row t of C⁻¹z, where z has a fresh row for every round. No matrix is held: each kind of strategy
has a recurrence that turns z_t and the kept vectors into that row, coordinate by coordinate.
"""

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor


class Recurrence(Protocol):
    """Rows of C⁻¹z, one after the other.

    Attributes:
        vectors: how many are kept.
    """

    @property
    def vectors(self) -> int: ...

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Turn a round's fresh noise into its row, and keep what later rounds need; both in place.

        Args:
            kept: float [vectors, n], as the rounds before left it; zero before the first round.
            noise: float [n], standard normal.
            round: from 0.
        """
        ...

    def needed(self, round: int) -> Iterable[int]:
        """The rounds before this one, ascending, whose fresh noise brings `kept` back from zero."""
        ...
