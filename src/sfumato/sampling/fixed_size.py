"""Cohorts of a fixed size, without replacement.

Unit: whatever is indexed. The cohort's size is public and constant, so neighbours differ by replacing one unit; the
amplification bound is the one proven for this sampling (Wang, Balle, Kasiviswanathan 2019), which is weaker than
Poisson's.

>>> from sfumato._random import RandomSource
>>> FixedSizeSampling(size=3, population=10).draw(10, RandomSource.from_seed(1).stream("sampling", 0)).tolist()
[3, 4, 6]
"""

from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import Stream
from sfumato._types import Adjacency
from sfumato.accounting import Event


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

    @property
    def expected_size(self) -> float:
        """The cohort's size."""
        return float(self.size)

    def draw(self, present: int, stream: Stream) -> np.ndarray:
        """A uniform subset (Floyd's algorithm), sorted int64 [size]."""
        if present != self.population:
            raise InputError(
                f"fixed-size sampling was planned for {self.population} users but {present} are present; "
                "set population to the number of users, or use Poisson sampling"
            )
        chosen: set[int] = set()
        for last in range(present - self.size, present):
            pick = int(stream.integers(last + 1, 1)[0])
            chosen.add(last if pick in chosen else pick)
        return np.array(sorted(chosen), dtype=np.int64)

    def account(self, event: Event) -> Event:
        """The event under sampling without replacement."""
        return event.without_replacement(self.size, self.population)

    def describe(self) -> str:
        """For the statement."""
        return f"fixed size without replacement, {self.size} of {self.population} a round"
