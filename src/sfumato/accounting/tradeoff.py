"""What a guarantee means for an attacker: the error rates of any test of whether a unit took part.

Guarantees bounds in the attacker's favour, for the unit of the guarantee and for tests in both directions: "was it
there?" and "was it left out?". For one direction, (epsilon, delta) rules out every test whose true positive rate is
above delta + e^epsilon fpr; for the other one, above 1 - e^-epsilon (1 - delta - fpr) (Wasserman and Zhou 2010; Dong,
Roth and Su 2022, Proposition 2.5). A curve of deltas rules out the union. With the larger delta of both directions
that is the convex closure of the lower one of their two trade-off functions: symmetric, and exact where the curve is.
See docs/explanation/attackers.md.

>>> epsilons = np.linspace(0, 10, 2001)
>>> curve = TradeoffCurve.from_deltas(epsilons, gaussian_deltas(1.0, epsilons))
>>> curve.true_positive_rate(np.array([0.01, 0.1])).round(4).tolist()   # of the best test of N(0,1) against N(1,1)
[0.0924, 0.3891]
>>> GaussianTradeoff(1.0).true_positive_rate(np.array([0.01, 0.1])).round(4).tolist()
[0.0924, 0.3891]
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfumato._lazy import scipy
from sfumato.accounting.gaussian_curve import gaussian_deltas
from sfumato.accounting.numerics import EPS

_LARGEST = 700.0  # epsilon whose e^epsilon is a double


@dataclass(frozen=True)
class GaussianEquivalent:
    """The Gaussian mechanism that is at most as private.

    Attributes:
        mu: its distance of means in standard deviations (mu-GDP), rounded up; inf where none is.
        regret: the most by which it overstates the success of an attacker, whatever the prior (the distance of Kaissis
            et al. 2024 between the two); 0 is a perfect fit.
    """

    mu: float
    regret: float


class Tradeoff(Protocol):
    """The errors that no test can avoid."""

    def true_positive_rate(self, fpr: np.ndarray) -> np.ndarray:
        """Upper bounds at false positive rates in [0, 1], any shape."""
        ...

    def false_negative_rate(self, fpr: np.ndarray) -> np.ndarray:
        """Lower bounds at false positive rates in [0, 1], any shape."""
        ...

    def gaussian_equivalent(self, least_delta: float) -> GaussianEquivalent:
        """The smallest mu whose delta is above that of this curve wherever the latter is at least `least_delta`."""
        ...


@dataclass(frozen=True)
class GaussianTradeoff:
    """The curve of N(mu, 1) against N(0, 1), in closed form (Dong, Roth and Su 2022, Equation 6)."""

    mu: float

    def true_positive_rate(self, fpr: np.ndarray) -> np.ndarray:
        caught, missed, rare = self._rates(fpr)
        return np.maximum(np.where(rare, caught, _complement(missed, 2.0)), fpr)

    def false_negative_rate(self, fpr: np.ndarray) -> np.ndarray:
        caught, missed, rare = self._rates(fpr)
        return np.minimum(np.where(rare, _complement(caught, -1.0), missed), _complement(fpr, -1.0))

    def gaussian_equivalent(self, least_delta: float) -> GaussianEquivalent:
        return GaussianEquivalent(self.mu * (1 + 8 * EPS), 0.0)  # composing Gaussians costs about 4 ulp

    def _rates(self, fpr: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An upper bound on the true positive rate, a lower one on the false negative rate, and where the first holds.

        The smaller rate is computed, with its relative precision, and the other one is its complement.
        """
        quantiles = scipy.special.ndtri(fpr)
        shifted = quantiles + self.mu
        size = np.where(np.isfinite(quantiles), np.abs(quantiles), 0.0) + self.mu
        smaller = scipy.special.ndtr(-np.abs(shifted))
        # how Phi changes relative to itself, phi / Phi, is at most 1 + |x| on the left
        distance = np.where(np.isfinite(shifted), np.abs(shifted), 0.0)
        margin = np.minimum(1.0, 16 * EPS * (1.0 + size * (1.0 + distance)))
        return np.minimum(1.0, smaller * (1.0 + margin)), smaller * (1.0 - margin), shifted < 0


def _complement(rates: np.ndarray, toward: float) -> np.ndarray:
    """1 - rates, in [0, 1], rounded toward this number where it is no double."""
    rest = 1.0 - np.asarray(rates, dtype=np.float64)
    return np.clip(np.where(1.0 - rest == rates, rest, np.nextafter(rest, toward)), 0.0, 1.0)


