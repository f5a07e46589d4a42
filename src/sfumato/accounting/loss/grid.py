"""Loss distributions on a grid: a pair rounded from above and from below."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from sfumato.accounting.numerics import EPS, dot
from sfumato.accounting.pair import Pair

# A loss distribution on a grid, and the same tilted: each mass times e^(tilt * loss).


class TooFine(Exception):
    """The grid has too many points for this composition."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """Losses on a grid with their masses under P.

    Attributes:
        gap: distance of neighbouring losses.
        offset: loss of grid index 0.
        first: grid index of the first mass.
        masses: P of each loss, float [n].
        infinity: P of an infinite loss.
        slack: how far the losses may be off because of round-off, a step.
        relative: bound on the relative error of the curve at a loss within the slack, a step.
        memo: what a composition remembers about it.
    """

    gap: float
    offset: float
    first: int
    masses: np.ndarray
    infinity: float
    slack: float
    relative: float = 0.0
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def losses(self) -> np.ndarray:
        return self.offset + self.gap * (self.first + np.arange(len(self.masses)))

    @property
    def largest_loss(self) -> float:
        """The last loss with a mass."""
        some = np.flatnonzero(self.masses)
        return self.offset + self.gap * (self.first + int(some[-1])) if len(some) else -math.inf

    @property
    def largest(self) -> float:
        """The largest absolute loss."""
        low = self.offset + self.gap * self.first
        return max(abs(low), abs(low + self.gap * (len(self.masses) - 1)))

    def log_mgf(self, tilt: float) -> float:
        """log of the moment generating function; remembered."""
        if ("log_mgf", tilt) not in self.memo:
            self.memo["log_mgf", tilt] = self.tilted(tilt)[1]
        return self.memo["log_mgf", tilt]

    def heaviest(self, tilt: float) -> int:
        """The grid index of the largest tilted mass; remembered."""
        if ("heaviest", tilt) not in self.memo:
            self.memo["heaviest", tilt] = self.first + int(np.argmax(self.tilted(tilt)[0]))
        return self.memo["heaviest", tilt]

    def tilted(self, tilt: float) -> tuple[np.ndarray, float]:
        """Masses times e^(tilt * loss), divided by their sum, and the log of that sum."""
        with np.errstate(divide="ignore"):
            weights = np.log(self.masses)
        if tilt:
            weights += tilt * self.losses
        top = float(weights.max())
        weights -= top
        np.exp(weights, out=weights)
        total = float(weights.sum())
        weights /= total
        return weights, top + math.log(total)

    def relative_error(self, tilt: float) -> float:
        """Bound on the relative error that one step adds to tilted masses: that of the masses, of log and exp."""
        return self.relative + 2 * EPS * (760.0 + 2 * tilt * self.largest)


# The coarse grid of a pair: a thousand cells, fine around its bulk, to decide how to look closer.
#
# A grid must end somewhere, needs a gap, and is best composed under a tilt; all of that follows from moments and tails
# that a few cells of uneven width show well enough. Bounds do not rest on them, with two exceptions: the tails beyond
# which a grid ends are computed masses of the pair, and so is the precision of those masses.


_SIDE = 400  # cells on each side of the bulk
_FINEST = 1e-12  # distance of the first edge from the bulk, relative to the span
_WIDEST = 0.25  # cell; `error` of a wide one, at its upper edge, says little about its lower one


@dataclass(frozen=True, eq=False)
class CoarseGrid:
    """Masses of a pair on cells of uneven width.

    Attributes:
        edges: losses, float [k + 1].
        losses: log(P/Q) of each cell, float [k].
        masses: P of each cell, float [k].
        above: P between each edge and infinity, without what Q never shows, float [k + 1].
        below: P below each edge, float [k + 1].
        precision: bound on the relative error of the tails of P and Q at the ends of each cell, float [k].
        bulk: a loss near which most of P lies.
    """

    edges: np.ndarray
    losses: np.ndarray
    masses: np.ndarray
    above: np.ndarray
    below: np.ndarray
    precision: np.ndarray
    bulk: float

    def ends(self, tail: float) -> tuple[float, float]:
        """Losses below and above which at most `tail` of P lies."""
        first = int(np.searchsorted(self.below, tail, side="right")) - 1
        last = len(self.above) - int(np.searchsorted(self.above[::-1], tail, side="right"))
        return float(self.edges[max(first, 0)]), float(self.edges[min(last, len(self.edges) - 1)])

    def error(self, low: float, high: float) -> float:
        """Bound on the relative error of the tails between two losses."""
        seen = (self.edges[:-1] >= low) & (self.edges[1:] <= high)
        return float(self.precision[seen].max(initial=0.0)) + 4 * EPS


@lru_cache(maxsize=256)
def coarse_grid(pair: Pair) -> CoarseGrid:
    """The coarse grid of a pair; remembered."""
    low, high = pair.span()
    width = max(high - low, 1e-12 * (1.0 + abs(high)))
    bulk = min(max(pair.bulk(), low), high)
    steps = np.geomspace(_FINEST * width, width, _SIDE)
    even = np.arange(low, high, max(_WIDEST, width / 1500))
    edges = np.concatenate([[low, high], even, bulk - steps, [bulk], bulk + steps])
    edges = np.unique(np.clip(edges, low, high))
    edges = np.concatenate([[low - 1e-3 * width], edges])  # the lowest loss of all belongs to a cell
    upper, lower, error = pair.cells(np.concatenate([[-np.inf], edges, [np.inf]]))
    above = np.concatenate([np.cumsum(upper[-2:0:-1])[::-1], [0.0]]) + max(0.0, float(upper[-1]) - pair.infinity())
    below = np.cumsum(upper[:-1])
    precision = _precision(edges, above + pair.infinity(), below, np.cumsum(lower[:-1]), error)
    upper, lower = upper[1:-1], lower[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        # the mean of the loss is above that of e^-loss by half its variance, which is that of an even cell
        losses = np.clip(np.log(upper) - np.log(lower) + np.diff(edges) ** 2 / 24, edges[:-1], edges[1:])
    losses = np.where(np.isfinite(losses), losses, edges[1:])
    return CoarseGrid(edges, losses, upper, above, below, precision, bulk)


def _precision(
    edges: np.ndarray, above: np.ndarray, below: np.ndarray, below_lower: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """Error of P - Q e^edge in a cell relative to the larger of the tails at its ends, of which it is made."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        tails = np.minimum(np.maximum(below, below_lower * np.exp(np.minimum(edges, 700.0))), above)
        larger = np.maximum(tails[:-1], tails[1:])
        relative = error[1:-1] / larger
    return np.where(larger > 0, relative, 0.0)


