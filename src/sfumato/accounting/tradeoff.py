"""What a guarantee means for an attacker: error rates, advantage, and the Gaussian mechanism that is as
private.

Guarantees bounds in the attacker's favour, from a curve of upper bounds on delta. An (epsilon, delta)
guarantee rules out every test whose false negative rate is below max(0, 1 - delta - e^epsilon fpr, e^-epsilon
(1 - delta - fpr)) (Wasserman and Zhou 2010; Dong, Roth and Su 2022, Proposition 2.5); a whole curve rules out
the union.

>>> epsilons = np.linspace(0, 10, 2001)
>>> deltas = np.array([gaussian_delta(1.0, e) for e in epsilons])
>>> round(1 - float(false_negative_rate(0.01, epsilons, deltas)), 4)   # power of the best test against N(0,1), N(1,1)
0.0924
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from sfumato.accounting.gaussian import gaussian_delta


@dataclass(frozen=True)
class GaussianEquivalent:
    """The Gaussian mechanism that is at most as private.

    Attributes:
        mu: its distance of means in standard deviations (mu-GDP); inf where none is.
        regret: the most that the false negative rate is better than that of the Gaussian one; 0 is a perfect
            fit.
    """

    mu: float
    regret: float


def false_negative_rate(fpr: float | np.ndarray, epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """The least false negative rate of any test at a false positive rate.

    Args:
        fpr: in [0, 1], any shape.
        epsilons: float [k], >= 0.
        deltas: float [k], an upper bound on delta at each.

    Returns:
        float, shape of `fpr`.
    """
    rates = np.atleast_1d(np.asarray(fpr, dtype=np.float64))
    result = np.zeros(rates.shape)
    rise, fall = np.exp(np.minimum(epsilons, 700.0)), np.exp(-epsilons)
    for index, rate in np.ndenumerate(rates):
        steep = 1 - deltas - rise * rate
        flat = fall * (1 - deltas - rate)
        result[index] = max(0.0, float(steep.max()), float(flat.max()))
    return result.reshape(np.shape(fpr))


def gaussian_equivalent(epsilons: np.ndarray, deltas: np.ndarray, least_delta: float = 1e-10) -> GaussianEquivalent:
    """The smallest mu whose curve is above the given one wherever delta is at least `least_delta`."""
    seen = deltas >= least_delta
    mu = 0.0
    for epsilon, delta in zip(epsilons[seen].tolist(), deltas[seen].tolist()):
        if gaussian_delta(mu, epsilon) < delta:
            mu = _mu(epsilon, delta, mu)
    if mu == 0.0 or np.isinf(mu):
        return GaussianEquivalent(mu, 0.0)
    rates = np.concatenate([np.geomspace(1e-9, 0.01, 50), np.linspace(0.01, 1, 100)])
    gaps = false_negative_rate(rates, epsilons, deltas) - ndtr(ndtri(1 - rates) - mu)
    return GaussianEquivalent(mu, max(0.0, float(gaps.max())))


def _mu(epsilon: float, delta: float, low: float) -> float:
    """The mu with this delta at this epsilon, rounded up."""
    if delta >= 1.0:
        return np.inf
    high = max(1e-6, 2 * low)
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_delta(middle, epsilon) < delta else (low, middle)
    return high
