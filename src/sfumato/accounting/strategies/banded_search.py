"""Optimal banded strategies: coefficients and column scales with the least error for given participation limits.

A unit has at most one round in each turn of b = min_separation + 1 rounds, so what counts is the sum of one squared
column norm a turn over the heaviest turns. Early rounds are in more prefix sums than late ones and get more of it:
coefficients and one column norm a turn are optimised together; then the last columns, which the end of the run cuts
short, get what is left to them. docs/explanation/strategies.md derives it.
"""

from functools import lru_cache
from typing import get_args

import numpy as np
import scipy

from sfumato._check import between, one_of, whole
from sfumato.accounting.strategies.banded_toeplitz import BandedToeplitz, check_bands
from sfumato.accounting.strategies.objective import SHARP, descend, exponent, power_mean
from sfumato.accounting.strategies.series import binomial_series
from sfumato.accounting.strategies.stepped import Stepped
from sfumato.accounting.strategies.strategy import Error
from sfumato.accounting.streams.participation import Participation

_MOST_STRETCHES = 16  # column norms; turns are put together where there are more
_MOST_CUT = 2048  # columns at the end that are scaled one by one


@lru_cache(maxsize=256)
def optimize_banded(participation: Participation, *, bands: int, error: Error = "mean") -> BandedToeplitz:
    """The banded strategy with the least root error that descent from the square root finds.

    Args:
        participation: what one unit may do.
        bands: diagonals, 1 to the number of rounds, and at most min_separation + 1 if a unit may take part twice.
        error: "mean" or "max", over the prefix sums.

    Raises:
        InputError: bands are out of range, or the error is another word.

    >>> strategy = optimize_banded(Participation(rounds=64, max_participations=2, min_separation=31), bands=2)
    >>> len(strategy.coefficients), strategy.column_scales[0] > strategy.column_scales[40]
    (2, True)
    """
    one_of(get_args(Error), error=error)
    whole(bands=bands)
    between(1, participation.rounds, bands=bands, remedy="a run has as many diagonals as rounds")
    check_bands(bands, participation)
    rounds = participation.rounds
    plain = _descend(binomial_series(-0.5, int(bands)), Turns((0,), (participation.most,), False), rounds, error)
    best = plain
    turns = Turns.of(participation)
    if len(turns.starts) > 1:
        best = _descend(plain.coefficients, turns, rounds, error)
    inverse_scales = _with_cut_columns(best, error)
    if np.ptp(inverse_scales) == 0:
        return BandedToeplitz(tuple(best.coefficients.tolist()))
    return BandedToeplitz(tuple(best.coefficients.tolist()), tuple((1.0 / inverse_scales).tolist()))


class Turns:
    """The stretches of rounds that share a column norm.

    Attributes:
        starts: their first rounds.
        weights: how many participations each can hold, of those in the heaviest pattern.
        falling: whether norms must not increase, so that the first participations are the heaviest pattern.
    """

    def __init__(self, starts: tuple[int, ...], weights: tuple[int, ...], falling: bool) -> None:
        self.starts, self.weights, self.falling = starts, weights, falling

    @classmethod
    def of(cls, participation: Participation) -> "Turns":
        """One stretch a turn, or several turns; turns beyond the last participation are like the last."""
        most, period = participation.most, participation.period
        firsts = np.unique(np.linspace(0, most, min(most, _MOST_STRETCHES) + 1).astype(int))
        weights = tuple(np.diff(firsts).tolist())
        return cls(tuple((firsts[:-1] * period).tolist()), weights, most * period < participation.rounds)


