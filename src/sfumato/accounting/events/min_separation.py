"""Rounds with a minimum distance between two participations of the same unit, and noise of its own in each round.

A unit takes part in at most min(k, ceil(rounds / (separation + 1))) rounds, so the whole run costs that many releases
of the event, and the other rounds tell nothing about it. No sampling amplifies: anybody may know who took part when.

The sampler must enforce it. The bound holds for a unit whose rounds do not depend on any record; they may be fixed,
drawn at random or chosen by whoever is online. It is false for a sampler that only aims at the separation.

Sensitivity: in each of its rounds the unit moves the sum as `event` says; added, removed, replaced or blanked, it does
so in the same rounds.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> run = MinSeparation(Gaussian(7.0), rounds=2000, separation=313, max_participations=6)
>>> run.participations, round(run.rho("add_remove"), 4)
(6, 0.0612)
"""

from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, whole
from sfumato._types import Adjacency
from sfumato.accounting.doubles import total
from sfumato.accounting.events.event import Event, Unknown, derivation, event_kind, terms
from sfumato.accounting.events.gaussian import combined_shift
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.sampled_gaussian import SampledGaussian
from sfumato.accounting.streams.participation import Participation


@derivation("min_separation")
@event_kind("min_separation")
@dataclass(frozen=True, slots=True)
class MinSeparation(Event):
    """A run of `rounds` releases of `event`, of which a unit is in few; made by `Event.min_separation`.

    Attributes:
        event: what one round releases, without sampling.
        rounds: rounds of the run, >= 1.
        separation: rounds that lie at least between two participations of a unit, >= 0; 0 allows all rounds.
        max_participations: rounds that a unit takes part in at most, >= 1; None for as many as the separation allows.
    """

    event: Event
    rounds: int
    separation: int
    max_participations: int | None = None

    unsampled = "its units take part at distances, which no sampling theorem covers"

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise InputError(f"MinSeparation takes events such as Gaussian(1.0), got {self.event!r}")
        members = list(terms(self.event))
        if not members:
            raise InputError("MinSeparation takes an event that releases something, got an empty composition")
        for single, _ in members:
            if single.unsampled:
                raise Unknown(f"min-separation of {type(single).__name__} is not known: {single.unsampled}")
        whole(at_least=0, separation=self.separation)
        pattern = self._pattern()
        object.__setattr__(self, "rounds", pattern.rounds)
        object.__setattr__(self, "separation", pattern.min_separation)
        object.__setattr__(self, "max_participations", pattern.max_participations)

    @property
    def participations(self) -> int:
        """The most rounds that a unit can be in."""
        return self._pattern().most

    def gaussian_shift(self, adjacency: Adjacency) -> float | None:
        return combined_shift(self.event * self.participations, adjacency)

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        shift = self.gaussian_shift(adjacency)
        if shift is not None:
            return (SampledGaussian("remove", 1.0, shift),)
        members = list(terms(self.event * self.participations))
        if len(members) == 1 and members[0][1] == 1:
            return members[0][0].pairs(adjacency)
        name = type(members[0][0]).__name__
        raise Unknown(
            f'no single pair is known for {self.participations} participations in {name}; use method="rdp", or account '
            f"for event * {self.participations}"
        )

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return sum(
            (count * single.renyi(orders, adjacency) for single, count in terms(self.event * self.participations)),
            start=np.zeros(len(orders)),
        )

    def rho(self, adjacency: Adjacency) -> float:
        return total(count * single.rho(adjacency) for single, count in terms(self.event * self.participations))

    def largest_loss(self, adjacency: Adjacency) -> float:
        members = terms(self.event * self.participations)
        return total(count * single.largest_loss(adjacency) for single, count in members)

    def attained(self, adjacency: Adjacency) -> bool:
        return all(single.attained(adjacency) for single, _ in terms(self.event))

    def _pattern(self) -> Participation:
        return Participation(
            rounds=self.rounds, max_participations=self.max_participations, min_separation=self.separation
        )
