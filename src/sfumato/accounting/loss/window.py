"""Where a composition is worth computing: the tilt, and a window of losses with bounds on what lies outside of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.accounting.loss.atoms import Atoms
from sfumato.accounting.loss.sketch import Sketch
from sfumato.accounting.loss.spectrum import SMALL

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
