"""The pair of a mechanism of bounded range: the exponential mechanism and its kin (Durfee and Rogers 2019).

The losses of two neighbouring data sets lie in an interval of length epsilon, wherever it is. The worst curve over all
such mechanisms is delta(x) = (1 - e^((x - epsilon)/2))^2 / (1 - e^-epsilon) for |x| <= epsilon; it is the curve of
P with density e^((x - epsilon)/2) / (2 (1 - e^-epsilon)) of the loss x in (-epsilon, epsilon), and Q = P e^-x. See
docs/explanation/exponential-mechanism.md for the derivation. The pair is symmetric.

>>> upper, lower, error = BoundedRange(1.0).cells(np.array([-1.0, 0.0, 1.0]))
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.3775, 0.6225], [0.6225, 0.3775])
"""

from dataclasses import dataclass

import numpy as np

from sfumato.accounting.pairs.round_off import round_off


@dataclass(frozen=True)
class BoundedRange:
    """Losses that differ by at most `epsilon` between any two outcomes; 0 < epsilon <= 700."""

    epsilon: float

    def span(self) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def bulk(self) -> float:
        return 0.0

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        upper, lower = tilted_uniform(edges, self.epsilon)
        return upper, lower, round_off(upper, lower, edges[1:])


def tilted_uniform(edges: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Masses on (edge_i, edge_i+1] of the densities proportional to e^(x/2) and e^(-x/2) on (-epsilon, epsilon)."""
    inside = np.clip(edges, -epsilon, epsilon)
    grown = np.expm1(np.diff(inside) / 2) / -np.expm1(-epsilon)
    return np.exp((inside[:-1] - epsilon) / 2) * grown, np.exp((-inside[1:] - epsilon) / 2) * grown
