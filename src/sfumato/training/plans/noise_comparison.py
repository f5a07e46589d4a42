"""Which noise meets a budget with the least error, by the errors of all sums so far.

A training run is moved by sums of its noisy updates, so what counts is the noise on these sums and not on single
rounds. For each kind of noise the multiplier is calibrated to one and the same (ε, δ), rounds and participation; the
error is z · √(mean over rounds of the variance of the prefix sum at unit noise), in clip norms. It is a prediction from
public numbers: no record is looked at, and it costs nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.accounting.strategies import Independent, Strategy


@dataclass(frozen=True, kw_only=True)
class NoiseCost:
    """One kind of noise at the wanted budget.

    Attributes:
        noise: its name, as in a plan.
        settings: what was decided for it beside the name, in words; "" for nothing.
        noise_multiplier: z that meets the budget; None where nothing is known or reaches it.
        error: of the prefix sums, in clip norms; None likewise.
        reason: why it is not known; "" where it is.
        plan: the plan with this noise; None where it is not known.
    """

    noise: str
    settings: str
    noise_multiplier: float | None
    error: float | None
    reason: str
    plan: Any


def prefix_error(strategy: Strategy | None, noise_multiplier: float, rounds: int, error: str) -> float:
    """Error of the prefix sums in clip norms: the root of their mean ("mean") or largest ("max") variance."""
    variance = (strategy or Independent()).prefix_variance(rounds)
    return noise_multiplier * float(np.sqrt(variance.mean() if error == "mean" else variance.max()))
