"""The contract of a mechanism, and independent Gaussian noise on a sum whose contributions are bounded.

The Gaussian sum: add independent normal noise to a sum whose contributions are bounded.

Unit: whatever contributes at most `scale` to the sum. Noise of standard deviation z·C on a sum of L2 sensitivity
C is a Gaussian mechanism of noise multiplier z (Dwork et al. 2006; Balle and Wang 2018). The noise is drawn whether
or not anybody took part: an empty cohort releases pure noise. Every round has noise of its own, so rounds cost what
they cost one by one.

>>> Gaussian(noise_multiplier=0.62).noise_std(2.0)
1.24
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from sfumato import _check
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._parts import set_by_run
from sfumato._random import RandomSource, Stream
from sfumato.sampling import CyclicPoisson, Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.accounting import Event

# The contract of a mechanism: it adds noise to a bounded sum, and it alone says what so many rounds cost.
#
# Noise is a function of the run's key and the round. A mechanism whose noise is correlated over time makes it from the
# same key, and keeps state only where the key does not suffice.


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """Adds noise to the sums of a run, round by round.

    Attributes:
        noise_multiplier: z, std of the noise divided by the largest norm of one contribution, >= 0. 0 adds nothing and
            protects no one; None until it is calibrated.
    """

    noise_multiplier: float | None = None

    stream: ClassVar[bool] = False
    """Whether the rounds cost something together only, because they share noise. Then the ledger records the whole run
    before its first release; otherwise it records each round."""

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            _check.non_negative(noise_multiplier=self.noise_multiplier)

    @property
    def multiplier(self) -> float:
        """z of a run, where no noise is 0."""
        return self.noise_multiplier or 0.0

    @property
    def parts(self) -> int:
        """Parts of a cyclic sampler, where it has none of its own."""
        return 1

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """The mechanism of a run, with everything decided that depends on it.

        Args:
            sampler: who takes part, planned.
            rounds: of the run.

        Raises:
            InputError: nothing is proven for this sampler.
        """
        return self

    def noise_std(self, scale: float) -> float:
        """Std of the noise that is drawn for a sum whose contributions have norm at most `scale`."""
        return self.multiplier * scale

    @abstractmethod
    def release(self, total: Tensor, *, scale: float, round: int, source: RandomSource) -> Tensor:
        """The noisy sum of a round.

        Args:
            total: float [size], contiguous, the sum of contributions of norm at most `scale`; may be overwritten.
            scale: the bound that was enforced.
            round: from 0, in order.
            source: the run's randomness.
        """

    @abstractmethod
    def event(self, moved: float, sampler: Sampler, rounds: int) -> Event:
        """What the first `rounds` rounds cost a unit.

        Args:
            moved: by how many bounds the unit moves a round's sum when it comes, goes or is blanked.
            sampler: who takes part; the event holds under its adjacency.
            rounds: >= 0; for a stream, rounds of the whole run.

        Raises:
            InputError: nothing is proven for this sampler.
        """

    def prefix_variance(self, rounds: int) -> np.ndarray | None:
        """Variance of the sums of the noise so far, in that of z, float64 [rounds]; None where it is still open."""
        return np.arange(1.0, rounds + 1.0)

    def restarts(self, round: int) -> bool:
        """Whether what the rounds before share ends with them: then the server forgets its momentum, too."""
        return False

    @abstractmethod
    def describe(self) -> str:
        """One phrase for the statement, as in "Gaussian sums"."""

    def settings(self) -> str:
        """What was decided for it, in words, with its kind; "" for nothing."""
        return ""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep: nothing where the key and the round give the noise."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:  # noqa: B027
        """Go on from there."""


# Normal numbers of a stream, added to a tensor wherever it is: on the processor, on a GPU, or on another device.


_PIECE = 1 << 24  # numbers on their way to another device at a time


def add_normals(flat: Tensor, stream: Stream, *, std: float, threads: int) -> None:
    """Add std × the stream's next normal numbers to float [n], contiguous, in place; threads change nothing."""
    import torch

    if flat.device.type == "cpu":
        stream.add_normal(flat.numpy(), std=std, threads=threads)
    elif flat.device.type == "cuda":
        stream.add_normal_on_device(flat, std=std, threads=threads)
    else:  # a device without double precision
        for piece in flat.split(_PIECE):  # no second vector of the model's size
            noise = stream.normal(len(piece), threads=threads)
            piece.add_(torch.from_numpy(noise).to(piece.device), alpha=std)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Mechanism):
    """Gaussian noise, drawn anew in every round."""

    label: str = set_by_run("noise")
    """Names the stream that the noise comes from; two mechanisms of one run have different ones."""

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """With the stream of its own: noise that another release draws, too, would cancel out of both."""
        return replace(self, label="noise")

    def release(self, total: Tensor, *, scale: float, round: int, source: RandomSource) -> Tensor:
        """The noisy sum; `total` (float [size], contiguous) is overwritten."""
        if self.multiplier > 0:
            _check.positive(scale=scale, remedy="noise on an unbounded sum protects no one")
            import torch

            std, threads = self.noise_std(scale), torch.get_num_threads()
            add_normals(total.view(-1), source.stream(self.label, round), std=std, threads=threads)
        return total

    def single(self, moved: float) -> Event:
        """One release, for a unit that takes part and moves the sum by so many bounds."""
        return acc.NonPrivate() if self.multiplier == 0 else acc.Gaussian(self.multiplier / moved)

    def event(self, moved: float, sampler: Sampler, rounds: int) -> Event:
        """So many releases, each on a cohort of its own; where the sampler limits how often a unit takes part, the
        releases that it can take part in."""
        limits = sampler.participation(rounds) if rounds else None
        if limits is None:
            return sampler.account(self.single(moved)) * rounds
        if self.multiplier == 0:
            return acc.NonPrivate()
        if isinstance(sampler, CyclicPoisson):
            noise = self.multiplier / moved
            rate, parts = sampler.sampling_rate, sampler.turns
            return acc.cyclic_poisson(noise_multiplier=noise, steps=rounds, parts=parts, sampling_rate=rate)
        return self.single(moved).min_separation(rounds, limits.min_separation, limits.max_participations)

    def sharing(self, other: float) -> Self:
        """The noise that is left for this sum where a release of multiplier `other` shares its round's cost.

        z⁻² = z_sum⁻² + other⁻² (Andrew et al. 2021, Theorem 1); without noise there is nothing to share.

        Raises:
            InputError: the other release alone costs as much.
        """
        if self.multiplier == 0:
            return self
        if other <= self.multiplier:
            raise InputError(
                f"a release of noise multiplier {other:g} leaves nothing for the sum at {self.multiplier:g}; "
                "give it more noise"
            )
        return replace(self, noise_multiplier=(self.multiplier**-2 - other**-2) ** -0.5)

    def describe(self) -> str:
        """The distribution."""
        return "Gaussian sums"
