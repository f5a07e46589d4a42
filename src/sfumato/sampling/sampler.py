"""Who takes part: the contract of a sampler, the cohort that it draws, and virtual clients made of it.

Who contributes in a round, as three arrays: no object for a unit, however many there are.

>>> cohort = Cohort(slots=np.array([0, 4]), units=np.array([3, 1, 7]), offsets=np.array([0, 1, 3]))
>>> len(cohort), cohort.members(1).tolist(), cohort.take(slice(1, 2)).units.tolist()
(2, [1, 7], [1, 7])

Virtual clients: sampled users are thrown into groups, and each group contributes once.

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

The last thing that was computed from a run's key, kept for the next round: a speed-up that nobody can see.

>>> kept = Kept()
>>> kept.get("a", lambda: [1, 2]) is kept.get("a", lambda: [3])
True
>>> kept.get("b", lambda: [3])
[3]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import set_by_run
from sfumato._random import RandomSource
from sfumato._types import Adjacency

if TYPE_CHECKING:
    from sfumato.accounting import Event, Participation

# The contract of a sampler: it draws a cohort, and it alone says how that draw is accounted.


@dataclass(frozen=True, kw_only=True)
class Sampler(ABC):
    """Draws cohorts; the accounted event comes from the same object, so the two cannot disagree.

    Attributes:
        size: contributions planned a round, the public denominator: clients, or examples of a batch.
        users_per_client: users whose records make one client; 1 makes every user a client. A round then takes
            size x users_per_client users, each assigned to one of `size` virtual clients.
        population: the public number of units; the run sets it.
        rounds: of the run; the run sets it.
    """

    size: int = 32
    users_per_client: int = 1
    population: int | None = set_by_run()
    rounds: int | None = set_by_run()

    def __post_init__(self) -> None:
        _check.whole(size=self.size, users_per_client=self.users_per_client)
        for name in ("population", "rounds"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})
        if self.population is not None and self.units > self.population:
            if self.users_per_client > 1:
                raise InputError(
                    f"{self.size} clients × {self.users_per_client} users = {self.units} users a round, but there are "
                    f"{self.population}; lower cohort.size or cohort.users_per_client"
                )
            raise InputError(
                f"{self.size} units a round cannot be drawn from {self.population}; lower cohort.size to "
                f"{self.population} or less"
            )

    @property
    def units(self) -> int:
        """Units planned a round."""
        return self.size * self.users_per_client

    @property
    def grouping(self) -> OwnClients | VirtualClients:
        """How those who take part are put together."""
        return OwnClients(clients=self.size) if self.users_per_client == 1 else VirtualClients(clients=self.size)

    def planned(self, population: int, rounds: int, parts: int = 1) -> Self:
        """The sampler of a run, with every open limit decided.

        Args:
            population: the public number of units.
            rounds: of the run.
            parts: bands of the noise, for a sampler whose units take turns.

        Raises:
            InputError: no such cohort can be drawn.
        """
        return replace(self, population=population, rounds=rounds)

    def _of(self, name: str) -> int:
        """The population, or the rounds, of the run."""
        value = getattr(self, name)
        if value is None:
            raise InputError(f"the sampler's {name} is not known yet; call planned(population=…, rounds=…) first")
        return value

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """The neighbouring relation under which `account` is a valid bound."""

    @abstractmethod
    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """Indices of the units among `present` ones that take part in this round, from 0; sorted, int64."""

    @abstractmethod
    def account(self, event: Event) -> Event:
        """The event of one round in which `event` acts on a cohort from this sampler.

        Raises:
            InputError: nothing is proven for such an event on such a cohort.
        """

    def participation(self, rounds: int) -> Participation | None:
        """How often and how far apart one unit can take part in so many rounds; None where coins alone decide.

        A limit is a promise: `draw` must never break it, whoever is present.
        """
        return None

    @abstractmethod
    def describe(self) -> str:
        """One phrase for the statement."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """Contributors in the order of their slots; each is a unit, or several units that contribute together.

    Attributes:
        slots: int64 [contributors], ascending unless `take` was asked for another order; a slot names its contributor's
            randomness, whoever else takes part.
        units: int64 [participants], the units of the first contributor, then those of the second, …
        offsets: int64 [contributors + 1]: contributor i has the units offsets[i] … offsets[i + 1] − 1, never none.
    """

    slots: np.ndarray
    units: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of_single_units(cls, units: np.ndarray) -> Self:
        """Every unit contributes by itself, and is its own slot."""
        return cls(units, units, np.arange(len(units) + 1))

    def __len__(self) -> int:
        return len(self.slots)

    def members(self, contributor: int) -> np.ndarray:
        """The units of one contributor, int64 [n]."""
        return self.units[self.offsets[contributor] : self.offsets[contributor + 1]]

    def take(self, part: slice | np.ndarray) -> Cohort:
        """Some of the contributors, in the order asked for."""
        slots, sizes = self.slots[part], np.diff(self.offsets)[part]
        if len(self.units) == len(self.slots):
            return Cohort(slots, self.units[part], np.arange(len(slots) + 1))
        starts, ends = self.offsets[:-1][part], np.cumsum(sizes)
        rows = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
        return Cohort(slots, self.units[rows], np.concatenate([[0], ends]))


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


Value = TypeVar("Value")


class Kept(Generic[Value]):
    """One value and the name that it was made for. Copies and pickles are empty, as it may hold a run's key."""

    def __init__(self) -> None:
        self._held: tuple[Hashable, Value] | None = None

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return type(self), ()

    def get(self, name: Hashable, make: Callable[[], Value]) -> Value:
        """What `make` gave when this name was first asked for; another name in between forgets it."""
        held = self._held
        if held is None or held[0] != name:
            held = self._held = name, make()
        return held[1]
