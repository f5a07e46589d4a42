"""Adaptive clipping: the clip norm follows a quantile of the norms, measured with noise.

Each round releases, beside the noisy sum, a noisy count of the contributions whose norm is at most C. The count is of
(1[‖Δ‖ ≤ C] − ½), so a contribution that comes or goes moves it by ½, and one that changes moves it by at most 1: half a
unit for each clip norm by which it moves the sum. Noise of std σ_b on the count is a Gaussian mechanism of multiplier
2σ_b. Together with the sum at multiplier z_Δ the round is one Gaussian mechanism of multiplier z with
z⁻² = z_Δ⁻² + (2σ_b)⁻² (Andrew, Thakkar, McMahan, Ramaswamy 2021, Theorem 1): `noise_multiplier` is that z, what the
accountant is told, and the sum gets the larger z_Δ. A user who moves two clip norms moves the count by two halves, so
the same factor 2 holds for both.

The update is C ← C·exp(−η(b − γ)), where b is the noisy count plus ½ for each *planned* contribution, divided by the
planned number: an absent contribution counts as half below, half above, and the realised number is never used.

>>> clip = AdaptiveClipNorm(initial=1.0, quantile=0.5, clients=32, noise_multiplier=0.62)
>>> round(clip.sum_noise_multiplier, 4)
0.632
>>> clip.count_noise_std
1.6
>>> round(clip.updated(1.0, noisy_count=16.0), 4)  # all 32 below: C shrinks
0.9048
"""

import math
from dataclasses import dataclass

from sfumato import _check
from sfumato._check import InputError
from sfumato.clipping.norm_bound import NormBound


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipNorm(NormBound):
    """Where the clip norm starts and how it moves.

    Attributes:
        initial: clip norm of the first round, > 0.
        quantile: γ, the share of contributions that should be left whole, in [0, 1].
        clients: planned contributions a round.
        noise_multiplier: z of the whole round, as accounted; 0 without privacy.
        learning_rate: η of the geometric update, > 0.
        count_noise: σ_b, std of the noise on the count; None for clients/20, or z where that is larger.
        rounds: adapt in the first so many rounds, then keep the last value; None adapts to the end.
    """

    initial: float
    quantile: float
    clients: int
    noise_multiplier: float
    learning_rate: float = 0.2
    count_noise: float | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        _check.positive(initial=self.initial, clients=self.clients, learning_rate=self.learning_rate)
        _check.between(0.0, 1.0, quantile=self.quantile)
        if self.rounds is not None:
            _check.whole(rounds=self.rounds)
        if self.count_noise is not None:
            _check.positive(count_noise=self.count_noise)
        if 2 * self.count_noise_std <= self.noise_multiplier:
            raise InputError(
                f"count_noise {self.count_noise_std:g} leaves nothing for the sum at noise_multiplier "
                f"{self.noise_multiplier:g}; use count_noise > {self.noise_multiplier / 2:g}"
            )

    @property
    def start(self) -> float | None:
        """The clip norm of the first round."""
        return self.initial

    def check(self, noise_multiplier: float, clients: int) -> None:
        """Refuse a round of other noise or size.

        Raises:
            InputError: the count would cost another share than planned.
        """
        if self.noise_multiplier != noise_multiplier:
            raise InputError(
                f"the adaptive clip norm was planned for noise_multiplier {self.noise_multiplier:g}, the sum "
                f"has {noise_multiplier:g}; give both the same"
            )
        if self.clients != clients:
            raise InputError(
                f"the adaptive clip norm was planned for {self.clients} clients, the sum for {clients}; give both the "
                "same"
            )

    @property
    def count_noise_std(self) -> float:
        """Std of the noise on the count of contributions."""
        return max(self.clients / 20, self.noise_multiplier) if self.count_noise is None else self.count_noise

    @property
    def sum_noise_multiplier(self) -> float:
        """z_Δ: the multiplier that the sum gets, so that sum and count together cost z."""
        if self.noise_multiplier == 0:
            return 0.0
        return (self.noise_multiplier**-2 - (2 * self.count_noise_std) ** -2) ** -0.5

    @property
    def count_std(self) -> float:
        """Std of the noise that the count gets: none in a run without privacy."""
        return self.count_noise_std if self.noise_multiplier > 0 else 0.0

    def counts(self, round_index: int) -> bool:
        """Whether this round (from 0) releases a count."""
        return self.active(round_index)

    def sum_multiplier(self, noise_multiplier: float, round_index: int) -> float:
        """z_Δ in rounds with a count, z in the others."""
        return self.sum_noise_multiplier if self.active(round_index) else noise_multiplier

    def active(self, round_index: int) -> bool:
        """Whether this round (from 0) releases a count."""
        return self.rounds is None or round_index < self.rounds

    def updated(self, clip_norm: float, *, noisy_count: float) -> float:
        """The next clip norm, from the noisy Σ(1[‖Δ‖ ≤ C] − ½)."""
        fraction = noisy_count / self.clients + 0.5
        return clip_norm * math.exp(-self.learning_rate * (fraction - self.quantile))

    def describe(self) -> str:
        """That it moves."""
        return "clipped to an adaptive norm"

    def disclose(self) -> str:
        """What it follows."""
        return "clipped to a public norm that follows a noisy count"

    def aside(self) -> str:
        """The count."""
        return ", with a noisy count for the norm"
