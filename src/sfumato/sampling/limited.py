"""Samplers that limit how often a unit takes part: shuffled epochs, and rounds with a minimum separation.

Who took part when: each unit of a round passes through this log, which refuses those that may not take part.

>>> log = ParticipationLog(3, Participation(rounds=9, max_participations=2, min_separation=1))
>>> log.admit(np.array([0, 2]), round=0)
>>> log.eligible(np.arange(3), round=1).tolist(), log.eligible(np.arange(3), round=2).tolist()
([False, True, False], [True, True, True])
>>> log.admit(np.array([2]), round=1)
Traceback (most recent call last):
...
sfumato._check.InputError: unit 2 took part in round 1 and may not do so again before round 3, got round 2; leave it out

Shuffled epochs: every unit once an epoch, in batches of one size.

Unit: whatever is indexed. Guarantees that a unit is in at most one batch of each epoch, whatever the others do. An
epoch has population // size batches; what does not fill another one is left out of it, so that every round has the
planned size. With a new order for each epoch other units are left out each time; with one order for all, the same
ones are never used. No amplification is claimed for shuffling.

Neighbours: `zero_out`, as the places of the others follow from the number of units.

>>> from sfumato._random import RandomSource
>>> epochs, source = Shuffled(size=3, population=7, rounds=4), RandomSource.from_seed(1)
>>> [epochs.draw(7, round, source).tolist() for round in range(4)]
[[0, 1, 3], [2, 5, 6], [0, 1, 2], [4, 5, 6]]
>>> epochs.participation(4)
Participation(rounds=4, max_participations=2, min_separation=0)

Cohorts of units that sit out for a while after each round, chosen among those who have checked in.

Unit: whatever is indexed (a user with a device). In each round every unit checks in by a coin of its own; up to `size`
of those that checked in and are eligible are chosen uniformly; each chosen one then fails to report by another coin.
Guarantees that a unit is chosen at most `max_participations` times, with `min_separation` rounds or more between:
`ParticipationLog` turns everybody else away. No amplification is claimed (Kairouz et al. 2021, Appendix D.2).

- A unit that was chosen and did not report is charged as if it had: no one can know whether it was counted. So it
  rests, and its participation is used up.
- A round with fewer units than planned goes on with those, or with none. The denominator stays the planned size, and
  the promise stays as it is; who is missing costs accuracy only.
- With everybody checked in, cohorts can still run short towards the end if the cap is close to size·rounds /
  population: units are chosen uniformly, so some are used up before others.

Neighbours: `zero_out`. A unit that left would let others in, at other rounds.

Who takes part is a function of key and round. Rounds in order cost O(size / availability) each as long as a good part
of the units is eligible, else one pass over an array of the population. An earlier round, or a first one after a
resume, replays those before it.

>>> from sfumato._random import RandomSource
>>> sampling = MinSeparation(size=2, population=8, min_separation=2, max_participations=2, rounds=5)
>>> source = RandomSource.from_seed(1)
>>> [sampling.draw(8, round, source).tolist() for round in range(5)]
[[0, 3], [4, 7], [2, 5], [1, 3], [6, 7]]
>>> sampling.describe()
'cohorts of at most 2 of 8, each unit in at most 2 rounds, 2 or more rounds between two of them'
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds
from sfumato._random import RandomSource, Stream
from sfumato._types import Adjacency
from sfumato.accounting import Participation
from sfumato.sampling.sampler import CyclicPoisson, FixedSize, Poisson, RoundCache, Sampler, subset

if TYPE_CHECKING:
    from sfumato.accounting import Event

# What samplers with limits on participation have in common: their refusals and their words.
#
# Nothing amplifies: anybody may know who takes part when. What such a run costs follows from how often and how soon a
# unit comes back, over the whole run; `Sampler.participation` promises it and `draw` keeps it.


def refuse_other_plan(name: str, planned: int, present: int, rounds: int, round: int) -> None:
    """Refuse a number of units, or a round, that the schedule was not made for.

    Raises:
        InputError: it is not the planned population, or not one of the planned rounds.
    """
    if present != planned:
        raise InputError(
            f"{name} was planned for {planned} units, got {present}, which would change who takes part when; "
            "set population to the number of units"
        )
    if not 0 <= round < rounds:
        raise InputError(
            f"{name} was planned for {rounds} rounds, got round {round + 1}; set rounds to that of the run"
        )


def refuse_single_round(name: str, limits: Participation) -> NoReturn:
    """There is no event of one round, because a unit is in few of them and repeating it would charge all.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"one round of {name} has no event of its own (at most {limits.most} of {limits.rounds} rounds a "
        "unit); account by event.min_separation or correlated noise"
    )


