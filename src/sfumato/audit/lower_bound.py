"""A lower bound on ε from runs on two neighbouring data sets: what a mechanism gives away at the least.

An event is chosen beforehand ("a cluster was released"), and counted over independent runs on each data set. An
(ε, δ)-private mechanism has P(E) <= exp(ε) Q(E) + δ, also for the complement and in the other direction, so that the
counts bound ε from below. Shares are replaced by their exact (Clopper-Pearson) ends, all four of which hold at once
with the confidence asked for: so often the bound is below the true ε.

A bound above the stated ε shows that a statement is wrong. One below it proves nothing: another event might show more.

References:
    Jagielski, Ullman, Oprea: Auditing Differentially Private Machine Learning. NeurIPS 2020.
    Clopper, Pearson: The Use of Confidence or Fiducial Limits. Biometrika 1934.

>>> round(epsilon_lower_bound(200, 0, runs=200, delta=1e-5), 2)  # always, and never
3.81
>>> epsilon_lower_bound(110, 100, runs=200, delta=1e-5)  # no difference beyond chance
0.0
"""

import math

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import scipy


def epsilon_lower_bound(first: int, second: int, *, runs: int, delta: float, confidence: float = 0.95) -> float:
    """The least ε that these counts allow.

    Args:
        first, second: of how many runs the event came, on each data set, in [0, runs].
        runs: on each data set, >= 1.
        delta: of the guarantee that is tested, in [0, 1).
        confidence: that the bound holds, in (0, 1).

    Returns:
        >= 0; more runs make it larger where there is something to see: at most about log(runs / 4.4).

    Raises:
        InputError: a count or a number is out of range.
    """
    _check.whole(runs=runs)
    _check.between(0, 1, ends="[)", delta=delta)
    _check.between(0, 1, ends="()", confidence=confidence)
    for count in (first, second):
        if not 0 <= count <= runs:
            raise InputError(f"the event came in {count} of {runs} runs; counts must be in [0, runs]")
    tail = (1 - confidence) / 4
    ends = [_ends(count, runs, tail) for count in (first, second)]
    ratios = []
    for (low, high), (other_low, other_high) in (ends, ends[::-1]):
        ratios.append((low - delta) / other_high)
        ratios.append((1 - high - delta) / (1 - other_low))
    return max(0.0, *(math.log(ratio) for ratio in ratios if ratio > 0), 0.0)


def _ends(count: int, runs: int, tail: float) -> tuple[float, float]:
    """Exact lower and upper end of a share, each wrong with at most probability `tail`."""
    low = float(scipy.special.betaincinv(count, runs - count + 1, tail)) if count else 0.0
    high = float(scipy.special.betaincinv(count + 1, runs - count, 1 - tail)) if count < runs else 1.0
    return low, high
