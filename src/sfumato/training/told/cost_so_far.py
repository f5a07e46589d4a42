"""What a run has cost after a round, and what all its rounds will have cost: by the accountants of the statement.

Both are upper bounds for one unit, with all that was released before the rounds. After the first 128 rounds, what a
round has cost is told as of one that is up to 1.6 % later: a million rounds take 900 answers of some milliseconds.
"""

import math

from sfumato._rounding import rounded_up
from sfumato.accounting import Event, compose, guarantee, terms
from sfumato.accounting.running import RunningCost
from sfumato.training.private_sum import PrivateSum

_BITS = 7  # of a number of rounds that are told apart


class CostSoFar:
    """ε of the rounds of a private sum.

    Args:
        private_sum: what each round releases.
        delta: of the statement.
        before: what the run had released before its first round; None for nothing.

    Attributes:
        planned: ε of the whole run; None without any guarantee.
    """

    def __init__(self, private_sum: PrivateSum, delta: float, before: Event | None = None) -> None:
        self._rounds = private_sum.rounds
        self.planned: float | None = None
        adjacency, whole = private_sum.sampler.adjacency, private_sum.event(private_sum.rounds)
        planned = guarantee(whole if before is None else before + whole, adjacency).epsilon(delta)
        if math.isfinite(planned):
            self.planned = rounded_up(planned, 8)
            self._running = RunningCost(private_sum.event, delta, adjacency, before)

    def after(self, rounds: int) -> float | None:
        """An upper bound after so many rounds; None without any guarantee."""
        if self.planned is None:
            return None
        stride = 1 << max(0, rounds.bit_length() - _BITS)
        counted = min(self._rounds, -(-rounds // stride) * stride)
        return (
            self.planned
            if counted == self._rounds
            else min(self.planned, rounded_up(self._running.epsilon_after(counted), 8))
        )


def before_rounds(spent: Event, private_sum: PrivateSum, done: int) -> Event | None:
    """What a run has released beside the rounds that it has done."""
    counts = dict(terms(spent))
    for event, count in terms(private_sum.event(done)) if done else ():
        counts[event] = counts.get(event, 0) - count
    left = {event: count for event, count in counts.items() if count > 0}
    return compose(left) if left else None