# A pair on a grid of losses: from above by connecting the dots, from below by merging outcomes.
#
# From above (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, "Connect the Dots"): the masses U of P and L
# of Q in a cell of losses are split onto its two ends so that both are kept; the curve of the result is the
# chord of the true one, which is convex, so it lies above. From below: outcomes around a grid point are merged
# until their likelihood ratio is exactly that of the grid point; merging is post-processing, so the curve of
# the result lies below. Both err by about gap^2 a step in the loss, one way each.
#
# The grid is offset so that one of its points falls on the bulk of the pair: a bulk that is narrower than a
# cell (small sampling rates) then costs nothing. Offsets add up exactly under composition. The grid ends where
# less than a given mass of P is left; from above, that mass counts as an infinite loss at the top and as the
# lowest loss at the bottom; from below it is left out. What round-off may have done is in `slack` and
# `relative` (docs/explanation/round-off.md).


_LOCAL = 160  # cells on each side that decide how the bulk is merged
_ENOUGH = 0.01  # of a gap^2: loss for round-off that the error of the grid hides
_WIDEST_GRID = 4.0  # gap
_BLOCK = 1 << 15  # cells that are computed at a time, so that temporary arrays stay small
_TINY = 1 << 13  # cells of a grid of which hundreds are remembered, for runs of many different steps
_SMALL = 1 << 16  # cells of a grid of which several are remembered
MOST_CELLS = 1 << 20
"""Of a grid; bounds the memory to about 200 MB."""


@dataclass(frozen=True)
class _Cells:
    """Masses of a pair on the cells of a grid; cell i lies between knots i and i + 1."""

    knots: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    error: np.ndarray
    below: float
    above: float
    above_lower: float


