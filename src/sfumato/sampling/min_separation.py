"""Cohorts of units that sit out for a while after each round, chosen among those who have checked in.

Unit: whatever is indexed (a user with a device). In each round every unit checks in by a coin of its own; up to `size`
of those that checked in and are eligible are chosen uniformly; each chosen one then fails to report by another coin.
Guarantees that a unit is chosen at most `max_participations` times, with `min_separation` rounds or more between:
`ParticipationLog` turns everybody else away. No amplification is claimed (Kairouz et al. 2021, Appendix D.2).

- A unit that was chosen and did not report is charged as if it had: nobody can tell whether it was counted. So it
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
>>> sampling = MinSeparationSampling(size=2, population=8, min_separation=2, max_participations=2, rounds=5)
>>> source = RandomSource.from_seed(1)
>>> [sampling.draw(8, round, source).tolist() for round in range(5)]
[[0, 3], [4, 7], [2, 5], [1, 3], [6, 7]]
>>> sampling.describe()
'cohorts of at most 2 of 8, each unit in at most 2 rounds, 2 or more rounds between two of them'
"""

from dataclasses import dataclass, field

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato._types import Adjacency
from sfumato.accounting import Event, Participation
from sfumato.sampling.fixed_size import subset
from sfumato.sampling.kept import Kept
from sfumato.sampling.limited import in_words, refuse_other_plan, refuse_single_round, within
from sfumato.sampling.participation_log import ParticipationLog

_NAME = "min-separation sampling"
_SCAN = 16  # a unit in a pass over all of them costs about this many times less than a candidate


@dataclass(frozen=True, kw_only=True)
class MinSeparationSampling:
    """Up to `size` eligible units a round.

    Attributes:
        size: units planned for a cohort, 1 to `population`.
        population: the public number of units; exactly so many must be known, present or not.
        min_separation: rounds between two participations of a unit at least, >= 0: y - x - 1 for rounds x < y.
        max_participations: rounds that a unit takes part in at most, >= 1; None for as many as the separation allows.
        rounds: rounds in the run.
        availability: simulated probability that a unit checks in, in (0, 1].
        drop_out: simulated probability that a chosen unit does not report, in [0, 1).
    """

    size: int
    population: int
    min_separation: int
    max_participations: int | None = None
    rounds: int
    availability: float = 1.0
    drop_out: float = 0.0
    _walk: "Kept[_Walk]" = field(default_factory=Kept, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check.whole(size=self.size, population=self.population)
        _check.between(0.0, 1.0, ends="(]", availability=self.availability)
        _check.between(0.0, 1.0, ends="[)", drop_out=self.drop_out)
        if self.size > self.population:
            raise InputError(
                f"a cohort of {self.size} cannot be drawn from {self.population} units; take a smaller size"
            )
        self.limits.refuse_unreachable()
        if self.availability == 1.0:
            self._refuse_cohorts_that_cannot_fill()

    @property
    def limits(self) -> Participation:
        """How often and how soon a unit may take part in the whole run."""
        return Participation(
            rounds=self.rounds, max_participations=self.max_participations, min_separation=self.min_separation
        )

    @property
    def adjacency(self) -> Adjacency:
        """Blanking one unit: it keeps its rounds, and so do the others."""
        return "zero_out"

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        """The units that report, sorted int64 [0 to size]."""
        refuse_other_plan(_NAME, self.population, present, self.rounds, round)
        return self._walk.get(source, lambda: _Walk(self, source)).cohort(round)

    def account(self, event: Event) -> Event:
        """Refused: a round has no event of its own."""
        refuse_single_round(_NAME, self.limits)

    def participation(self, rounds: int) -> Participation | None:
        """The limits, which hold whoever checks in and whoever drops out."""
        return within(self.limits, rounds, _NAME)

    def describe(self) -> str:
        """For the statement; the same whoever is missing."""
        return f"cohorts of at most {self.size} of {self.population}, {in_words(self.limits)}"

    def _refuse_cohorts_that_cannot_fill(self) -> None:
        limits = self.limits
        in_a_row = min(limits.period, self.rounds)
        remedy = "or set availability below 1 if not everybody checks in"
        if self.size * in_a_row > self.population:
            raise InputError(
                f"cohorts of {self.size} cannot be kept full: {in_a_row} rounds in a row have no unit twice and need "
                f"{self.size * in_a_row} units, but population is {self.population}; take smaller cohorts, or "
                f"lower min_separation to {self.population // self.size - 1}, {remedy}"
            )
        if self.size * self.rounds > self.population * limits.most:
            raise InputError(
                f"cohorts of {self.size} cannot be kept full: {self.rounds} rounds take {self.size * self.rounds} "
                f"participations, but {self.population} units have {limits.most} each; raise max_participations or "
                f"lower rounds to {self.population * limits.most // self.size}, {remedy}"
            )


class _Walk:
    """Goes through the rounds of one key in order, as the log of a round follows from all before it."""

    def __init__(self, plan: MinSeparationSampling, source: RandomSource) -> None:
        self._plan, self._source = plan, source
        self._start()

    def _start(self) -> None:
        self._log = ParticipationLog(self._plan.population, self._plan.limits)
        self._next, self._reported = 0, np.empty(0, np.int64)

    def cohort(self, round: int) -> np.ndarray:
        """Who reports in this round."""
        if round < self._next - 1:
            self._start()
        while self._next <= round:
            going = self._next
            self._next = self._plan.rounds + 1  # if this round is broken off, the next call starts anew
            self._reported = self._go(going)
            self._next = going + 1
        return self._reported.copy()

    def _go(self, round: int) -> np.ndarray:
        plan, stream = self._plan, self._source.stream("check-ins", round)
        chosen = np.sort(choose(self._log, round, plan.size, plan.population, plan.availability, stream))
        self._log.admit(chosen, round)
        return chosen[~stream.bernoulli(plan.drop_out, len(chosen))]


def choose(
    log: ParticipationLog, round: int, size: int, population: int, availability: float, stream: Stream
) -> np.ndarray:
    """Up to `size` of those who check in and are eligible, all subsets equally likely; int64 [n].

    Units are looked at in a random order, each of them once, and toss their coin then. When to go on to a pass over all
    others depends on how many were found, not on whom, so it favours nobody.
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
