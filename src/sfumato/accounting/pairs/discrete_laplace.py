"""The pair of a discrete Laplace release: X against X + s on the integers, P(X = x) proportional to e^(-a |x|).

With t = e^-a, the loss a (s - 2n) for n = 0..s has mass 1/(1+t), t^n (1-t)/(1+t) or t^s/(1+t) under P: the first for
n = 0, the last for n = s. The pair is symmetric, and its losses lie on a lattice of distance 2a.

>>> pair = DiscreteLaplacePair(rate=math.log(2), shift=1)
>>> pair.table().upper.round(4).tolist()
[0.3333, 0.6667]
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.finite import Table, TabledPair


@dataclass(frozen=True)
class DiscreteLaplacePair(TabledPair):
    """An integer with discrete Laplace noise; `rate` is a > 0, `shift` is s >= 1."""

    rate: float
    shift: int

    def lattice(self) -> tuple[float, float]:
        return -self.rate * self.shift, 2 * self.rate

    def make_table(self) -> Table:
        n = np.arange(self.shift, -1, -1, dtype=np.float64)
        share = 1.0 / (1.0 + math.exp(-self.rate))
        upper = share * -math.expm1(-self.rate) * np.exp(-self.rate * n)
        upper[0], upper[-1] = share * math.exp(-self.rate * self.shift), share
        return Table(
            self.rate * (self.shift - 2 * n), upper, upper[::-1].copy(), 4 * EPS * (1 + self.rate * self.shift)
        )
