"""Banded strategies: C = T(c) diag(d), a lower-triangular Toeplitz matrix of few diagonals with scaled columns.

The noise of round t is (T^-1 z)_t / d_t, which takes the last `bands` - 1 rounds of T^-1 z. Scales let the rounds that
matter more have more of the sensitivity: docs/explanation/strategies.md.

>>> strategy = BandedToeplitz((1.0, 0.5), column_scales=(1.0, 0.8, 0.5))
>>> strategy.prefix_variance(3)
array([1.      , 1.703125, 4.828125])
>>> limits = Participation(rounds=3, max_participations=2, min_separation=1)
>>> round(strategy.squared_sensitivity(limits), 12)              # columns 0 and 2: 1.25 + 0.25
1.5
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sfumato._check import InputError, positive
from sfumato.accounting.doubles import EPS, dot
from sfumato.accounting.events.event import Event
from sfumato.accounting.events.matrix import MatrixMechanism
from sfumato.accounting.strategies.numbers import in_rounds, numbers
from sfumato.accounting.strategies.series import binomial_series, prefix_variance_of, reciprocal
from sfumato.accounting.streams.participation import Participation


@dataclass(frozen=True)
class BandedToeplitz:
    """C[t, j] = coefficients[t - j] * column_scales[j].

    Attributes:
        coefficients: first column of T(c) from the diagonal on; the first one > 0. What is beyond the run counts
            nothing.
        column_scales: d, each > 0, one for each round of the longest run; None where all are 1. A run may be shorter.

    Raises:
        InputError: there are no coefficients, one is not finite, the first or a scale is not > 0.
    """

    coefficients: tuple[float, ...]
    column_scales: tuple[float, ...] | None = None

    name: ClassVar[str] = "banded"

    def __post_init__(self) -> None:
        kept = numbers("coefficients", self.coefficients, "BandedToeplitz((1.0,)) is independent noise")
        positive(**{"the first of coefficients": kept[0]}, remedy="C has no inverse otherwise")
        object.__setattr__(self, "coefficients", kept)
        if self.column_scales is None:
            return
        scales = numbers("column_scales", self.column_scales, "None where all are 1")
        positive(**{"the least of column_scales": min(scales)}, remedy="C has no inverse otherwise")
        object.__setattr__(self, "column_scales", scales)

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        return self._event(noise_multiplier, participation)

    def squared_sensitivity(self, participation: Participation) -> float:
        return self._event(1.0, participation).squared_sensitivity

    def prefix_variance(self, rounds: int) -> np.ndarray:
        inverse = reciprocal(np.array(self.coefficients), in_rounds(rounds))
        scales = self._scales(rounds)
        if scales is None:
            return prefix_variance_of(inverse)
        variance, row = np.empty(rounds), np.zeros(rounds)
        for t in range(rounds):  # row t of A C^-1 is the one before and round t's noise
            row[: t + 1] += inverse[t::-1] / scales[t]
            variance[t] = dot(row[: t + 1], row[: t + 1])
        return variance

    def column_norms(self, rounds: int) -> np.ndarray:
        """float [rounds], ||C_j||, rounded up."""
        squares = np.cumsum(np.array(self.coefficients[:rounds]) ** 2)
        left = np.minimum(np.arange(rounds, 0, -1), len(squares))
        scales = self._scales(rounds)
        norms = np.sqrt(squares[left - 1]) * (1 + (len(squares) + 4) * EPS)
        return norms if scales is None else norms * scales

    def unit_columns(self, participation: Participation) -> "BandedToeplitz":
        """The same coefficients with every column of norm 1: then S^2 is the number of participations.

        Papers on banded matrices count noise this way.

        Raises:
            InputError: columns of one unit overlap.
        """
        check_bands(min(len(self.coefficients), participation.rounds), participation)
        norms = replace(self, column_scales=None).column_norms(in_rounds(participation.rounds))
        return replace(self, column_scales=tuple((1 / norms).tolist()))

    def _scales(self, rounds: int) -> np.ndarray | None:
        if self.column_scales is None:
            return None
        if rounds > len(self.column_scales):
            raise InputError(
                f"column_scales are for {len(self.column_scales)} rounds, the run has {rounds}; "
                "optimise for as many rounds as there are"
            )
        return np.array(self.column_scales[:rounds])

    def _event(self, noise_multiplier: float, participation: Participation) -> MatrixMechanism:
        rounds, most = participation.rounds, participation.max_participations
        separation = participation.min_separation
        if self.column_scales is None:
            return MatrixMechanism.toeplitz(
                noise_multiplier=noise_multiplier,
                coefficients=self.coefficients[:rounds],
                steps=rounds,
                max_participations=most,
                min_separation=separation,
            )
        check_bands(min(len(self.coefficients), rounds), participation)
        return MatrixMechanism.banded(
            noise_multiplier=noise_multiplier,
            steps=rounds,
            bands=min(len(self.coefficients), rounds),
            column_norms=self.column_norms(rounds),
            max_participations=most,
            min_separation=separation,
        )


def check_bands(bands: int, participation: Participation) -> None:
    """Refuse bands that let two columns of one unit overlap.

    Raises:
        InputError: there are more bands than rounds from one participation to the next.
    """
    if participation.most > 1 and bands > participation.period:
        raise InputError(
            f"bands must be <= min_separation + 1 = {participation.period} where columns are scaled, got {bands}: a "
            "unit's columns overlap otherwise; take fewer bands, or a BLT"
        )


def square_root(rounds: int) -> BandedToeplitz:
    """The square root of the prefix sums: all diagonals, the coefficients of (1 - x)^(-1/2), binom(2j, j) / 4^j.

    C = C^-1 A, so that sensitivity and error are equal for one participation; the baseline of those without
    optimisation (Fichtenberger, Henzinger and Upadhyay 2023).

    >>> square_root(4).coefficients
    (1.0, 0.5, 0.375, 0.3125)
    """
    return BandedToeplitz(tuple(binomial_series(-0.5, in_rounds(rounds)).tolist()))
