"""A loss distribution on a grid, and the same tilted: each mass times e^(tilt * loss)."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfumato.accounting.doubles import EPS


class TooFine(Exception):
    """The grid has too many points for this composition."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """Losses on a grid with their masses under P.

    Attributes:
        gap: distance of neighbouring losses.
        offset: loss of grid index 0.
        first: grid index of the first mass.
        masses: P of each loss, float [n].
        infinity: P of an infinite loss.
        slack: how far the losses may be off because of round-off, a step.
        relative: bound on the relative error of the curve at a loss within the slack, a step.
        memo: what a composition remembers about it.
    """

    gap: float
    offset: float
    first: int
    masses: np.ndarray
    infinity: float
    slack: float
    relative: float = 0.0
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def losses(self) -> np.ndarray:
        return self.offset + self.gap * (self.first + np.arange(len(self.masses)))

    @property
    def largest_loss(self) -> float:
        """The last loss with a mass."""
        some = np.flatnonzero(self.masses)
        return self.offset + self.gap * (self.first + int(some[-1])) if len(some) else -math.inf

    @property
    def largest(self) -> float:
        """The largest absolute loss."""
        low = self.offset + self.gap * self.first
        return max(abs(low), abs(low + self.gap * (len(self.masses) - 1)))

    def log_mgf(self, tilt: float) -> float:
        """log of the moment generating function; remembered."""
        if ("log_mgf", tilt) not in self.memo:
            self.memo["log_mgf", tilt] = self.tilted(tilt)[1]
        return self.memo["log_mgf", tilt]

    def heaviest(self, tilt: float) -> int:
        """The grid index of the largest tilted mass; remembered."""
        if ("heaviest", tilt) not in self.memo:
            self.memo["heaviest", tilt] = self.first + int(np.argmax(self.tilted(tilt)[0]))
        return self.memo["heaviest", tilt]

    def tilted(self, tilt: float) -> tuple[np.ndarray, float]:
        """Masses times e^(tilt * loss), divided by their sum, and the log of that sum."""
        with np.errstate(divide="ignore"):
            weights = np.log(self.masses)
        if tilt:
            weights += tilt * self.losses
        top = float(weights.max())
        weights -= top
        np.exp(weights, out=weights)
        total = float(weights.sum())
        weights /= total
        return weights, top + math.log(total)

    def relative_error(self, tilt: float) -> float:
        """Bound on the relative error that one step adds to tilted masses: that of the masses, of log and exp."""
        return self.relative + 2 * EPS * (760.0 + 2 * tilt * self.largest)
