"""Exact draws of discrete noise: Laplace and Gaussian on the integers.

Exact draws of discrete Laplace noise: integers with probabilities proportional to e^(-rate |x|), without rounding.

Canonne, Kamath and Steinke 2020 (arXiv 2004.00010), Algorithms 1 and 2: coins of probability e^(-g) for a rational g
are tossed with whole random numbers alone. So a count that it is added to is private in the pure sense, with the
epsilon of `accounting.DiscreteLaplace` and no word about floating point. A rate is taken as a multiple of 2^-40,
rounded down: the noise is a little larger, never smaller.

>>> from sfumato._random import RandomSource
>>> discrete_laplace(RandomSource.from_seed(1).stream("doctest"), rate=0.5, count=6).tolist()
[-2, -2, 1, 3, 4, -1]

Exact draws of the discrete Gaussian N_Z(0, v): Pr[x] proportional to exp(−x²/2v) over the integers.

Noise for sums of whole numbers, which leaves nothing in low-order bits. The sampler of Canonne, Kamath and Steinke 2020
(arXiv 2004.00010, Algorithms 1 to 3): a discrete Laplace number is proposed, and accepted with probability
exp(−(|x| − v/t)²/2v). All decisions compare whole numbers: a coin of probability num/den falls by the words of the
stream against the digits of num/den in base 2^64, as many as it takes, so there is no bias at all.

- **Unit, sensitivity.** Those of who adds it: entries of a sum that are whole numbers of lattice units.
- **Noise.** Of variance at most v (v up to a factor 1 − 2^-100 for v >= 4), from the stream that is given.
- **Event.** With v = `lattice_variance(std)`, that of a real Gaussian of this std: see docs/explanation/votes.md,
  "Noise on whole numbers".
- **State.** None: the stream's key gives the draws, in order.
- **Edges.** v must be > 0; no draw is cut off.

>>> from sfumato._random import RandomSource
>>> discrete_gaussian(RandomSource.from_seed(1).stream("noise", 0), Fraction(100), 5).dtype
dtype('int64')
"""

import math
from fractions import Fraction

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


ROUNDING_STD = 3
"""Std, in lattice units, of the rounding that turns a real Gaussian into a discrete one."""


_LARGEST = 1e15  # std: 40 times it, and a hundred times that many steps of a coin, are words of 63 bits


def lattice_variance(std_units: float | Fraction) -> Fraction:
    """Variance of the discrete Gaussian that costs no more than a real one of this std, both in lattice units.

    >>> lattice_variance(40.0)
    Fraction(1609, 1)
    """
    _check.positive(std_units=std_units)
    return Fraction(std_units) ** 2 + ROUNDING_STD**2


def discrete_gaussian(stream: Stream, variance: Fraction, count: int) -> np.ndarray:
    """The next draws, int64 [count].

    Args:
        stream: uniform words; the number of those that are read is random.
        variance: v, a fraction: `Fraction(std) ** 2` is the exact square of a float.
        count: how many.
    """
    _check.positive(variance=variance)
    _check.between(0, _LARGEST, std=math.sqrt(variance), remedy="count in larger lattice units")
    a, b = variance.numerator, variance.denominator
    scale = math.isqrt(a // b) + 1  # t
    found = [np.zeros(0, np.int64)]
    missing = count
    while missing:
        proposed = some_laplace(stream, scale, missing + missing // 2 + 16)
        # (|x| − v/t)² / 2v as a fraction of whole numbers of any size
        numerator = (np.abs(proposed).astype(object) * (scale * b) - a) ** 2
        kept = proposed[_falls_exponentially(stream, numerator, 2 * a * b * scale**2)][:missing]
        found.append(kept)
        missing -= len(kept)
    return np.concatenate(found)


def _falls_exponentially(stream: Stream, numerators: np.ndarray, denominator: int) -> np.ndarray:
    """Coins of probability exp(−numerator/denominator), whole numbers >= 0 of any size; object [n] -> bool [n]."""
    whole, rest = numerators // denominator, numerators % denominator
    heads = np.ones(len(numerators), bool)
    going = np.flatnonzero(whole > 0)
    while len(going):  # exp(−1) as often as 1 is in it
        fell = small_exponential(stream, np.ones(len(going), np.int64), 1)
        heads[going[~fell]] = False
        whole[going] -= 1
        going = going[fell & (whole[going] > 0).astype(bool)]
    left = np.flatnonzero(heads)
    odd = np.zeros(len(left), bool)
    going, step = np.arange(len(left)), 1
    while len(going):
        comes = _is_below(stream, rest[left[going]], denominator * step)
        odd[going[~comes]] = step % 2 == 1
        going, step = going[comes], step + 1
    heads[left] = odd
    return heads


def _is_below(stream: Stream, numerators: np.ndarray, denominator: int) -> np.ndarray:
    """Coins of probability numerator/denominator <= 1: whether a uniform number is below; object [n] -> bool [n]."""
    below = np.zeros(len(numerators), bool)
    open_ = np.arange(len(numerators))
    while len(open_):  # a second time with probability 2^-64 each
        scaled = numerators * 2**64
        digits, numerators = scaled // denominator, scaled % denominator
        words = stream.uint64(len(open_)).astype(object)
        below[open_] = (words < digits).astype(bool)
        same = (words == digits).astype(bool)
        open_, numerators = open_[same], numerators[same]
    return below
