"""The Gaussian mechanism exactly: composed Gaussians are one Gaussian with a single number, mu.

Guarantees the exact curve (no bound can be lower) for the unit that the events were made for. Composition:
mu^2 = sum 1/z^2 (Dong, Roth and Su 2022, Corollary 3.3); delta(epsilon): Balle and Wang 2018, Theorem 8.

>>> round(gaussian_epsilon(1.0, 1e-5), 6)
4.377178
"""

import math
from collections.abc import Callable

import numpy as np

from sfumato._check import between
from sfumato._lazy import scipy
from sfumato._types import Adjacency
from sfumato.accounting.accountants import Accountant
from sfumato.accounting.events import Event, Unknown, combined_shift, terms
from sfumato.accounting.numerics import EPS

_FAR = 39.0  # standard deviations beyond which the normal density is below the smallest double


class GaussianAccountant(Accountant):
    """The exact curve of an event that consists of plain Gaussians.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".

    Raises:
        InputError: anything but plain Gaussian events is inside.
    """

    method = "gaussian"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        mu = combined_shift(event, adjacency)
        if mu is None:
            raise Unknown('method "gaussian" is exact for plain Gaussian events only; use method="auto"')
        self.mu: float = mu
        self._attained = all(single.attained(adjacency) for single, _ in terms(event))

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon, rounding included; 0 <= epsilon <= inf."""
        between(0, 1, delta=delta)
        return gaussian_epsilon(self.mu, delta)

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, rounding included; 0 <= delta <= 1."""
        between(0, math.inf, epsilon=epsilon)
        return gaussian_delta_interval(self.mu, epsilon)[1]

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper): the exact value lies between them, as for `epsilon_interval`."""
        between(0, math.inf, epsilon=epsilon)
        low, high = gaussian_delta_interval(self.mu, epsilon)
        return low if self._attained else 0.0, high

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper): the exact value lies between them; they differ by a rounding error.

        The lower one is 0 for an event whose sensitivity is itself only an upper bound (a tree or matrix that is not
        `exact`).
        """
        between(0, 1, delta=delta)
        low, high = gaussian_epsilon_interval(self.mu, delta)
        return low if self._attained else 0.0, high


def gaussian_deltas(mu: float, epsilons: np.ndarray) -> np.ndarray:
    """Hockey-stick divergence of N(mu, 1) from N(0, 1) at each e^epsilon, float [k].

    To about 12 digits of the larger one of its two terms.

    Args:
        mu: >= 0.
        epsilons: float [k], >= 0.
    """
    if mu == 0.0:
        return np.zeros(len(epsilons))
    a, b = mu / 2 - epsilons / mu, -mu / 2 - epsilons / mu
    root = math.sqrt(0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        shared = 0.5 * np.exp(-a * a / 2)
        second = shared * scipy.special.erfcx(-b * root)
        near = scipy.special.ndtr(a) - second
        far = shared * (scipy.special.erfcx(-np.minimum(a, 0.0) * root) - scipy.special.erfcx(-b * root))
    return np.clip(np.where(a > 0, near, np.where(a < -_FAR, 0.0, far)), 0.0, 1.0)


def gaussian_delta_interval(mu: float, epsilon: float) -> tuple[float, float]:
    """(lower, upper) bounds on it at one epsilon, without cancellation in the tail.

    They differ by what rounding may have added or taken, also to mu.
    """
    value, error = _delta(mu, epsilon)
    return max(0.0, value - error), min(1.0, value + error)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon whose delta is at most this one, rounded up: never below the truth."""
    return _solve(lambda epsilon: gaussian_delta_interval(mu, epsilon)[1] <= delta, delta)[1]


def gaussian_epsilon_interval(mu: float, delta: float) -> tuple[float, float]:
    """(lower, upper) bounds on that epsilon, which differ by what rounding does to delta."""
    low, _ = _solve(lambda epsilon: gaussian_delta_interval(mu, epsilon)[0] < delta, delta)
    return low, gaussian_epsilon(mu, delta)


def _delta(mu: float, epsilon: float) -> tuple[float, float]:
    """Phi(a) - e^epsilon Phi(b) and a bound on its rounding error, for mu that is itself off by 4 ulp."""
    if mu == 0.0 or math.isinf(epsilon):
        return 0.0, 0.0
    if epsilon == 0.0:
        value = math.erf(mu * math.sqrt(0.125))
        return value, 16 * EPS * value
    a = mu / 2 - epsilon / mu
    b = -mu / 2 - epsilon / mu
    if a > _FAR:
        return 1.0, EPS
    if a < -_FAR:
        return 0.0, math.ulp(0.0)
    root = math.sqrt(0.5)
    shared = 0.5 * math.exp(-a * a / 2)  # both terms share the density at a, as e^epsilon phi(b) = phi(a)
    second = shared * float(scipy.special.erfcx(-b * root))
    moved = 8 * EPS * (mu / 2 + epsilon / mu)  # how far a and b may be off
    if a > 0:
        first = float(scipy.special.ndtr(a))
        value = first - second
        error = second * (a * moved + a * a * EPS)
    else:
        value = shared * float(scipy.special.erfcx(-a * root) - scipy.special.erfcx(-b * root))
        first = value + second
        error = value * a * a * EPS
    # the slope of each term is at most the density at a, and that of erfcx(x) at most sqrt(2) erfcx(x)
    error += (2 * shared + second) * moved + 8 * EPS * (first + second) + 4 * math.ulp(0.0)
    return max(0.0, value), error


def _solve(enough: Callable[[float], bool], delta: float) -> tuple[float, float]:
    """Neighbouring epsilons >= 0 of which the second one is enough and the first one is not."""
    if enough(0.0):
        return 0.0, 0.0
    if delta <= 0.0:
        return math.inf, math.inf
    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low, high
