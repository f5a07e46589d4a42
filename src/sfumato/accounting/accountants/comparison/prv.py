"""The privacy random variable accountant of Gopi, Lee and Wutschitz (2021): an estimate with an interval around it.

Losses are rounded to the nearest point of a grid, which is then moved so that their mean is exact. What rounding
leaves has mean zero and averages out over the steps (Hoeffding's inequality), so the mesh may be as wide as
epsilon_error / sqrt(steps / 2 * log(12 / delta_error)) (their Theorem 5.5). One plain Fourier transform composes all
steps.

Kept for comparison: the accountant `pld` is tighter for the same work, and knows smaller deltas. Guarantees that
the truth lies in `epsilon_interval`, for the unit that the events were made for; `estimate` promises nothing. Beyond
the paper, removing and adding a unit are both composed, the mean is bounded from both sides instead of integrated, and
the round-off of the transform counts as an error: a delta that drowns in it is refused.

>>> from sfumato.accounting.events import Gaussian
>>> account = PrvAccountant(Gaussian(0.8).poisson(5e-3) * 1000, epsilon_error=0.1)
>>> low, high = account.epsilon_interval(1e-6)
>>> round(low, 3), round(account.estimate(1e-6), 3), round(high, 3)
(1.904, 2.004, 2.105)
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency
from sfumato.accounting.accountants.comparison.plain_fft import Masses, Sums, TooLong, compose_plainly
from sfumato.accounting.accountants.pld import Parts, directions
from sfumato.accounting.doubles import EPS, dot
from sfumato.accounting.events import Event, Unknown
from sfumato.accounting.pairs import Pair

_SHARE = 1e-3  # of delta that is taken for errors, as in the authors' program
_LEAST_DELTA = 1e-14  # about the round-off of any transform in double precision
_MOST_CELLS = 1 << 20  # of a single step
_MOST_DOUBLINGS = 24  # of the error, until a grid fits
_MEAN_SHARE = 1e-3  # of the error in epsilon that the mean may add
_BLOCK = 300.0  # losses that are summed at once: e^-300 is still a double


class PrvAccountant:
    """An estimate of epsilon, and certified bounds on both sides of it.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        epsilon_error: distance of the certified bounds from the estimate that the mesh is made for, > 0. It is doubled
            where the grid would not fit into memory.

    Raises:
        InputError: the pair of an event is not known.
    """

    method = "prv"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove", *, epsilon_error: float = 0.01) -> None:
        positive(epsilon_error=epsilon_error)
        self._directions = finite_directions(event, adjacency)
        self._epsilon_error = float(epsilon_error)
        self._known: tuple[float, list[_Sums]] = (0.0, [])

    def epsilon(self, delta: float) -> float:
        """The upper end of `epsilon_interval`."""
        return self.epsilon_interval(delta)[1]

    def estimate(self, delta: float) -> float:
        """The paper's estimate of the smallest epsilon; neither an upper nor a lower bound.

        Args:
            delta: in (0, 1).
        """
        return max((sums.epsilon(delta) for sums in self._sums(delta)), default=0.0)

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon at this delta.

        Args:
            delta: in (0, 1).

        Raises:
            InputError: delta is not larger than the errors of the transform.
        """
        low = high = 0.0
        for sums in self._sums(delta):
            error = max(sums.error, _SHARE * delta)
            if error >= delta:
                raise _drowned(delta, error)
            low = max(low, sums.epsilon(delta + error, -1) - sums.distance)
            high = max(high, sums.epsilon(delta - error, 1) + sums.distance)
        return low, high

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1], not below the errors of the transform."""
        non_negative(epsilon=epsilon)
        bound = self._delta(epsilon, 1e-5)
        # the mesh depends on delta, of which the first bound gives the size
        size = min(max(bound, 10 * _LEAST_DELTA), 0.5)
        return min(bound, self._delta(epsilon, 10.0 ** math.floor(math.log10(size))))

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, at once.

        Returns:
            epsilons, float [k], rising from 0; deltas, float [k].
        """
        known = self._sums(1e-6)
        epsilons = np.linspace(0.0, max((sums.end for sums in known), default=0.0), 4001)
        return epsilons, np.array([self._delta(epsilon, 1e-6) for epsilon in epsilons.tolist()])

    def _delta(self, epsilon: float, expected: float) -> float:
        return max((sums.delta(epsilon) for sums in self._sums(expected)), default=0.0)

    def _sums(self, delta: float) -> "list[_Sums]":
        """A composition for each direction, on the mesh for this delta; the last ones are remembered."""
        between(0, 1, ends="()", delta=delta)
        if self._directions and delta < _LEAST_DELTA:
            raise _drowned(delta, _LEAST_DELTA)
        if self._known[0] != delta:
            self._known = delta, [_sums(parts, self._epsilon_error, _SHARE * delta) for parts in self._directions]
        return self._known[1]


