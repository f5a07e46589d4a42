"""Virtual clients: sampled users are thrown into groups, and each group contributes once.

What a user can change decides the sensitivity. With `OwnClients` every sampled user is a client of their own: adding
the user adds one clipped contribution, at most C. With `VirtualClients` a user joins a group that others may share:
the group's clipped contribution can turn from one end of the ball to the other, at most 2C. The bound needs that the
others' groups do not depend on the user, so every user is assigned independently and uniformly; groups differ in
size and may be empty, and an empty group contributes zero. The derivation is in
docs/explanation/virtual-clients.md, with the reason why groups of exactly m users (Xu et al. 2022) cost more.

>>> import numpy as np
>>> from sfumato._random import RandomSource
>>> cohort = VirtualClients(clients=2).group(np.arange(4), 0, RandomSource.from_seed(1))
>>> [(int(slot), cohort.members(i).tolist()) for i, slot in enumerate(cohort.slots)]
[(0, [3]), (1, [0, 1, 2])]
>>> VirtualClients(clients=2).contributions_moved("add_remove")
2.0
"""

from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._random import RandomSource
from sfumato._types import Adjacency
from sfumato.sampling.cohort import Cohort


@dataclass(frozen=True, kw_only=True)
class OwnClients:
    """Every sampled user is a client.

    Attributes:
        clients: the planned number of clients a round: the public denominator.
    """

    clients: int

    def contributions_moved(self, adjacency: Adjacency) -> float:
        """By how many bounds one user moves the sum: 1 by coming, going or being blanked, 2 by being exchanged."""
        return 2.0 if adjacency == "replace" else 1.0

    def group(self, users: np.ndarray, round: int, source: RandomSource) -> Cohort:
        """Each user alone, the randomness named by the user, so that nobody's presence changes another's."""
        return Cohort.of_single_units(users)


@dataclass(frozen=True, kw_only=True)
class VirtualClients:
    """Sampled users are assigned to a fixed number of clients, independently and uniformly.

    Attributes:
        clients: number of virtual clients: the public denominator.
    """

    clients: int

    def __post_init__(self) -> None:
        _check.whole(clients=self.clients)

    def contributions_moved(self, adjacency: Adjacency) -> float:
        """By how many bounds one user moves the sum: their group's delta goes from −C to C in the worst case.

        An exchanged user leaves the slot to their successor, so one group changes under every adjacency.
        """
        return 2.0

    def group(self, users: np.ndarray, round: int, source: RandomSource) -> Cohort:
        """The groups that have a user, in order of their slot.

        A user's slot is the word at the user's own place of the round's stream, so it depends on nobody else. The
        remainder of 64 bits favours no slot by more than clients / 2^64; the bound needs independence only.
        """
        words = source.stream("groups", round).words_at(users)
        assigned = (words % np.uint64(self.clients)).astype(np.int64)
        sizes = np.bincount(assigned, minlength=self.clients)
        slots = np.flatnonzero(sizes)
        order = np.sort(assigned * len(users) + np.arange(len(users))) % max(1, len(users))  # stable, and fast
        return Cohort(slots, users[order], np.concatenate([[0], np.cumsum(sizes[slots])]))