def grid(pair: Pair, gap: float, tail: float, above: bool) -> Atoms:
    """The pair on a grid, from above or from below; remembered.

    Args:
        pair: what to describe.
        gap: distance of neighbouring losses.
        tail: mass of P beyond each end of the grid, >= 0.
        above: whether the curve of the result is an upper or a lower bound.

    Raises:
        TooFine: the grid has too many cells.
    """
    own = lattice(pair)
    if gap > max(
        _WIDEST_GRID, own[1] if own else 0.0
    ):  # e^gap says nothing: everything is infinite, or nothing is left
        return Atoms(gap, 0.0, 0, np.zeros(1), 1.0 if above else 0.0, 0.0)
    cells = span(pair, tail) / gap
    if not cells <= MOST_CELLS:
        raise TooFine(f"{cells:g} cells")
    make = _remembered_tiny if cells <= _TINY else _remembered if cells <= _SMALL else _remembered_large
    return make(pair, gap, tail, above)


def span(pair: Pair, tail: float) -> float:
    """Length of the grid."""
    low, high = coarse_grid(pair).ends(tail)
    return high - low


def lattice(pair: Pair) -> tuple[float, float] | None:
    """(offset, distance) where all losses of the pair are offset + a whole number * distance."""
    own = getattr(pair, "lattice", None)
    return own() if own else None


def _make(pair: Pair, gap: float, tail: float, above: bool) -> Atoms:
    own = lattice(pair)
    offset = own[0] if own else best_offset(pair, gap)
    return (from_above if above else from_below)(pair, gap, offset, coarse_grid(pair).ends(tail))


_remembered_tiny = lru_cache(maxsize=512)(_make)
_remembered = lru_cache(maxsize=16)(_make)
_remembered_large = lru_cache(maxsize=2)(_make)


@lru_cache(maxsize=1)  # a bound from above and one from below follow one another
def _cells(pair: Pair, gap: float, offset: float, first: int, last: int) -> _Cells:
    knots = offset + gap * np.arange(first, last + 1)
    size = len(knots) - 1
    upper, lower, error = np.empty(size), np.empty(size), np.empty(size)
    for start in range(0, size, _BLOCK):
        block = slice(start, min(start + _BLOCK, size))
        upper[block], lower[block], error[block] = pair.cells(knots[block.start : block.stop + 1])
    beyond, beyond_lower, _ = pair.cells(np.array([-np.inf, knots[0], knots[-1], np.inf]))
    return _Cells(knots, upper, lower, error, float(beyond[0]), float(beyond[-1]), float(beyond_lower[-1]))


def _indices(ends: tuple[float, float], gap: float, offset: float) -> tuple[int, int]:
    low, high = ends
    first = min(int(np.floor((low - offset) / gap)) - 1, -1)  # the grid holds its point at the offset
    last = max(int(np.ceil((high - offset) / gap)) + 1, 1)
    return first, last


def from_above(pair: Pair, gap: float, offset: float, ends: tuple[float, float] | None = None) -> Atoms:
    """The chords of the pair's curve: never below it."""
    first, last = _indices(ends or pair.span(), gap, offset)
    cells = _cells(pair, gap, offset, first, last)
    knots = cells.knots
    share = np.zeros(len(cells.upper))
    some = cells.upper > 0
    # share of a cell's P that goes to its lower end, by Q e^(upper end) = P e^(gap * share); what round-off may
    # have added to it is sent to the upper end
    excess = np.exp(knots[1:][some]) * cells.lower[some] - cells.upper[some] - cells.error[some]
    share[some] = np.clip(excess / (cells.upper[some] * np.expm1(gap)), 0.0, 1.0)
    masses = np.zeros(len(knots))
    masses[:-1] += share * cells.upper
    masses[1:] += (1 - share) * cells.upper
    masses[0] += cells.below
    kept = min(cells.above, cells.above_lower * float(np.exp(knots[-1])))
    masses[-1] += kept
    masses[-first] += pair.atom()  # the offset is zero where there is one
    infinity = max(pair.infinity(), cells.above - kept)
    return Atoms(gap, offset, first, masses, infinity, *_round_off(pair, knots, 3))