def finite_directions(event: Event, adjacency: Adjacency) -> list[Parts]:
    """The dominating pairs, as `directions` gives them, where each of them has a finite loss.

    Raises:
        Unknown: one has none, or an event has no pair.
    """
    found = directions(event, adjacency)
    if any(pair.infinity() >= 1.0 for parts in found for pair, _ in parts):
        raise Unknown('an event with infinite losses only has nothing to put on a grid; use "pld"')
    return found


def _drowned(delta: float, error: float) -> InputError:
    return InputError(
        f'method "prv" cannot certify delta {delta:g}: its plain transform may be off by {error:.1g}; use "pld"'
    )


@dataclass(frozen=True)
class _Sums:
    """A composed distribution of one direction, summed so that delta can be read off.

    Delta at an epsilon between two points is above - discounted * e^(epsilon - loss), taken at the right one of them.

    Attributes:
        start: loss of the first point, about -distance.
        gap: distance of neighbouring points.
        above: mass at and above each point, float [n].
        discounted: the same of mass * e^(this point - its loss), float [n].
        infinity: mass of an infinite loss, which `above` leaves out.
        distance: how far the sum of losses may be off
        error: except with this probability; includes what the transform may have lost or added.
    """

    start: float
    gap: float
    above: np.ndarray
    discounted: np.ndarray
    infinity: float
    distance: float
    error: float

    @property
    def rounding(self) -> float:
        """Relative round-off of the two sums."""
        return 4 * EPS * len(self.above)

    @property
    def end(self) -> float:
        """An epsilon beyond which delta holds nothing but infinite losses and errors."""
        return max(0.0, self.start + self.gap * len(self.above)) + self.distance

    def epsilon(self, delta: float, side: int = 0) -> float:
        """The epsilon >= 0 at which the curve reaches delta, with the round-off of the sums added (1) or taken (-1)."""
        target = delta - self.infinity
        if target <= 0:
            return math.inf
        up, down = 1 + self.rounding * max(side, 0), 1 + self.rounding * max(-side, 0)
        index = int(np.searchsorted(self.discounted * down - self.above * up, -target))  # the first point below target
        loss = self.start + self.gap * index
        if index == len(self.above) or self.above[index] * up <= target:
            return max(0.0, loss - self.gap)
        return max(0.0, loss + math.log(float(self.above[index] * up - target) / float(self.discounted[index] * down)))

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta at an epsilon >= 0, errors included."""
        at = epsilon - self.distance
        index = max(0, math.ceil((at - self.start) / self.gap))
        value = 0.0
        if index < len(self.above):
            above = float(self.above[index]) * (1 + self.rounding)
            value = above - float(self.discounted[index]) * math.exp(at - self.start - self.gap * index)
        return min(1.0, max(0.0, value) + self.infinity + self.error)


def _sums(parts: Parts, epsilon_error: float, delta_error: float) -> _Sums:
    """The composition with the smallest error in epsilon, from the given one on, whose grid fits."""
    for _ in range(_MOST_DOUBLINGS):
        try:
            return _composition(parts, epsilon_error, delta_error)
        except TooLong:
            epsilon_error *= 2.0
    raise InputError('method "prv" has no grid for this event; use "rdp"')


def _composition(parts: Parts, epsilon_error: float, delta_error: float) -> _Sums:
    steps = sum(count for _, count in parts)
    gap = epsilon_error / math.sqrt(steps / 2 * math.log(12 / delta_error))
    outside, tolerance = delta_error / (8 * steps), _MEAN_SHARE * epsilon_error / steps
    rounded = [(_nearest(pair, gap, outside, tolerance), count) for pair, count in parts]
    composed = compose_plainly([(each.masses, count) for each, count in rounded], delta_error / 8)
    finite = math.prod((1.0 - pair.infinity()) ** count for pair, count in parts)
    distance = math.fsum(count * each.distance for each, count in rounded)
    missing = math.fsum(count * each.missing for each, count in rounded)
    return _tails(composed, gap, 1.0 - finite, epsilon_error + distance, delta_error / 6 + missing + composed.error)


def _tails(composed: Sums, gap: float, infinity: float, distance: float, error: float) -> _Sums:
    first = max(0, math.floor((-distance - composed.start) / gap))
    weights = composed.weights[first:]
    above = np.cumsum(weights[::-1])[::-1]
    discounted = np.zeros(len(weights))
    block = min(len(weights), max(1, int(_BLOCK / gap)))
    decay, beyond = np.exp(-gap * np.arange(block + 1)), 0.0
    for low in range(0, len(weights), block or 1)[::-1]:
        here = weights[low : low + block]
        sums = np.cumsum((here * decay[: len(here)])[::-1])[::-1] + beyond * decay[len(here)]
        discounted[low : low + block] = sums / decay[: len(here)]
        beyond = float(discounted[low])
    return _Sums(composed.start + gap * first, gap, above, discounted, infinity, distance, error)


@dataclass(frozen=True)
class _Rounded:
    """A pair whose losses were rounded to the nearest point of a grid with their mean.

    Attributes:
        masses: of the finite losses.
        distance: how far the mean may be off, and each loss by rounding in double precision.
        missing: mass of the finite losses that the grid leaves out.
    """

    masses: Masses
    distance: float
    missing: float


def _nearest(pair: Pair, gap: float, outside: float, tolerance: float) -> _Rounded:
    low, high, missing = reach(pair, outside)
    first, last = round(low / gap), round(high / gap)
    if last - first > _MOST_CELLS:
        raise TooLong(f"{last - first} cells")
    points = gap * np.arange(first, last + 1)
    edges = gap * (np.arange(first, last + 2) - 0.5)
    masses = pair.cells(edges)[0].copy()
    mean, mean_error = _mean(pair, float(edges[0]), float(edges[-1]), tolerance)
    shift = (mean - dot(masses, points)) / max(float(masses.sum()) + pair.atom(), 1e-300)
    if pair.atom():
        masses[min(max(-first, 0), len(masses) - 1)] += pair.atom()
    round_off = 8 * EPS * (max(abs(low), abs(high)) + 1.0)
    return _Rounded(Masses(gap, shift, first, masses), mean_error + round_off, missing)


def reach(pair: Pair, outside: float) -> tuple[float, float, float]:
    """Losses between which all but `outside` of the finite ones lies, and the mass beyond them."""
    low, high = pair.span()
    margin = (high - low) / 4096 + 1e-6  # a cell leaves out its lower end, which may hold mass
    knots = np.linspace(low - margin, high + margin, 4097)
    masses = pair.cells(np.concatenate([[-np.inf], knots, [np.inf]]))[0].copy()
    masses[-1] = max(0.0, masses[-1] - pair.infinity())
    below, above = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    left = max(1, int(np.searchsorted(below, outside / 2, side="right"))) - 1
    right = min(len(knots) - 1, len(knots) - int(np.searchsorted(above[::-1], outside / 2, side="right")))
    return float(knots[left]), float(knots[right]), float(below[left] + above[right + 1])


def _mean(pair: Pair, low: float, high: float, tolerance: float) -> tuple[float, float]:
    """The integral of the loss over P between two losses, and a bound on its error.

    A cell's masses of P and Q tell the mean of e^-loss in it, and so the mean of the loss within two bounds: Jensen's
    inequality and the chord. Cells are halved until the bounds agree.
    """
    edges = np.linspace(low, high, 129)
    while True:
        upper, lower, error = pair.cells(edges)
        some = upper > 0
        left, right = edges[:-1][some], edges[1:][some]
        with np.errstate(divide="ignore", over="ignore"):
            least = np.clip(np.log(upper[some] / lower[some]), left, right)
            share = -np.expm1(left - least) / -np.expm1(left - right)
        most = np.clip(left + share * (right - left), least, right)
        widths = np.zeros(len(upper))
        widths[some] = upper[some] * (most - least)
        if widths.sum() <= 2 * tolerance or len(edges) > 1 << 20:
            break
        split = np.flatnonzero(widths > tolerance / len(widths))
        middles = 0.5 * (edges[split] + edges[split + 1])
        inside = (middles > edges[split]) & (middles < edges[split + 1])
        if not inside.any():
            break
        edges = np.insert(edges, split[inside] + 1, middles[inside])
    bound = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))
    round_off = float((error * (1 + bound)).sum() + 4 * EPS * (upper * (bound + 1)).sum())
    mean = float((upper[some] * 0.5 * (least + most)).sum())
    return mean, 0.5 * float(widths.sum()) + round_off
