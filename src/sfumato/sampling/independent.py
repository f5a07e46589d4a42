"""Samplers without memory: Poisson, cohorts of a fixed size, cyclic Poisson.

Poisson sampling: every unit takes part on its own coin, and nobody's coin depends on another.

Unit: whatever is indexed (a user in the federated plans). Guarantees that the cohort's size is random, that it can
be empty, and that amplification by sampling holds for adding or removing a unit (Mironov, Talwar, Zhang 2019). Coins
depend on no record, so it also holds for what replaces one: a unit whose place is public, such as a label.

>>> from sfumato._random import RandomSource
>>> sampling = Poisson(size=10, population=1000)
>>> len(sampling.draw(1000, 0, RandomSource.from_seed(1)))
7

Cohorts of a fixed size, without replacement.

Unit: whatever is indexed. The cohort's size is public and constant, so neighbours differ by replacing one unit; the
amplification bound is the one proven for this sampling (Wang, Balle, Kasiviswanathan 2019), which is weaker than
Poisson's.

from sfumato._random import RandomSource, Stream
>>> FixedSize(size=3, population=10).draw(10, 0, RandomSource.from_seed(1)).tolist()
[3, 4, 6]

Cyclic Poisson sampling: units are dealt into parts, and each round tosses the coins of one part.

Unit: whatever is indexed. A unit of part j can take part in rounds j, j + parts, j + 2·parts, … only, in each of them
by its own coin. With a banded matrix of at most `parts` bands that amplifies as in DP-SGD (Choquette-Choo et al. 2023);
such a mechanism makes the event of the run by `accounting.cyclic_poisson`.

Neighbours: `add_remove`. A unit's part is the word at its own place, its coins are those of its place in the part, and
all of them are independent and of one distribution, whatever the place. So a unit that comes or goes shifts who gets
which word, but never what others' parts and coins are likely to be: given theirs, its own are as fresh as before.
Parts differ in size, and a cohort may be empty.

>>> from sfumato._random import RandomSource
>>> sampling, source = CyclicPoisson(size=2, population=12, parts=3, rounds=6), RandomSource.from_seed(1)
>>> sampling.sampling_rate, [sampling.draw(12, round, source).tolist() for round in range(4)]
(0.5, [[7], [3, 6], [1], [0, 7, 11]])
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import set_by_run
from sfumato._random import RandomSource, Stream
from sfumato._types import Adjacency
from sfumato.accounting import Participation
from sfumato.sampling.sampler import Kept, Sampler

if TYPE_CHECKING:
    from sfumato.accounting import Event

_CHUNK = 1 << 16  # coins tossed at a time, so that memory does not grow with the population


@dataclass(frozen=True, kw_only=True)
class Poisson(Sampler):
    """Independent coins of one public rate, size x users_per_client / population.

    Attributes:
        adjacency: "add_remove", since the rate does not depend on who is present; or "replace", where who is present
            is public.
    """

    adjacency: Adjacency = set_by_run("add_remove")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of(("add_remove", "replace"), adjacency=self.adjacency)

    @property
    def sampling_rate(self) -> float:
        """Probability that a unit takes part in a round, in (0, 1]."""
        return self.units / self._of("population")

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """Toss one coin for each of the `present` units; int64 indices, sorted, possibly none."""
        stream, rate = source.stream("sampling", round), self.sampling_rate
        chosen = [
            start + np.flatnonzero(stream.bernoulli(rate, min(_CHUNK, present - start)))
            for start in range(0, present, _CHUNK)
        ]
        return np.concatenate(chosen).astype(np.int64) if chosen else np.empty(0, np.int64)

    def account(self, event: Event) -> Event:
        """The event amplified by Poisson sampling."""
        return event.poisson(self.sampling_rate)

    def describe(self) -> str:
        """For the statement."""
        return f"Poisson, rate {self.sampling_rate:.6g} a round"


@dataclass(frozen=True, kw_only=True)
class FixedSize(Sampler):
    """Exactly size x users_per_client units, all subsets equally likely; exactly `population` must be present."""

    @property
    def adjacency(self) -> Adjacency:
        """Replacing one unit: the number of units is public."""
        return "replace"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """A uniform subset, sorted int64 [size]."""
        if present != self.population:
            raise InputError(
                f"fixed-size sampling was planned for {self.population} users but {present} are present; "
                "set population to the number of users, or use Poisson sampling"
            )
        return subset(self.units, present, source.stream("sampling", round))

    def account(self, event: Event) -> Event:
        """The event under sampling without replacement."""
        return event.without_replacement(self.units, self._of("population"))

    def describe(self) -> str:
        """For the statement."""
        return f"fixed size without replacement, {self.units} of {self.population} a round"


def subset(size: int, whole: int, stream: Stream) -> np.ndarray:
    """A uniform subset of so many of range(whole), sorted int64 [size]: Floyd's algorithm on arrays.

    Step t draws a number in 0 … last with last = whole - size + t, and takes it, or last itself where the number is
    taken already. A number below whole - size is taken if an earlier step drew it. The others, size / whole of the
    draws, are looked at one by one: last of step s is taken if step s met a taken number, or a step after it drew s's.
    """
    first = whole - size
    picks = stream.integers_below(np.arange(first + 1, whole + 1, dtype=np.uint64))
    again = np.ones(size, bool)
    again[np.unique(picks, return_index=True)[1]] = False
    high = picks >= first
    taken = bytearray(again & ~high)  # whether last of a step is in the subset
    for step, drawn in zip(np.flatnonzero(high).tolist(), (picks[high] - first).tolist(), strict=True):
        taken[step if taken[drawn] else drawn] = True
    return np.concatenate([np.sort(picks[~again & ~high]), first + np.flatnonzero(np.frombuffer(taken, bool))])


@dataclass(frozen=True, kw_only=True)
class CyclicPoisson(Sampler):
    """Independent coins of one public rate, in the rounds of a unit's part.

    Attributes:
        parts: number of parts that take turns, 1 to population / units a round and to `rounds`; 1 is Poisson sampling.
            None for as many as the noise has bands.
    """

    parts: int | None = None
    _members: Kept[list[np.ndarray]] = field(default_factory=Kept, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parts is None:
            return
        _check.whole(parts=self.parts)
        if self.population is not None and self.parts * self.units > self.population:
            raise InputError(
                f"{self.parts} parts of {self.population} units have {self.population / self.parts:.4g} units each on "
                f"average, got cohorts of {self.units}; lower size or parts to parts x size <= {self.population}"
            )
        if self.rounds is not None and self.parts > self.rounds:
            raise InputError(
                f"parts must be <= rounds = {self.rounds}, got {self.parts}: a part without a turn is never trained on"
            )

    def planned(self, population: int, rounds: int, parts: int = 1) -> Self:
        """With a part for each band of the noise, where nothing else was chosen."""
        chosen = parts if self.parts is None else self.parts
        return replace(self, population=population, rounds=rounds, parts=chosen)

    @property
    def turns(self) -> int:
        """Parts that take turns, planned."""
        return self._of("parts")

    @property
    def sampling_rate(self) -> float:
        """Probability that a unit takes part in a round of its part, in (0, 1]."""
        return self.turns * self.units / self._of("population")

    @property
    def adjacency(self) -> Adjacency:
        """Adding or removing one unit; no part and no rate depends on who is present."""
        return "add_remove"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """Toss the coins of one part of the `present` units; int64 indices, sorted, possibly none."""
        members = self._members.get((source, present), lambda: self._deal(present, source))[round % self.turns]
        return members[source.stream("sampling", round).bernoulli(self.sampling_rate, len(members))]

    def account(self, event: Event) -> Event:
        """The event amplified by Poisson sampling where there is one part.

        Raises:
            InputError: there are more parts, so a round has no event of its own.
        """
        if self.turns == 1:
            return event.poisson(self.sampling_rate)
        raise InputError(
            f"one round of cyclic Poisson sampling with {self.turns} parts has no event of its own, as a unit is in at "
            f"most one of {self.turns} rounds in a row; account the run by cyclic_poisson, as banded matrices do, or "
            "set parts=1"
        )

    def participation(self, rounds: int) -> Participation | None:
        """Every `parts`-th round at most."""
        return Participation(rounds=rounds, max_participations=None, min_separation=self.turns - 1)

    def describe(self) -> str:
        """For the statement."""
        rate = f"rate {self.sampling_rate:.6g} a round"
        if self.turns == 1:
            return f"Poisson, {rate}"
        return f"cyclic Poisson, {self.turns} random parts in turn, {rate} of a unit's part"

    def _deal(self, present: int, source: RandomSource) -> list[np.ndarray]:
        """The members of each part; the remainder of 64 bits favours none by more than parts / 2^64."""
        words = source.stream("parts").words_at(np.arange(present))
        dealt = (words % np.uint64(self.turns)).astype(np.int64)
        order = np.argsort(dealt, kind="stable")
        return np.split(order, np.cumsum(np.bincount(dealt, minlength=self.turns))[:-1])
