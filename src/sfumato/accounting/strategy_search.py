"""The best strategies for given participation limits: banded, BLT and BISR.

>>> limits = Participation(rounds=64, max_participations=2, min_separation=20)
>>> len(optimize_banded(limits).coefficients)
16
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, get_args

import numpy as np

from sfumato._check import between, one_of, whole
from sfumato._lazy import scipy
from sfumato.accounting.events.sensitivity import Participation
from sfumato.accounting.numerics import dot
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BufferedToeplitz,
    Error,
    InverseBanded,
    binomial_series,
    check_bands,
    geometric_series,
    in_rounds,
    inverse,
    padded,
    powers,
    reciprocal,
    root_error,
)

# The error that is made small, as a smooth function of the prefix variances, and the descent that does it.


SHARP = 2000.0
"""The exponent at which a power mean stands for the maximum."""


_STEPS = 400
_FAR_ABOVE = 1.0  # the start, in logarithms of the squared error


def exponent(error: Error) -> float:
    """Of the power mean that stands for this error: 1 is the mean itself."""
    return 1.0 if error == "mean" else SHARP


def power_mean(variance: np.ndarray, power: float) -> tuple[float, np.ndarray]:
    """log of (mean of variance^power)^(1/power), and its gradient.

    Args:
        variance: float [rounds], > 0.
        power: >= 1.
    """
    largest = float(np.max(variance))
    relative = (variance / largest) ** (power - 1)
    total = dot(relative, variance) / largest
    value = np.log(largest) + np.log(total / len(variance)) / power
    return float(value), relative / (total * largest)


def descend(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    least: Sequence[float | None] | None = None,
    steps: int = _STEPS,
) -> np.ndarray:
    """A local minimum near the start, by L-BFGS-B.

    A first step may reach where prefixes explode. The slope there is so steep that a search which looks at it goes back
    to within round-off of the start and calls that an end. So what lies far above the start counts as flat: it is no
    place to stay, and only how far it is too far matters.

    Args:
        function: value, of a logarithm, and gradient.
        start: float [n].
        least: lower bounds, None for a number without; None for none.
        steps: iterations at most.
    """
    if not len(start):
        return start
    highest = function(start)[0] + _FAR_ABOVE

    def bounded(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(point)
        return (value, gradient) if value <= highest else (highest, np.zeros_like(point))

    bounds = None if least is None else [(low, None) for low in least]
    options = {"maxiter": steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-10}
    return scipy.optimize.minimize(bounded, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


# Prefix variances of C = T(c) diag(d) where d is constant over stretches of rounds, with gradients.
#
# With s = A c^-1, the sums of T(c)^-1, and 1/d = eps_m on stretch m, which starts at round start_m, the row of the
# prefix sum at round t of stretch m is
#
#     row_t[j] = h_m[j] + eps_m s[t - j],    h_m[j] = -sum_{1 <= i <= m} (eps_i - eps_{i-1}) s[start_i - 1 - j],
#
# so its squared norm needs one convolution of h_m with s for each stretch: O(stretches * rounds * log(rounds)).


@dataclass(frozen=True, eq=False)
class Stepped:
    """What is known of one c and one eps.

    Attributes:
        coefficients: c, float [bands].
        inverse_scales: eps, float [stretches], > 0.
        starts: first round of each stretch, the first one 0.
        rounds: of the run.
        inverse: first column of T(c)^-1, float [rounds].
        sums: s, float [rounds].
        offsets: h_m of each stretch, float [start_m].
        crossed: (h_m * s)[t] for the rounds of each stretch.
        variance: of the prefix sums, float [rounds].
    """

    coefficients: np.ndarray
    inverse_scales: np.ndarray
    starts: tuple[int, ...]
    rounds: int
    inverse: np.ndarray
    sums: np.ndarray
    offsets: list[np.ndarray]
    crossed: list[np.ndarray]
    variance: np.ndarray

    @classmethod
    def of(cls, coefficients: np.ndarray, inverse_scales: np.ndarray, starts: tuple[int, ...], rounds: int):
        """All of them, from the first four."""
        inverse = reciprocal(coefficients, rounds)
        sums = np.cumsum(inverse)
        squares = np.cumsum(sums**2)
        offsets, crossed, variance = [np.zeros(0)], [np.zeros(0)], np.empty(rounds)
        variance[: _end(starts, 0, rounds)] = inverse_scales[0] ** 2 * squares[: _end(starts, 0, rounds)]
        for m in range(1, len(starts)):
            start, end, eps = starts[m], _end(starts, m, rounds), inverse_scales[m]
            offset = padded(offsets[-1], start) - (eps - inverse_scales[m - 1]) * sums[start - 1 :: -1]
            cross = scipy.signal.fftconvolve(offset, sums[:end])[start:end]
            variance[start:end] = dot(offset, offset) + 2 * eps * cross + eps**2 * squares[start:end]
            offsets.append(offset)
            crossed.append(cross)
        return cls(coefficients, inverse_scales, starts, rounds, inverse, sums, offsets, crossed, variance)

    def by_round(self) -> np.ndarray:
        """float [rounds], eps of each round."""
        return np.repeat(self.inverse_scales, np.diff((*self.starts, self.rounds)))

    def pull_back(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient of weights @ variance with respect to coefficients and inverse scales."""
        to_sums, to_eps = np.zeros(self.rounds), np.zeros(len(self.starts))
        from_later = np.zeros(self.rounds)  # of what follows, with respect to the offset
        for m in reversed(range(len(self.starts))):
            start, end, eps = self.starts[m], _end(self.starts, m, self.rounds), self.inverse_scales[m]
            w = weights[start:end]
            left = np.cumsum(weights[end - 1 :: -1][: end - start])[::-1]  # in this stretch from a round on
            to_sums[start:end] += 2 * eps**2 * self.sums[start:end] * left
            to_sums[:start] += 2 * eps**2 * self.sums[:start] * left[0]
            squares = np.cumsum(self.sums[:end] ** 2)[start:end]
            to_eps[m] += 2 * eps * dot(w, squares)
            if not m:
                break
            offset = self.offsets[m]
            to_eps[m] += 2 * dot(w, self.crossed[m])
            to_sums[:end] += 2 * eps * _correlated(w, offset, start, end)
            from_later[:start] += 2 * left[0] * offset + 2 * eps * _correlated(w, self.sums[:end], start, start)
            step = eps - self.inverse_scales[m - 1]
            turned = from_later[start - 1 :: -1] if start else from_later[:0]
            to_step = -dot(turned, self.sums[:start])
            to_eps[m] += to_step
            to_eps[m - 1] -= to_step
            to_sums[:start] -= step * turned
        return self._to_coefficients(to_sums), to_eps

    def _to_coefficients(self, to_sums: np.ndarray) -> np.ndarray:
        """1/c changes by -1/c dc 1/c."""
        to_inverse = np.cumsum(to_sums[::-1])  # reversed
        back = scipy.signal.fftconvolve(to_inverse, scipy.signal.fftconvolve(self.inverse, self.inverse)[: self.rounds])
        return -back[: self.rounds][::-1][: len(self.coefficients)]


