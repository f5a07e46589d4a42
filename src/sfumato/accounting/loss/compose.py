"""Composition of loss distributions by one tilted Fourier transform, with bounds on everything that it leaves
out.

A plain FFT in double precision has an absolute error of about T * 1e-16, which is more than a small delta.
Here the distributions are first multiplied by e^(tilt * loss), so that the losses that decide about the
epsilon in question are the likely ones; the error is then relative to delta. What is left is bounded and
counted on the safe side: the tilted mass outside of the window (Chernoff's bound, which also covers what
wraps around), the absolute error of each mass that the transforms cause, the relative error of the masses that
go in, and the distance by which losses may be off. docs/explanation/round-off.md derives each of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from sfumato.accounting.doubles import EPS, dot
from sfumato.accounting.loss.atoms import Atoms, TooFine
from sfumato.accounting.loss.sketch import Sketch
from sfumato.accounting.loss.spectrum import SMALL, product, spectrum
from sfumato.accounting.loss.window import Chernoff, window

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
        most = math.exp(-self.tilt * math.log1p(1 / self.tilt)) / (self.tilt + 1) if self.tilt > 0 else 1.0
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
