"""Power series of Toeplitz matrices: inverses, and the sums that their noise adds up to.

A lower-triangular Toeplitz matrix of `rounds` rows is its first column, a power series; a product of matrices is a
product of series.
"""

import numpy as np
import scipy

_MOST_DIRECT = 50_000_000  # multiplications of the recursion, up to which it is quicker than transforms


def padded(values: np.ndarray, rounds: int) -> np.ndarray:
    """The first `rounds` numbers, zeros where there are fewer."""
    return np.concatenate([values[:rounds], np.zeros(max(0, rounds - len(values)))])


def reciprocal(values: np.ndarray, rounds: int) -> np.ndarray:
    """The first `rounds` coefficients of 1 / series.

    >>> reciprocal(np.array([1.0, -0.5]), 4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    values = values[:rounds]
    if len(values) * rounds <= _MOST_DIRECT:
        return scipy.signal.lfilter([1.0], values, padded(np.ones(1), rounds))
    found = np.array([1.0 / values[0]])
    while len(found) < rounds:  # Newton: 1/c = y (2 - c y), twice as many coefficients each time
        size = min(2 * len(found), rounds)
        left = -scipy.signal.fftconvolve(padded(values, size), found)[:size]
        left[0] += 2.0
        found = scipy.signal.fftconvolve(found, left)[:size]
    return found


def prefix_variance_of(inverse: np.ndarray) -> np.ndarray:
    """Variance of the prefix sums of C^-1 z for a Toeplitz C.

    Args:
        inverse: float [rounds], first column of C^-1.
    """
    return np.cumsum(np.cumsum(inverse) ** 2)


def binomial_series(power: float, rounds: int) -> np.ndarray:
    """The first `rounds` coefficients of (1 - x)^power.

    >>> binomial_series(-0.5, 4), binomial_series(0.5, 4)
    (array([1.    , 0.5   , 0.375 , 0.3125]), array([ 1.    , -0.5   , -0.125 , -0.0625]))
    """
    places = np.arange(1, rounds)
    return np.cumprod(np.concatenate([[1.0], (places - 1 - power) / places]))
