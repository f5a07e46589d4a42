"""The pair of a Laplace release: Lap(0, b) against Lap(s, b), with epsilon = s / b.

An observation at or below 0 has loss epsilon, one at or above s has loss -epsilon; in between the loss falls linearly.
So half of P is an atom at epsilon, half of e^-epsilon an atom at -epsilon, and the rest has density
e^((x - epsilon)/2) / 4 of the loss x. The pair is symmetric.

>>> upper, lower, error = LaplacePair(1.0).cells(np.array([-1.0, 0.0, 1.0]))      # without the atom at -1
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.1193, 0.6967], [0.1967, 0.3033])
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.pairs.exponential import tilted_uniform
from sfumato.accounting.pairs.round_off import round_off


@dataclass(frozen=True)
class LaplacePair:
    """A number with Laplace noise; `epsilon` is the largest loss, 0 < epsilon <= 700."""

    epsilon: float

    def span(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def bulk(self) -> float:
        return self.epsilon

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        upper, lower = tilted_uniform(edges, self.epsilon)
        between = -math.expm1(-self.epsilon) / 2
        small = math.exp(-self.epsilon) / 2
        top, bottom = _holds(edges, self.epsilon), _holds(edges, -self.epsilon)
        upper = between * upper + 0.5 * top + small * bottom
        lower = between * lower + small * top + 0.5 * bottom
        return upper, lower, round_off(upper, lower, edges[1:])


def _holds(edges: np.ndarray, loss: float) -> np.ndarray:
    return (edges[:-1] < loss) & (loss <= edges[1:])
