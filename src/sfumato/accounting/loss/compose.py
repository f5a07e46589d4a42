"""Composition of loss distributions by one tilted Fourier transform, with bounds on everything that it leaves
out.

A plain FFT in double precision has an absolute error of about T * 1e-16, which is more than a small delta.
Here the distributions are first multiplied by e^(tilt * loss), so that the losses that decide about the
epsilon in question are the likely ones; the error is then relative to delta. What is left is bounded and
counted on the safe side: the tilted mass outside of the window (Chernoff's bound, which also covers what
wraps around), the absolute error of each mass that the transforms cause, the relative error of the masses that
go in, and the distance by which losses may be off. docs/explanation/round-off.md derives each of them.

Moments of a composition from about a thousand points a pair: to choose a tilt, a gap or a window, not to bound.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato._lazy import scipy
from sfumato.accounting.loss.grid import Atoms, TooFine, coarse_grid
from sfumato.accounting.numerics import EPS, dot
from sfumato.accounting.pair import Pair

_MOST = 1e4  # of tilt * mean: more adds nothing about a distribution that ends


class Sketch:
    """Moments of a composition, from a few points.

    Args:
        parts: distributions on a grid, each with its count.
    """

    def __init__(self, parts: Sequence[tuple[Atoms, int]]) -> None:
        self._parts = [(*_thin(atoms), count) for atoms, count in parts if atoms.masses.any()]

    @classmethod
    def of_pairs(cls, parts: Sequence[tuple[Pair, int]], tail: float) -> "Sketch":
        """The sketch of pairs, without the losses that P exceeds, or falls short of, with this probability."""
        sketch = cls([])
        for pair, count in parts:
            own = coarse_grid(pair)
            low, high = own.ends(tail)
            seen = (own.masses > 0) & (own.losses >= low) & (own.losses <= high)
            losses, masses = own.losses[seen], own.masses[seen]
            if pair.atom():
                losses, masses = np.append(losses, 0.0), np.append(masses, pair.atom())
            if len(losses):
                sketch._parts.append((losses, np.log(masses), own.bulk, count))
        return sketch

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """log of the moment generating function at `tilt`, and the mean and variance of the loss there."""
        log_mgf = mean = variance = 0.0
        for losses, log_masses, _, count in self._parts:
            weights = log_masses + tilt * losses
            top = float(weights.max())
            weights = np.exp(weights - top)
            sum_ = float(weights.sum())
            centre = dot(weights, losses) / sum_
            log_mgf += count * (top + math.log(sum_))
            mean += count * centre
            variance += count * dot(weights, (losses - centre) ** 2) / sum_
        return log_mgf, mean, variance

    def log_mgfs(self, tilts: np.ndarray) -> np.ndarray:
        """log of the moment generating function at many tilts."""
        result = np.zeros(len(tilts))
        for losses, log_masses, _, count in self._parts:
            exponents = log_masses + tilts[:, None] * losses
            top = exponents.max(axis=1)
            result += count * (top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))
        return result

    def spread(self, gap: float, tilt: float) -> float:
        """Variance that chords over cells of this width add to the composed loss, under the tilt."""
        total = 0.0
        for losses, log_masses, bulk, count in self._parts:
            weights = log_masses + tilt * losses
            weights = np.exp(weights - weights.max())
            # a grid point lies on the bulk, so that a bulk narrower than a cell hardly moves
            moved = np.minimum(np.abs(losses - bulk) * gap, gap * gap / 6)
            total += count * dot(weights, moved) / float(weights.sum())
        return total

    def tilt_at(self, epsilon: float) -> float:
        """The tilt that puts the mean at a loss; 0 where the mean is above it anyway."""
        return self._first_beyond(lambda mgf, mean, variance, tilt: mean > epsilon)

    def saddle(self, log_delta: float) -> tuple[float, float]:
        """(tilt, epsilon) at which the saddle point approximation of delta has this logarithm."""
        tilt = self._first_beyond(
            lambda mgf, mean, variance, tilt: mgf - tilt * mean - _log_kernel(tilt, variance) < log_delta
        )
        return tilt, self.moments(tilt)[1]

    def log_delta(self, epsilon: float) -> float:
        """log of the saddle point approximation of delta."""
        tilt = self.tilt_at(epsilon)
        log_mgf, _, variance = self.moments(tilt)
        return min(0.0, log_mgf - tilt * epsilon - _log_kernel(tilt, variance))

    def _first_beyond(self, beyond: Callable[[float, float, float, float], bool]) -> float:
        def enough(tilt: float) -> bool:
            log_mgf, mean, variance = self.moments(tilt)
            return (
                beyond(log_mgf, mean, variance, tilt) or tilt * abs(mean) > _MOST
            )  # where all mass is at the largest loss

        low, high = 0.0, 1.0
        while high < 1e15 and not enough(high):
            low, high = high, 4 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if enough(middle) else (middle, high)
            if high - low < 0.01 * low or high < 1e-12:
                break
        return low


def _log_kernel(tilt: float, variance: float) -> float:
    """log of the factor by which delta is smaller than e^(log mgf - tilt * epsilon), for a normal bulk."""
    return math.log1p(tilt * (tilt + 1) * math.sqrt(2 * math.pi * variance))


def _thin(atoms: Atoms) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean losses and log masses of bins whose width grows with the distance from the bulk, and the bulk."""
    if "thin" not in atoms.memo:
        size = len(atoms.masses)
        bulk = int(np.argmax(atoms.masses))
        steps = np.round(np.geomspace(1, size, 600)).astype(int) - 1
        starts = np.sort(np.concatenate([[0], bulk - steps, bulk + steps]))
        starts = starts[(starts >= 0) & (starts < size) & (np.diff(starts, prepend=-size) > 0)]
        masses = np.add.reduceat(atoms.masses, starts)
        losses = np.add.reduceat(atoms.masses * atoms.losses, starts)
        some = masses > 0
        atoms.memo["thin"] = losses[some] / masses[some], np.log(masses[some]), float(atoms.losses[bulk])
    return atoms.memo["thin"]


