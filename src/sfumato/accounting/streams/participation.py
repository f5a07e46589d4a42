"""Participation patterns: in which rounds one unit may take part, when noise is shared between rounds.

What correlated noise costs depends on how often one unit comes back and how soon. Both numbers must be enforced by the
sampler; here they are only written down. Every bound that is made from them holds for one unit that takes part in *any*
set of rounds that they allow, fewer rounds included.

Two conventions are in use for two consecutive participations in rounds x < y. Trees count the rounds between them,
xi = y - x - 1 (Kairouz et al. 2021, Appendix D.2); matrices count the period, b = y - x (Choquette-Choo et al. 2023,
Section 2). `min_separation` is xi and `period` is b = xi + 1, here and in every event.

>>> pattern = Participation(rounds=2000, max_participations=6, min_separation=313)
>>> pattern.period, pattern.most, pattern.allows([0, 314, 1999])
(314, 6, True)
>>> Participation(rounds=2000, max_participations=None, min_separation=999).most
2
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfumato._check import InputError, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """How often and how soon one unit may take part.

    Attributes:
        rounds: length of the run, >= 1.
        max_participations: most rounds with one unit, >= 1; None where only the separation limits it.
        min_separation: least number of rounds between two of them, >= 0 (y - x - 1 for rounds x < y).

    Raises:
        InputError: a number is not whole or out of range.
    """

    rounds: int
    max_participations: int | None = 1
    min_separation: int = 0

    def __post_init__(self) -> None:
        whole(rounds=self.rounds)
        if self.max_participations is not None:
            whole(max_participations=self.max_participations, remedy="None for no limit besides min_separation")
            object.__setattr__(self, "max_participations", int(self.max_participations))
        whole(at_least=0, min_separation=self.min_separation, remedy="0 lets a unit take part in consecutive rounds")
        object.__setattr__(self, "rounds", int(self.rounds))
        object.__setattr__(self, "min_separation", int(self.min_separation))

    @property
    def period(self) -> int:
        """b: least distance between two rounds with the same unit, >= 1."""
        return self.min_separation + 1

    @property
    def most(self) -> int:
        """Most participations that fit, >= 1."""
        fitting = -(-self.rounds // self.period)
        return fitting if self.max_participations is None else min(self.max_participations, fitting)

    def refuse_unreachable(self) -> None:
        """Refuse a cap that no pattern reaches: whoever set it expects another run.

        Raises:
            InputError: more participations than fit.
        """
        fitting, wanted = -(-self.rounds // self.period), self.max_participations
        if wanted is not None and wanted > fitting:
            raise InputError(
                f"max_participations must be <= {fitting}, got {wanted}: no more fit into {self.rounds} rounds with "
                f"{self.min_separation} between two; lower it or min_separation"
            )

    def allows(self, pattern: Sequence[int]) -> bool:
        """Whether a unit may take part in exactly these rounds, 0-based and ascending."""
        inside = all(0 <= position < self.rounds for position in pattern)
        apart = all(later - earlier >= self.period for earlier, later in pairwise(pattern))
        return inside and apart and len(pattern) <= self.most

    def patterns(self) -> Iterator[tuple[int, ...]]:
        """Every pattern that is allowed, the empty one included. Exponentially many: for short runs only."""
        stack: list[tuple[int, ...]] = [()]
        while stack:
            pattern = stack.pop()
            yield pattern
            if len(pattern) < self.most:
                first = pattern[-1] + self.period if pattern else 0
                stack.extend((*pattern, position) for position in range(first, self.rounds))
