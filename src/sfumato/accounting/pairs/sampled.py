"""The pair of a mechanism on a sample, from the pair (P, Q) of the mechanism itself; any pair will do.

- remove: (1-q) Q + q P against Q, where (P, Q) dominates removing a unit; add: P against (1-q) P + q Q, where (P, Q)
  dominates adding one (Zhu, Dong and Wang 2022, Theorem 11). Sampling is Poisson's.
- exchange, for a sample of fixed size and the replacement of a unit: the remove curve above loss zero, in both
  directions, where (P, Q) dominates replacing a unit (Balle, Barthe and Gaboardi 2018, Theorem 11). It is symmetric;
  what is left of the two masses lies at a loss of zero.

The loss of the sampled pair rises with that of the base, l = log(1 - q + q e^l') for remove, so a cell of its losses is
a cell of the base. What only Q has, at l' = -inf, gets the finite loss log(1 - q), and the other way round for add.

>>> from sfumato.accounting.pairs.laplace import LaplacePair
>>> pair = SampledPair("remove", 0.5, LaplacePair(1.0))
>>> low, high = pair.span()
>>> round(low, 4), round(high, 4)                    # log((1 + e^-1) / 2), log((1 + e) / 2)
(-0.3799, 0.6201)
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.round_off import round_off, times_exp
from sfumato.accounting.pairs.sampled_gaussian import LEAST_RATE

_TAIL = 512 * EPS  # relative error of the base's masses in a cell that has no upper end


@dataclass(frozen=True)
class SampledPair:
    """`base` on a sample; `rate` is q in (0, 1), at most `NEXT_TO_ONE`."""

    direction: Literal["remove", "add", "exchange"]
    rate: float
    base: Pair

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", max(self.rate, LEAST_RATE))

    def span(self) -> tuple[float, float]:
        low, high = self.base.span()
        least = math.log1p(-self.rate)  # the loss of what only Q has
        one_sided = self.base.infinity() > 0
        if self.direction == "add":
            return -float(self._loss(-low)), -least if one_sided else -float(self._loss(-high))
        top = float(self._loss(high))
        if self.direction == "exchange":
            return -top, top
        # Q lies lower than P does, as far down as P reaches up if the base is symmetric
        return least if one_sided else float(self._loss(min(low, -high))), top

    def bulk(self) -> float:
        match self.direction:
            case "remove":
                return float(self._loss(self.base.bulk() if self.rate > 0.5 else -self.base.bulk()))
            case "add":
                return -float(self._loss(-self.base.bulk()))
            case "exchange":
                return 0.0

    def atom(self) -> float:
        if self.direction != "exchange":
            return self.base.atom()
        upper, lower, _ = SampledPair("remove", self.rate, self.base).cells(np.array([0.0, np.inf]))
        return max(0.0, 1.0 - float(upper[0]) - float(lower[0]))

    def infinity(self) -> float:
        return 0.0 if self.direction == "add" else self.rate * self.base.infinity()

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q = self.rate
        match self.direction:
            case "remove":
                inner = self._base_loss(edges)
                upper, lower, error = self.base.cells(inner)
                mixed = (1 - q) * lower + q * upper
                # e^l - (1-q) = q e^l', so what the base errs in Q e^l' - P counts q times
                return mixed, lower, q * error + round_off(mixed, lower, edges[1:])
            case "add":
                inner = -self._base_loss(-edges)
                upper, lower, error = self.base.cells(inner)
                mixed = (1 - q) * upper + q * lower
                ends, known = edges[1:], np.isfinite(inner[1:])
                tail = times_exp(_TAIL * (upper + lower), ends)
                error = np.where(known, times_exp(q * error, ends - np.where(known, inner[1:], 0.0)), tail)
                return upper, mixed, error + round_off(upper, mixed, ends)
            case "exchange":
                return self._exchange(edges)

    def _exchange(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        one_way = SampledPair("remove", self.rate, self.base)
        above, below = np.maximum(edges, 0.0), np.maximum(-edges[::-1], 0.0)
        upper, lower, error = one_way.cells(above)
        # seen from the other side, (x, y] becomes [-y, -x): an atom on an edge changes its cell
        below = np.where(np.isinf(below), below, np.nextafter(below, 0.0))
        mirror_upper, mirror_lower, mirror_error = one_way.cells(below)
        upper, lower = upper + mirror_lower[::-1], lower + mirror_upper[::-1]
        return upper, lower, error + times_exp(mirror_error[::-1], np.minimum(edges[1:], 0.0))

    def _loss(self, base_loss: float) -> np.ndarray:
        """log(1 - q + q e^l')."""
        t, q = np.float64(base_loss), self.rate
        if t < 1.0:
            return np.log1p(q * np.expm1(t))
        return np.logaddexp(math.log1p(-q), math.log(q) + t)

    def _base_loss(self, loss: np.ndarray) -> np.ndarray:
        """The l' at which the sampled loss is l; -inf at log(1 - q) and below."""
        q = self.rate
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / q, -1.0))
            large = loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 1.0)))
        return np.where(loss < 30.0, small, large)