# Fourier transforms of tilted masses, and products of their powers, with a bound on what rounding does to them.
#
# docs/explanation/round-off.md derives the bounds.


SMALL = 1 << 17  # points of the spectra of a composition that are remembered
_BLOCK = 1 << 16  # frequencies that are multiplied at a time, so that temporary arrays stay small
_UNSEEN = -80.0  # log magnitude of an entry that counts as zero


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The transform of tilted masses, as e^base (1 + values).

    Most steps of a sampled mechanism have a loss near zero, all in one mass: the transform is then almost a constant,
    whose round-off would count at every frequency.

    Attributes:
        base: log of the constant.
        values: deviations from it, complex [n / 2 + 1].
        log_magnitude: log of the magnitude of the transform.
        error: bound on the absolute error of each value.
    """

    base: float
    values: np.ndarray
    log_magnitude: np.ndarray
    error: float


def spectrum(atoms: Atoms, tilt: float, middle: int, size: int, *, remember: bool) -> Spectrum:
    """The spectrum around the middle; the last ones are remembered, if that is asked for."""
    key = ("spectrum", tilt, middle, size)
    if key in atoms.memo:
        return atoms.memo[key]
    weights, _ = atoms.tilted(tilt)
    heaviest = float(weights[middle - atoms.first])
    weights[middle - atoms.first] = 0.0  # it lies at the origin: its transform is the constant
    values = np.asarray(scipy.fft.rfft(_fold(weights, atoms.first - middle, size), overwrite_x=True))
    error = 4 * EPS * math.log2(size) * float(weights.sum())
    if heaviest > 0.5:
        base, error = math.log(heaviest), error / heaviest
        values /= heaviest
    else:
        base, error = 0.0, error + 2 * EPS
        values += heaviest - 1.0
    real, imaginary = np.real(values), np.imag(values)
    square = real**2
    square += imaginary**2
    square += 2 * real
    log_magnitude = np.log1p(np.maximum(square, -0.9, out=square), out=square)
    log_magnitude *= 0.5
    far = np.flatnonzero(log_magnitude < -0.3)
    log_magnitude[far] = np.log(np.maximum(np.abs(1 + values[far]), 1e-300))
    log_magnitude += base
    result = Spectrum(base, values, log_magnitude, max(error, 1e-300))
    if remember:
        for old in [old for old in atoms.memo if old[0] == "spectrum"][:-1]:
            del atoms.memo[old]
        atoms.memo[key] = result
    return result


def product(factors: Iterable[tuple[Spectrum, int]], size: int) -> tuple[np.ndarray, tuple[float, float]]:
    """The product of powers of spectra, and the `noise` of its inverse transform; one spectrum in memory at a time.

    A frequency is dropped as soon as the product so far is next to nothing there: no later factor is above one.
    """
    product_so_far = _Product(np.arange(size // 2 + 1))
    for factor, count in factors:
        product_so_far.multiply(factor, count)
    return product_so_far.finish(size)


class _Product:
    """A product of powers of spectra at the frequencies where it is not nothing."""

    def __init__(self, frequencies: np.ndarray) -> None:
        self._length = len(frequencies)
        self._alive = frequencies
        self._log_magnitude, self._angle, self._log_most = np.zeros((3, self._length))
        self._relative = np.full(self._length, 8 * EPS)
        self._wrong = self._wrong_squared = self._later = 0.0

    def multiply(self, factor: Spectrum, count: int) -> None:
        log_error = factor.base + math.log(factor.error)
        own = factor.log_magnitude[self._alive]
        self._log_magnitude += count * own
        self._log_most += count * np.logaddexp(own, log_error)
        self._later += count * math.exp(log_error)
        self._drop(self._log_magnitude > _UNSEEN)
        for start in range(0, len(self._alive), _BLOCK):
            block = slice(start, start + _BLOCK)
            at = self._alive[block]
            values, own = factor.values[at], factor.log_magnitude[at] - factor.base
            turn = np.arctan2(np.imag(values), 1 + np.real(values))
            self._angle[block] += count * turn
            rounding = np.minimum(3 * np.abs(values), 2.0) + 2 * np.abs(own) + 3 * np.abs(turn)
            self._relative[block] += count * (factor.error * np.exp(-own) + EPS * rounding)

    def finish(self, size: int) -> tuple[np.ndarray, tuple[float, float]]:
        """The product at all frequencies, and what its inverse transform may be off by: each entry, and in square."""
        result = np.zeros(self._length, dtype=np.complex128)
        total = total_squared = 0.0
        grown = math.exp(min(self._later, 60.0))  # what was dropped may have been multiplied by a bit more than one
        wrong, wrong_squared = grown * self._wrong, grown * grown * self._wrong_squared
        for start in range(0, len(self._alive), _BLOCK):
            block = slice(start, start + _BLOCK)
            magnitude = np.exp(self._log_magnitude[block])
            result[self._alive[block]] = magnitude * np.exp(1j * self._angle[block])
            errors = magnitude * np.expm1(np.minimum(self._relative[block], 60.0))
            total, total_squared = total + float(magnitude.sum()), total_squared + dot(magnitude, magnitude)
            wrong, wrong_squared = wrong + float(errors.sum()), wrong_squared + dot(errors, errors)
        transform = 4 * EPS * math.log2(size)
        each = 2 * (wrong + transform * total) / size
        return result, (each, math.sqrt(2 * wrong_squared / size) + transform * math.sqrt(2 * total_squared / size))

    def _drop(self, seen: np.ndarray) -> None:
        if seen.all():
            return
        most = np.exp(np.maximum(self._log_most[~seen], -600.0))
        self._wrong += float(most.sum())
        self._wrong_squared += dot(most, most)
        self._alive, self._log_magnitude = self._alive[seen], self._log_magnitude[seen]
        self._angle, self._log_most, self._relative = self._angle[seen], self._log_most[seen], self._relative[seen]


def _fold(weights: np.ndarray, first: int, size: int) -> np.ndarray:
    """The masses at indices first, first + 1, … added up modulo `size`."""
    first %= size
    padded = np.zeros(-(-(first + len(weights)) // size) * size)
    padded[first : first + len(weights)] = weights
    return padded.reshape(-1, size).sum(axis=0)


# Where a composition is worth computing: the tilt, and a window of losses with bounds on what lies outside of it.


_SHARE = 1e-7  # of delta that the window may lose or add
_LEAST_VALUE = 1e-6  # of delta relative to what transforms may err by: more than their round-off
_STEPS = 1.5 ** np.arange(-14.0, 5.0)  # of Chernoff's bound, in its natural unit


@dataclass(frozen=True)
class Chernoff:
    """Bounds e^(scale - step * loss) on the tilted mass above a loss; the smallest counts. None: there is no such mass.

    Attributes:
        scales: float [k].
        steps: float [k], > 0.
    """

    scales: tuple[float, ...]
    steps: tuple[float, ...]

    def log_mass(self, loss: float) -> float:
        if not self.scales:
            return -math.inf
        return min(0.0, *(scale - step * loss for scale, step in zip(self.scales, self.steps)))


def best_tilt(parts: Sequence[tuple[Atoms, int]], sketch: Sketch, epsilon: float, log_delta: float) -> float:
    """The tilt that moves the mean to epsilon, or a smaller one where that needs many fewer points.

    Losses that are rare but huge (small sampling rates) make for long windows under the first one.
    """
    most = _ladder(sketch.tilt_at(epsilon))
    found = window(parts, sketch, most, epsilon, log_delta)
    best, points = most, (found.high - found.low) / parts[0][0].gap
    if points < SMALL:
        return most
    for share in (0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09, 0.06):
        tilt = _ladder(share * most)
        if log_delta + tilt * epsilon - sketch.moments(tilt)[0] < math.log(_LEAST_VALUE):
            break
        found = window(parts, sketch, tilt, epsilon, log_delta)
        needed = (found.high - found.low) / parts[0][0].gap
        if needed < 0.7 * points:
            best, points = tilt, needed
    return best


def _ladder(tilt: float) -> float:
    """One of few different tilts, so that spectra can be reused; a tilt need not be exact."""
    return 2.0 ** (round(8 * math.log2(tilt)) / 8) if tilt > 1e-9 else 0.0


@dataclass(frozen=True)
class Window:
    """Ends of a window, the largest loss of all, and the steps of tilt that Chernoff's bounds above and below take."""

    low: float
    high: float
    largest: float
    above: tuple[float, ...]
    below: tuple[float, ...]


