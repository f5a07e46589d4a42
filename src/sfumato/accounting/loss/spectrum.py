"""Fourier transforms of tilted masses, and products of their powers, with a bound on what rounding does to them.

docs/explanation/round-off.md derives the bounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from sfumato.accounting.doubles import EPS
from sfumato.accounting.loss.atoms import Atoms

SMALL = 1 << 17  # points of a spectrum of which several are remembered
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


def spectrum(atoms: Atoms, tilt: float, middle: int, size: int) -> Spectrum:
    """The spectrum around the middle; the last ones are remembered, if they are small."""
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
    if size <= SMALL:
        for old in [old for old in atoms.memo if old[0] == "spectrum"][:-1]:
            del atoms.memo[old]
        atoms.memo[key] = result
    return result


def product(factors: Sequence[tuple[Spectrum, int]], size: int) -> tuple[np.ndarray, tuple[float, float]]:
    """The product of powers of spectra, and the `noise` of its inverse transform."""
    length = size // 2 + 1
    result = np.zeros(length, dtype=np.complex128)
    wrong = wrong_squared = total = total_squared = 0.0
    for start in range(0, length, _BLOCK):
        block = slice(start, start + _BLOCK)
        log_magnitude = factors[0][1] * factors[0][0].log_magnitude[block]
        for factor, count in factors[1:]:
            log_magnitude += count * factor.log_magnitude[block]
        seen = np.flatnonzero(log_magnitude > _UNSEEN)
        angle = np.zeros(len(seen))
        relative = np.full(len(seen), 8 * EPS)
        for factor, count in factors:
            values, own = factor.values[block][seen], factor.log_magnitude[block][seen] - factor.base
            turn = np.arctan2(np.imag(values), 1 + np.real(values))
            angle += count * turn
            rounding = np.minimum(3 * np.abs(values), 2.0) + 2 * np.abs(own) + 3 * np.abs(turn)
            relative += count * (factor.error * np.exp(-own) + EPS * rounding)
        magnitude = np.exp(log_magnitude[seen])
        result[start + seen] = magnitude * np.exp(1j * angle)
        errors = magnitude * np.expm1(np.minimum(relative, 60.0))
        total, total_squared = total + float(magnitude.sum()), total_squared + float(magnitude @ magnitude)
        wrong, wrong_squared = wrong + float(errors.sum()), wrong_squared + float(errors @ errors)
        if len(seen) < len(log_magnitude):
            most = _most_unseen(factors, block, log_magnitude)
            wrong, wrong_squared = wrong + float(most.sum()), wrong_squared + float(most @ most)
    transform = 4 * EPS * math.log2(size)
    each = 2 * (wrong + transform * total) / size
    return result, (each, math.sqrt(2 * wrong_squared / size) + transform * math.sqrt(2 * total_squared / size))


def _most_unseen(factors: Sequence[tuple[Spectrum, int]], block: slice, log_magnitude: np.ndarray) -> np.ndarray:
    """Bounds on the entries that were taken for zero."""
    unseen = log_magnitude <= _UNSEEN
    logs = [factor.base + math.log(factor.error) for factor, _ in factors]
    if len(factors) == 1:
        ((_, count),) = factors
        return np.full(int(unseen.sum()), math.exp(count * float(np.logaddexp(_UNSEEN / count, logs[0]))))
    sums = sum(
        count * np.logaddexp(factor.log_magnitude[block][unseen], log) for (factor, count), log in zip(factors, logs)
    )
    return np.exp(np.maximum(np.asarray(sums), -600.0))


def _fold(weights: np.ndarray, first: int, size: int) -> np.ndarray:
    """The masses at indices first, first + 1, … added up modulo `size`."""
    first %= size
    padded = np.zeros(-(-(first + len(weights)) // size) * size)
    padded[first : first + len(weights)] = weights
    return padded.reshape(-1, size).sum(axis=0)
