"""Exact draws of discrete Laplace noise: integers with probabilities proportional to e^(-rate |x|), without rounding.

Canonne, Kamath and Steinke 2020 (arXiv 2004.00010), Algorithms 1 and 2: coins of probability e^(-g) for a rational g
are tossed with whole random numbers alone. So a count that it is added to is private in the pure sense, with the
epsilon of `accounting.DiscreteLaplace` and no word about floating point. A rate is taken as a multiple of 2^-40,
rounded down: the noise is a little larger, never smaller.

>>> from sfumato._random import RandomSource
>>> discrete_laplace(RandomSource.from_seed(1).stream("doctest"), rate=0.5, count=6).tolist()
[-2, -2, 1, 3, 4, -1]
"""

import math

import numpy as np

from sfumato import _check
from sfumato._random import Stream

_UNIT = 1 << 40


def discrete_laplace(stream: Stream, *, rate: float, count: int) -> np.ndarray:
    """The next draws of a stream, int64 [count].

    Args:
        stream: uniform words; the number of those that are read is random.
        rate: a, in [1e-7, 1e6]; a draw is x with a probability proportional to e^(-a |x|).
        count: of numbers.

    Raises:
        InputError: the rate is out of range.
    """
    _check.between(1e-7, 1e6, rate=rate)
    parts, missing = [np.zeros(0, np.int64)], count
    while missing:
        drawn = some_laplace(stream, _UNIT, missing + missing // 2 + 16, divisor=math.floor(rate * _UNIT))[:missing]
        parts.append(drawn)
        missing -= len(drawn)
    return np.concatenate(parts)


def some_laplace(stream: Stream, scale: int, count: int, *, divisor: int = 1) -> np.ndarray:
    """Draws of Pr[x] proportional to exp(−|x| divisor/scale), at most `count`, int64 (Algorithm 2)."""
    rest = stream.integers(scale, count)
    rest = rest[small_exponential(stream, rest, scale)]
    whole = np.zeros(len(rest), np.int64)
    going = np.arange(len(rest))
    one = np.int64(1)
    while len(going):
        going = going[small_exponential(stream, np.full(len(going), one), 1)]
        whole[going] += 1
    size = (rest + scale * whole) // divisor
    negative = stream.integers(2, len(size)) == 1
    return np.where(negative, -size, size)[~(negative & (size == 0))]  # or 0 would come twice


def small_exponential(stream: Stream, numerators: np.ndarray, denominator: int) -> np.ndarray:
    """Coins of probability exp(−numerator/denominator), for 0 <= numerator <= denominator (Algorithm 1).

    The number of the first coin of probability γ/1, γ/2, γ/3, … that falls tails is odd with probability exp(−γ).
    """
    odd = np.zeros(len(numerators), bool)
    going, step = np.arange(len(numerators)), 1
    while len(going):
        heads = stream.integers(denominator * step, len(going)) < numerators[going]
        odd[going[~heads]] = step % 2 == 1
        going, step = going[heads], step + 1
    return odd