def window(
    parts: Sequence[tuple[Atoms, int]], sketch: Sketch, tilt: float, epsilon: float | None, log_delta: float
) -> Window:
    """A window whose errors are about `_SHARE` of delta.

    What is lost above the window counts little there, and what wraps around from below lands there: so the window may
    be much shorter than the tilted distribution.
    """
    here, mean, variance = sketch.moments(tilt)
    gap = parts[0][0].gap
    least = math.fsum(count * (atoms.offset + gap * atoms.first) for atoms, count in parts)
    largest = least + math.fsum(count * gap * (len(atoms.masses) - 1) for atoms, count in parts)
    known = epsilon is not None
    if epsilon is None:
        epsilon, log_delta = mean, here - tilt * mean + math.log(1e-6)
    allowed = log_delta + tilt * epsilon - here + math.log(_SHARE)  # log of the tilted mass that may go astray
    variance = max(variance, gap**2)
    unit = math.sqrt(2 * max(-allowed, 1.0) / variance)
    steps = 2.0 ** round(math.log2(unit)) * _STEPS  # the same for many counts, whose moments are remembered

    scales = sketch.log_mgfs(tilt + steps) - here
    ends = (scales - allowed + tilt * epsilon) / (steps + tilt)  # beyond which losses count little
    returns = (scales - allowed) / steps  # beyond which they may come back to epsilon
    near, far = int(np.argmin(ends)), int(np.argmin(returns))
    above = tuple({float(steps[near]), float(steps[far])})
    high = max(float(ends[near]), epsilon) + gap
    if high >= largest:
        high, above = largest, ()
    beyond = float(returns[far]) - epsilon if above else 0.0

    starts = (allowed - sketch.log_mgfs(tilt - steps) + here) / steps
    lowest = int(np.argmax(starts))
    width = max(high - float(starts[lowest]), beyond)
    if tilt > 0 and known:
        width = min(width, max((-math.log(_SHARE) - log_delta) / tilt, beyond))
    low = min(high - width, epsilon - 2 * math.sqrt(variance) - 4 * gap, mean)
    if low <= least:  # nothing below the window; what lies above it must not come back to epsilon either
        return Window(least, min(max(high, least + beyond), largest), largest, above, ())
    return Window(low, high, largest, above, (float(steps[lowest]),))