def within(limits: Participation, rounds: int, name: str) -> Participation:
    """The limits of the first so many rounds.

    Raises:
        InputError: more rounds than were planned.
    """
    if rounds > limits.rounds:
        raise InputError(f"{name} was planned for {limits.rounds} rounds, got {rounds}; set rounds to that of the run")
    return Participation(
        rounds=rounds, max_participations=limits.max_participations, min_separation=limits.min_separation
    )


def in_words(limits: Participation) -> str:
    """For the statement.

    >>> in_words(Participation(rounds=2000, max_participations=6, min_separation=313))
    'each unit in at most 6 rounds, 313 or more rounds between two of them'
    >>> in_words(Participation(rounds=9, max_participations=1, min_separation=2))
    'each unit in at most 1 round'
    """
    often = f"each unit in at most {limits.most} round{'s' if limits.most > 1 else ''}"
    separation = limits.min_separation
    if limits.most == 1 or separation == 0:
        return often
    return f"{often}, {separation} or more round{'s' if separation > 1 else ''} between two of them"


_LONGEST = 2**31 - 1


class ParticipationLog:
    """The last round and the number of rounds of each unit, 8 bytes together.

    Args:
        population: number of units, >= 1.
        limits: how often and how soon a unit may take part.

    Raises:
        InputError: the run has more rounds than 32 bits count.
    """

    def __init__(self, population: int, limits: Participation) -> None:
        _check.whole(population=population)
        if limits.rounds > _LONGEST:
            raise InputError(f"rounds must be <= {_LONGEST}, got {limits.rounds}; a log counts them in 32 bits")
        self._most = limits.most
        self._period = min(limits.period, limits.rounds)  # longer ones keep a unit out of all other rounds, too
        self._last = np.full(population, -self._period, np.int32)  # as if in time for round 0
        self._count = np.zeros(population, np.int32)

    def eligible(self, units: np.ndarray | slice, round: int) -> np.ndarray:
        """Who of these units may take part in this round, bool [n]."""
        return (self._count[units] < self._most) & (self._last[units] <= round - self._period)

    def admit(self, units: np.ndarray, round: int) -> None:
        """Write these units, int64 [n], down for this round, from 0: all of them or none.

        Raises:
            InputError: a unit is over the cap or under the separation, or stands there twice.
        """
        if len(np.unique(units)) != len(units):
            raise InputError(f"round {round + 1} has a unit twice; name each unit once")
        refused = ~self.eligible(units, round)
        if refused.any():
            raise InputError(self._reason(int(units[refused][0]), round))
        self._last[units] = round
        self._count[units] += 1

    def _reason(self, unit: int, round: int) -> str:
        count, last = int(self._count[unit]), int(self._last[unit])
        if count >= self._most:
            return f"unit {unit} took part in {count} rounds, the most allowed, got round {round + 1}; leave it out"
        return (
            f"unit {unit} took part in round {last + 1} and may not do so again before round "
            f"{last + self._period + 1}, got round {round + 1}; leave it out"
        )


_NAME = "shuffling"


