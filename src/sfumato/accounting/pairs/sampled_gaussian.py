"""The pair of a Gaussian release on a sample.

All pairs are monotone in the observation u (in units of the noise), so a cell of
losses is an interval of u and its masses are differences of normal distribution functions, taken from
whichever tail is smaller.

- remove: P = (1-q) N(0,1) + q N(s,1) against Q = N(0,1), with s = sensitivity / std of the noise;
- add: the same two, exchanged (Zhu, Dong and Wang 2022, Theorem 11);
- replace, Poisson sampling: P = (1-q) N(0,1) + q N(s,1) against Q = (1-q) N(0,1) + q N(-s,1). Conditioned on the
  unit being drawn, one side is N(s,1) against a mixture whose components are at distance at most s and 2s;
- exchange (fixed-size sample, replacement): the remove curve above loss zero in both directions, the rest at
zero.

>>> pair = SampledGaussian("remove", rate=1.0, shift=1.0)
>>> upper, lower, error = pair.cells(np.array([-50.0, 0.5, 50.0]))   # N(1,1) and N(0,1) below and above u = 1
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.5, 0.5], [0.8413, 0.1587])
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.round_off import times_exp

Direction = Literal["remove", "add", "replace", "exchange"]

LEAST_RATE = 1e-100
"""Smaller sampling rates are rounded up to it, which costs more, so that squares of losses fit into a double."""

NEXT_TO_ONE = 1 - 1e-9
"""Larger sampling rates are rounded up to one, which costs more: what is left of 1 - q has too few digits."""

REACH = 13.0
"""Standard deviations that a grid covers: a normal variable is beyond them with probability 6e-39."""


@dataclass(frozen=True)
class SampledGaussian:
    """A Gaussian release on a sample; `rate` is q in (0, 1], `shift` is s > 0."""

    direction: Direction
    rate: float
    shift: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", grid_rate(self.rate))

    def span(self) -> tuple[float, float]:
        reach, s = REACH, self.shift
        top = float(self._loss(np.array(reach + s)))
        match self.direction:
            case "remove":
                return float(self._loss(np.array(-reach))), top
            case "add":
                return -float(self._loss(np.array(reach))), -float(self._loss(np.array(-reach)))
            case "replace":
                return -float(self._loss_replace(np.array(reach))), float(self._loss_replace(np.array(reach + s)))
            case "exchange":
                return -top, top

    def bulk(self) -> float:
        match self.direction:
            case "remove":
                return float(self._loss(np.array(self.shift if self.rate > 0.5 else 0.0)))
            case "add":
                return -float(self._loss(np.array(0.0)))
            case "replace":
                return float(self._loss_replace(np.array(self.shift))) if self.rate > 0.5 else 0.0
            case "exchange":
                return 0.0

    def atom(self) -> float:
        if self.direction != "exchange":
            return 0.0
        upper, lower, _ = SampledGaussian("remove", self.rate, self.shift).cells(np.array([0.0, np.inf]))
        return max(0.0, 1.0 - float(upper[0]) - float(lower[0]))

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        match self.direction:
            case "remove":
                u = self._observation(edges)
                base, base_error = normal_masses(u)
                moved, moved_error = normal_masses(u - self.shift)
                mix = (1 - self.rate) * base + self.rate * moved
                mix_error = (1 - self.rate) * base_error + self.rate * moved_error
                return mix, base, mix_error + times_exp(base_error, edges[1:])
            case "add":  # the same cells seen from the other side: losses change sign and order
                base, mix, error = SampledGaussian("remove", self.rate, self.shift).cells(-edges[::-1])
                return mix[::-1], base[::-1], times_exp(error[::-1], edges[1:])
            case "replace":
                u = self._observation_replace(edges)
                base, base_error = normal_masses(u)
                right, right_error = normal_masses(u - self.shift)
                left, left_error = normal_masses(u + self.shift)
                upper = (1 - self.rate) * base + self.rate * right
                lower = (1 - self.rate) * base + self.rate * left
                upper_error = (1 - self.rate) * base_error + self.rate * right_error
                lower_error = (1 - self.rate) * base_error + self.rate * left_error
                return upper, lower, upper_error + times_exp(lower_error, edges[1:])
            case "exchange":
                return self._exchange(edges)

    def _exchange(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        one_way = SampledGaussian("remove", self.rate, self.shift)
        above, below = np.maximum(edges, 0.0), np.maximum(-edges[::-1], 0.0)
        upper, lower, error = one_way.cells(above)
        error = np.where(above[1:] > above[:-1], error, 0.0)  # nothing is below zero on this side
        mirror_upper, mirror_lower, mirror_error = one_way.cells(below)
        mirror_error = np.where(below[1:] > below[:-1], mirror_error, 0.0)
        upper, lower = upper + mirror_lower[::-1], lower + mirror_upper[::-1]
        error = error + times_exp(mirror_error[::-1], np.minimum(edges[1:], 0.0))
        return upper, lower, error

    def _loss(self, u: np.ndarray) -> np.ndarray:
        t = self.shift * u - self.shift**2 / 2
        if self.rate == 1.0:
            return t
        small = np.log1p(self.rate * np.expm1(np.minimum(t, 1.0)))
        return np.where(t < 1.0, small, np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + t))

    def _loss_replace(self, u: np.ndarray) -> np.ndarray:
        return self._loss(u) - self._loss(-u)

    def _observation(self, loss: np.ndarray) -> np.ndarray:
        """The u at which P/Q of the remove pair is e^loss; -inf below its support."""
        q = self.rate
        if q == 1.0:
            t = loss
        else:
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / q, -1.0))
                large = loss - np.log(q) + np.log1p(-(1 - q) * np.exp(-loss))
            t = np.where(loss < 30.0, small, large)
        return t / self.shift + self.shift / 2

    def _observation_replace(self, loss: np.ndarray) -> np.ndarray:
        """From c w^2 + (1-q)(1 - e^loss) w - c e^loss = 0 with w = e^(s u) and c = q e^(-s^2/2)."""
        log_c = np.log(self.rate) - self.shift**2 / 2
        with np.errstate(over="ignore"):
            ratio = (1 - self.rate) * np.sinh(np.clip(loss, -1200, 1200) / 2) * np.exp(-log_c)
        return (loss / 2 + np.arcsinh(ratio)) / self.shift


def grid_rate(rate: float) -> float:
    """The rate, or a larger one that a grid can hold: a pair with a larger rate dominates one with a smaller one."""
    return 1.0 if rate > NEXT_TO_ONE else max(rate, LEAST_RATE)


def normal_masses(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masses of N(0,1) between neighbouring edges, and a bound on their absolute error."""
    below, above = scipy.special.ndtr(edges), scipy.special.ndtr(-edges)
    masses = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    finite = np.where(np.isfinite(edges), edges, 0.0)
    error = 2 * EPS * (1 + finite * finite) * np.minimum(below, above)
    return np.maximum(masses, 0.0), error[:-1] + error[1:]
