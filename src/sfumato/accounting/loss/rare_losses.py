"""Composition of steps whose rare large losses decide: the steps with such a loss are counted one by one.

Where a single rare loss makes the epsilon in question (small sampling rates, tiny deltas), no tilt makes it likely
without making still larger ones likelier, and the round-off of a transform hides it. So the distribution of a step is
split at a loss into a low and a high part, and T steps are the sum over k of binomial(T, k) times T - k low ones and k
high ones: each term has its own tilt and its own scale, so its error is relative to itself. The terms that are left out
are bounded by the chance of so many high losses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.accounting.loss.atoms import Atoms
from sfumato.accounting.loss.compose import Composed, compose
from sfumato.accounting.loss.sketch import Sketch
from sfumato.accounting.loss.window import best_tilt

_SHARE = 1e-7  # of delta that the terms which are left out may have
_MOST_TERMS = 12
_SPREAD = 10.0  # log of the moment generating function that low losses may have at the tilt that delta needs


@dataclass(frozen=True, eq=False)
class Split:
    """A sum of compositions; read like one.

    Attributes:
        terms: log of a factor and a composition, each.
        rest: bound on the mass of what is left out.
        infinity: mass of an infinite loss.
    """

    terms: tuple[tuple[float, Composed], ...]
    rest: float
    infinity: float

    @property
    def start(self) -> float:
        return min(composed.start for _, composed in self.terms)

    @property
    def end(self) -> float:
        return max(composed.end for _, composed in self.terms)

    @property
    def gap(self) -> float:
        return self.terms[0][1].gap

    @property
    def slack(self) -> float:
        return max(composed.slack for _, composed in self.terms)

    def log_delta(self, epsilon: float, above: bool) -> float:
        """log of an upper (or a lower) bound on delta."""
        logs = [log_factor + composed.log_delta(epsilon, above) for log_factor, composed in self.terms]
        total = self.infinity + (self.rest if above else 0.0)
        logs.append(math.log(total) if total > 0 else -math.inf)
        top = max(logs)
        if top == -math.inf:
            return top
        sign = 1e-12 if above else -1e-12
        return min(0.0, top + math.log(math.fsum(math.exp(log - top) for log in logs)) + sign)

    def share_of_error(self, epsilon: float, above: bool) -> float:
        """The error bound relative to delta at an epsilon, about."""
        high, low = self.log_delta(epsilon, True), self.log_delta(epsilon, False)
        return math.inf if low == -math.inf else math.expm1(min(high - low, 700.0))


def split(parts: Sequence[tuple[Atoms, int]], epsilon: float, log_delta: float, infinity: float) -> Split | None:
    """The composition around one epsilon; None if no split is of use.

    Args:
        parts: distributions on grids of the same gap, each with its count.
        epsilon: where it will be read, about.
        log_delta: log of the finite part of delta there, about.
        infinity: mass of an infinite loss, of the whole composition.

    Raises:
        TooFine: a term has too many points.
    """
    tilt = 1.2 * -log_delta / epsilon
    cuts = [_cut(atoms, count, tilt) for atoms, count in parts]
    which = max(
        range(len(parts)), key=lambda index: parts[index][1] * float(_above(parts[index][0], cuts[index]).sum())
    )
    (atoms, count), cut = parts[which], cuts[which]
    others = [(replace(own, infinity=0.0), times) for own, times in parts if own is not atoms]
    log_high = math.log(float(_above(atoms, cut).sum()) or 1e-320)
    low = replace(atoms, masses=atoms.masses[:cut], infinity=0.0, memo={})
    high = replace(atoms, first=atoms.first + cut, masses=_above(atoms, cut), infinity=0.0, memo={})
    terms = []
    for times in range(min(count, _MOST_TERMS) + 1):
        log_factor = _log_binomial(count, times)
        if log_factor + times * log_high < log_delta + math.log(_SHARE):
            # the chances of more high losses fall at least as fast as a geometric series
            return Split(tuple(terms), 2 * math.exp(log_factor + times * log_high), infinity) if terms else None
        own = [(low, count - times), (high, times), *others]
        own = [(each, number) for each, number in own if number and each.masses.any()]
        if not own:
            return None
        sketch = Sketch(own)
        target = min(0.0, log_delta - log_factor)
        terms.append((log_factor, compose(own, sketch, best_tilt(own, sketch, epsilon, target), epsilon, target)))
    return Split(tuple(terms), 0.0, infinity) if count <= _MOST_TERMS else None


def _above(atoms: Atoms, cut: int) -> np.ndarray:
    return atoms.masses[cut:]


def _cut(atoms: Atoms, count: int, tilt: float) -> int:
    """How many of the lowest losses are low: at this tilt they do not add up to much."""
    losses = tilt * atoms.losses
    with np.errstate(over="ignore"):
        terms = atoms.masses * (np.expm1(np.minimum(losses, 700.0)) - losses)
    return max(1, int(np.searchsorted(np.cumsum(terms), _SPREAD / count)))


def _log_binomial(count: int, times: int) -> float:
    return math.lgamma(count + 1) - math.lgamma(times + 1) - math.lgamma(count - times + 1)
