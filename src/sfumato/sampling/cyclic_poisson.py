"""Cyclic Poisson sampling: units are dealt into parts, and each round tosses the coins of one part.

Unit: whatever is indexed. A unit of part j can take part in rounds j, j + parts, j + 2·parts, … only, in each of them
by its own coin. With a banded matrix of at most `parts` bands that amplifies as in DP-SGD (Choquette-Choo et al. 2023);
such a mechanism makes the event of the run by `accounting.cyclic_poisson`.

Neighbours: `add_remove`. A unit's part is the word at its own place, its coins are those of its place in the part, and
all of them are independent and of one distribution, whatever the place. So a unit that comes or goes shifts who gets
which word, but never what others' parts and coins are likely to be: given theirs, its own are as fresh as before.
Parts differ in size, and a cohort may be empty.

>>> from sfumato._random import RandomSource
>>> sampling, source = CyclicPoissonSampling(size=2, population=12, parts=3, rounds=6), RandomSource.from_seed(1)
>>> sampling.sampling_rate, [sampling.draw(12, round, source).tolist() for round in range(4)]
(0.5, [[7], [3, 6], [1], [0, 7, 11]])
"""

from dataclasses import dataclass, field

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation
from sfumato.sampling.kept import Kept


@dataclass(frozen=True, kw_only=True)
class CyclicPoissonSampling:
    """Independent coins of one public rate, in the rounds of a unit's part.

    Attributes:
        size: units in a cohort on average, >= 1.
        population: the public number of units that the rate is computed from.
        parts: number of parts, 1 to population / size and to `rounds`; 1 is Poisson sampling.
        rounds: rounds in the run.
    """

    size: int
    population: int
    parts: int
    rounds: int
    _members: Kept[list[np.ndarray]] = field(default_factory=Kept, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.whole(size=self.size, population=self.population, parts=self.parts, rounds=self.rounds)
        if self.parts * self.size > self.population:
            raise InputError(
                f"{self.parts} parts of {self.population} units have {self.population / self.parts:.4g} units each on "
                f"average, got cohorts of {self.size}; lower size or parts to parts x size <= {self.population}"
            )
        if self.parts > self.rounds:
            raise InputError(
                f"parts must be <= rounds = {self.rounds}, got {self.parts}: a part without a turn is never trained on"
            )

    @property
    def sampling_rate(self) -> float:
        """Probability that a unit takes part in a round of its part, in (0, 1]."""
        return self.parts * self.size / self.population

    @property
    def adjacency(self) -> Adjacency:
        """Adding or removing one unit; no part and no rate depends on who is present."""
        return "add_remove"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """Toss the coins of one part of the `present` units; int64 indices, sorted, possibly none."""
        members = self._members.get((source, present), lambda: self._deal(present, source))[round % self.parts]
        return members[source.stream("sampling", round).bernoulli(self.sampling_rate, len(members))]

    def account(self, event: Event) -> Event:
        """The event amplified by Poisson sampling where there is one part.

        Raises:
            InputError: there are more parts, so a round has no event of its own.
        """
        if self.parts == 1:
            return event.poisson(self.sampling_rate)
        raise InputError(
            f"one round of cyclic Poisson sampling with {self.parts} parts has no event of its own, as a unit is in at "
            f"most one of {self.parts} rounds in a row; account the run by cyclic_poisson, as banded matrices do, or "
            "set parts=1"
        )

    def participation(self, rounds: int) -> Participation | None:
        """Every `parts`-th round at most."""
        return Participation(rounds=rounds, max_participations=None, min_separation=self.parts - 1)

    def describe(self) -> str:
        """For the statement."""
        rate = f"rate {self.sampling_rate:.6g} a round"
        if self.parts == 1:
            return f"Poisson, {rate}"
        return f"cyclic Poisson, {self.parts} random parts in turn, {rate} of a unit's part"

    def _deal(self, present: int, source: RandomSource) -> list[np.ndarray]:
        """The members of each part; the remainder of 64 bits favours none by more than parts / 2^64."""
        words = source.stream("parts").words_at(np.arange(present))
        dealt = (words % np.uint64(self.parts)).astype(np.int64)
        order = np.argsort(dealt, kind="stable")
        return np.split(order, np.cumsum(np.bincount(dealt, minlength=self.parts))[:-1])
