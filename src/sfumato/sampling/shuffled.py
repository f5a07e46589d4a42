"""Shuffled epochs: every unit once an epoch, in batches of one size.

Unit: whatever is indexed. Guarantees that a unit is in at most one batch of each epoch, whatever the others do. An
epoch has population // size batches; what does not fill another one is left out of it, so that every round has the
planned size. With a new order for each epoch other units are left out each time; with one order for all, the same
ones are never used. No amplification is claimed for shuffling.

Neighbours: `zero_out`, as the places of the others follow from the number of units.

>>> from sfumato._random import RandomSource
>>> epochs, source = ShuffledEpochs(size=3, population=7, rounds=4), RandomSource.from_seed(1)
>>> [epochs.draw(7, round, source).tolist() for round in range(4)]
[[0, 1, 3], [2, 5, 6], [0, 1, 2], [4, 5, 6]]
>>> epochs.participation(4)
Participation(rounds=4, max_participations=2, min_separation=0)
"""

from dataclasses import dataclass, field

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation
from sfumato.sampling.kept import Kept
from sfumato.sampling.limited import in_words, refuse_other_plan, refuse_single_round, within

_NAME = "shuffling"


@dataclass(frozen=True, kw_only=True)
class ShuffledEpochs:
    """Consecutive batches of exactly `size` units of a uniform order.

    Attributes:
        size: units in a batch, 1 to `population`.
        population: the public number of units; exactly so many must be present.
        rounds: batches in the run, the last epoch may be cut short.
        reshuffle: a new order for each epoch; else one order for all, and batches return after as many rounds.
    """

    size: int
    population: int
    rounds: int
    reshuffle: bool = True
    _order: Kept[np.ndarray] = field(default_factory=Kept, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.whole(size=self.size, population=self.population, rounds=self.rounds)
        _check.one_of((True, False), reshuffle=self.reshuffle)
        if self.size > self.population:
            raise InputError(
                f"a batch of {self.size} cannot be filled from {self.population} units; take a smaller size"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, >= 1."""
        return self.population // self.size

    @property
    def limits(self) -> Participation:
        """Once an epoch; as far apart as an epoch is long where no order follows another one."""
        epochs = -(-self.rounds // self.steps_per_epoch)
        apart = 0 if self.reshuffle and epochs > 1 else self.steps_per_epoch - 1
        return Participation(rounds=self.rounds, max_participations=epochs, min_separation=apart)

    @property
    def adjacency(self) -> Adjacency:
        """Blanking one unit: it keeps its places, and so do the others."""
        return "zero_out"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """The round's batch, sorted int64 [size]."""
        refuse_other_plan(_NAME, self.population, present, self.rounds, round)
        epoch, step = divmod(round, self.steps_per_epoch)
        number = epoch if self.reshuffle else 0
        order = self._order.get((source, number), lambda: source.stream("epochs", number).permutation(self.population))
        return np.sort(order[step * self.size : (step + 1) * self.size])

    def account(self, event: Event) -> Event:
        """Refused: a round has no event of its own."""
        refuse_single_round(_NAME, self.limits)

    def participation(self, rounds: int) -> Participation | None:
        """At most once in each epoch that has begun."""
        return ShuffledEpochs(
            size=self.size,
            population=self.population,
            rounds=within(self.limits, rounds, _NAME).rounds,
            reshuffle=self.reshuffle,
        ).limits

    def describe(self) -> str:
        """For the statement."""
        order = "a new order for each" if self.reshuffle else "one order for all"
        left = self.population - self.steps_per_epoch * self.size
        rest = f", {left} left out of {'each' if self.reshuffle else 'all'}" if left else ""
        return (
            f"shuffled epochs of {self.steps_per_epoch} batches of {self.size} of {self.population}, {order}{rest}, "
            f"{in_words(self.limits)}"
        )