def _end(starts: tuple[int, ...], m: int, rounds: int) -> int:
    return starts[m + 1] if m + 1 < len(starts) else rounds


def _correlated(weights: np.ndarray, values: np.ndarray, start: int, count: int) -> np.ndarray:
    """float [count], sum over t of weights[t - start] * values[t - l] for each lag l, values zero outside."""
    found = scipy.signal.fftconvolve(weights[::-1], padded(values, start + len(weights)))
    last = start + len(weights) - 1
    return found[last::-1][:count]


# Optimal banded strategies: coefficients and column scales with the least error for given participation limits.
#
# A unit has at most one round in each turn of b = min_separation + 1 rounds, so what counts is the sum of one squared
# column norm a turn over the heaviest turns. Early rounds are in more prefix sums than late ones and get more of it:
# coefficients and one column norm a turn are optimised together; then the last columns, which the end of the run cuts
# short, are scaled up to the norm of their turn. docs/explanation/strategies.md derives it.


DEFAULT_BANDS = 16
_MOST_STRETCHES = 16  # column norms; turns are put together where there are more
_FAR = 1e3  # the log of an error that no step may end with


@lru_cache(maxsize=256)
def optimize_banded(participation: Participation, *, bands: int | None = None, error: Error = "mean") -> BandedToeplitz:
    """The banded strategy with the least root error that descent from the square root finds.

    Args:
        participation: what one unit may do.
        bands: diagonals, 1 to the number of rounds, and at most min_separation + 1 if a unit may take part twice; None
            for 16, or as many as that allows.
        error: "mean" or "max", over the prefix sums.

    Raises:
        InputError: bands are out of range, or the error is another word.

    >>> strategy = optimize_banded(Participation(rounds=64, max_participations=2, min_separation=31), bands=2)
    >>> len(strategy.coefficients), strategy.column_scales[0] > strategy.column_scales[40]
    (2, True)
    """
    one_of(get_args(Error), error=error)
    if bands is None:
        most = participation.period if participation.most > 1 else participation.rounds
        return optimize_banded(participation, bands=min(DEFAULT_BANDS, participation.rounds, most), error=error)
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
    found = descend(lambda point: log_error_of_banded(point, turns, rounds, error), start, least)
    return _at(found, turns, rounds)


