"""Who takes part: the contract of a sampler, the cohort that it draws, and virtual clients made of it.

A cohort is three arrays: no object for a unit, however many there are.

>>> cohort = Cohort(slots=np.array([0, 4]), units=np.array([3, 1, 7]), offsets=np.array([0, 1, 3]))
>>> len(cohort), cohort.members(1).tolist(), cohort.take(slice(1, 2)).units.tolist()
(2, [1, 7], [1, 7])

Virtual clients: sampled users are thrown into groups, and each group contributes once.

What a user can change decides the sensitivity. With `SingleUserClients` every sampled user is one client: adding the
user adds one clipped contribution, at most C. With `VirtualClients` a user joins a group that others may share:
the group's clipped contribution can turn from one end of the ball to the other, at most 2C. The bound needs that the
others' groups do not depend on the user, so every user is assigned independently and uniformly; groups differ in
size and may be empty, and an empty group contributes zero. The derivation is in
docs/explanation/virtual-clients.md, with the reason why groups of exactly m users (Xu et al. 2022) cost more.

>>> import numpy as np
>>> from sfumato._random import RandomSource
>>> cohort = VirtualClients(clients=2).group(np.arange(4), 0, RandomSource.from_seed(1))
>>> [(int(slot), cohort.members(i).tolist()) for i, slot in enumerate(cohort.slots)]
[(0, [3]), (1, [0, 1, 2])]
>>> VirtualClients(clients=2).relative_sensitivity("add_remove")
2.0

`RoundCache` holds the last thing that was computed from a run's key for the next round, which changes no result.

>>> cache = RoundCache()
>>> cache.get("a", lambda: [1, 2]) is cache.get("a", lambda: [3])
True
>>> cache.get("b", lambda: [3])
[3]

Samplers without memory stand here: Poisson, cohorts of a fixed size, cyclic Poisson.

**Poisson sampling**: every unit takes part on its own coin, and no coin depends on another.

Unit: whatever is indexed (a user in the federated plans). Guarantees that the cohort's size is random, that it can
be empty, and that amplification by sampling holds for adding or removing a unit (Mironov, Talwar, Zhang 2019). Coins
depend on no record, so it also holds for what replaces one: a unit whose place is public, such as a label.

>>> from sfumato._random import RandomSource
>>> sampling = Poisson(size=10, population=1000)
>>> len(sampling.draw(1000, 0, RandomSource.from_seed(1)))
7

**Cohorts of a fixed size**, without replacement.

Unit: whatever is indexed. The cohort's size is public and constant, so neighbours differ by replacing one unit; the
amplification bound is the one proven for this sampling (Wang, Balle, Kasiviswanathan 2019), which is weaker than
Poisson's.

>>> FixedSize(size=3, population=10).draw(10, 0, RandomSource.from_seed(1)).tolist()
[3, 4, 6]

**Cyclic Poisson sampling**: units are dealt into parts, and each round tosses the coins of one part.

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

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import set_by_run
from sfumato._random import RandomSource, Stream
from sfumato._types import Adjacency
from sfumato.accounting import Participation

if TYPE_CHECKING:
    from sfumato.accounting import Event

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
    def grouping(self) -> SingleUserClients | VirtualClients:
        """How those who take part are put together."""
        return SingleUserClients(clients=self.size) if self.users_per_client == 1 else VirtualClients(clients=self.size)

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
        """How often and with what separation a unit can take part in so many rounds; None where coins alone decide.

        A limit is a promise: `draw` must never break it, for any units that are present.
        """
        return None

    @property
    def reaches_limits(self) -> bool:
        """Whether a unit can be in any rounds within the limits, so that what shared noise costs is what can happen."""
        return True

    @abstractmethod
    def describe(self) -> str:
        """One phrase for the statement."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """Contributors in the order of their slots; each is a unit, or several units that contribute together.

    Attributes:
        slots: int64 [contributors], ascending unless `take` was asked for another order; a slot names its contributor's
            randomness, for any other participants.
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
class SingleUserClients:
    """Every sampled user is a client.

    Attributes:
        clients: the planned number of clients a round: the public denominator.
    """

    clients: int

    def relative_sensitivity(self, adjacency: Adjacency) -> float:
        """The sum's sensitivity to a user, in bounds: 1 for coming, going or being blanked, 2 for being exchanged."""
        return 2.0 if adjacency == "replace" else 1.0

    def group(self, users: np.ndarray, round: int, source: RandomSource) -> Cohort:
        """Each user alone, the randomness named by the user, so that no user's presence changes another's."""
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

    def relative_sensitivity(self, adjacency: Adjacency) -> float:
        """The sum's sensitivity to a user, in bounds: their group's delta goes from −C to C in the worst case.

        An exchanged user leaves the slot to their successor, so one group changes under every adjacency.
        """
        return 2.0

    def group(self, users: np.ndarray, round: int, source: RandomSource) -> Cohort:
        """The groups that have a user, in order of their slot.

        A user's slot is the word at the user's own place of the round's stream, so it depends on no other user. The
        remainder of 64 bits favours no slot by more than clients / 2^64; the bound needs independence only.
        """
        words = source.stream("groups", round).words_at(users)
        assigned = (words % np.uint64(self.clients)).astype(np.int64)
        sizes = np.bincount(assigned, minlength=self.clients)
        slots = np.flatnonzero(sizes)
        order = np.sort(assigned * len(users) + np.arange(len(users))) % max(1, len(users))  # stable, and fast
        return Cohort(slots, users[order], np.concatenate([[0], np.cumsum(sizes[slots])]))


Value = TypeVar("Value")


class RoundCache(Generic[Value]):
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
        if self.adjacency == "replace" and self.users_per_client > 1:
            # Amplification is proven for contributions that are zero without the user. A group's without the user may
            # be anywhere within the bound, two bounds from both that the pair differs in.
            raise InputError(
                f"a user who is exchanged is accounted alone, got users_per_client={self.users_per_client}; use 1, or "
                "adjacency=add_remove"
            )

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
    _members: RoundCache[list[np.ndarray]] = field(default_factory=RoundCache, init=False, repr=False, compare=False)

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
            f"one round of cyclic Poisson sampling with {self.turns} parts has no event of its own; account "
            "the run by cyclic_poisson, or set parts=1"
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
