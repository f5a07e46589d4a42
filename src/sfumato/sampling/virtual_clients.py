"""Virtual clients: sampled users are thrown into groups, and each group contributes once.

What a user can change decides the sensitivity. With `OwnClients` every sampled user is a client of their own: adding
the user adds one clipped contribution, at most C. With `VirtualClients` a user joins a group that others may share:
the group's clipped contribution can turn from one end of the ball to the other, at most 2C. The bound needs that the
others' groups do not depend on the user, so every user is assigned independently and uniformly; groups differ in
size and may be empty, and an empty group contributes zero. The derivation is in
docs/explanation/virtual-clients.md, with the reason why groups of exactly m users (Xu et al. 2022) cost more.

>>> import numpy as np
>>> from sfumato._random import RandomSource
>>> groups = VirtualClients(clients=2).group(np.arange(4), RandomSource.from_seed(1), round_index=0)
>>> [(g.slot, g.users.tolist()) for g in groups]
[(0, [3]), (1, [0, 1, 2])]
>>> VirtualClients(clients=2).contributions_moved("add_remove")
2.0
"""

from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._random import RandomSource
from sfumato._types import Adjacency


@dataclass(frozen=True)
class Group:
    """The users who contribute together.

    Attributes:
        slot: names the group's randomness: the same for the group whoever else takes part.
        users: indices of its users, int64, never empty.
    """

    slot: int
    users: np.ndarray


@dataclass(frozen=True, kw_only=True)
class OwnClients:
    """Every sampled user is a client.

    Attributes:
        clients: the planned number of clients a round: the public denominator.
    """

    clients: int

    def contributions_moved(self, adjacency: Adjacency) -> float:
        """By how many clip norms one user moves the sum: 1 by coming or going, 2 by being exchanged."""
        return 2.0 if adjacency == "replace" else 1.0

    def group(self, users: np.ndarray, source: RandomSource, round_index: int) -> list[Group]:
        """One group a user, its randomness named by the user, so that nobody's presence changes another's."""
        return [Group(int(user), users[i : i + 1]) for i, user in enumerate(users)]


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
        """By how many clip norms one user moves the sum: their group's delta goes from −C to C in the worst case.

        An exchanged user leaves the slot to their successor, so one group changes under every adjacency.
        """
        return 2.0

    def group(self, users: np.ndarray, source: RandomSource, round_index: int) -> list[Group]:
        """The non-empty groups in order of their slot; a user's slot is a draw of their own."""
        draws = [source.stream("groups", round_index, int(user)).integers(self.clients, 1) for user in users]
        slots = np.concatenate(draws) if draws else np.empty(0, np.int64)
        return [Group(int(slot), users[slots == slot]) for slot in np.unique(slots)]