def log_error_of_banded(point: np.ndarray, turns: Turns, rounds: int, error: Error) -> tuple[float, np.ndarray]:
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


# Optimal buffered Toeplitz strategies (BLT) for given participation limits.
#
# Everything is a power series in closed form: C from scales and decays, its inverse from one symmetric eigenproblem.
# Scales stay >= 0 with a sum below 1, so that the coefficients fall and the heaviest pattern is 0, b, 2b, ... exactly
# (Kalinin and Lampert 2024, Theorem 2). The product of error and sensitivity has several local minima; descent starts
# from several quadratures of the square root, whose coefficients are moments of a measure on [0, 1].


DEFAULT_BUFFERS = 4
MOST_BUFFERS = 10
"""More have never been of use, and their decays can no longer be distinguished."""


_LONGEST_MEMORY = (0.1, 1.0, 10.0)  # 1 / (1 - largest decay) that descent starts from, in rounds of the run
_BLT_STEPS = 1000


@lru_cache(maxsize=256)
def optimize_blt(
    participation: Participation, *, buffers: int = DEFAULT_BUFFERS, error: Error = "mean"
) -> BufferedToeplitz:
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
            return log_error_of_blt(point, participation, error)

    points = [descend(objective, start, steps=_BLT_STEPS) for start in _starts(int(buffers), rounds)]
    scales, decays = _scales_and_decays(min(points, key=lambda point: objective(point)[0]))
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


def _scales_and_decays(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales, which with what they leave of 1 are a softmax, and decays, which are logistic."""
    weights, logits = np.split(np.clip(point, -600, 600), 2)
    highest = max(0.0, float(weights.max()))
    shares = np.exp(weights - highest)
    return shares / (np.exp(-highest) + shares.sum()), scipy.special.expit(logits)


def log_error_of_blt(point: np.ndarray, participation: Participation, error: Error) -> tuple[float, np.ndarray]:
    """log of the squared root error, and its gradient.

    Args:
        point: float [2 buffers], logarithms of the scales relative to what they leave of 1, and logits of the decays.
        participation: what one unit may do.
        error: "mean" or "max"; the last prefix sum is the worst.
    """
    rounds = participation.rounds
    scales, decays = _scales_and_decays(point)
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


# The banded inverse square root (BISR): the first bands of the inverse of the square root, and how many are best.
#
# The square root of the prefix sums has the inverse (1 - x)^(1/2); cut after some coefficients it is still a strategy,
# of which only the number of bands is free (Kalinin, McKenna, Upadhyay and Lampert 2025). Few bands suit many
# participations, all of them one.


_GRID = 1.3  # ratio of neighbouring numbers of bands in the first search
_FINE = 8  # numbers that are tried between two of them


@lru_cache(maxsize=256)
def banded_inverse_square_root(
    participation: Participation, *, bands: int | None = None, error: Error = "mean"
) -> InverseBanded:
    """BISR with a number of bands, or with the best one.

    Args:
        participation: what one unit may do.
        bands: coefficients of C^-1, 1 to the number of rounds; None for the number with the least root error, which is
            searched to within a few percent.
        error: "mean" or "max", over the prefix sums, to choose the bands by.

    Raises:
        InputError: bands are out of range, or the error is another word.

    >>> limits = Participation(rounds=256, max_participations=4, min_separation=63)
    >>> banded_inverse_square_root(limits, bands=3).inverse_coefficients
    (1.0, -0.5, -0.125)
    """
    one_of(get_args(Error), error=error)
    rounds = in_rounds(participation.rounds)
    if bands is not None:
        whole(bands=bands)
        between(1, rounds, bands=bands, remedy="a run has as many diagonals as rounds")
        return _of(int(bands))

    def cost(count: int) -> float:
        return root_error(_of(count), participation, error)

    best = min(_between(1, rounds, _GRID), key=cost)
    low, high = max(1, math.floor(best / _GRID)), min(rounds, math.ceil(best * _GRID))
    return _of(min(_between(low, high, (high / low) ** (1 / _FINE)), key=cost))


def _of(bands: int) -> InverseBanded:
    return InverseBanded(tuple(binomial_series(0.5, bands).tolist()))


def _between(low: int, high: int, ratio: float) -> list[int]:
    """Whole numbers from `low` to `high`, both included, each about `ratio` times the one before."""
    found = [low]
    while found[-1] < high:
        found.append(min(high, max(found[-1] + 1, round(found[-1] * ratio))))
    return found
