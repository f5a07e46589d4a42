"""The pair of a discrete Gaussian release: X against X + s on the integers, with P(x) ~ e^(-x^2 / (2 sigma^2)).

An observation x has loss s (s - 2x) / (2 sigma^2), so the losses lie on a lattice (Canonne, Kamath and Steinke 2020).
Masses are summed, not approximated: all x within 13.3 sigma of either centre are in the table, and a bound on the mass
beyond (below 1e-38) is added at an infinite loss. The pair is symmetric.

>>> pair = DiscreteGaussianPair(sigma=1.0, shift=1)
>>> upper, _, _ = pair.cells(np.array([0.0, 0.5, 1.5, np.inf]))
>>> upper.round(6).tolist()                          # x = 0, x = -1, and everything below
[0.398942, 0.241971, 0.058558]
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.finite import Table, TabledPair

_REACH = 13.3  # standard deviations; the mass beyond is below 1e-38


@dataclass(frozen=True)
class DiscreteGaussianPair(TabledPair):
    """An integer with discrete Gaussian noise; `sigma` > 0, `shift` is s >= 1."""

    sigma: float
    shift: int

    @property
    def size(self) -> int:
        """Number of atoms."""
        return 2 * self._reach() + self.shift + 3

    def span(self) -> tuple[float, float]:
        reach = self._reach()
        return self._unit() * (self.shift - 2 * reach), self._unit() * (self.shift + 2 * reach)

    def lattice(self) -> tuple[float, float]:
        return self._unit() * self.shift, 2 * self._unit()

    def infinity(self) -> float:
        return 0.0  # what the table has at infinity is a bound on finite losses beyond its end

    def make_table(self) -> Table:
        reach = self._reach()
        x = np.arange(self.shift + reach, -reach - 1, -1, dtype=np.float64)
        weights = np.exp(-((x / self.sigma) ** 2) / 2)
        slope = reach / self.sigma**2  # beyond the table, each weight is at most e^-slope times the one before
        beyond = math.exp(-((reach / self.sigma) ** 2) / 2 - slope) / -math.expm1(-slope)
        total = float(weights.sum())
        upper = np.concatenate([[0.0], weights, [beyond]]) / total
        losses = np.concatenate([[-np.inf], self._unit() * (self.shift - 2 * x), [np.inf]])
        return Table(losses, upper, upper[::-1].copy(), 256 * EPS)

    def _reach(self) -> int:
        return math.ceil(_REACH * self.sigma)

    def _unit(self) -> float:
        return self.shift / (2 * self.sigma**2)
