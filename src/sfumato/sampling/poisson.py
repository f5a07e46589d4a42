"""Poisson sampling: every unit takes part on its own coin, and nobody's coin depends on another.

Unit: whatever is indexed (a user in the federated plans). Guarantees that the cohort's size is random, that it can
be empty, and that amplification by sampling holds for adding or removing a unit (Mironov, Talwar, Zhang 2019). Coins
depend on no record, so it also holds for what replaces one: a unit whose place is public, such as a label.

>>> from sfumato._random import RandomSource
>>> sampling = PoissonSampling(sampling_rate=0.01, population=1000)
>>> len(sampling.draw(1000, 0, RandomSource.from_seed(1)))
7
"""

from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation

_CHUNK = 1 << 16  # coins tossed at a time, so that memory does not grow with the population


@dataclass(frozen=True, kw_only=True)
class PoissonSampling:
    """Independent coins of one public rate.

    Attributes:
        sampling_rate: probability that a unit takes part in a round, in (0, 1].
        population: the public number of units that the rate was computed from.
        adjacency: "add_remove", since the rate does not depend on who is present; or "replace", where who is present
            is public.
    """

    sampling_rate: float
    population: int
    adjacency: Adjacency = "add_remove"

    def __post_init__(self) -> None:
        _check.between(0.0, 1.0, ends="(]", sampling_rate=self.sampling_rate)
        _check.whole(population=self.population)
        _check.one_of(("add_remove", "replace"), adjacency=self.adjacency)

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """Toss one coin for each of the `present` units; int64 indices, sorted, possibly none."""
        stream = source.stream("sampling", round)
        chosen = [
            start + np.flatnonzero(stream.bernoulli(self.sampling_rate, min(_CHUNK, present - start)))
            for start in range(0, present, _CHUNK)
        ]
        return np.concatenate(chosen).astype(np.int64) if chosen else np.empty(0, np.int64)

    def account(self, event: Event) -> Event:
        """The event amplified by Poisson sampling."""
        return event.poisson(self.sampling_rate)

    def participation(self, rounds: int) -> Participation | None:
        """No limit: a unit may be drawn in every round."""
        return None

    def describe(self) -> str:
        """For the statement."""
        return f"Poisson, rate {self.sampling_rate:.6g} a round"
