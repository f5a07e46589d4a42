"""What an algorithm adds to the loop: the sum of what its groups contribute, each clipped.

A new algorithm is a new `Contribution`; it has no loop, no noise and no ε of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from sfumato._random import RandomSource
from sfumato.clipping import ClippedSum
from sfumato.sampling import Group


@dataclass
class Share:
    """What one process's groups add up to.

    Attributes:
        clipped: the sum and its counts.
        loss: sum of the groups' mean losses: private.
        examples: processed examples: private.
    """

    clipped: ClippedSum
    loss: float = 0.0
    examples: int = 0

    def add(self, other: "Share") -> None:
        """Add what other groups contributed."""
        self.clipped.merge(other.clipped)
        self.loss += other.loss
        self.examples += other.examples


class Contribution(Protocol):
    """Turns groups of units into a clipped sum.

    Attributes:
        model: the resident module, for evaluation.
        initial: the parameter vector to start from, float [size].
        population: units present in the data.
    """

    model: nn.Module
    initial: Tensor
    population: int

    def views(self, vector: Tensor) -> list[Tensor]:
        """The vector in the shapes of the parameters."""
        ...

    def clipped_sum(
        self,
        theta: Tensor,
        groups: Sequence[Group],
        round_index: int,
        clip_norm: float | None,
        source: RandomSource,
    ) -> Share:
        """The groups' clipped contributions at `theta`; a group's result depends on its own units and slot only."""
        ...

    def complete(self, mean: Tensor, round_index: int, source: RandomSource) -> None:
        """Add to the noisy mean, float [size], in place, what follows from it, the model and public inputs alone.

        Post-processing of what was released: nothing private may be read here. Mostly nothing is added.
        """
        ...

    def reuse(self, total: Tensor) -> None:
        """Nobody needs this `ClippedSum.total` any more; the next one may overwrite it."""
        ...

    def load(self, theta: Tensor) -> None:
        """Put a parameter vector into `model`."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """The released tensors after `load`: the model's, and the shared head where there is one."""
        ...

    def frozen(self) -> dict[str, Tensor]:
        """Tensors of the model that are not trained."""
        ...

    def load_frozen(self, tensors: dict[str, Tensor]) -> None:
        """Put the tensors that are not trained back."""
        ...

    def settings(self) -> dict[str, int | float]:
        """What a resumed run must do in the same way to repeat itself bit for bit, beside the plan; mostly nothing."""
        ...

    def restore_settings(self, settings: dict[str, int | float]) -> None:
        """Go on in that way."""
        ...

    def fingerprint(self) -> str:
        """Digest of the data and of the parameters' names and shapes."""
        ...


def counts(share: Share, stop: bool) -> Tensor:
    """What the processes add up beside the sum, float64 [8]."""
    clipped = share.clipped
    norms = torch.tensor(clipped.norms, dtype=torch.float64)
    numbers = [
        share.loss,
        share.examples,
        clipped.units,
        clipped.below,
        clipped.clipped,
        clipped.non_finite,
        float(norms.nansum()),
        float(stop),
    ]
    return torch.tensor(numbers, dtype=torch.float64, device=clipped.total.device)


@dataclass(frozen=True)
class RoundSum:
    """What the whole cohort added up to.

    Attributes:
        total: float64 [size], the sum of clipped contributions; private until noise is added.
        loss, examples, units, below, clipped, non_finite, norms: private statistics, summed.
        stop: whether a process was asked to stop.
    """

    total: Tensor
    loss: float
    examples: int
    units: int
    below: int
    clipped: int
    non_finite: int
    norms: float
    stop: bool

    @classmethod
    def of(cls, total: Tensor, counts: Tensor) -> "RoundSum":
        """From the sum and the `counts`, each added up over the processes."""
        loss, examples, units, below, clipped, non_finite, norms, stop = counts.tolist()
        return cls(
            total,
            loss,
            int(examples),
            int(units),
            int(below),
            int(clipped),
            int(non_finite),
            norms,
            stop > 0,
        )

    def statistics(self) -> dict[str, float | int | None]:
        """Private figures of the round, to be marked as such."""
        finite = self.units - self.non_finite
        return {
            "units": self.units,
            "examples": self.examples,
            "loss": _finite(self.loss / self.units) if self.units else None,
            "clipped": round(self.clipped / self.units, 4) if self.units else None,
            "norm_mean": _finite(self.norms / finite) if finite else None,
            "non_finite": self.non_finite,
        }


def _finite(value: float) -> float | None:
    return round(value, 6) if abs(value) < float("inf") else None
