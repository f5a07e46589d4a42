"""Strategies whose inverse is banded: the noise of a round is a moving average of a few z.

C^-1 is Toeplitz with few coefficients, so drawing the noise takes no recursion: round t gets sum_i d_i z_{t-i}, which
can be drawn again for any round. C itself has all coefficients (Kalinin, McKenna, Upadhyay and Lampert 2025).

>>> strategy = InverseBanded((1.0, -0.5))
>>> strategy.coefficients(4)
array([1.   , 0.5  , 0.25 , 0.125])
>>> strategy.prefix_variance(3)
array([1.  , 1.25, 1.5 ])
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import scipy

from sfumato._check import InputError
from sfumato.accounting.doubles import EPS
from sfumato.accounting.events.event import Event
from sfumato.accounting.events.matrix import MatrixMechanism
from sfumato.accounting.strategies.numbers import in_rounds, numbers
from sfumato.accounting.strategies.series import padded, prefix_variance_of, reciprocal
from sfumato.accounting.streams.participation import Participation


@dataclass(frozen=True)
class InverseBanded:
    """C^-1[t, j] = inverse_coefficients[t - j].

    Attributes:
        inverse_coefficients: d, first column of C^-1 from the diagonal on; the first one is 1.

    Raises:
        InputError: there are none, one is not finite, or the first is not 1.
    """

    inverse_coefficients: tuple[float, ...]

    name: ClassVar[str] = "bisr"

    def __post_init__(self) -> None:
        kept = numbers("inverse_coefficients", self.inverse_coefficients, "InverseBanded((1.0,)) is independent noise")
        if kept[0] != 1.0:
            raise InputError(
                f"the first of inverse_coefficients must be 1, got {kept[0]}; divide all by it, "
                "which changes neither noise nor cost"
            )
        object.__setattr__(self, "inverse_coefficients", kept)

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        return self._event(noise_multiplier, participation)

    def squared_sensitivity(self, participation: Participation) -> float:
        return self._event(1.0, participation).squared_sensitivity

    def prefix_variance(self, rounds: int) -> np.ndarray:
        return prefix_variance_of(padded(np.array(self.inverse_coefficients), in_rounds(rounds)))

    def coefficients(self, rounds: int) -> np.ndarray:
        """float [rounds], first column of C."""
        return reciprocal(np.array(self.inverse_coefficients), in_rounds(rounds))

    def _event(self, noise_multiplier: float, participation: Participation) -> MatrixMechanism:
        return MatrixMechanism.toeplitz(
            noise_multiplier=noise_multiplier,
            coefficients=_bounding_column(self.inverse_coefficients, participation.rounds),
            steps=participation.rounds,
            max_participations=participation.max_participations,
            min_separation=participation.min_separation,
        )


@lru_cache(maxsize=16)
def _bounding_column(inverse: tuple[float, ...], rounds: int) -> np.ndarray:
    """First column of C, times what makes up for its rounding.

    With the residual r = d * c - 1 of what was computed, C = (I + R)^-1 of it, and a vector grows by at most
    1 / (1 - ||r||_1) when (I + R)^-1 is applied.
    """
    d = np.array(inverse[: in_rounds(rounds)])
    with np.errstate(over="ignore", invalid="ignore"):
        column = reciprocal(d, rounds)
        residual = scipy.signal.oaconvolve(d, column)[:rounds]
        residual[0] -= 1.0
        in_residual = 8 * EPS * np.log2(rounds + 2) * np.linalg.norm(d) * np.linalg.norm(column)
        off = float(np.abs(residual).sum() + rounds * in_residual)
    if not off < 1e-3:
        raise InputError(
            f"inverse_coefficients {inverse!r:.60} have an inverse that grows beyond what can be computed over "
            f"{rounds} rounds; take smaller ones, or fewer rounds"
        )
    return column / (1.0 - off)
