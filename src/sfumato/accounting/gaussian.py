"""The Gaussian mechanism exactly: composed Gaussians are one Gaussian with a single number, mu.

Guarantees the exact curve (no bound can be lower) for the unit that the events were made for. Composition:
mu^2 = sum 1/z^2 (Dong, Roth and Su 2022, Corollary 3.3); delta(epsilon): Balle and Wang 2018, Theorem 8.

>>> round(gaussian_epsilon(1.0, 1e-5), 6)
4.377178
"""

import math

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from sfumato._check import InputError
from sfumato._types import Adjacency
from sfumato.accounting.events import Event, combined_gaussian


class GaussianAccountant:
    """The exact curve of an event that consists of plain Gaussians.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".

    Raises:
        InputError: anything but plain Gaussian events is inside.
    """

    method = "gaussian"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        inverse = combined_gaussian(event)
        if inverse is None:
            raise InputError('method "gaussian" is exact for plain Gaussian events only; use method="auto"')
        self.mu = inverse * (2.0 if adjacency == "replace" else 1.0)

    def epsilon(self, delta: float) -> float:
        """Epsilon for this delta, rounded up; 0 <= epsilon <= inf."""
        return gaussian_epsilon(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        """Delta for this epsilon; 0 <= delta <= 1."""
        return gaussian_delta(self.mu, epsilon)

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper): the exact value, a rounding error apart."""
        high = self.epsilon(delta)
        return high * (1 - 1e-12), high

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Delta at many epsilons from 0 on."""
        epsilons = np.linspace(0.0, min(600.0, self.mu * (self.mu / 2 + 10)), 4001)
        return epsilons, np.array([self.delta(epsilon) for epsilon in epsilons.tolist()])


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Hockey-stick divergence of N(mu, 1) from N(0, 1) at e^epsilon, without cancellation in the tail."""
    if mu == 0.0:
        return 0.0
    if math.isinf(epsilon):
        return 0.0
    a = mu / 2 - epsilon / mu
    b = -mu / 2 - epsilon / mu
    if a > 0:
        return float(ndtr(a) - math.exp(min(700.0, epsilon + float(log_ndtr(b)))))
    root = math.sqrt(0.5)  # both terms share the density at a, as e^epsilon phi(b) = phi(a)
    return max(0.0, 0.5 * math.exp(-a * a / 2) * float(erfcx(-a * root) - erfcx(-b * root)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon with `gaussian_delta(mu, epsilon) <= delta`, to double precision, rounded up."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0.0:
        return math.inf
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    while low < (middle := 0.5 * (low + high)) < high:
        if gaussian_delta(mu, middle) > delta:
            low = middle
        else:
            high = middle
    return high
