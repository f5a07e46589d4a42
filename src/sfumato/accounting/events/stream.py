"""What releases with noise that is correlated over time have in common: participation limits and one sensitivity.

Unit: whoever contributes at most one clipped vector a round, in the rounds that the limits allow. The whole stream is
one Gaussian release, N(S, z^2) against N(0, z^2) at worst, where S is the most that one unit's contributions can move
it. See `tree` and `matrix` for S, and docs/explanation/trees-and-matrices.md.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from sfumato._check import between, positive
from sfumato._types import Adjacency
from sfumato.accounting.doubles import divided
from sfumato.accounting.events.event import Event, Unknown
from sfumato.accounting.events.gaussian import GaussianEvent
from sfumato.accounting.streams.participation import Participation

MOST_STEPS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent(GaussianEvent):
    """A stream of releases that together are one Gaussian release."""

    noise_multiplier: float
    steps: int
    max_participations: int | None = 1
    min_separation: int = 0

    unsampled: ClassVar[str] = (
        "its noise is shared between rounds, so the rounds are not independent samples; "
        "for banded strategies use cyclic_poisson"
    )

    @property
    def participation(self) -> Participation:
        """The rounds in which one unit may take part."""
        return Participation(
            rounds=self.steps, max_participations=self.max_participations, min_separation=self.min_separation
        )

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        """S / z, twice that for replacement.

        Raises:
            Unknown: the adjacency is add_remove.
        """
        if adjacency == "add_remove":
            raise Unknown(
                f"{type(self).__name__} is not known under add_remove, because one unit more would shift the others "
                'to other rounds; use adjacency="zero_out"'
            )
        shift = math.sqrt(self._squared()) / self.noise_multiplier
        return 2 * shift if adjacency == "replace" else shift

    def _of_group(self, units: int) -> Event:
        return replace(self, noise_multiplier=divided(self.noise_multiplier, units))

    def attained(self, adjacency: Adjacency) -> bool:
        return self._is_exact()

    def _squared(self) -> float:
        raise NotImplementedError

    def _is_exact(self) -> bool:
        """Whether S^2 is attained, not only bounded."""
        raise NotImplementedError

    def _check_stream(self) -> None:
        positive(noise_multiplier=self.noise_multiplier, remedy="for a run without noise use NonPrivate()")
        between(1, MOST_STEPS, steps=self.steps)
        limits = self.participation
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        object.__setattr__(self, "steps", limits.rounds)
        object.__setattr__(self, "max_participations", limits.max_participations)
        object.__setattr__(self, "min_separation", limits.min_separation)
