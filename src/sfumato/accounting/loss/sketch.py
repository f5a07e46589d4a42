"""Moments of a composition from about a thousand points a pair: to choose a tilt, a gap or a window, not to bound."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from sfumato.accounting.doubles import dot
from sfumato.accounting.loss.atoms import Atoms
from sfumato.accounting.loss.outline import outline
from sfumato.accounting.pairs import Pair

_MOST = 1e4  # of tilt * mean: more tells nothing about a distribution that ends


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
            own = outline(pair)
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