def from_below(pair: Pair, gap: float, offset: float, ends: tuple[float, float] | None = None) -> Atoms:
    """Merged outcomes, each with exactly the ratio of its knot: never above the pair's curve.

    Cell i gives the share f_i of its outcomes to knot i and the rest to knot i + 1. A knot is balanced when
    the surplus of P from the cell above it equals the deficit from the cell below. Solved from both ends
    towards the bulk, the direction in which deviations die out; what does not balance is left out of P.
    """
    first, last = _indices(ends or pair.span(), gap, offset)
    cells = _cells(pair, gap, offset, first, last)
    knots = cells.knots
    peak = min(max(-first, 1), len(knots) - 2)  # the knot at the offset
    surplus, deficit = _imbalances(cells, gap)
    share = _shares(surplus, deficit, peak)
    share[(deficit == 0) & (surplus > 0)] = 0.0  # a mass at a knot stays there
    share[(surplus == 0) & (deficit > 0)] = 1.0
    group_upper = np.zeros(len(knots))
    group_lower = np.zeros(len(knots))
    for group, masses in ((group_upper, cells.upper), (group_lower, cells.lower)):
        group[:-1] += share * masses
        group[1:] += (1 - share) * masses
    masses, lost = _on_knots(knots, gap, group_upper, group_lower)
    masses[-first] += pair.atom()
    slack, relative = _round_off(pair, knots, 8)
    return Atoms(gap, offset, first, masses, pair.infinity(), slack + lost, relative)


