"""The pair of a Gaussian release in which a unit moves the sum by a random amount.

In units of the noise: P is the mixture of N(s_i, 1) with weights w_i and Q = N(0, 1) for removing a unit; the same two,
exchanged, for adding one (Choquette-Choo, Ganesh, Steinke and Thakurta 2024, "Privacy Amplification for Matrix
Mechanisms", Section 4). Since no s_i is negative, the loss rises with the observation u, and a cell of losses is an
interval of u. The inverse of the loss has no closed form; Newton's method finds it from above, where it cannot
overshoot because the loss is convex. What is left of the equation is added to the error of the cells.

>>> pair = MixedGaussian("remove", shifts=(0.0, 1.0), weights=(0.5, 0.5))
>>> upper, lower, _ = pair.cells(np.array([-np.inf, 0.0, np.inf]))      # likelier under Q or under P: u = 1/2
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.5, 0.5], [0.6915, 0.3085])
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.round_off import times_exp
from sfumato.accounting.pairs.sampled_gaussian import REACH, normal_masses

_FAR = 40.0  # standard deviations beyond which a normal distribution has no mass that a double can hold


@dataclass(frozen=True)
class MixedGaussian:
    """A mixture of normal distributions against one.

    Attributes:
        direction: "remove" (the mixture is P) or "add" (it is Q).
        shifts: different numbers >= 0 in rising order, the last one > 0.
        weights: their probabilities > 0; divided by their sum.
    """

    direction: Literal["remove", "add"]
    shifts: tuple[float, ...]
    weights: tuple[float, ...]

    def span(self) -> tuple[float, float]:
        low, high = (float(value) for value in self._loss(np.array([-REACH, REACH + self.shifts[-1]])))
        return (low, high) if self.direction == "remove" else (-float(self._loss(np.array([REACH]))[0]), -low)

    def bulk(self) -> float:
        if self.direction == "add":
            return -float(self._loss(np.zeros(1))[0])
        likeliest = max(range(len(self.shifts)), key=lambda index: self.weights[index])
        return float(self._loss(np.array([self.shifts[likeliest]]))[0])

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self.direction == "add":  # the same cells seen from the other side: losses change sign and order
            mixed, base, error = MixedGaussian("remove", self.shifts, self.weights).cells(-edges[::-1])
            return base[::-1], mixed[::-1], times_exp(error[::-1], edges[1:])
        u, off = self._observation(edges)
        base, base_error = normal_masses(u)
        mixed, mixed_error = np.zeros((2, len(base)))
        for shift, weight in zip(self.shifts, self._shares()):
            moved, moved_error = normal_masses(u - shift)
            mixed += weight * moved
            mixed_error += weight * moved_error
        misplaced = np.maximum(off[:-1], off[1:])
        error = mixed_error + misplaced * mixed + times_exp(base_error + misplaced * base, edges[1:])
        return mixed, base, error

    def _shares(self) -> tuple[float, ...]:
        total = float(np.sum(self.weights))
        return tuple(weight / total for weight in self.weights)

    def _moving(self) -> tuple[np.ndarray, np.ndarray]:
        """The shifts > 0 and their probabilities."""
        first = 1 if self.shifts[0] == 0.0 else 0
        return np.array(self.shifts[first:]), np.array(self._shares()[first:])

    def _loss(self, u: np.ndarray) -> np.ndarray:
        shifts, shares = self._moving()
        log_moved, _ = _log_sum(u, shifts, shares)
        if len(shifts) == len(self.shifts):
            return log_moved
        excess = np.zeros(len(u))  # of the likelihood ratio over one: precise where the unit hardly ever takes part
        highest = np.full(len(u), -np.inf)
        for shift, share in zip(shifts, shares):
            part = shift * u - shift**2 / 2
            excess += share * np.expm1(np.minimum(part, 1.0))
            np.maximum(highest, part, out=highest)
        large = np.logaddexp(np.log(self._shares()[0]), log_moved)
        return np.where(highest < 1.0, np.log1p(excess), large)

    def _observation(self, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The u at which P/Q of the remove pair is e^loss, -inf below its support, and by how much e^loss may be off
        there, relatively.
        """
        shifts, shares = self._moving()
        moved = 1.0 if len(shifts) == len(self.shifts) else float(shares.sum())
        target = loss
        if moved < 1.0:  # the loss that the moving parts alone must reach: e^target = e^loss - (1 - moved)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                small = np.log(moved) + np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / moved, -1.0))
                large = loss + np.log1p(-(1 - moved) * np.exp(-loss))
            target = np.where(loss < 30.0, small, large)
        u = np.full(len(target), np.inf)
        for shift, share in zip(shifts, shares):
            np.minimum(u, (target - np.log(share) + shift**2 / 2) / shift, out=u)
        u = np.clip(u, -_FAR, self.shifts[-1] + _FAR)
        active = np.flatnonzero(np.isfinite(target))
        for _ in range(100):
            value, slope = _log_sum(u[active], shifts, shares)
            step = np.clip((value - target[active]) / slope, 0.0, u[active] + _FAR)
            u[active] -= step
            active = active[step > 2 * EPS * (1.0 + np.abs(u[active]))]
            if not len(active):
                break
        inside = np.flatnonzero((u > -_FAR) & (u < self.shifts[-1] + _FAR))
        off = np.zeros(len(u))
        value, _ = _log_sum(u[inside], shifts, shares)
        share_moved = np.exp(np.minimum(target[inside] - loss[inside], 0.0))
        round_off = 2 * EPS * (1.0 + shifts[-1] * np.abs(u[inside]) + shifts[-1] ** 2 / 2)
        off[inside] = share_moved * (np.abs(value - target[inside]) + round_off)
        return np.where(np.isinf(target), target, u), off


def _log_sum(u: np.ndarray, shifts: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log of the sum of shares * e^(s u - s^2/2), and its slope in u; one part at a time, as there may be thousands."""
    starts = np.log(shares) - shifts**2 / 2
    top = np.full(len(u), -np.inf)
    for start, shift in zip(starts, shifts):
        np.maximum(top, start + shift * u, out=top)
    total, slope = np.zeros((2, len(u)))
    for start, shift in zip(starts, shifts):
        part = np.exp(start + shift * u - top)
        total += part
        slope += shift * part
    return top + np.log(total), slope / total
