"""Discrete Laplace noise without rounding: integers with probabilities proportional to e^(-rate |x|), exactly.

Canonne, Kamath and Steinke 2020 ("The Discrete Gaussian for Differential Privacy"), Algorithms 1 and 2: coins of
probability e^(-g) for a rational g are tossed with whole random numbers alone. So a count that it is added to is
private in the pure sense, with the epsilon of `accounting.DiscreteLaplace` and no word about floating point.

It takes some ten microseconds a number: it is for histograms, not for records.

>>> from sfumato._random import RandomSource
>>> discrete_laplace(RandomSource.from_seed(1).stream("doctest"), rate=0.5, count=6).tolist()
[2, -1, 0, 0, 0, 2]
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from sfumato import _check
from sfumato._random import Stream

_READ = 1 << 10  # words taken from the stream at once


def discrete_laplace(stream: Stream, *, rate: float, count: int) -> np.ndarray:
    """The next draws of a stream, int64 [count].

    Args:
        stream: used for nothing else; more words may be read than are needed.
        rate: a, in [1e-9, 1e9]; a draw is x with a probability proportional to e^(-a |x|).
        count: of numbers.

    Raises:
        InputError: the rate is out of range.
    """
    _check.between(1e-9, 1e9, rate=rate)
    below = _Below(stream)
    exact = Fraction(rate)
    return np.array([_draw(below, exact.numerator, exact.denominator) for _ in range(count)], np.int64)


class _Below:
    """Uniform whole numbers below a bound, from words."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._words = stream, iter(())

    def __call__(self, bound: int) -> int:
        if bound == 1:
            return 0
        words = -(-bound.bit_length() // 64)
        most = (1 << 64 * words) // bound * bound
        while True:
            found = 0
            for _ in range(words):
                found = found << 64 | self._word()
            if found < most:
                return found % bound

    def _word(self) -> int:
        word = next(self._words, None)
        if word is None:
            self._words = iter(self._stream.uint64(_READ).tolist())
            word = next(self._words)
        return word


def _draw(below: Callable[[int], int], s: int, t: int) -> int:
    """Algorithm 2, for the rate s/t."""
    while True:
        rest = below(t)
        if not _coin(below, rest, t):
            continue
        whole = 0
        while _coin(below, 1, 1):
            whole += 1
        size, negative = (rest + t * whole) // s, below(2)
        if size or not negative:
            return -size if negative else size


def _coin(below: Callable[[int], int], numerator: int, denominator: int) -> bool:
    """Algorithm 1: true with probability e^(-g), g = numerator/denominator in [0, 1]."""
    tosses = 1
    while below(denominator * tosses) < numerator:
        tosses += 1
    return tosses % 2 == 1
