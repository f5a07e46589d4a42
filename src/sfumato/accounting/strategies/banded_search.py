"""Optimal banded strategies: coefficients and column scales with the least error for given participation limits.

A unit has at most one round in each turn of b = min_separation + 1 rounds, so what counts is the sum of one squared
column norm a turn over the heaviest turns. Early rounds are in more prefix sums than late ones and get more of it:
coefficients and one column norm a turn are optimised together; then the last columns, which the end of the run cuts
short, are scaled up to the norm of their turn. docs/explanation/strategies.md derives it.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, get_args

import numpy as np

from sfumato._check import between, one_of, whole
from sfumato.accounting.strategies.banded_toeplitz import BandedToeplitz, check_bands
from sfumato.accounting.strategies.numbers import in_rounds
from sfumato.accounting.strategies.objective import descend, exponent, power_mean
from sfumato.accounting.strategies.series import binomial_series
from sfumato.accounting.strategies.stepped import Stepped
from sfumato.accounting.strategies.strategy import Error, root_error
from sfumato.accounting.streams.participation import Participation

_MOST_STRETCHES = 16  # column norms; turns are put together where there are more
_FAR = 1e3  # the log of an error that no step may end with


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
    rounds = in_rounds(participation.rounds)
    plain = _descend(binomial_series(-0.5, int(bands)), Turns((0,), (participation.most,), False), rounds, error)
    turns = Turns.of(participation)
    if len(turns.starts) == 1:
        return _cut(plain)
    found = _cut(_descend(plain.coefficients, turns._replace(falling=True), rounds, error))
    if error == "mean":
        return found
    others = [_cut(plain)]  # the largest variance is no smooth function, and cut columns change where it is
    if not turns.falling:
        others.append(_cut(_descend(plain.coefficients, turns, rounds, error)))
    return min(found, *others, key=lambda strategy: root_error(strategy, participation, error))


def _cut(stepped: Stepped) -> BandedToeplitz:
    """The strategy with columns at the run's end that are as long as the whole ones of their stretch."""
    kept = BandedToeplitz(tuple(stepped.coefficients.tolist()))
    norms = kept.column_norms(stepped.rounds)
    scales = np.max(norms) / norms / stepped.by_round()
    return replace(kept, column_scales=tuple(scales.tolist())) if np.ptp(scales) else kept


class Turns(NamedTuple):
    """The stretches of rounds that share a column norm.

    Attributes:
        starts: their first rounds.
        weights: how many participations each can hold, of those in the heaviest pattern.
        falling: whether norms must not increase; where there are more turns than participations, only then are the
            first participations the heaviest pattern.
    """

    starts: tuple[int, ...]
    weights: tuple[int, ...]
    falling: bool

    @classmethod
    def of(cls, participation: Participation) -> "Turns":
        """One stretch a turn, or several turns; turns beyond the last participation are like the last."""
        most, period = participation.most, participation.period
        firsts = np.unique(np.linspace(0, most, min(most, _MOST_STRETCHES) + 1).astype(int))
        weights = tuple(np.diff(firsts).tolist())
        return cls(tuple((firsts[:-1] * period).tolist()), weights, most * period < participation.rounds)


def _descend(coefficients: np.ndarray, turns: Turns, rounds: int, error: Error) -> Stepped:
    """The least error from these coefficients and equal norms on."""
    free, steps = len(coefficients) - 1, len(turns.starts) - 1
    start = np.concatenate([coefficients[1:] / coefficients[0], np.zeros(steps)])
    least = [None] * free + [0.0 if turns.falling else None] * steps
    found = descend(lambda point: log_error(point, turns, rounds, error), start, least)
    return _at(found, turns, rounds)


def log_error(point: np.ndarray, turns: Turns, rounds: int, error: Error) -> tuple[float, np.ndarray]:
    """log of the squared root error, and its gradient; the columns that the run's end cuts short count as whole.

    Args:
        point: float [bands - 1 + stretches - 1], the coefficients after the first one, which is 1, and u: the squared
            norms are nu_m = exp(-u_1 - ... - u_m), nu_0 = 1, and S^2 = ||c||^2 sum_m weight_m nu_m.
        turns: the stretches.
        rounds: of the run.
        error: "mean" or "max".
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a step too far, which the search takes back
        stepped = _at(point, turns, rounds)
        if not np.all(stepped.variance > 0) or not np.all(np.isfinite(stepped.variance)):
            return _FAR, np.zeros_like(point)
        value, gradient = power_mean(stepped.variance, exponent(error))
        to_c, to_eps = stepped.pull_back(gradient)
    squared = float(stepped.coefficients @ stepped.coefficients)
    shares = np.array(turns.weights) / stepped.inverse_scales**2
    to_c = to_c + 2 * stepped.coefficients / squared
    to_u = 0.5 * to_eps * stepped.inverse_scales - shares / shares.sum()
    from_here_on = np.cumsum(to_u[::-1])[::-1]
    return value + float(np.log(squared * shares.sum())), np.concatenate([to_c[1:], from_here_on[1:]])


def _at(point: np.ndarray, turns: Turns, rounds: int) -> Stepped:
    coefficients, u = np.split(point, [len(point) - len(turns.starts) + 1])
    eps = np.exp(0.5 * np.concatenate([[0.0], np.cumsum(u)]))
    return Stepped.of(np.concatenate([[1.0], coefficients]), eps, turns.starts, rounds)
