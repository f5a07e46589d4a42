"""A kind of noise in one file: each round takes back a share of what the round before released.

The noise is C⁻¹z for the C that has 1 on its diagonal and the share below it. Its line in `mechanisms/noises.py` would
be `"echo": Echo`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.accounting import BandedToeplitz, Participation
from sfumato.mechanisms.correlated import Correlated, add_combined

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Echo(Correlated[BandedToeplitz]):
    """w_t = z_t − share · w_{t−1}.

    Attributes:
        share: in [0, 1).
    """

    share: float = 0.5

    def strategy_for(self, limits: Participation) -> BandedToeplitz:
        """What accounts for it: the event, and the variance of prefix sums."""
        return BandedToeplitz((1.0, self.share))

    def settings(self) -> str:
        """For the statement."""
        return f"noise that takes back {self.share:g}"

    @property
    def vectors(self) -> int:
        """The row before."""
        return 1

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Take back a share of the row before."""
        add_combined(noise, [(kept[0], -self.share)])
        kept[0].copy_(noise)

    def needed(self, round: int) -> Iterable[int]:
        """All: a row follows from all before it."""
        return range(round)
