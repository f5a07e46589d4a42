"""Noise of its own in each round: C is the identity.

>>> Independent().prefix_variance(3)
array([1., 2., 3.])
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato.accounting.events.event import Event
from sfumato.accounting.events.gaussian import Gaussian
from sfumato.accounting.strategies.numbers import in_rounds
from sfumato.accounting.streams.participation import Participation


@dataclass(frozen=True)
class Independent:
    """C is the identity; a unit costs one release for each of its rounds."""

    name: ClassVar[str] = "gaussian"

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        return Gaussian(noise_multiplier).min_separation(
            participation.rounds, participation.min_separation, participation.max_participations
        )

    def squared_sensitivity(self, participation: Participation) -> float:
        return float(participation.most)

    def prefix_variance(self, rounds: int) -> np.ndarray:
        return np.arange(1.0, in_rounds(rounds) + 1)
