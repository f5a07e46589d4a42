"""Fourier transforms of tilted masses, and products of their powers, with a bound on what rounding does to them.

docs/explanation/round-off.md derives the bounds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy

from sfumato.accounting.doubles import EPS, dot
from sfumato.accounting.loss.atoms import Atoms

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
