"""Strategies of correlated noise: a lower-triangular C, what its noise does to prefix sums, and what a run of it costs.

The noise of round t is row t of C^-1 z, with z ~ N(0, (noise_multiplier * clip_norm)^2) in each coordinate. What models
feel is the sum of the noise so far, row t of A C^-1 z where A sums prefixes; what a unit can see is C x. A strategy is
good where the product of the two is small:

    root error = sqrt(mean or max over rounds of ||row t of A C^-1||^2) * S

It is the noise of prefix sums, in clip norms, of a run that costs as much as one Gaussian release with noise
multiplier 1. The participation limits that a strategy is asked about must hold; the sampler enforces them.

References: Denisov et al. 2022; docs/explanation/strategies.md.
"""

import math
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np

from sfumato._check import one_of
from sfumato.accounting.events.event import Event
from sfumato.accounting.streams.participation import Participation

Error = Literal["mean", "max"]


class Strategy(Protocol):
    """A lower-triangular C. All are frozen dataclasses: immutable, hashable, equal where their numbers are."""

    name: ClassVar[str]

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        """What `participation.rounds` rounds with this noise cost a unit within these limits.

        Args:
            noise_multiplier: std of a coordinate of z divided by the clip norm, > 0.
            participation: what one unit may do.
        """
        ...

    def squared_sensitivity(self, participation: Participation) -> float:
        """S^2 in squared clip norms, that of the event: the most that one unit moves C x, rounded up."""
        ...

    def prefix_variance(self, rounds: int) -> np.ndarray:
        """float [rounds], variance of the noise in the sum of rounds 0 to t, at noise multiplier and clip norm 1."""
        ...


def root_error(strategy: Strategy, participation: Participation, error: Error) -> float:
    """Noise of prefix sums, in clip norms, of a run that costs what one Gaussian of noise multiplier 1 costs.

    Args:
        strategy: the strategy.
        participation: what one unit may do.
        error: "mean", the root of the mean squared error over the prefix sums, or "max", that of the worst one.

    >>> from sfumato.accounting.strategies import Independent
    >>> root_error(Independent(), Participation(rounds=64, max_participations=4), "max")
    16.0
    """
    one_of(get_args(Error), error=error)
    variance = strategy.prefix_variance(participation.rounds)
    worst = float(np.max(variance)) if error == "max" else float(np.mean(variance))
    return math.sqrt(worst * strategy.squared_sensitivity(participation))
