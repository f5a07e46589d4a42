"""Squared sensitivity of matrix mechanisms: the most that one unit can move C x, for the noise C^-1 z.

Row t of C x + z is released in round t; C is lower triangular and column j is what a contribution in round j does to
this and later rows. A unit with contributions of norm at most 1 in the rounds of a pattern moves C x by at most

    S^2 = max over patterns of sum_{i,j in the pattern} |<C_i, C_j>|,

which is attained where no inner product is negative (Choquette-Choo et al. 2023, Eq. 5). Known exactly are

- columns whose supports do not meet within a pattern (at most b bands): the heaviest pattern of ||C_j||^2, by dynamic
  programming (ibid., Algorithm 3);
- Toeplitz matrices with non-increasing coefficients >= 0: rounds 0, b, 2b, ... (Kalinin and Lampert 2024, Theorem 2),
  as every inner product falls when two rounds move apart or back.

Anything else gets an upper bound: for Toeplitz matrices the coefficients' non-increasing envelope, for other matrices
each round with the heaviest partners that it could have by itself. All results are rounded up.

>>> ones = Participation(rounds=4, max_participations=2, min_separation=1)
>>> value, exact = toeplitz([1.0, 0.5], ones)               # columns (1, .5, 0, 0) and (0, 0, 1, .5)
>>> round(value, 12), exact
(2.5, True)
"""

from collections.abc import Callable, Sequence

import numpy as np

from sfumato._check import InputError
from sfumato.accounting.doubles import EPS
from sfumato.accounting.streams.participation import Participation
from sfumato.accounting.streams.tree_sensitivity import Squared

_CHUNK = 1 << 20  # coefficients that are held at a time
_MOST_WORK = 500_000_000  # steps of the search for the heaviest pattern
MOST_ROWS = 4096
"""Largest matrix that is taken as it is."""


def banded(squared_norms: np.ndarray, participation: Participation) -> Squared:
    """Columns that are orthogonal within every pattern.

    Args:
        squared_norms: float [rounds], ||C_j||^2 >= 0; or [1] where all are equal.
        participation: what one unit may do.
    """
    if len(squared_norms) == 1:
        return _up(float(squared_norms[0]) * participation.most, 4, True)
    value, exact = heaviest(squared_norms, participation.period, participation.most)
    return _up(float(value), participation.most + 4, exact)


def toeplitz(coefficients: Sequence[float] | np.ndarray, participation: Participation) -> Squared:
    """Column 0 is `coefficients`, zero where they end; every other column is the one before, a round later."""
    values = np.asarray(coefficients, dtype=np.float64)[: participation.rounds]
    values = values[: np.flatnonzero(values)[-1] + 1] if values.any() else values[:1]
    if len(values) <= participation.period or participation.most == 1:
        return _evenly_spaced(_lookup(np.abs(values)), participation, exact=True)
    envelope = np.maximum.accumulate(np.abs(values[::-1]))[::-1]
    regular = bool(np.all(np.abs(values) >= envelope * (1 - 1e-13)) and (np.all(values >= 0) or np.all(values <= 0)))
    return _evenly_spaced(_lookup(envelope), participation, exact=regular)


def buffered(scales: np.ndarray, decays: np.ndarray, participation: Participation) -> Squared:
    """The Toeplitz matrix with coefficients 1 and sum_p scale_p decay_p^(t-1) for t >= 1 (BLT; Dvijotham et al. 2024,
    Section 5), in memory that does not grow with the rounds.

    Args:
        scales: float [buffers], >= 0.
        decays: float [buffers], in [0, 1].
        participation: what one unit may do.
    """
    second = float(scales.sum()) * (1 + len(scales) * EPS)
    first = 1.0 if participation.most == 1 else max(1.0, second)

    def coefficients(rounds: np.ndarray) -> np.ndarray:
        powers = decays ** np.maximum(rounds - 1, 0)[..., None].astype(np.float64)
        return np.where(rounds == 0, first, powers @ scales)

    return _evenly_spaced(coefficients, participation, exact=participation.most == 1 or second <= 1 + 1e-13)


