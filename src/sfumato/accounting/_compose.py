"""Composition of loss distributions by one tilted Fourier transform, with bounds on everything that it leaves
out.

A plain FFT in double precision has an absolute error of about T * 1e-16, which is more than a small delta.
Here the distributions are first multiplied by e^(tilt * loss), so that the losses that decide about the
epsilon in question are the likely ones; the error is then relative to delta. Three terms are kept: the tilted
mass outside of the window (Chernoff's bound on both sides, which also covers what wraps around), the
round-off of the transforms, and the distance by which the losses themselves may be off.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from sfumato.accounting._discrete import Atoms

_OUTSIDE = 1e-13  # tilted mass that may lie outside of the window
_MOST_POINTS = 1 << 22  # of a transform; bounds the memory to about 200 MB
_EPS = float(np.finfo(np.float64).eps)


class TooFine(Exception):
    """The grid has too many points for this composition."""


@dataclass(frozen=True)
class Composed:
    """A composed loss distribution, tilted: mass(loss) = weights * e^(log_scale - tilt * loss).

    Attributes:
        start: loss of the first weight.
        gap: distance of neighbouring losses.
        weights: tilted masses, float [n], >= 0, sum about 1.
        tilt: the tilt.
        log_scale: log of the moment generating function at the tilt.
        error: bound on the tilted mass that is missing, surplus or misplaced.
        infinity: mass of an infinite loss.
        slack: how far the losses may be off.
    """

    start: float
    gap: float
    weights: np.ndarray
    tilt: float
    log_scale: float
    error: float
    infinity: float
    slack: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """(delta, its error bound) at e^epsilon, without the slack."""
        i = max(0, math.floor((epsilon - self.start) / self.gap) + 1)
        reach = i + int(min(len(self.weights), 745.0 / ((self.tilt + 1e-9) * self.gap) + 1))
        weights = self.weights[i:reach]
        beyond = self.start + self.gap * (i + np.arange(len(weights))) - epsilon
        terms = weights * np.exp(-self.tilt * beyond) * -np.expm1(-beyond)
        log_at = self.log_scale - self.tilt * epsilon
        return _scaled(float(terms.sum()), log_at) + self.infinity, _scaled(self.error, log_at)

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at the grid's losses in [0, 600]; for an untilted composition.

        Returns:
            epsilons, float [k], rising; deltas, float [k].
        """
        first = max(0, math.ceil(-self.start / self.gap))
        end = max(first, min(len(self.weights), math.floor((600.0 - self.start) / self.gap) + 1))
        losses = self.start + self.gap * np.arange(first, end)
        if len(losses) == 0:
            return losses, np.zeros(0)
        # what lies beyond 600 counts in full, as if its loss were infinite; sums run from the right, in place
        beyond = float(self.weights[end:].sum())
        discounted = np.exp(-losses)
        discounted *= self.weights[first:end]
        np.cumsum(discounted[::-1], out=discounted[::-1])
        discounted *= np.exp(losses)
        deltas = self.weights[first:end].copy()
        deltas[-1] += beyond
        np.cumsum(deltas[::-1], out=deltas[::-1])
        deltas *= 1.0 + 4 * _EPS * len(self.weights)  # round-off of the two sums
        deltas -= discounted
        deltas += self.error + self.infinity
        np.maximum(losses + self.slack, 0.0, out=losses)
        return losses, np.clip(deltas, 0.0, 1.0, out=deltas)


def _scaled(value: float, log_factor: float) -> float:
    if value <= 0.0:
        return 0.0
    return math.exp(min(math.log(value) + log_factor, 700.0))


def compose(parts: Sequence[tuple[Atoms, int]], sketch: "Sketch", tilt: float) -> Composed:
    """The sum of independent losses, each `count` times.

    Args:
        parts: distributions on grids of the same gap, each with its count >= 1.
        sketch: the same in short.
        tilt: >= 0; the error of `delta` is relative at losses around the tilted mean and above.
    """
    tilted = [_tilt(atoms, tilt) for atoms, _ in parts]
    gap = parts[0][0].gap
    total = sum(count for _, count in parts)
    log_scale = math.fsum(count * log_mgf for (_, log_mgf, _), (_, count) in zip(tilted, parts))
    offset = math.fsum(count * atoms.offset for atoms, count in parts)
    low, high = _window(parts, sketch, tilt, log_scale)
    first = math.floor((low - offset) / gap)
    size = int(next_fast_len(max(16, math.ceil((high - offset) / gap) - first + 1), real=True) or 0)
    if size > _MOST_POINTS:
        raise TooFine(f"{size} points")
    log_spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
    centre = 0
    with np.errstate(divide="ignore"):
        for (weights, _, mean), (atoms, count) in zip(tilted, parts):
            middle = round((mean - atoms.offset) / gap)
            centre += count * middle
            spectrum = np.asarray(rfft(_fold(weights, atoms.first - middle, size)))
            magnitude = np.maximum(np.abs(spectrum), 1e-300)
            log_spectrum += count * (np.log(magnitude) + 1j * np.angle(spectrum))
    log_magnitude = log_spectrum.real
    product = np.zeros_like(log_spectrum)
    seen = log_magnitude > -80.0
    product[seen] = np.exp(log_spectrum[seen])
    weights = np.roll(np.asarray(irfft(product, size)), centre - first)
    error = _OUTSIDE + _round_off(log_magnitude, weights, total)
    infinity = -math.expm1(math.fsum(count * math.log1p(-min(atoms.infinity, 0.5)) for atoms, count in parts))
    slack = math.fsum(count * atoms.slack for atoms, count in parts)
    start = offset + gap * first
    return Composed(start, gap, np.maximum(weights, 0.0), tilt, log_scale, error, infinity, slack)


