"""Buffered Toeplitz strategies (BLT): the coefficients of C are sums of geometric series, the noise needs few buffers.

C has the coefficients 1 and sum_p scale_p decay_p^(t-1) for t >= 1. Its inverse is of the same form with other decays,
the eigenvalues of diag(decays) - sqrt(scales) sqrt(scales)^T (Dvijotham et al. 2024, Section 5).

>>> strategy = BufferedToeplitz(output_scales=(0.5,), buffer_decays=(0.75,))
>>> strategy.coefficients(4), strategy.inverse_coefficients(4)
(array([1.     , 0.5    , 0.375  , 0.28125]), array([ 1.     , -0.5    , -0.125  , -0.03125]))
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import InputError, between, non_negative
from sfumato.accounting.events.event import Event
from sfumato.accounting.events.matrix import MatrixMechanism
from sfumato.accounting.strategies.numbers import in_rounds, numbers
from sfumato.accounting.strategies.series import prefix_variance_of
from sfumato.accounting.streams.participation import Participation


@dataclass(frozen=True)
class BufferedToeplitz:
    """C of a BLT, as in `MatrixMechanism.blt`.

    Attributes:
        output_scales: omega of C, one for each buffer, >= 0. S^2 is exact where they add up to at most 1.
        buffer_decays: theta of C, one for each buffer, in [0, 1].

    Raises:
        InputError: there are none, they differ in number, or one is out of range.
    """

    output_scales: tuple[float, ...]
    buffer_decays: tuple[float, ...]

    name: ClassVar[str] = "blt"

    def __post_init__(self) -> None:
        scales = numbers("output_scales", self.output_scales, "Independent() is noise without buffers")
        decays = numbers("buffer_decays", self.buffer_decays, "Independent() is noise without buffers")
        if len(scales) != len(decays):
            raise InputError(
                f"output_scales and buffer_decays must be as many, got {len(scales)} and {len(decays)}; "
                "each buffer has one of both"
            )
        non_negative(**{"the least of output_scales": min(scales)}, remedy="use BandedToeplitz for negative ones")
        for decay in (min(decays), max(decays)):
            between(0, 1, buffer_decays=decay, remedy="a buffer forgets, at most nothing")
        object.__setattr__(self, "output_scales", scales)
        object.__setattr__(self, "buffer_decays", decays)

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        return self._event(noise_multiplier, participation)

    def squared_sensitivity(self, participation: Participation) -> float:
        return self._event(1.0, participation).squared_sensitivity

    def prefix_variance(self, rounds: int) -> np.ndarray:
        return prefix_variance_of(self.inverse_coefficients(in_rounds(rounds)))

    def coefficients(self, rounds: int) -> np.ndarray:
        """float [rounds], first column of C."""
        return geometric_series(np.array(self.output_scales), np.array(self.buffer_decays), rounds)

    def inverse_coefficients(self, rounds: int) -> np.ndarray:
        """float [rounds], first column of C^-1."""
        scales, decays = inverse(np.array(self.output_scales), np.array(self.buffer_decays))
        return geometric_series(-scales, decays, rounds)

    def _event(self, noise_multiplier: float, participation: Participation) -> MatrixMechanism:
        return MatrixMechanism.blt(
            noise_multiplier=noise_multiplier,
            steps=participation.rounds,
            output_scales=self.output_scales,
            buffer_decays=self.buffer_decays,
            max_participations=participation.max_participations,
            min_separation=participation.min_separation,
        )


def inverse(scales: np.ndarray, decays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and decays of the inverse: C^-1 has the coefficients 1 and -sum_p scales_p decays_p^(t-1).

    The buffers of C^-1 follow the matrix diag(decays) - 1 scales^T; the diagonal similarity that makes it symmetric
    makes its decays real, and keeps them accurate where decays of C coincide.
    """
    root = np.sqrt(scales)
    values, vectors = np.linalg.eigh(np.diag(decays) - np.outer(root, root))
    return (vectors.T @ root) ** 2, values


def geometric_series(scales: np.ndarray, decays: np.ndarray, rounds: int) -> np.ndarray:
    """float [rounds], 1 and sum_p scales_p decays_p^(t-1)."""
    series = np.ones(rounds)
    series[1:] = sum(scale * powers(decay, rounds - 1) for scale, decay in zip(scales, decays))
    return series


def powers(decay: float, count: int) -> np.ndarray:
    """float [count], decay^0, decay^1, ..."""
    return np.power(decay, np.arange(count))
