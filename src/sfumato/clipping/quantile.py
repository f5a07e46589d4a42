"""A clip norm that follows a quantile of the norms, measured with a noisy count.

Each round releases, beside the noisy sum, a noisy count of the contributions whose norm is at most C. The count is of
(1[‖Δ‖ ≤ C] − ½), so a contribution that comes or goes moves it by ½, and one that changes moves it by at most 1: half a
unit for each bound by which it moves the sum (`MOVED`). Noise of std σ_b on the count is a Gaussian mechanism of
multiplier 2σ_b. Sum and count are one joint release on one cohort (Andrew, Thakkar, McMahan, Ramaswamy 2021, Theorem
1), and a user who moves two bounds moves the count by two halves, so the same factor holds for both.

The update is C ← C·exp(−η(b − γ)), where b is the noisy count plus ½ for each *planned* contribution, divided by the
planned number: an absent contribution counts as half below, half above, and the realised number is never used.

>>> rule = QuantileRule(quantile=0.5)
>>> rule.count_noise_std(clients=32, noise_multiplier=0.62)
1.6
>>> round(rule.updated(1.0, noisy_count=16.0, clients=32), 4)  # all 32 below: C shrinks
0.9048
"""

import math
from dataclasses import dataclass

from sfumato import _check
from sfumato._check import InputError

MOVED = 0.5
"""What a contribution that comes or goes adds to the count."""


@dataclass(frozen=True, kw_only=True)
class QuantileRule:
    """Where the clip norm goes.

    Attributes:
        quantile: γ, the share of contributions that should be left whole, in [0, 1].
        learning_rate: η of the geometric update, > 0.
        count_noise: σ_b, std of the noise on the count; None for clients/20, or z where that is larger.
        rounds: adapt in the first so many rounds, then keep the last value; None adapts to the end.
    """

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        _check.positive(adaptive_clip_learning_rate=self.learning_rate)
        _check.between(0.0, 1.0, adaptive_clip_quantile=self.quantile)
        if self.rounds is not None:
            _check.whole(adaptive_clip_rounds=self.rounds)
        if self.count_noise is not None:
            _check.positive(adaptive_clip_count_noise=self.count_noise)

    def active(self, round: int) -> bool:
        """Whether this round (from 0) releases a count."""
        return self.rounds is None or round < self.rounds

    def count_noise_std(self, *, clients: int, noise_multiplier: float) -> float:
        """σ_b for so many planned contributions under a round's multiplier z.

        Raises:
            InputError: the count alone would cost as much as the round may.
        """
        std = max(clients / 20, noise_multiplier) if self.count_noise is None else self.count_noise
        if std <= noise_multiplier * MOVED:
            raise InputError(
                f"adaptive_clip_count_noise {std:g} leaves nothing for the sum at noise_multiplier "
                f"{noise_multiplier:g}; use more than {noise_multiplier * MOVED:g}"
            )
        return std

    def updated(self, clip_norm: float, *, noisy_count: float, clients: int) -> float:
        """The next clip norm, from the noisy Σ(1[‖Δ‖ ≤ C] − ½)."""
        fraction = noisy_count / clients + 0.5
        return clip_norm * math.exp(-self.learning_rate * (fraction - self.quantile))
