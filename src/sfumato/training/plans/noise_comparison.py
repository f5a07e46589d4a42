"""Which noise meets a budget with the least error, by the errors of all sums so far.

A training run is moved by sums of its noisy updates, so what counts is the noise on these sums and not on single
rounds. For each kind of noise the multiplier is calibrated to one and the same (ε, δ), rounds and participation; the
error is z · √(mean over rounds of the variance of the prefix sum at unit noise), in clip norms. It is a prediction from
public numbers: no record is looked at, and it costs nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.accounting import Participation
from sfumato.accounting.strategies import Independent, Strategy
from sfumato.runs.searched import alike

DESCENDED = 1e-5
"""How far apart the errors and the sensitivities of strategies at one minimum may be, and noise that follows them; 4e-7
was seen, of three kinds of processors."""
_AS_GOOD = 1e-7  # how far apart the products of both, which are made small, may be: 2e-11 was seen


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


def do_the_same(one: Strategy | None, two: Strategy | None, limits: Participation, error: str) -> bool:
    """Whether two strategies differ by no more than where two descents to one minimum ended.

    Args:
        one, two: of one kind; None for independent noise.
        limits: what one unit may do.
        error: "mean" or "max", which the descent made small.
    """
    both = [strategy or Independent() for strategy in (one, two)]
    (error_one, error_two) = (prefix_error(strategy, 1.0, limits.rounds, error) for strategy in both)
    (moved_one, moved_two) = (float(np.sqrt(strategy.squared_sensitivity(limits))) for strategy in both)
    return (
        alike(error_one, error_two, DESCENDED)
        and alike(moved_one, moved_two, DESCENDED)
        and alike(error_one * moved_one, error_two * moved_two, _AS_GOOD)
    )