def _on_knots(knots: np.ndarray, gap: float, upper: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, float]:
    """P of merged outcomes on knots that it reaches, and how far their losses are nevertheless too high.

    A merged outcome on the knot k stands for Q = P e^-k, which may be more than it has (a lower bound) but not less.
    Where it is less by round-off, the lack is counted, relative to all Q above; where it is less by more, the outcome
    moves down, by three knots at most.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        lack = np.where(lower > 0, 1 - upper / (lower * np.exp(knots)), 0.0)
    most, best = math.inf, (np.zeros(len(knots), dtype=int), math.inf)
    for limit in (1e-2 * gap, 1e-4 * gap, 1e-6 * gap, 0.0):
        down = np.zeros(len(knots), dtype=int)
        lacking = np.flatnonzero(lack > limit)
        down[lacking] = np.minimum(np.ceil(-np.log1p(-np.minimum(lack[lacking], 0.9)) / gap), np.minimum(lacking, 3))
        reached = upper * np.exp(gap * down - knots)
        above = np.cumsum(reached[::-1])
        some = above > 1e-300
        lost = float(np.max(np.cumsum((lower - reached)[::-1])[some] / above[some], initial=0.0))
        cost = lost + gap * dot(upper, down)
        if cost < most:
            most, best = cost, (down, lost)
        if lost <= _ENOUGH * gap * gap:
            break
    down, lost = best
    moved = np.flatnonzero(down)
    masses = np.where(down == 0, upper, 0.0)
    np.add.at(masses, moved - down[moved], upper[moved])
    return masses, lost


@lru_cache(maxsize=256)
def best_offset(pair: Pair, gap: float) -> float:
    """The offset of the grid at which the bulk merges without a remainder."""
    middle = pair.bulk()
    if pair.atom():
        return middle

    def remainder(shift: float) -> float:
        cells = _cells(pair, gap, middle + shift * gap, -_LOCAL, _LOCAL)
        surplus, deficit = _imbalances(cells, gap)
        share = _shares(surplus, deficit, _LOCAL, ends=(_is_end(cells.below), _is_end(cells.above)))
        return float(share[_LOCAL] * surplus[_LOCAL] - (1 - share[_LOCAL - 1]) * deficit[_LOCAL - 1]) / gap

    at_zero = remainder(0.0)
    if abs(at_zero) < 1e-14:
        return middle
    for distance in (0.05, 0.2, 0.4, 0.6, 0.8, 1.0):
        for side in (-distance, distance):
            value = remainder(side)
            if value * at_zero < 0:
                return middle + gap * _root(remainder, (0.0, at_zero), (side, value))
    return middle


def _root(function: Callable[[float], float], one: tuple[float, float], two: tuple[float, float]) -> float:
    """A zero between two points of different sign (Illinois' method)."""
    (a, at_a), (b, at_b) = one, two
    x = a
    for _ in range(40):
        x = (a * at_b - b * at_a) / (at_b - at_a)
        value = function(x)
        if abs(value) < 1e-13 or abs(b - a) < 1e-12:
            break
        if value * at_b < 0:
            a, at_a = b, at_b
        else:
            at_a *= 0.5
        b, at_b = x, value
    return x


def _is_end(mass: float) -> bool:
    return mass < 1e-30


def _imbalances(cells: _Cells, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """For each cell: P - Q e^(lower knot) and Q e^(upper knot) - P, both >= 0 up to round-off."""
    at_lower = np.exp(cells.knots[:-1]) * cells.lower
    surplus = cells.upper - at_lower
    deficit = at_lower * np.exp(gap) - cells.upper
    # a mass at a knot is balanced by itself, up to the round-off of its loss, of the knot and of both masses
    nothing = EPS * (8 + 16 * np.max(np.abs(cells.knots))) * cells.upper
    return np.where(surplus > nothing, surplus, 0.0), np.where(deficit > nothing, deficit, 0.0)


def _shares(surplus: np.ndarray, deficit: np.ndarray, peak: int, ends: tuple[bool, bool] = (True, True)) -> np.ndarray:
    """Share of each cell that goes to its lower knot, balanced at every knot but the one at `peak`."""
    first = 0.0 if ends[0] else float(deficit[0] / (surplus[0] + deficit[0] or 1.0))
    last = 1.0 if ends[1] else float(deficit[-1] / (surplus[-1] + deficit[-1] or 1.0))
    # upward, f_i = (1 - f_i-1) d_i-1 / s_i; downward, 1 - f_i = f_i+1 s_i+1 / d_i: the same recursion for 1 - f
    upward = _chain(deficit[: peak - 1], surplus[1:peak], first)
    downward = 1.0 - _chain(surplus[:peak:-1], deficit[-2 : peak - 1 if peak else None : -1], 1.0 - last)
    return np.concatenate([upward, downward[::-1]])


def _chain(given: np.ndarray, taken: np.ndarray, start: float) -> np.ndarray:
    """x_0 = start, x_i+1 = (1 - x_i) given_i / taken_i, kept in [0, 1]."""
    size = len(given)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = given / taken
    if size > 4096 and np.isfinite(ratio).all():
        chain = _affine_chain(ratio, start)
        if chain.min() >= -1e-9 and chain.max() <= 1 + 1e-9:
            return np.clip(chain, 0.0, 1.0)
    x, chain = start, [start]
    for a, b in zip(given.tolist(), taken.tolist()):
        wanted = (1.0 - x) * a
        x = wanted / b if wanted < b else 1.0  # what needs no balance goes to its own knot
        chain.append(x)
    return np.array(chain)


def _affine_chain(ratio: np.ndarray, start: float) -> np.ndarray:
    """The same without the bounds, in blocks: each x is an affine function of the first one of its block."""
    length = math.isqrt(len(ratio)) + 1
    blocks = -(-len(ratio) // length)
    table = np.zeros((blocks, length))
    table.reshape(-1)[: len(ratio)] = ratio
    slope = np.ones((blocks, length + 1))
    constant = np.zeros((blocks, length + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(length):
            slope[:, i + 1] = -table[:, i] * slope[:, i]
            constant[:, i + 1] = table[:, i] * (1.0 - constant[:, i])
        starts = [start]
        for block in range(blocks - 1):
            starts.append(slope[block, -1] * starts[-1] + constant[block, -1])
        values = slope[:, 1:] * np.array(starts)[:, None] + constant[:, 1:]
    return np.concatenate([[start], values.reshape(-1)[: len(ratio)]])


def _round_off(pair: Pair, knots: np.ndarray, tails: int) -> tuple[float, float]:
    """How far losses are off, and the relative error of the curve, a step (docs/explanation/round-off.md)."""
    low, high = float(knots[0]), float(knots[-1])
    relative = tails * coarse_grid(pair).error(low, high)
    return 2 * EPS + 6 * EPS * max(abs(low), abs(high)) + relative, relative
