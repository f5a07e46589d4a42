"""Accountants of other papers, to compare with `pld`: PRV and privacy buckets. sfumato itself states nothing by them.

`pld` is tighter for the same work, and PRV does not know small deltas. Both guarantee that the truth lies in their
`epsilon_interval`, for the unit that the events were made for (docs/explanation/accountants.md compares all of them).

**PRV** (Gopi, Lee and Wutschitz 2021): an estimate with an interval around it. Losses are rounded to the nearest point
of a grid, which is then moved so that their mean is exact. What rounding leaves has mean zero and averages out over
the steps (Hoeffding's inequality), so the mesh may be as wide as epsilon_error / sqrt(steps / 2 * log(12 /
delta_error)) (their Theorem 5.5). One plain Fourier transform composes all steps; `estimate` promises nothing. Beyond
the paper, removing and adding a unit are both composed, the mean is bounded from both sides instead of integrated, and
the round-off of the transform counts as an error: a delta that drowns in it is refused.

>>> from sfumato.accounting import Gaussian
>>> account = PrvAccountant(Gaussian(0.8).poisson(5e-3) * 1000, epsilon_error=0.1)
>>> low, high = account.epsilon_interval(1e-6)
>>> round(low, 3), round(account.estimate(1e-6), 3), round(high, 3)
(1.904, 2.004, 2.105)

**Buckets**: losses rounded to a grid, up for an upper bound and down for a lower one. The first accountant that
followed whole distributions (Meiser and Mohammadi 2018, "Tight on Budget?", here without their correction terms;
Koskela, Jalko, Prediger and Honkela 2021, Section 4). A step may add up to one gap of the grid, so the two bounds are
steps * gap, where connecting the dots errs by about steps * gap^2. What the composition leaves out is added or
subtracted.

>>> account = BucketsAccountant(Gaussian(1.0).poisson(0.01) * 100, gap=1e-4)
>>> low, high = account.epsilon_interval(1e-5)
>>> round(low, 3), round(high, 3)
(0.713, 0.723)

**The plain transform** of PRV is in double precision. Masses are added up modulo a window outside of which little of
the composition lies (Chernoff's bound), transformed, raised to their counts, multiplied and transformed back. The
result is off by at most `error` in total variation. That error is absolute and grows with the number of steps, about
steps * 1e-13: the reason why `pld` tilts the masses first.

>>> coin = Masses(1.0, 0.0, 0, np.array([0.5, 0.5]))
>>> sums = compose_plainly([(coin, 4)], 1e-15)
>>> sums.start, sums.weights[:5].round(4).tolist()
(0.0, [0.0625, 0.25, 0.375, 0.25, 0.0625])
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency
from sfumato.accounting.accountants import RdpAccountant
from sfumato.accounting.events import Event, Unknown
from sfumato.accounting.loss.curve import Curve
from sfumato.accounting.loss.grid import Atoms, TooFine
from sfumato.accounting.numerics import EPS, dot
from sfumato.accounting.pair import Pair
from sfumato.accounting.pld import Parts, directions

_Bound = TypeVar("_Bound")
_SHARE = 1e-3  # of delta: PRV takes it for errors, as the authors' program does, buckets for the ends that are cut
_MOST_CELLS = 1 << 20  # of a single step
_LEAST_PRV_DELTA = 1e-14  # about the round-off of any transform in double precision
_MOST_MESH_DOUBLINGS = 24  # of PRV's error, until a grid fits
_MEAN_SHARE = 1e-3  # of PRV's error in epsilon that the mean may add
_BLOCK = 300.0  # losses that are summed at once: e^-300 is still a double
_TOLERANCE = 0.01  # distance of the bounds of buckets aimed at, relative to epsilon
_LEAST_BUCKETS_DELTA = 1e-30  # grids end 13 standard deviations out
_MOST_GAP_DOUBLINGS = 60  # of the gap of buckets, until a grid fits
_MOST_POINTS = 1 << 21  # of a transform; bounds the memory to about 150 MB
_BINS = 500  # of a sketch on each side of the bulk


class TooLong(Exception):
    """The window has too many points."""


@dataclass(frozen=True)
class Masses:
    """Masses of losses on a grid.

    Attributes:
        gap: distance of neighbouring losses.
        offset: loss of grid index 0.
        first: grid index of the first mass.
        values: mass of each loss, float [n], sum at most 1.
    """

    gap: float
    offset: float
    first: int
    values: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """Loss of each mass, float [n]."""
        return self.offset + self.gap * (self.first + np.arange(len(self.values)))

    def log_mgf(self, tilt: float) -> float:
        """log of the moment generating function."""
        exponents = tilt * self.losses
        top = float(exponents.max())
        return top + math.log(max(dot(self.values, np.exp(exponents - top)), 1e-300))


@dataclass(frozen=True)
class Sums:
    """A composition.

    Attributes:
        start: loss of the first weight.
        weights: masses, float [n], >= 0.
        error: bound on the mass that is missing, surplus or misplaced.
    """

    start: float
    weights: np.ndarray
    error: float


def compose_plainly(parts: Sequence[tuple[Masses, int]], outside: float) -> Sums:
    """The sum of independent losses, each `count` times.

    Args:
        parts: masses on grids of the same gap, each with its count >= 1.
        outside: mass of the composition that may lie beyond each end of the window, > 0.

    Raises:
        TooLong: the window has too many points.
    """
    gap = parts[0][0].gap
    offset = math.fsum(count * masses.offset for masses, count in parts)
    low, high = _window(parts, outside)
    first = math.floor((low - offset) / gap)
    points = max(16.0, (high - offset) / gap - first + 2)
    if not points <= _MOST_POINTS:
        raise TooLong(f"{points:g} points")
    size = int(scipy.fft.next_fast_len(math.ceil(points), real=True) or 0)
    spectra, centre = [], 0
    for masses, count in parts:
        middle = masses.first + int(np.argmax(masses.values))
        centre += count * middle
        spectra.append(np.asarray(scipy.fft.rfft(_fold(masses.values, masses.first - middle, size))))
    product = np.zeros(size // 2 + 1, dtype=np.complex128)
    for spectrum, (_, count) in zip(spectra, parts):
        product += count * (np.log(np.maximum(np.abs(spectrum), 1e-300)) + 1j * np.angle(spectrum))
    magnitude = product.real.copy()
    product = np.where(magnitude > -80.0, np.exp(np.maximum(product, -700.0)), 0.0)
    weights = np.maximum(np.roll(np.asarray(scipy.fft.irfft(product, size)), centre - first), 0.0)
    return Sums(offset + gap * first, weights, 2 * outside + _round_off(spectra, parts, magnitude, weights))


def _round_off(
    spectra: list[np.ndarray], parts: Sequence[tuple[Masses, int]], magnitude: np.ndarray, weights: np.ndarray
) -> float:
    """Bound on the sum of absolute errors: an error in a spectrum is multiplied by count * |product| / |spectrum|."""
    size = len(weights)
    unit = 4 * EPS * math.log2(size)
    growth = np.zeros(len(magnitude))
    for spectrum, (_, count) in zip(spectra, parts):
        lost = np.log(np.maximum(np.abs(spectrum), unit))
        growth += count * np.exp(np.clip(magnitude - lost, -300.0, 0.0))
    return unit * (math.sqrt(2 * dot(growth, growth)) + math.sqrt(size * dot(weights, weights)))


def _window(parts: Sequence[tuple[Masses, int]], outside: float) -> tuple[float, float]:
    """Losses beyond which at most `outside` of the composition lies, on each side."""
    sketches = [(*_sketch(masses), count) for masses, count in parts]
    mean = math.fsum(count * dot(weights, losses) / float(weights.sum()) for losses, weights, count in sketches)
    low = math.fsum(count * (masses.offset + masses.gap * masses.first) for masses, count in parts)
    high = low + math.fsum(count * masses.gap * (len(masses.values) - 1) for masses, count in parts)

    def reach(tilt: float) -> float:
        exponents = [count * _log_mean_exp(tilt * losses, weights) for losses, weights, count in sketches]
        return (math.fsum(exponents) - math.log(outside)) / abs(tilt)

    ends = []
    for sign in (-1.0, 1.0):
        best = min((sign * 10.0 ** (power / 8) for power in range(-64, 65)), key=reach)
        exact = math.fsum(count * masses.log_mgf(best) for masses, count in parts)
        ends.append(sign * (exact - math.log(outside)) / abs(best))
    return min(max(low, ends[0]), mean), max(min(high, ends[1]), mean)


def _log_mean_exp(exponents: np.ndarray, weights: np.ndarray) -> float:
    top = float(exponents.max())
    return top + math.log(dot(weights, np.exp(exponents - top)))


def _sketch(masses: Masses) -> tuple[np.ndarray, np.ndarray]:
    """Mean losses and masses of bins whose width grows with the distance from the bulk."""
    size, bulk = len(masses.values), int(np.argmax(masses.values))
    steps = np.unique(np.round(np.geomspace(1, size, _BINS)).astype(int)) - 1
    starts = np.unique(np.concatenate([[0], bulk - steps, bulk + steps]))
    starts = starts[(starts >= 0) & (starts < size)]
    weights = np.add.reduceat(masses.values, starts)
    losses = np.add.reduceat(masses.values * masses.losses, starts)
    some = weights > 0
    return losses[some] / weights[some], weights[some]


def _fold(values: np.ndarray, first: int, size: int) -> np.ndarray:
    """The masses at indices first, first + 1, … added up modulo `size`."""
    first %= size
    padded = np.zeros(-(-(first + len(values)) // size) * size)
    padded[first : first + len(values)] = values
    return padded.reshape(-1, size).sum(axis=0)


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
        size = min(max(bound, 10 * _LEAST_PRV_DELTA), 0.5)
        return min(bound, self._delta(epsilon, 10.0 ** math.floor(math.log10(size))))

    def _delta(self, epsilon: float, expected: float) -> float:
        return max((sums.delta(epsilon) for sums in self._sums(expected)), default=0.0)

    def _sums(self, delta: float) -> "list[_Sums]":
        """A composition for each direction, on the mesh for this delta; the last ones are remembered."""
        between(0, 1, ends="()", delta=delta)
        if self._directions and delta < _LEAST_PRV_DELTA:
            raise _drowned(delta, _LEAST_PRV_DELTA)
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
    for _ in range(_MOST_MESH_DOUBLINGS):
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

    A cell's masses of P and Q give the mean of e^-loss in it, and so the mean of the loss within two bounds: Jensen's
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


class BucketsAccountant:
    """Two-sided bounds from rounded losses.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        gap: distance of the buckets, > 0; None chooses one that keeps the bounds within 1 % of epsilon, as far as the
            buckets fit into memory.

    Raises:
        InputError: the pair of an event is not known.
    """

    method = "buckets"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove", *, gap: float | None = None) -> None:
        if gap is not None:
            positive(gap=gap)
        self._event = event
        self._adjacency: Adjacency = adjacency
        self._directions = finite_directions(event, adjacency)
        self._gap = gap
        self._known: dict[float, tuple[float, float]] = {}
        self._lower: dict[float, float] = {}

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; 0 <= epsilon <= inf."""
        return self._upper(delta)[1]

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon at this delta.

        Args:
            delta: in (0, 1).

        Raises:
            InputError: the given gap needs more buckets than fit into memory.
        """
        gap, high = self._upper(delta)
        if delta not in self._lower:

            def lower(gap: float) -> float:
                return max(curve.epsilon(delta, gap, False)[0] for curve in self._curves(delta))

            self._lower = {delta: self._fitting(gap, lower, 0.0)[1]}
        return min(self._lower[delta], high), high

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1]."""
        non_negative(epsilon=epsilon)
        size = self._size(lambda account: account.delta(epsilon), 1e-5)
        delta = min(max(size, 1e-30), 0.5)

        def upper(gap: float) -> float:
            return max(curve.delta(epsilon, gap)[1] for curve in self._curves(delta))

        return self._fitting(self._wanted(max(epsilon, 0.1)), upper, 0.0)[1]

    def _upper(self, delta: float) -> tuple[float, float]:
        """The gap, and the upper bound on epsilon with it; remembered for one delta."""
        between(0, 1, ends="()", delta=delta)
        if self._directions and delta < _LEAST_BUCKETS_DELTA:
            least = _LEAST_BUCKETS_DELTA
            raise InputError(f'method "buckets" has a grid for delta >= {least:g}, got {delta:g}; use "pld"')
        if delta not in self._known:

            def upper(gap: float) -> float:
                return max(curve.epsilon(delta, gap, True)[0] for curve in self._curves(delta))

            scale = self._size(lambda account: account.epsilon(delta), 1.0)
            gap, high = self._fitting(self._wanted(scale), upper, 0.0)
            if 0 < high < 0.9 * scale and self._gap is None:  # the scale was too rough a guess
                gap, high = self._fitting(self._wanted(high), upper, 0.0)
            self._known = {delta: (gap, high)}
        return self._known[delta]

    def _wanted(self, epsilon: float) -> float:
        """The gap for an epsilon of about this size."""
        steps = max((sum(count for _, count in parts) for parts in self._directions), default=1)
        return self._gap or 0.9 * _TOLERANCE * epsilon / steps

    def _size(self, ask: Callable[[RdpAccountant], float], otherwise: float) -> float:
        """What to expect, by the Renyi accountant."""
        try:
            found = ask(RdpAccountant(self._event, self._adjacency))
        except Unknown:
            return otherwise
        return found if 0 < found < math.inf else otherwise

    def _fitting(self, gap: float, bound: Callable[[float], _Bound], nothing: _Bound) -> tuple[float, _Bound]:
        """This gap, or the next wider one that fits, and the bound with it."""
        if not self._directions:
            return gap, nothing
        for _ in range(_MOST_GAP_DOUBLINGS):
            try:
                return gap, bound(gap)
            except TooFine as error:
                if self._gap:
                    raise InputError(f"a gap of {gap:g} needs {error}, which is too many; choose a wider one") from None
                gap *= 2.0
        raise InputError('method "buckets" has no grid for this event; use "rdp"')

    def _curves(self, delta: float) -> "list[_Curve]":
        return [_curve(parts, delta) for parts in self._directions]


