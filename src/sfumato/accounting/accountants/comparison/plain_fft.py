"""Composition by one plain Fourier transform in double precision, as the PRV accountant has it.

Masses are added up modulo a window outside of which little of the composition lies (Chernoff's bound), transformed,
raised to their counts, multiplied and transformed back. Guarantees that the result is off by at most `error` in total
variation. That error is absolute and grows with the number of steps, about steps * 1e-13: the reason why the accountant
proper (`loss.compose`) tilts the masses first.

>>> coin = Masses(1.0, 0.0, 0, np.array([0.5, 0.5]))
>>> sums = compose_plainly([(coin, 4)], 1e-15)
>>> sums.start, sums.weights[:5].round(4).tolist()
(0.0, [0.0625, 0.25, 0.375, 0.25, 0.0625])
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from sfumato.accounting.doubles import EPS, dot

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