@dataclass(frozen=True)
class TradeoffCurve:
    """The curve that follows from upper bounds on delta; made by `from_deltas`.

    Attributes:
        ratios: e^epsilon at the knots, rising from 1, float [k].
        deltas: upper bounds on delta there, float [k]; convex in the ratios, as every true curve is.
    """

    ratios: np.ndarray
    deltas: np.ndarray

    @classmethod
    def from_deltas(cls, epsilons: np.ndarray, deltas: np.ndarray) -> "TradeoffCurve":
        """From upper bounds on delta at rising epsilons >= 0, float [k] each; what is beyond e^700 is left out."""
        near = epsilons <= _LARGEST
        ratios = np.exp(epsilons[near])
        ratios[ratios > 1.0] *= 1 + 4 * EPS
        ratios = np.concatenate([[1.0], ratios])
        values = np.clip(np.concatenate([[1.0], deltas[near]]), 0.0, 1.0)
        kept = lower_hull(ratios, values)
        return cls(ratios[kept], values[kept])

    def true_positive_rate(self, fpr: np.ndarray) -> np.ndarray:
        steep, flat = self._bounds(fpr)
        return np.minimum(np.minimum(1.0, steep), _complement(flat, 2.0))

    def false_negative_rate(self, fpr: np.ndarray) -> np.ndarray:
        steep, flat = self._bounds(fpr)
        return np.maximum(_complement(np.minimum(1.0, steep), -1.0), flat)

    def gaussian_equivalent(self, least_delta: float) -> GaussianEquivalent:
        ratios, deltas = self._above(least_delta)
        if len(ratios) == 0:
            return GaussianEquivalent(0.0, 0.0)
        if not self.deltas[-1] <= least_delta:
            return GaussianEquivalent(math.inf, 0.0)
        mu = _smallest_mu(ratios, deltas)
        return GaussianEquivalent(mu, self._regret(mu))

    def _bounds(self, fpr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least delta + e^epsilon fpr, and the largest e^-epsilon (1 - delta - fpr), rounding included.

        Each knot gives a valid bound, and the best one is where the slope of the curve is the rate (or, of the second
        line through a knot, where 1 - fpr is its value at a ratio of 0), because the curve is convex.
        """
        rates = np.asarray(fpr, dtype=np.float64)
        slopes = -np.diff(self.deltas) / np.diff(self.ratios)  # falling
        knot = np.searchsorted(-slopes, -rates.ravel()).reshape(rates.shape)
        steep = (self.deltas[knot] + self.ratios[knot] * rates) * (1 + 4 * EPS)
        starts = self.deltas[:-1] + slopes * self.ratios[:-1]  # falling: the tangents' values at a ratio of 0
        knot = np.searchsorted(-starts, -(1.0 - rates).ravel()).reshape(rates.shape)
        flat = (1.0 - self.deltas[knot] - rates - 4 * EPS) / self.ratios[knot]
        return steep, np.maximum(flat * (1 - 4 * EPS), 0.0)

    def _above(self, least: float) -> tuple[np.ndarray, np.ndarray]:
        """The part of the curve whose delta is at least this, with the point where it crosses it."""
        end = int(np.count_nonzero(self.deltas >= least))  # deltas fall
        if not 0 < end < len(self.deltas) or self.deltas[end - 1] == least:
            return self.ratios[:end], self.deltas[:end]
        share = (self.deltas[end - 1] - least) / (self.deltas[end - 1] - self.deltas[end])
        crossing = self.ratios[end - 1] + share * (self.ratios[end] - self.ratios[end - 1])
        return np.append(self.ratios[:end], crossing), np.append(self.deltas[:end], least)

    def _regret(self, mu: float) -> float:
        """The largest (delta of mu - delta) / (1 + e^epsilon): what a prior of 1 / (1 + e^epsilon) makes of it."""
        gaps = (gaussian_deltas(mu, np.log(self.ratios)) - self.deltas) / (1.0 + self.ratios)
        return max(0.0, float(gaps.max()))


def lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of the corners of the largest convex, falling function below the points; x does not fall."""
    least = np.minimum.accumulate(y)
    candidates = np.flatnonzero(np.concatenate([[True], y[1:] < least[:-1]]))
    xs, ys = x[candidates].tolist(), y[candidates].tolist()
    corners: list[int] = []
    for index in range(len(xs)):
        while corners and xs[corners[-1]] >= xs[index]:  # the lower one of two points at the same place
            corners.pop()
        while len(corners) > 1:
            before, last = corners[-2], corners[-1]
            if (ys[last] - ys[before]) / (xs[last] - xs[before]) < (ys[index] - ys[last]) / (xs[index] - xs[last]):
                break
            corners.pop()
        corners.append(index)
    return candidates[corners]


def _smallest_mu(ratios: np.ndarray, deltas: np.ndarray) -> float:
    """The smallest mu whose curve is above the chords between these knots, rounded up."""
    low, high = 0.0, 1e-9
    while not _covers(high, ratios, deltas):
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _covers(middle, ratios, deltas) else (middle, high)
    return high * (1 + 1e-9) + 1e-14  # delta rises at least as fast with mu as it may be off by rounding


def _covers(mu: float, ratios: np.ndarray, deltas: np.ndarray) -> bool:
    """Whether the delta of mu is above the chords: at the knots, and by its tangents there also between them."""
    epsilons = np.log(ratios)
    spare = gaussian_deltas(mu, epsilons) - deltas
    if (spare < 0).any():
        return False
    tangents = -scipy.special.ndtr(-mu / 2 - epsilons / mu)  # slopes in e^epsilon
    width = np.diff(ratios)
    chords = np.diff(deltas) / width
    fall, rise = tangents[:-1] - chords, tangents[1:] - chords
    inside = (fall < 0) & (rise > 0)  # elsewhere an end of the interval is its worst point
    turn = fall - rise
    with np.errstate(divide="ignore", invalid="ignore"):
        meeting = (spare[1:] - spare[:-1] - rise * width) / turn
        lowest = spare[:-1] + fall * np.clip(meeting, 0.0, width)
    return not (inside & (lowest < 0)).any()
