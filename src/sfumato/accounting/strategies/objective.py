"""The error that is made small, as a smooth function of the prefix variances, and the descent that does it."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy

from sfumato.accounting.doubles import dot
from sfumato.accounting.strategies.strategy import Error

SHARP = 2000.0
"""The exponent at which a power mean stands for the maximum."""

_STEPS = 400
_FAR_ABOVE = 1.0  # the start, in logarithms of the squared error


def exponent(error: Error) -> float:
    """Of the power mean that stands for this error: 1 is the mean itself."""
    return 1.0 if error == "mean" else SHARP


def power_mean(variance: np.ndarray, power: float) -> tuple[float, np.ndarray]:
    """log of (mean of variance^power)^(1/power), and its gradient.

    Args:
        variance: float [rounds], > 0.
        power: >= 1.
    """
    largest = float(np.max(variance))
    relative = (variance / largest) ** (power - 1)
    total = dot(relative, variance) / largest
    value = np.log(largest) + np.log(total / len(variance)) / power
    return float(value), relative / (total * largest)


def descend(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    least: Sequence[float | None] | None = None,
    steps: int = _STEPS,
) -> np.ndarray:
    """A local minimum near the start, by L-BFGS-B.

    A first step may reach where prefixes explode. The slope there is so steep that a search which looks at it goes back
    to within round-off of the start and calls that an end. So what lies far above the start counts as flat: it is no
    place to stay, and only how far it is too far matters.

    Args:
        function: value, of a logarithm, and gradient.
        start: float [n].
        least: lower bounds, None for a number without; None for none.
        steps: iterations at most.
    """
    if not len(start):
        return start
    highest = function(start)[0] + _FAR_ABOVE

    def bounded(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(point)
        return (value, gradient) if value <= highest else (highest, np.zeros_like(point))

    bounds = None if least is None else [(low, None) for low in least]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-10}
    return scipy.optimize.minimize(bounded, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
