"""The contract of a mechanism: it adds noise to a bounded sum, and it alone says what so many rounds cost.

Noise is a function of the run's key and the round. A mechanism whose noise is correlated over time makes it from the
same key, and keeps state only where the key does not suffice.
"""

from typing import ClassVar, Protocol

from torch import Tensor

from sfumato._random import RandomSource
from sfumato.accounting import Event
from sfumato.sampling.sampler import Sampler


class Mechanism(Protocol):
    """Adds noise to the sums of a run, round by round.

    Attributes:
        noise_multiplier: std of the noise divided by the sensitivity of one contribution, >= 0.
        stream: whether the rounds cost something together only, because they share noise. Then the ledger records the
            whole run before its first release; otherwise it records each round.
    """

    stream: ClassVar[bool]

    @property
    def noise_multiplier(self) -> float: ...

    def noise_std(self, scale: float) -> float:
        """Std of the noise that is drawn for a sum whose contributions have norm at most `scale`."""
        ...

    def release(self, total: Tensor, *, scale: float, round: int, source: RandomSource) -> Tensor:
        """The noisy sum of a round.

        Args:
            total: float [size], contiguous, the sum of contributions of norm at most `scale`; may be overwritten.
            scale: the bound that was enforced.
            round: from 0, in order.
            source: the run's randomness.
        """
        ...

    def event(self, moved: float, sampler: Sampler, rounds: int) -> Event:
        """What the first `rounds` rounds cost a unit.

        Args:
            moved: by how many bounds the unit moves a round's sum when it comes, goes or is blanked.
            sampler: who takes part; the event holds under its adjacency.
            rounds: >= 0; for a stream, rounds of the whole run.

        Raises:
            InputError: nothing is proven for this sampler.
        """
        ...

    def restarts(self, round: int) -> bool:
        """Whether what the rounds before share ends with them: then the server forgets its momentum, too."""
        ...

    def describe(self) -> str:
        """One phrase for the statement, as in "Gaussian sums"."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep beside the key; mostly nothing."""
        ...

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from there."""
        ...