def general(matrix: np.ndarray, participation: Participation) -> Squared:
    """Any lower-triangular matrix, float [rounds, rounds], rounds <= MOST_ROWS."""
    size = np.abs(matrix)
    magnitude = size.T @ size
    gram = np.abs(matrix.T @ matrix) + len(matrix) * EPS * magnitude if np.any(matrix < 0) else magnitude
    diagonal = np.diagonal(gram)
    period, most = participation.period, participation.most
    rounds = np.arange(len(matrix))
    partners = np.where(np.abs(rounds[:, None] - rounds) >= period, gram, 0.0)
    if most == 1 or not partners.any():
        value, exact = heaviest(diagonal, period, most)
        return _up(float(value), len(matrix) + most, exact)
    together, _ = heaviest(partners, period, most - 1)
    value, _ = heaviest(diagonal + together, period, most)
    least = max(float(gram[np.ix_(rounds[x::period][:most], rounds[x::period][:most])].sum()) for x in rounds)
    attained = bool(np.all(matrix >= 0)) and least >= float(value) * (1 - 1e-12)
    return _up(float(value), len(matrix) + 2 * most, attained)


def heaviest(weights: np.ndarray, period: int, most: int) -> tuple[np.ndarray, bool]:
    """The largest sum of at most `most` weights, `period` or more apart.

    Args:
        weights: float [..., n], >= 0.
        period: least distance, >= 1.
        most: largest number, >= 1.

    Returns:
        float [...], and whether it is the maximum; an upper bound where the search would take too long.
    """
    length = weights.shape[-1]
    if most >= -(-length // period):
        return _heaviest_of_any_number(weights, period), True
    if period == 1:
        return np.partition(weights, length - most, axis=-1)[..., length - most :].sum(axis=-1), True
    if most * weights.size > _MOST_WORK:
        highest = np.partition(weights, length - most, axis=-1)[..., length - most :].sum(axis=-1)
        return np.minimum(highest, _heaviest_of_any_number(weights, period)), False
    best = np.zeros((*weights.shape[:-1], length + period))  # from this round on
    for _ in range(most):
        chosen = weights + best[..., period:]
        best[..., :length] = np.maximum.accumulate(chosen[..., ::-1], axis=-1)[..., ::-1]
    return best[..., 0], True


def _heaviest_of_any_number(weights: np.ndarray, period: int) -> np.ndarray:
    length = weights.shape[-1]
    if period == 1:
        return weights.sum(axis=-1)
    best = np.zeros((*weights.shape[:-1], length + period))
    for end in range(length, 0, -period):
        start = max(0, end - period)
        chosen = weights[..., start:end] + best[..., start + period : end + period]
        chosen = np.maximum(chosen, best[..., end : end + 1])
        best[..., start:end] = np.maximum.accumulate(chosen[..., ::-1], axis=-1)[..., ::-1]
    return best[..., 0]


def _evenly_spaced(coefficients: Callable[[np.ndarray], np.ndarray], limits: Participation, exact: bool) -> Squared:
    """Squared norm of columns 0, b, 2b, ... added up, for coefficients >= 0 as a function of the round."""
    period, rounds, most = min(limits.period, limits.rounds), limits.rounds, limits.most
    turns = -(-rounds // period)
    total = 0.0
    width = max(1, _CHUNK // turns)
    for start in range(0, period, width):
        residues = np.arange(start, min(start + width, period))
        at = residues + period * np.arange(turns)[:, None]
        sums = np.cumsum(np.where(at < rounds, coefficients(at), 0.0), axis=0)
        if most < turns:
            earlier = sums[:-most].copy()
            sums *= 1 + 2 * turns * EPS  # so that the difference is not rounded below the truth
            sums[most:] -= earlier
        total += float(np.sum(np.where(at < rounds, sums, 0.0) ** 2))
    return _up(total, 2 * turns + period // width, exact)


def _lookup(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rounds: np.where(rounds < len(values), values[np.minimum(rounds, len(values) - 1)], 0.0)


def _up(value: float, operations: int, exact: bool) -> Squared:
    """The value, increased by what this many additions of rounded numbers may have taken from it."""
    if value < 1e-200:  # squares have lost their digits
        raise InputError(f"the strategy's squared sensitivity is {value:g}; scale its entries up to about 1")
    return Squared(value * (1 + (64 + operations) * EPS), exact)
