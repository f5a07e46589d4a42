"""The whole curve of delta over epsilon of a composition, for everything that is read off a curve.

Guarantees upper bounds on the larger delta of all directions, from epsilon 0 to where delta is about 1e-16. One
transform is precise around one delta only, relative to it; so the curve is made of several, each tilted to a delta of
its own. Their points are upper bounds on a function that is convex in e^epsilon, so the lower hull of all of them is
one too, and between points its chords are.

At a loss l of the grid, delta(l) = e^(log_scale - tilt l) * sum over losses l + k gap > l of
weight * e^(-tilt k gap) * (1 - e^(-k gap)): the difference of two sums, each a geometric recursion from the right.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from sfumato.accounting.doubles import EPS, dot
from sfumato.accounting.loss.atoms import Atoms
from sfumato.accounting.loss.compose import Composed, TooFine, at_least_once, compose
from sfumato.accounting.loss.curve import Curve
from sfumato.accounting.loss.sketch import Sketch
from sfumato.accounting.pairs import Pair
from sfumato.accounting.tradeoff import lower_hull

_LOGS = tuple(power * math.log(10) for power in (-1, -4, -8, -12, -16))  # of deltas; the first is for no tilt
_LARGEST = 700.0  # epsilon whose e^epsilon is a double
_POINTS = 300  # of the curve, that are taken from each composition
_WIDTH, _QUICK_WIDTH = 1e-3, 3e-3  # relative error of delta aimed at, and where that takes long
_BLOCK = 300.0  # exponents that are summed at once: e^-300 is still a double
_MOST_DOUBLINGS = 12  # of the gap, until a grid fits

Points = tuple[np.ndarray, np.ndarray]


def profile(curves: Sequence[Curve], largest: float, single: Callable[[Pair, float], float]) -> Points:
    """Upper bounds on delta at many epsilons >= 0.

    Args:
        curves: the directions, at least one.
        largest: the largest finite loss of all, or inf.
        single: an upper bound on delta of a pair at an epsilon.

    Returns:
        epsilons, float [k], rising from 0; deltas, float [k], not rising.
    """
    anchors = [[max(0.0, curve.sketch.saddle(log_delta)[1]) for log_delta in _LOGS] for curve in curves]
    top = min(largest, _LARGEST, max(own[-1] for own in anchors))
    hulls = [_direction(curve, own, top, top == largest, single) for curve, own in zip(curves, anchors)]
    ratios = np.unique(np.concatenate([[1.0], *(own for own, _ in hulls)]))
    ratios = ratios[ratios >= 1.0]
    deltas = np.max([np.interp(ratios, own, values, left=1.0) for own, values in hulls], axis=0)
    return np.log(ratios), np.minimum(1.0, np.where(deltas > 0, deltas * (1 + 1e-12), 0.0))


def _direction(
    curve: Curve, anchors: list[float], top: float, ends: bool, single: Callable[[Pair, float], float]
) -> Points:
    """Corners of the hull of one direction, e^epsilon and delta, up to an epsilon that may be its largest loss."""
    if curve.count == 1:
        ((pair, _),) = curve.parts
        epsilons = np.linspace(0.0, top, 2 * _POINTS)
        points = [(epsilons, np.array([single(pair, epsilon) for epsilon in epsilons.tolist()]))]
    else:
        points = [(np.zeros(1), np.ones(1))]
        lows, highs = [0.0, 0.0, *anchors[1:-1]], [min(high, top) for high in (*anchors[1:], top)]
        pieces = [
            _Piece(epsilon, log_delta, low, max(low, high))
            for epsilon, log_delta, low, high in zip([0.0, *anchors[1:]], _LOGS, lows, highs)
        ]
        points += _composed(curve, pieces[:1]) + _composed(curve, [piece for piece in pieces[1:] if piece.low < top])
    if ends:
        points.append((np.array([top]), np.array([curve.infinity])))
    epsilons, deltas = (np.concatenate(parts) for parts in zip(*points))
    inside = epsilons <= _LARGEST
    epsilons, deltas = epsilons[inside], deltas[inside]
    order = np.argsort(epsilons, kind="stable")
    ratios, deltas = np.exp(epsilons[order]), deltas[order]
    ratios[ratios != 1.0] *= 1 + 4 * EPS
    corners = lower_hull(ratios, deltas)
    return ratios[corners], deltas[corners]


class _Piece(NamedTuple):
    """A part of a curve, from `low` to `high`, that is read off the composition around epsilon and log of delta."""

    epsilon: float
    log_delta: float
    low: float
    high: float


def _composed(curve: Curve, pieces: list[_Piece]) -> list[Points]:
    """The points of each piece, all on one grid, one composition in memory at a time; none where there is no grid."""
    if not pieces:
        return []
    ending = curve.ending(math.exp(pieces[-1].log_delta) * 1e-3 + curve.infinity)
    tilts = [ending.sketch.tilt_at(piece.epsilon) for piece in pieces]
    gap = min(ending.gap(tilt, _WIDTH / (1.0 + tilt), _QUICK_WIDTH / (1.0 + tilt)) for tilt in tilts)
    for _ in range(_MOST_DOUBLINGS):
        atoms: list[tuple[Atoms, int]] = []
        try:
            atoms = ending._atoms(gap, True)
        except TooFine:
            gap = ending.on_lattice(2.0 * gap)
            continue
        if at_least_once([(own.infinity, count) for own, count in atoms]) >= 1.0:
            break
        sketch = Sketch(atoms)
        try:
            return [
                _read(compose(atoms, sketch, sketch.tilt_at(epsilon), None, log_delta), low, high)
                for epsilon, log_delta, low, high in pieces
            ]
        except TooFine:
            gap = ending.on_lattice(2.0 * gap)
        finally:  # grids are remembered for other questions, the transforms of a whole curve need not be
            for own, _ in atoms:
                own.memo.clear()
    return []


def _read(composed: Composed, low: float, high: float) -> Points:
    """Epsilons from about `low` to about `high`, the last one below `low` included, with upper bounds on delta."""
    gap, tilt, size = composed.gap, composed.tilt, len(composed.weights)
    first = max(0, math.floor((low - composed.start) / gap) - 1)
    end = min(size, math.floor((min(high + gap, _LARGEST) - composed.start) / gap) + 1)
    if first >= end:
        return np.zeros(0), np.zeros(0)
    weights = composed.weights[first:]
    slow, fast = _tails(weights, tilt * gap), _tails(weights, (tilt + 1) * gap)
    some = np.unique(np.round(np.linspace(0, end - first - 1, _POINTS)).astype(int))
    values = slow[some] - fast[some] + 4 * (size + 8) * EPS * slow[some]
    losses = composed.start + gap * (first + some)
    values += _noise(composed) + np.exp(
        np.minimum(0.0, composed.tail.log_mass(composed.end) - tilt * np.maximum(0.0, composed.end - losses))
    )
    values = np.where(losses >= composed.largest, 0.0, values + 1e-300)  # what underflowed is below that
    relative = composed.relative + 4 * EPS * (abs(composed.log_scale) + tilt * np.abs(losses) + 4)
    with np.errstate(divide="ignore"):
        logs = np.log(values) + composed.log_scale - tilt * losses + relative
    deltas = np.exp(np.minimum(logs, 0.0)) + composed.infinity * (1 + 1e-13)
    return losses + composed.slack, np.minimum(deltas, 1.0)


def _tails(weights: np.ndarray, rate: float) -> np.ndarray:
    """The sums over i > j of weights_i e^(-rate (i - j)), float [n]."""
    size = len(weights)
    length = int(min(size, max(1.0, _BLOCK / max(rate, 1e-9))))
    result, carry = np.empty(size), 0.0
    falling = np.exp(-rate * np.arange(length + 1))
    for end in range(size, 0, -length):
        start = max(0, end - length)
        own = weights[start:end][::-1]  # from the right
        sums = np.cumsum(own / falling[: len(own)])
        sums = np.concatenate([[0.0], sums])
        part = (carry + sums[:-1] / falling[0]) * falling[: len(own)]
        result[start:end] = part[::-1]
        carry = (carry + sums[-1]) * falling[len(own)]
    return result


def _noise(composed: Composed) -> float:
    """Bound on what the weights' errors add to a tilted sum, at any loss of the grid."""
    each, root = composed.noise
    steps = composed.gap * np.arange(1, len(composed.weights) + 1)
    kernel = np.exp(-composed.tilt * steps) * -np.expm1(-steps)
    return min(each * float(kernel.sum()), root * math.sqrt(dot(kernel, kernel)))