class Sketch:
    """A distribution in about a thousand points, fine around its bulk: to choose a tilt or a window, not to
    bound.

    Args:
        parts: distributions, each with its count.
    """

    def __init__(self, parts: Sequence[tuple[Atoms, int]]) -> None:
        self._parts = [(*_thin(atoms), count) for atoms, count in parts]

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """log of the moment generating function at `tilt`, and the mean and variance there."""
        log_mgf = mean = variance = 0.0
        for losses, log_masses, count in self._parts:
            exponents = log_masses + tilt * losses
            top = float(exponents.max())
            weights = np.exp(exponents - top)
            sum_ = float(weights.sum())
            centre = float(weights @ losses) / sum_
            log_mgf += count * (top + math.log(sum_))
            mean += count * centre
            variance += count * float(weights @ (losses - centre) ** 2) / sum_
        return log_mgf, mean, variance


def _thin(atoms: Atoms) -> tuple[np.ndarray, np.ndarray]:
    """Losses and log masses of bins whose width grows with the distance from the bulk."""
    size = len(atoms.masses)
    bulk = int(np.argmax(atoms.masses))
    steps = np.unique(np.round(np.geomspace(1, size, 600)).astype(int)) - 1
    starts = np.unique(np.concatenate([[0], bulk - steps, bulk + steps]))
    starts = starts[(starts >= 0) & (starts < size)]
    masses = np.add.reduceat(atoms.masses, starts)
    losses = np.add.reduceat(atoms.masses * atoms.losses, starts)
    some = masses > 0
    return losses[some] / masses[some], np.log(masses[some])


def _tilt(atoms: Atoms, tilt: float) -> tuple[np.ndarray, float, float]:
    """Normalised tilted masses, log of their sum, and the mean loss under them."""
    losses = atoms.losses
    with np.errstate(divide="ignore"):
        exponents = np.log(atoms.masses) + tilt * losses if tilt else np.log(atoms.masses)
    top = float(exponents.max())
    weights = np.exp(exponents - top)
    sum_ = float(weights.sum())
    weights /= sum_
    return weights, top + math.log(sum_), float(weights @ losses)


def _log_mgf(atoms: Atoms, tilt: float) -> float:
    with np.errstate(divide="ignore"):
        exponents = np.log(atoms.masses) + tilt * atoms.losses
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top).sum()))


def _window(parts: Sequence[tuple[Atoms, int]], sketch: Sketch, tilt: float, log_scale: float) -> tuple[float, float]:
    """Losses outside of which at most `_OUTSIDE` of the tilted mass lies, by Chernoff's bound."""
    here, mean, variance = sketch.moments(tilt)
    need = math.log(2 / _OUTSIDE)
    low = math.fsum(count * (atoms.offset + atoms.gap * atoms.first) for atoms, count in parts)
    high = low + math.fsum(count * atoms.gap * (len(atoms.masses) - 1) for atoms, count in parts)
    scale = math.sqrt(2 * need / max(variance, 1e-300))

    def reach(step: float, log_mgf: float, base: float) -> float:
        return (log_mgf - base + need) / abs(step)

    for sign in (1, -1):
        steps = [sign * scale * 1.5**power for power in range(-18, 6)]
        best = min(steps, key=lambda step: reach(step, sketch.moments(tilt + step)[0], here))
        exact = math.fsum(count * _log_mgf(atoms, tilt + best) for atoms, count in parts)
        bound = reach(best, exact, log_scale)
        low, high = (low, min(high, bound)) if sign > 0 else (max(low, -bound), high)
    return min(low, mean), max(high, mean)


def _fold(weights: np.ndarray, first: int, size: int) -> np.ndarray:
    """The masses at indices first, first + 1, … added up modulo `size`."""
    first %= size
    padded = np.zeros(-(-(first + len(weights)) // size) * size)
    padded[first : first + len(weights)] = weights
    return padded.reshape(-1, size).sum(axis=0)


def _round_off(log_magnitude: np.ndarray, weights: np.ndarray, total: int) -> float:
    """Bound on the sum of absolute errors: an error of the spectrum grows by count * |spectrum|^(count - 1)."""
    size = len(weights)
    unit = 4 * _EPS * math.log2(size)
    power = 2.0 * np.exp(np.maximum(2 * (1 - 1 / total) * log_magnitude, -200.0)).sum()
    return unit * (total * math.sqrt(power) + math.sqrt(size * float(weights @ weights)))
