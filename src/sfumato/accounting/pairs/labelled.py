"""Pairs with a label: chance picks one of several pairs, and everybody may see which one it was.

The curve of the whole is the weighted mean of the parts' curves. It dominates any mechanism that runs the same lottery
on both of two neighbouring data sets, however much of the label it hides, because a hockey-stick divergence is jointly
convex: H(sum of w_i P_i against sum of w_i Q_i) <= sum of w_i H(P_i against Q_i).

>>> from sfumato.accounting.pairs.sampled_gaussian import SampledGaussian
>>> pair = Labelled(((0.25, SampledGaussian("remove", rate=1.0, shift=1.0)),), idle=0.75)
>>> pair.atom(), [masses.round(4).tolist() for masses in pair.cells(np.array([-50.0, 0.5, 50.0]))[:2]]
(0.75, [[0.125, 0.125], [0.2103, 0.0397]])
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.round_off import times_exp

_TINY = 1e-290


@dataclass(frozen=True)
class Labelled:
    """A lottery over pairs.

    Attributes:
        parts: probability > 0 and pair, at least one.
        idle: probability that the two distributions are the same.
    """

    parts: tuple[tuple[float, Pair], ...]
    idle: float = 0.0

    def span(self) -> tuple[float, float]:
        ends = [pair.span() for _, pair in self.parts]
        if self.atom():
            ends.append((0.0, 0.0))
        return min(low for low, _ in ends), max(high for _, high in ends)

    def bulk(self) -> float:
        return 0.0 if self.atom() else max(self.parts, key=lambda part: part[0])[1].bulk()

    def atom(self) -> float:
        return math.fsum([self.idle, *(weight * pair.atom() for weight, pair in self.parts)])

    def infinity(self) -> float:
        return math.fsum(weight * pair.infinity() for weight, pair in self.parts)

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        upper, lower, error = np.zeros((3, len(edges) - 1))
        for weight, pair in self.parts:
            part_upper, part_lower, part_error = pair.cells(edges)
            upper += weight * part_upper
            lower += weight * part_lower
            error += weight * part_error
        upper[upper < _TINY] = 0.0  # a mass beside which a grid's gap would underflow
        return upper, lower, error + 2 * EPS * (upper + times_exp(lower, edges[1:]))
