"""The last columns of a banded strategy, which the end of the run cuts short: what scaling each of them does.

The prefix variances are quadratic in the last 1/d, given the prefix sum before them. With y = T(c)^-1 z and eps = 1/d,

    V_t = V_before + sum_{i <= t} (2 eps_i l_i + eps_i^2 R_ii + 2 sum_{j < i} eps_i eps_j R_ij),

where R is the covariance of the last y and l theirs with the prefix sum before.
"""

import numpy as np
import scipy

from sfumato.accounting.strategies.objective import SHARP, descend, power_mean
from sfumato.accounting.strategies.stepped import Stepped
from sfumato.accounting.strategies.strategy import Error

_MOST = 2048  # columns; the matrix of their covariances is held


class CutColumns:
    """The last columns of C = T(c) diag(1/eps), of which eps is free.

    Attributes:
        first: the first round that is free.
        before: variance of the prefix sums before, float [first].
        least: eps at which a column is as long as the whole ones of its stretch, float [rounds - first].
        linear, diagonal, below: l, the diagonal of R and what is below it.
    """

    def __init__(self, stepped: Stepped) -> None:
        rounds, c, inverse = stepped.rounds, stepped.coefficients, stepped.inverse
        count = min(len(c) - 1, rounds - 1, _MOST)
        self.first = first = rounds - count
        self.before = stepped.variance[:first]
        lengths = np.sqrt(np.cumsum(c**2)[:count][::-1] / float(c @ c))
        self.least = stepped.by_round()[first:] * lengths
        self.linear = scipy.signal.fftconvolve(stepped.row(first - 1), inverse)[first:rounds]
        covariance = np.zeros((count, count))
        for lag in range(count):
            covariance[0, lag] = inverse[: first + 1] @ inverse[lag : lag + first + 1]
        for i in range(1, count):  # y_{i+1} and y_{j+1} share what y_i and y_j share, and z_0
            covariance[i, i:] = covariance[i - 1, i - 1 : -1] + inverse[first + i] * inverse[first + i : rounds]
        self.diagonal = np.diagonal(covariance).copy()
        self.below = np.triu(covariance, 1).T

    def variance(self, eps: np.ndarray) -> np.ndarray:
        """float [rounds], of all prefix sums."""
        steps = 2 * eps * (self.linear + self.below @ eps) + eps**2 * self.diagonal
        return np.concatenate([self.before, self.before[-1] + np.cumsum(steps)])

    def pull_back(self, eps: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Gradient of weights @ variance with respect to eps."""
        left = np.cumsum(weights[::-1])[::-1][self.first :]
        return 2 * left * (self.linear + self.below @ eps + eps * self.diagonal) + 2 * self.below.T @ (left * eps)

    def best(self, error: Error, start: np.ndarray) -> np.ndarray:
        """eps with the least error, not below `least`; convex for the mean.

        Args:
            error: "mean" or "max".
            start: what is taken if nothing else is better.
        """

        def log_error(eps: np.ndarray, power: float) -> tuple[float, np.ndarray]:
            value, gradient = power_mean(self.variance(eps), power)
            return value, self.pull_back(eps, gradient)

        def truly(eps: np.ndarray) -> float:
            variance = self.variance(eps)
            return float(variance.max() if error == "max" else variance.mean())

        found = self.least
        for power in (1.0,) if error == "mean" else (SHARP / 100, SHARP / 10, SHARP):
            found = descend(lambda eps, power=power: log_error(eps, power), found, self.least.tolist())
        return min(start, self.least, found, key=truly)
