"""Gaussian releases: a sum with normal noise, and what several of them amount to.

The unit is whoever the noise multiplier was computed for. Adding or removing that unit moves the sum by at most one
sensitivity; replacing it moves the sum by at most two.

>>> combined_shift(Gaussian(2.0) * 4, "add_remove")   # four releases of noise 2 are one of noise 1
1.0
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import positive
from sfumato._types import Adjacency
from sfumato.accounting.doubles import divided, inverse_square
from sfumato.accounting.events.event import Event, event_kind, terms
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.sampled_gaussian import SampledGaussian


class GaussianEvent(Event):
    """An event that equals one Gaussian release; a kind of it says by how far a unit moves the mean."""

    __slots__ = ()

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        return (SampledGaussian("remove", 1.0, self._shift(adjacency)),)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return orders * self.rho(adjacency)

    def rho(self, adjacency: Adjacency) -> float:
        shift = self._shift(adjacency)
        return inverse_square(1.0 / shift) / 2 if shift else 0.0

    def _shift(self, adjacency: Adjacency) -> float:
        shift = self.gaussian_shift(adjacency)
        assert shift is not None
        return shift


@event_kind("gaussian")
@dataclass(frozen=True, slots=True)
class Gaussian(GaussianEvent):
    """A sum released with Gaussian noise.

    Attributes:
        noise_multiplier: std of the noise divided by the most that adding or removing one unit can move the
            sum (in L2 norm), > 0. Replacing a unit moves it twice as far; accountants take care of that.
    """

    noise_multiplier: float

    unsampled = ""
    ranked: ClassVar[Mapping[str, int]] = {"noise_multiplier": -1}

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier, remedy="for a run without noise use NonPrivate()")
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace" else 1.0) / self.noise_multiplier

    def rho(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace" else 0.5) * inverse_square(self.noise_multiplier)

    def _of_group(self, units: int) -> Event:
        return Gaussian(divided(self.noise_multiplier, units))


def combined_shift(event: Event, adjacency: Adjacency) -> float | None:
    """The shift of the one Gaussian that equals a composition of Gaussians; None where anything else is inside."""
    parts: list[float] = []
    for single, count in terms(event):
        shift = single.gaussian_shift(adjacency)
        if shift is None:
            return None
        parts.append(math.sqrt(count) * shift)
    return math.hypot(*parts)  # without overflow or underflow of the squares, to about 2 ulp
