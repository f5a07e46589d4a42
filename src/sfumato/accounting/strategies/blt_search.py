"""Optimal buffered Toeplitz strategies (BLT) for given participation limits.

Everything is a power series in closed form: C from scales and decays, its inverse from one symmetric eigenproblem.
Scales stay >= 0 with a sum below 1, so that the coefficients fall and the heaviest pattern is 0, b, 2b, ... exactly
(Kalinin and Lampert 2024, Theorem 2). The product of error and sensitivity has several local minima; descent starts
from several quadratures of the square root, whose coefficients are moments of a measure on [0, 1].
"""

from functools import lru_cache
from typing import get_args

import numpy as np
import scipy

from sfumato._check import between, one_of, whole
from sfumato.accounting.doubles import dot
from sfumato.accounting.strategies.buffered_toeplitz import BufferedToeplitz, geometric_series, inverse, powers
from sfumato.accounting.strategies.numbers import in_rounds
from sfumato.accounting.strategies.objective import descend
from sfumato.accounting.strategies.series import binomial_series
from sfumato.accounting.strategies.strategy import Error
from sfumato.accounting.streams.participation import Participation

MOST_BUFFERS = 10
"""More have never been of use, and their decays can no longer be told apart."""

_LONGEST_MEMORY = (0.1, 1.0, 10.0)  # 1 / (1 - largest decay) that descent starts from, in rounds of the run
_STEPS = 1000


@lru_cache(maxsize=256)
def optimize_blt(participation: Participation, *, buffers: int, error: Error = "mean") -> BufferedToeplitz:
    """The BLT with the least root error that descent from several starts finds.

    Args:
        participation: what one unit may do.
        buffers: number of buffers, 1 to 10; two to four are enough for thousands of rounds.
        error: "mean" or "max", over the prefix sums.

    Raises:
        InputError: buffers are out of range, or the error is another word.

    >>> strategy = optimize_blt(Participation(rounds=64), buffers=2, error="max")
    >>> len(strategy.buffer_decays), sum(strategy.output_scales) <= 1
    (2, True)
    """
    one_of(get_args(Error), error=error)
    whole(buffers=buffers)
    between(1, MOST_BUFFERS, buffers=buffers, remedy="two to four are enough for thousands of rounds")
    rounds = in_rounds(participation.rounds)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(over="ignore", under="ignore"):
            return log_error(point, participation, error)

    points = [descend(objective, start, steps=_STEPS) for start in _starts(int(buffers), rounds)]
    scales, decays = _unpacked(min(points, key=lambda point: objective(point)[0]))
    order = np.argsort(-decays)
    return BufferedToeplitz(tuple(scales[order].tolist()), tuple(decays[order].tolist()))


def _starts(buffers: int, rounds: int) -> list[np.ndarray]:
    """Points from which to descend: decays spread geometrically, scales that fit the square root best."""
    starts = []
    for memory in _LONGEST_MEMORY:
        gaps = np.geomspace(min(0.5, 1.0 / (memory * rounds + 1)), 0.6, buffers) if buffers > 1 else np.array([0.2])
        decays = 1.0 - gaps
        places = np.unique(np.geomspace(1, max(rounds - 1, 1), 200).astype(int))
        wanted = binomial_series(-0.5, rounds + 1)[places]
        weights = np.sqrt(places)
        series = decays ** (places[:, None] - 1.0)
        scales, _ = scipy.optimize.nnls(series * weights[:, None], wanted * weights)
        scales = np.maximum(scales, 0.02 / buffers)  # where it is 0, descent stands still
        scales *= min(1.0, 0.9 / scales.sum())
        left = 1.0 - scales.sum()
        starts.append(np.concatenate([np.log(scales / left), -np.log(gaps / decays)]))
    return starts


def _unpacked(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales, which with what they leave of 1 are a softmax, and decays, which are logistic."""
    weights, logits = np.split(np.clip(point, -600, 600), 2)
    highest = max(0.0, float(weights.max()))
    shares = np.exp(weights - highest)
    return shares / (np.exp(-highest) + shares.sum()), scipy.special.expit(logits)


def log_error(point: np.ndarray, participation: Participation, error: Error) -> tuple[float, np.ndarray]:
    """log of the squared root error, and its gradient.

    Args:
        point: float [2 buffers], logarithms of the scales relative to what they leave of 1, and logits of the decays.
        participation: what one unit may do.
        error: "mean" or "max"; the last prefix sum is the worst.
    """
    rounds = participation.rounds
    scales, decays = _unpacked(point)
    column = geometric_series(scales, decays, rounds)
    moved = _pattern_sum(column, participation)
    to_column = 2 * _pattern_sum(moved[::-1], participation)[::-1] / dot(moved, moved)
    inverse_scales, inverse_decays = inverse(scales, decays)
    sums = np.cumsum(geometric_series(-inverse_scales, inverse_decays, rounds))
    counted = np.arange(rounds, 0, -1) / rounds if error == "mean" else np.ones(rounds)
    variance = dot(counted, sums**2)
    turned = np.cumsum((counted * sums)[::-1]) * 2 / variance  # with respect to the inverse, reversed
    for _ in range(2):  # 1/c changes by -1/c dc 1/c
        turned = _filtered(turned, inverse_scales, inverse_decays)
    to_column -= turned[::-1]
    to_scales, to_decays = np.empty(len(scales)), np.empty(len(scales))
    for p, decay in enumerate(decays):
        series = powers(decay, rounds - 1)
        to_scales[p] = dot(to_column[1:], series)
        to_decays[p] = scales[p] * dot(to_column[2:], np.arange(1, rounds - 1) * series[: max(rounds - 2, 0)])
    to_weights = scales * (to_scales - scales @ to_scales)
    gradient = np.concatenate([to_weights, to_decays * decays * (1 - decays)])
    return float(np.log(variance) + np.log(dot(moved, moved))), gradient


def _filtered(values: np.ndarray, scales: np.ndarray, decays: np.ndarray) -> np.ndarray:
    """C^-1 times the values, for the scales and decays of the inverse."""
    result = values.copy()
    for scale, decay in zip(scales, decays):
        result[1:] -= scipy.signal.lfilter([scale], [1.0, -decay], values[:-1])
    return result


def _pattern_sum(column: np.ndarray, participation: Participation) -> np.ndarray:
    """float [rounds], the sum of columns 0, b, 2b, ..., of which the given one is the first."""
    rounds, period, most = len(column), min(participation.period, len(column)), participation.most
    turns = -(-rounds // period)
    sums = np.cumsum(np.concatenate([column, np.zeros(turns * period - rounds)]).reshape(turns, period), axis=0)
    if most < turns:
        sums[most:] -= sums[:-most].copy()
    return sums.ravel()[:rounds]