def _descend(coefficients: np.ndarray, turns: Turns, rounds: int, error: Error) -> Stepped:
    """The least error from these coefficients and equal norms on.

    Squared norms are nu_m = exp(-u_1 - ... - u_m), nu_0 = 1, and eps_m = nu_m^(-1/2); S^2 = ||c||^2 sum weight_m nu_m.
    """
    free = len(coefficients) - 1
    weights = np.array(turns.weights, dtype=np.float64)

    def at(point: np.ndarray) -> Stepped:
        c = np.concatenate([[1.0], point[:free]])
        eps = np.exp(0.5 * np.concatenate([[0.0], np.cumsum(point[free:])]))
        return Stepped.of(c, eps, turns.starts, rounds)

    def log_error(point: np.ndarray) -> tuple[float, np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far, which the search takes back
            stepped = at(point)
            if not np.all(stepped.variance > 0) or not np.all(np.isfinite(stepped.variance)):
                return 1e3, np.zeros_like(point)
            value, gradient = power_mean(stepped.variance, exponent(error))
            to_c, to_eps = stepped.pull_back(gradient)
        squared, shares = float(stepped.coefficients @ stepped.coefficients), weights / stepped.inverse_scales**2
        to_c = to_c + 2 * stepped.coefficients / squared
        to_u = 0.5 * to_eps * stepped.inverse_scales - shares / shares.sum()
        total = np.cumsum(to_u[::-1])[::-1]
        return value + np.log(squared * shares.sum()), np.concatenate([to_c[1:], total[1:]])

    start = np.concatenate([coefficients[1:] / coefficients[0], np.zeros(len(weights) - 1)])
    least = 0.0 if turns.falling else None
    return at(descend(log_error, start, [None] * free + [least] * (len(weights) - 1)))


def _with_cut_columns(stepped: Stepped, error: Error) -> np.ndarray:
    """float [rounds], 1/d where the columns that the end of the run cuts short are scaled one by one.

    The variances are quadratic in the last 1/d, given the row of the prefix sum before them; each is bounded from below
    by what makes its column as long as the whole ones of its stretch.
    """
    rounds, c = stepped.rounds, stepped.coefficients
    everywhere = np.repeat(stepped.inverse_scales, np.diff((*stepped.starts, rounds)))
    cut = min(len(c) - 1, rounds - 1, _MOST_CUT)
    if not cut:
        return everywhere
    first = rounds - cut
    inverse, before = stepped.inverse, float(stepped.variance[first - 1])
    row = stepped.row(first - 1)
    linear = scipy.signal.fftconvolve(row, inverse)[first:rounds]
    gram = np.empty((cut, cut))
    gram[0] = [inverse[: first + 1] @ inverse[lag : lag + first + 1] for lag in range(cut)]
    for i in range(1, cut):
        gram[i, i:] = gram[i - 1, i - 1 : -1] + inverse[first + i] * inverse[first + i : rounds]
    diagonal, below = np.diagonal(gram).copy(), np.triu(gram, 1).T
    lengths = np.sqrt(np.cumsum(c**2)[:cut][::-1] / float(c @ c))
    least = everywhere[first:] * lengths

    def tail_variance(eps: np.ndarray) -> np.ndarray:
        return before + np.cumsum(2 * eps * (linear + below @ eps) + eps**2 * diagonal)

    def log_error(eps: np.ndarray, power: float) -> tuple[float, np.ndarray]:
        variance = np.concatenate([stepped.variance[:first], tail_variance(eps)])
        value, gradient = power_mean(variance, power)
        after = np.cumsum(gradient[::-1])[::-1][first:]
        return value, 2 * after * (linear + below @ eps + eps * diagonal) + 2 * below.T @ (after * eps)

    eps = least
    for power in (1.0,) if error == "mean" else (SHARP / 100, SHARP / 10, SHARP):
        eps = descend(lambda point, power=power: log_error(point, power), eps, least.tolist())

    def worst(last: np.ndarray) -> float:
        variance = np.concatenate([stepped.variance[:first], tail_variance(last)])
        return float(variance.max() if error == "max" else variance.mean())

    last = min(everywhere[first:], least, eps, key=worst)
    return np.concatenate([everywhere[:first], last])
