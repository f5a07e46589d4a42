"""How the server's learning rate goes: a function of the round alone, so it tells nothing about anybody.

>>> schedule = Schedule(kind="cosine", rounds=10, warm_up=2)
>>> [round(schedule.factor(index), 3) for index in (0, 1, 2, 6, 9)]
[0.5, 1.0, 1.0, 0.5, 0.038]

References:
    Loshchilov, Hutter: SGDR. ICLR 2017 (cosine). Goyal et al.: Accurate, Large Minibatch SGD. 2017 (warm-up).
"""

import math
from dataclasses import dataclass
from typing import Literal

from sfumato import _check


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A factor on the learning rate for each round.

    Attributes:
        kind: "constant", or "cosine" down to zero.
        rounds: rounds of the whole run.
        warm_up: rounds at the start in which the rate rises in equal steps.
    """

    kind: Literal["constant", "cosine"] = "constant"
    rounds: int
    warm_up: int = 0

    def __post_init__(self) -> None:
        _check.one_of(("constant", "cosine"), schedule=self.kind)
        _check.whole(rounds=self.rounds)
        _check.whole(at_least=0, warm_up=self.warm_up)

    def factor(self, round_index: int) -> float:
        """What the learning rate is multiplied with in this round, from 0; in [0, 1]."""
        if round_index < self.warm_up:
            return (round_index + 1) / self.warm_up
        if self.kind == "constant":
            return 1.0
        progress = (round_index - self.warm_up) / max(1, self.rounds - self.warm_up)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
