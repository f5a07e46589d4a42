"""Dominating pairs: two distributions whose hockey-stick curve is the worst that an event can have.

**Finitely many losses:** randomised response, claims of pure or approximate privacy, discrete noise. Each loss is an
atom, whose masses under P and Q are what was given; nothing is rounded to a grid here. Mass that only P has lies at an
infinite loss, mass that only Q has at minus infinity.

>>> pair = FinitePair(losses=(-1.0, 1.0), upper=(0.25, 0.5), lower=(0.68, 0.18), only_upper=0.25, only_lower=0.14)
>>> upper, lower, error = pair.cells(np.array([-np.inf, 0.0, 1.0, np.inf]))
>>> upper.tolist(), lower.round(2).tolist(), pair.infinity()
([0.25, 0.5, 0.25], [0.82, 0.18, 0.0], 0.25)

**With a label:** chance picks one of several pairs, and everybody may see which one it was. The curve of the whole is
the weighted mean of the parts' curves. It dominates any mechanism that runs the same lottery on both of two
neighbouring data sets, however much of the label it hides, because a hockey-stick divergence is jointly convex: H(sum
of w_i P_i against sum of w_i Q_i) <= sum of w_i H(P_i against Q_i).

>>> from sfumato.accounting.sampled_pair import SampledGaussian
>>> pair = Labelled(((0.25, SampledGaussian("remove", rate=1.0, shift=1.0)),), idle=0.75)
>>> pair.atom(), [masses.round(4).tolist() for masses in pair.cells(np.array([-50.0, 0.5, 50.0]))[:2]]
(0.75, [[0.125, 0.125], [0.2103, 0.0397]])
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from sfumato.accounting.numerics import EPS, round_off, times_exp

# What a dominating pair has to provide: the masses of two distributions on cells of privacy losses.
#
# A pair (P, Q) dominates a mechanism if no two neighbouring data sets can be distinguished better than P from Q by
# any test: the hockey-stick curve of the pair lies above that of the mechanism (Zhu, Dong and Wang 2022, Definition 7).
# The loss of an outcome is log(P/Q). Pairs compose adaptively, so a run is bounded by the sum of independent losses.


class Pair(Protocol):
    """A dominating pair. Hashable and immutable, so that its grid can be remembered."""

    def span(self) -> tuple[float, float]:
        """Losses between which all but a negligible part of P lies (1e-38); exact where the loss is bounded."""
        ...

    def bulk(self) -> float:
        """A loss near which most of P lies, for the choice of the grid's offset."""
        ...

    def atom(self) -> float:
        """Mass that both P and Q put on a loss of exactly zero and that `cells` leaves out; 0 as a rule."""
        ...

    def infinity(self) -> float:
        """Mass of P where Q has none; 0 as a rule."""
        ...

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Masses of P and Q on cells of losses (edge_i, edge_i+1], without the atom.

        Args:
            edges: float [k], rising; the first may be -inf (its cell holds what only Q has), the last inf (its cell
                holds what only P has).

        Returns:
            P, Q and a bound on the absolute error of Q e^edge - P at the upper edge; float [k - 1] each.
        """
        ...


_SAME = 1e-9  # of a distance; losses closer than this to a lattice lie on it


class Table(NamedTuple):
    """Atoms of a pair.

    Attributes:
        losses: float [n], rising; the first may be -inf, the last inf.
        upper: masses under P, float [n].
        lower: masses under Q, float [n].
        rounding: relative error of the masses.
    """

    losses: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    rounding: float


class TabledPair:
    """A pair that is a table of atoms; a kind of it says the table. The table is remembered by the pair's value."""

    def table(self) -> Table:
        """The atoms; read-only."""
        return _table(self)

    def make_table(self) -> Table:
        """The atoms, computed."""
        raise NotImplementedError

    def lattice(self) -> tuple[float, float] | None:
        """(offset, distance) where all finite losses are offset + a whole number * distance; else None."""
        losses = self.finite()
        distances = np.diff(losses)
        if not len(distances):
            return None
        shortest = float(distances.min())
        steps = distances / shortest
        return (float(losses[0]), shortest) if (np.abs(steps - np.round(steps)) < _SAME * steps).all() else None

    def finite(self) -> np.ndarray:
        """The finite losses, rising; float [m]."""
        losses = self.table().losses
        return losses[np.isfinite(losses)]

    def span(self) -> tuple[float, float]:
        losses = self.finite()
        return float(losses[0]), float(losses[-1])

    def bulk(self) -> float:
        losses, upper, _, _ = self.table()
        return float(losses[np.argmax(np.where(np.isfinite(losses), upper, -1.0))])

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        losses, upper, _, _ = self.table()
        return float(upper[-1]) if np.isposinf(losses[-1]) else 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        losses, upper, lower, rounding = self.table()
        ends = np.searchsorted(losses, edges, side="right")
        ends[np.isneginf(edges)] = 0  # the first cell holds what only Q has
        upper, lower = _sums(upper, ends), _sums(lower, ends)
        return upper, lower, round_off(upper, lower, edges[1:], rounding)


@dataclass(frozen=True)
class FinitePair(TabledPair):
    """Atoms that are listed.

    Attributes:
        losses: different finite numbers in rising order, at least one.
        upper: mass of P at each loss.
        lower: mass of Q at each loss, upper * e^-loss.
        only_upper: mass of P where Q has none.
        only_lower: mass of Q where P has none.
    """

    losses: tuple[float, ...]
    upper: tuple[float, ...]
    lower: tuple[float, ...]
    only_upper: float = 0.0
    only_lower: float = 0.0

    def make_table(self) -> Table:
        return Table(
            np.array([-np.inf, *self.losses, np.inf]),
            np.array([0.0, *self.upper, self.only_upper]),
            np.array([self.only_lower, *self.lower, 0.0]),
            4 * EPS,
        )


@lru_cache(maxsize=4)
def _table(pair: TabledPair) -> Table:
    table = pair.make_table()
    for values in table[:3]:
        values.setflags(write=False)
    return table


def _sums(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Sums over [ends_i, ends_i+1), each by itself, so that a small one keeps its relative precision."""
    sums = np.zeros(len(ends) - 1)
    some = ends[1:] > ends[:-1]
    if some.any():
        sums[some] = np.add.reduceat(values[: ends[-1]], ends[:-1][some])
    return sums


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
        upper[upper < _TINY] = 0.0  # a mass below which a grid's gap would underflow
        return upper, lower, error + 2 * EPS * (upper + times_exp(lower, edges[1:]))