@dataclass(frozen=True)
class _Curve(Curve):
    """One direction of an event, on buckets.

    Attributes:
        outside: mass of a step that may be cut from each side.
    """

    outside: float

    def _atoms(self, gap: float, above: bool) -> list[tuple[Atoms, int]]:
        return [(_rounded(pair, gap, self.outside, above), count) for pair, count in self.parts]


def _curve(parts: Parts, delta: float) -> _Curve:
    return _Curve(tuple(parts), _SHARE * delta / sum(count for _, count in parts))


def _rounded(pair: Pair, gap: float, outside: float, above: bool) -> Atoms:
    """Losses on multiples of the gap: each bucket's mass at its upper end, or at its lower one.

    The losses that are cut off count as infinite, or as the last one.
    """
    low, high, _ = reach(pair, outside)
    first, last = math.floor(low / gap), math.ceil(high / gap)
    if last - first > _MOST_CELLS:
        raise TooFine(f"{last - first} buckets")
    knots = gap * np.arange(first, last + 1)
    cells = pair.cells(np.concatenate([[-np.inf], knots, [np.inf]]))[0]
    infinity = min(pair.infinity(), float(cells[-1]))
    beyond = max(0.0, float(cells[-1]) - infinity)
    if above:
        masses, infinity = cells[:-1].copy(), infinity + beyond
    else:
        masses = np.append(cells[1:-1], beyond)
    if pair.atom():
        masses[min(max(-first, 0), len(masses) - 1)] += pair.atom()
    return Atoms(gap, 0.0, first, masses, infinity, 8 * EPS * (max(abs(low), abs(high)) + 1.0))