_MOST_POINTS = 1 << 21  # of a transform; bounds the memory to about 100 MB
_SMALL_IN_ALL = 1 << 20  # points of all spectra, up to which they are remembered
_REACH = 60.0  # exponent beyond which a kernel counts as nothing


@dataclass(frozen=True, eq=False)
class Composed:
    """A composed loss distribution, tilted: mass(loss) = weights * e^(log_scale - tilt * loss).

    Attributes:
        start: loss of the first weight.
        gap: distance of neighbouring losses.
        weights: tilted masses, float [n], >= 0, sum about 1.
        largest: the largest loss of all.
        tilt: the tilt, >= 0.
        log_scale: log of the moment generating function at the tilt.
        tail: bound on the tilted mass above any loss; -inf from the largest loss on.
        wrapped: bound on the tilted mass below the window, which wraps around to its upper part.
        noise: bound on the absolute error of each weight, and on the root of the sum of their squares.
        relative: bound on the relative error of the masses.
        infinity: mass of an infinite loss.
        slack: how far the losses may be off.
    """

    start: float
    gap: float
    weights: np.ndarray
    largest: float
    tilt: float
    log_scale: float
    tail: Chernoff
    wrapped: float
    noise: tuple[float, float]
    relative: float
    infinity: float
    slack: float

    @property
    def end(self) -> float:
        """The loss at which the window ends."""
        return self.start + self.gap * len(self.weights)

    def log_delta(self, epsilon: float, above: bool) -> float:
        """log of an upper (or a lower) bound on delta."""
        epsilon += -self.slack if above else self.slack
        if epsilon < self.start:  # the window was made for another epsilon
            return 0.0 if above else -math.inf
        value, error = self._tilted(epsilon, above) if epsilon < self.largest else (0.0, 0.0)
        value += error if above else -error
        log_at = self.log_scale - self.tilt * epsilon
        relative = self.relative + 4 * EPS * (abs(self.log_scale) + self.tilt * abs(epsilon))
        sign = 1.0 if above else -1.0
        log_value = math.log(value) + log_at + sign * relative if value > 0 else -math.inf
        if self.infinity > 0:
            log_value = float(np.logaddexp(log_value, math.log(self.infinity) + sign * 1e-13))
        return min(log_value, 0.0)

    def share_of_error(self, epsilon: float, above: bool) -> float:
        """The error bound relative to delta at an epsilon."""
        value, error = self._tilted(max(epsilon, self.start), above)
        return error / value if value > 0 else math.inf

    def _tilted(self, epsilon: float, above: bool) -> tuple[float, float]:
        """E[e^(-tilt x) (1 - e^-x)] of x = loss - epsilon > 0 under the tilted masses, and its error."""
        i = max(0, math.floor((epsilon - self.start) / self.gap) + 1)
        first = self.start + self.gap * i - epsilon
        most = math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (self.tilt + 1) if self.tilt > 1e-300 else 1.0
        rising, falling = self._kernels
        weights = self.weights[i : i + len(rising)]
        # e^-a(x+y) (1 - e^-(x+y)) = e^-ax (e^-ay (1 - e^-y) + e^-(a+1)y (1 - e^-x)): no difference of large terms
        value = dot(weights, rising[: len(weights)]) - math.expm1(-first) * dot(weights, falling[: len(weights)])
        value *= math.exp(-self.tilt * first)
        error = self._kernel_noise + 512 * EPS * value
        if above:  # the kernel is below e^-60 beyond its reach, and falls from the window's end on
            error += 1e-26
            error += math.exp(self.tail.log_mass(self.end) - self.tilt * max(0.0, self.end - epsilon))
        else:
            # what wraps around: from below, where the untilted mass is at most one, and from a window's width above
            width = self.end - self.start
            below = min(self.wrapped * most, math.exp(min(0.0, self.tilt * (epsilon - width) - self.log_scale)))
            error += below + most * math.exp(self.tail.log_mass(epsilon + width))
        return value, error

    @cached_property
    def _kernels(self) -> tuple[np.ndarray, np.ndarray]:
        """e^(-tilt y) (1 - e^-y) and e^(-(tilt + 1) y) at y = 0, gap, 2 gap, …, as far as they count."""
        reach = int(min(len(self.weights), _REACH / ((self.tilt + 1e-9) * self.gap) + 1))
        steps = self.gap * np.arange(reach + 1)
        rising = np.exp(-self.tilt * steps)
        decay = np.expm1(-steps)
        falling = rising * (1 + decay)
        rising *= -decay
        return rising, falling

    @cached_property
    def _kernel_noise(self) -> float:
        """Bound on what the errors of the weights add to a tilted sum, wherever its kernel begins."""
        rising, falling = self._kernels
        return self._noise(rising - math.expm1(-self.gap) * falling)

    def _noise(self, kernel: np.ndarray) -> float:
        """Bound on the sum of the weights' errors times a kernel >= 0, by both of Hoelder's inequalities."""
        each, root = self.noise
        return min(each * float(kernel.sum()), root * math.sqrt(dot(kernel, kernel)))