@dataclass(frozen=True, kw_only=True)
class Shuffled(Sampler):
    """Consecutive batches of exactly so many units of a uniform order; exactly `population` must be present.

    Attributes:
        reshuffle: a new order for each epoch. One order for all separates a unit's rounds by an epoch, which costs
            less with correlated noise.
    """

    reshuffle: bool = True
    _order: RoundCache[np.ndarray] = field(default_factory=RoundCache, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.one_of((True, False), reshuffle=self.reshuffle)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch, >= 1."""
        return self._of("population") // self.units

    @property
    def limits(self) -> Participation:
        """Once an epoch; separated by a whole epoch where no order follows another one."""
        epochs = -(-self._of("rounds") // self.steps_per_epoch)
        separation = 0 if self.reshuffle and epochs > 1 else self.steps_per_epoch - 1
        return Participation(rounds=self._of("rounds"), max_participations=epochs, min_separation=separation)

    @property
    def reaches_limits(self) -> bool:
        """Not over several epochs: a unit is in one round of each, and in no two rounds of one."""
        return not self.reshuffle or self.limits.max_participations == 1

    @property
    def adjacency(self) -> Adjacency:
        """Blanking one unit: it keeps its places, and so do the others."""
        return "zero_out"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """The round's batch, sorted int64 [size]."""
        refuse_other_plan(_NAME, self._of("population"), present, self._of("rounds"), round)
        epoch, step = divmod(round, self.steps_per_epoch)
        number = epoch if self.reshuffle else 0
        order = self._order.get((source, number), lambda: source.stream("epochs", number).permutation(present))
        return np.sort(order[step * self.units : (step + 1) * self.units])

    def account(self, event: Event) -> Event:
        """Refused: a round has no event of its own."""
        refuse_single_round(_NAME, self.limits)

    def participation(self, rounds: int) -> Participation | None:
        """At most once in each epoch that has begun."""
        return replace(self, rounds=within(self.limits, rounds, _NAME).rounds).limits

    def describe(self) -> str:
        """For the statement."""
        order = "a new order for each" if self.reshuffle else "one order for all"
        left = self._of("population") - self.steps_per_epoch * self.units
        rest = f", {left} left out of {'each' if self.reshuffle else 'all'}" if left else ""
        return (
            f"shuffled epochs of {self.steps_per_epoch} batches of {self.units} of {self.population}, {order}{rest}, "
            f"{in_words(self.limits)}"
        )


_MIN_SEPARATION = "min-separation sampling"
_SCAN = 16  # a unit in a pass over all of them costs about this many times less than a candidate


@dataclass(frozen=True, kw_only=True)
class MinSeparation(Sampler):
    """Up to so many eligible units a round; exactly `population` must be known, present or not.

    Attributes:
        min_separation: rounds between two participations of a unit at least, >= 0: y - x - 1 for rounds x < y. None
            for as many as keep cohorts full.
        max_participations: rounds that a unit takes part in at most, >= 1; None for as many as the separation allows.
        availability: simulated probability that a unit checks in, in (0, 1].
        drop_out: simulated probability that a chosen unit does not report, in [0, 1).
    """

    min_separation: int | None = None
    max_participations: int | None = None
    availability: float = 1.0
    drop_out: float = 0.0
    _walk: RoundCache[_Walk] = field(default_factory=RoundCache, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in {"min_separation": 0, "max_participations": 1}.items():
            if getattr(self, name) is not None:
                _check.whole(at_least=least, **{name: getattr(self, name)})
        _check.between(0.0, 1.0, ends="(]", availability=self.availability)
        _check.between(0.0, 1.0, ends="[)", drop_out=self.drop_out)
        if None in (self.population, self.rounds, self.min_separation):
            return
        self.limits.refuse_unreachable()
        if self.availability == 1.0:
            self._refuse_cohorts_that_cannot_fill()

    def planned(self, population: int, rounds: int, parts: int = 1) -> Self:
        """With the widest separation that keeps cohorts full, where nothing else was chosen."""
        widest = max(0, population // self.units - 1)
        chosen = widest if self.min_separation is None else self.min_separation
        return replace(self, population=population, rounds=rounds, min_separation=chosen)

    @property
    def limits(self) -> Participation:
        """How often and how soon a unit may take part in the whole run."""
        return Participation(
            rounds=self._of("rounds"),
            max_participations=self.max_participations,
            min_separation=self._of("min_separation"),
        )

    @property
    def adjacency(self) -> Adjacency:
        """Blanking one unit: it keeps its rounds, and so do the others."""
        return "zero_out"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """The units that report, sorted int64 [0 to size]."""
        refuse_other_plan(_MIN_SEPARATION, self._of("population"), present, self._of("rounds"), round)
        return self._walk.get(source, lambda: _Walk(self, source)).cohort(round)

    def account(self, event: Event) -> Event:
        """Refused: a round has no event of its own."""
        refuse_single_round(_MIN_SEPARATION, self.limits)

    def participation(self, rounds: int) -> Participation | None:
        """The limits, which hold for any check-ins and any dropouts."""
        return within(self.limits, rounds, _MIN_SEPARATION)

    def describe(self) -> str:
        """For the statement; the same for any dropouts."""
        return f"cohorts of at most {self.units} of {self.population}, {in_words(self.limits)}"

    def _refuse_cohorts_that_cannot_fill(self) -> None:
        limits, units, population, rounds = self.limits, self.units, self._of("population"), self._of("rounds")
        in_a_row = min(limits.period, rounds)
        if units * in_a_row > population:
            raise InputError(
                f"cohorts of {units} cannot be kept full: {in_a_row} rounds in a row need {units * in_a_row} "
                f"units, population is {population}; lower cohort.size, min_separation (to "
                f"{population // units - 1}) or availability"
            )
        if units * rounds > population * limits.most:
            raise InputError(
                f"cohorts of {units} cannot be kept full: {rounds} rounds take {units * rounds} participations, "
                f"{population} units have {limits.most} each; raise max_participations, lower rounds (to "
                f"{population * limits.most // units}) or availability"
            )


class _Walk:
    """Goes through the rounds of one key in order, as the log of a round follows from all before it."""

    def __init__(self, plan: MinSeparation, source: RandomSource) -> None:
        self._plan, self._source = plan, source
        self._start()

    def _start(self) -> None:
        self._log = ParticipationLog(self._plan._of("population"), self._plan.limits)
        self._next, self._reported = 0, np.empty(0, np.int64)

    def cohort(self, round: int) -> np.ndarray:
        """Who reports in this round."""
        if round < self._next - 1:
            self._start()
        while self._next <= round:
            going = self._next
            self._next = self._plan.limits.rounds + 1  # if this round is broken off, the next call starts anew
            self._reported = self._go(going)
            self._next = going + 1
        return self._reported.copy()

    def _go(self, round: int) -> np.ndarray:
        plan, stream = self._plan, self._source.stream("check-ins", round)
        population = plan._of("population")
        chosen = np.sort(choose(self._log, round, plan.units, population, plan.availability, stream))
        self._log.admit(chosen, round)
        return chosen[~stream.bernoulli(plan.drop_out, len(chosen))]


def choose(
    log: ParticipationLog, round: int, size: int, population: int, availability: float, stream: Stream
) -> np.ndarray:
    """Up to `size` of those who check in and are eligible, all subsets equally likely; int64 [n].

    Units are looked at in a random order, each of them once, and toss their coin then. When to go on to a pass over all
    others depends on how many were found, not on whom, so it favours no unit.
    """
    found, seen, drawn = np.empty(0, np.int64), np.empty(0, np.int64), 0
    block = 2 * size
    while len(found) < size and (drawn + block) * _SCAN <= population:
        candidates, coins = stream.integers(population, block), stream.bernoulli(availability, block)
        units, first = np.unique(candidates, return_index=True)
        first = np.sort(first[~np.isin(units, seen, assume_unique=True)])
        ready = first[coins[first] & log.eligible(candidates[first], round)]
        found = np.concatenate([found, candidates[ready]])
        seen, drawn = np.union1d(seen, units), drawn + block
        block = 1 + 2 * (size - len(found)) * drawn // max(1, len(found))  # twice what is likely to be missing
    if len(found) >= size:
        return found[:size]
    others = log.eligible(slice(None), round)
    others[seen] = False
    units = np.flatnonzero(others)
    units = units[stream.bernoulli(availability, len(units))]
    missing = size - len(found)
    if len(units) > missing:
        units = units[subset(missing, len(units), stream)]
    return np.concatenate([found, units])


COHORTS = Kinds[Sampler](
    {
        "poisson": Poisson,
        "fixed_size": FixedSize,
        "shuffled": Shuffled,
        "cyclic_poisson": CyclicPoisson,
        "min_separation": MinSeparation,
    },
    number="size",
)
"""By the word that a plan's cohort may be given as; a new sampler is its class and its line here."""
