"""The contract of a sampler: it draws a cohort, and it alone says how that draw is accounted."""

from typing import Protocol

import numpy as np

from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation


class Sampler(Protocol):
    """Draws cohorts; the accounted event comes from the same object, so the two cannot disagree."""

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation under which `account` is a valid bound."""
        ...

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """Indices of the units among `present` ones that take part in this round, from 0; sorted, int64."""
        ...

    def account(self, event: Event) -> Event:
        """The event of one round in which `event` acts on a cohort from this sampler.

        Raises:
            InputError: nothing is proven for such an event on such a cohort.
        """
        ...

    def participation(self, rounds: int) -> Participation | None:
        """How often and how far apart one unit can take part in so many rounds; None where coins alone decide.

        A limit is a promise: `draw` must never break it, whoever is present.
        """
        ...

    def describe(self) -> str:
        """One phrase for the statement."""
        ...
