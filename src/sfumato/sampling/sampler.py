"""The contract of a sampler: it draws a cohort, and it alone says how that draw is accounted."""

from typing import Protocol

import numpy as np

from sfumato._random import Stream
from sfumato._types import Adjacency
from sfumato.accounting import Event


class Sampler(Protocol):
    """Draws cohorts; the accounted event comes from the same object, so the two cannot disagree."""

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation under which `account` is a valid bound."""
        ...

    @property
    def expected_size(self) -> float:
        """Expected number of sampled units: a public number."""
        ...

    def draw(self, present: int, stream: Stream) -> np.ndarray:
        """Indices of the sampled units among `present` ones, sorted, int64."""
        ...

    def account(self, event: Event) -> Event:
        """The event of one round in which `event` acts on a cohort from this sampler."""
        ...

    def describe(self) -> str:
        """One phrase for the statement."""
        ...
