"""Who took part when: the one door through which a unit gets into a round, and it turns away who may not.

>>> log = ParticipationLog(3, Participation(rounds=9, max_participations=2, min_separation=1))
>>> log.admit(np.array([0, 2]), round=0)
>>> log.eligible(np.arange(3), round=1).tolist(), log.eligible(np.arange(3), round=2).tolist()
([False, True, False], [True, True, True])
>>> log.admit(np.array([2]), round=1)
Traceback (most recent call last):
...
sfumato._check.InputError: unit 2 took part in round 1 and may not do so again before round 3, got round 2; leave it out
"""

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import Participation

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