def compose(
    parts: Sequence[tuple[Atoms, int]],
    sketch: Sketch,
    tilt: float,
    epsilon: float | None = None,
    log_delta: float = math.log(1e-6),
) -> Composed:
    """The sum of independent losses, each `count` times.

    Args:
        parts: distributions on grids of the same gap, each with its count >= 1.
        sketch: the same in short.
        tilt: >= 0; the error of `log_delta` is relative at losses around the tilted mean and above.
        epsilon: where it will be read, about; None for everywhere.
        log_delta: log of delta there, about.

    Raises:
        TooFine: the window has too many points.
    """
    gap = parts[0][0].gap
    log_scale = math.fsum(count * atoms.log_mgf(tilt) for atoms, count in parts)
    offset = math.fsum(count * atoms.offset for atoms, count in parts)
    ends = window(parts, sketch, tilt, epsilon, log_delta)
    low, high = ends.low, ends.high
    first = math.floor((low - offset) / gap)
    size = (high - offset) / gap - first + 2
    if not size <= _MOST_POINTS:
        raise TooFine(f"{size:g} points")
    size = _size(math.ceil(size))
    centre = sum(count * atoms.heaviest(tilt) for atoms, count in parts)
    remember = size * len(parts) <= _SMALL_IN_ALL and size <= SMALL
    factors = (
        (spectrum(atoms, tilt, atoms.heaviest(tilt), size, remember=remember), count)
        for atoms, count in sorted(parts, key=lambda part: -part[1])
    )
    values, noise = product(factors, size)
    weights = np.roll(np.asarray(scipy.fft.irfft(values, size, overwrite_x=True)), (centre - first) % size)
    np.maximum(weights, 0.0, out=weights)

    def scale_at(other: float) -> float:
        return math.fsum(count * atoms.log_mgf(other) for atoms, count in parts) - log_scale + 1e-6

    return Composed(
        start=offset + gap * first,
        gap=gap,
        weights=weights,
        largest=ends.largest,
        tilt=tilt,
        log_scale=log_scale,
        tail=Chernoff(tuple(scale_at(tilt + step) for step in ends.above), ends.above),
        wrapped=math.fsum(math.exp(min(0.0, scale_at(tilt - step) + step * low)) for step in ends.below),
        noise=noise,
        relative=math.fsum(count * atoms.relative_error(tilt) for atoms, count in parts) + 64 * EPS,
        infinity=at_least_once([(atoms.infinity, count) for atoms, count in parts]),
        slack=math.fsum(count * atoms.slack for atoms, count in parts) + 8 * EPS * max(abs(low), abs(high)),
    )


def at_least_once(chances: Sequence[tuple[float, int]]) -> float:
    """The chance that any of these happens, given the chance of each and how often it is tried."""
    if any(chance >= 1.0 for chance, _ in chances):
        return 1.0
    return 0.0 - math.expm1(math.fsum(count * math.log1p(-chance) for chance, count in chances))


def _size(least: int) -> int:
    """A length with small factors, so that the error bound of the transform holds; few different ones."""
    rough = 1 << max(4, (least - 1).bit_length() - 3)
    return int(scipy.fft.next_fast_len(-(-least // rough) * rough, real=True) or 0)
