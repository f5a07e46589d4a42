"""Round-off of the masses in cells: what a grid must allow for, so that rounding never makes a bound too small."""

import numpy as np

from sfumato.accounting.doubles import EPS


def round_off(upper: np.ndarray, lower: np.ndarray, edges: np.ndarray, relative: float = 4 * EPS) -> np.ndarray:
    """Bound on the error of Q e^edge - P for masses that are right up to a relative error.

    Args:
        upper: masses of P, float [k].
        lower: masses of Q, float [k].
        edges: upper ends of the cells, float [k]; an infinite one has no such difference, and an error of 0.
        relative: relative error of the masses. A unit in the last place of the edge itself is added.
    """
    edges = np.where(np.isfinite(edges), edges, -np.inf)
    with np.errstate(invalid="ignore"):
        scale = np.where(np.isfinite(edges), relative + 4 * EPS * (1 + np.abs(edges)), 0.0)
    return scale * (upper + times_exp(lower, edges))


def times_exp(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """values * e^exponents where a value of zero wins over any exponent, and e^700 stands for what is larger."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.exp(np.minimum(np.log(values) + exponents, 700.0)), 0.0)
