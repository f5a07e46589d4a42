"""Pairs with finitely many losses: randomised response, claims of pure or approximate privacy, discrete noise.

Each loss is an atom, whose masses under P and Q are what was given; nothing is rounded to a grid here. Mass that only P
has lies at an infinite loss, mass that only Q has at minus infinity.

>>> pair = FinitePair(losses=(-1.0, 1.0), upper=(0.25, 0.5), lower=(0.68, 0.18), only_upper=0.25, only_lower=0.14)
>>> upper, lower, error = pair.cells(np.array([-np.inf, 0.0, 1.0, np.inf]))
>>> upper.tolist(), lower.round(2).tolist(), pair.infinity()
([0.25, 0.5, 0.25], [0.82, 0.18, 0.0], 0.25)
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sfumato.accounting.doubles import EPS
from sfumato.accounting.pairs.round_off import round_off

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
