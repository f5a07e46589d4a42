"""Cohorts of a fixed size, without replacement.

Unit: whatever is indexed. The cohort's size is public and constant, so neighbours differ by replacing one unit; the
amplification bound is the one proven for this sampling (Wang, Balle, Kasiviswanathan 2019), which is weaker than
Poisson's.

>>> from sfumato._random import RandomSource, Stream
>>> FixedSizeSampling(size=3, population=10).draw(10, 0, RandomSource.from_seed(1)).tolist()
[3, 4, 6]
"""

from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation


@dataclass(frozen=True, kw_only=True)
class FixedSizeSampling:
    """`size` units out of `population`, all subsets equally likely.

    Attributes:
        size: units in a cohort, 1 to `population`.
        population: the public number of units; exactly so many must be present.
    """

    size: int
    population: int

    def __post_init__(self) -> None:
        _check.whole(size=self.size, population=self.population)
        if self.size > self.population:
            raise InputError(
                f"a cohort of {self.size} cannot be drawn from {self.population} users; take a smaller cohort"
            )

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
        return subset(self.size, present, source.stream("sampling", round))

    def account(self, event: Event) -> Event:
        """The event under sampling without replacement."""
        return event.without_replacement(self.size, self.population)

    def participation(self, rounds: int) -> Participation | None:
        """No limit: a unit may be drawn in every round."""
        return None

    def describe(self) -> str:
        """For the statement."""
        return f"fixed size without replacement, {self.size} of {self.population} a round"


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
