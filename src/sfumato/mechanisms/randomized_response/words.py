"""How probabilities become thresholds on 64-bit words, so that no true ratio of them ever exceeds e^epsilon.

Every label takes one uniform word w of T = 2^64 values. Of k reports, a response gives each wrong one b words and the
right one the other a = T - (k-1) b. The least whole b with b (E + k - 1) >= T makes a <= E b, and E is a rational
number below e^epsilon: so a/b <= e^epsilon holds for the words themselves, without any rounding left to argue about.
The right report loses less than k/T of its probability against the real mechanism.

A label outside the k reports gets a uniform one, floor(w k / T), which the words give floor(T/k) or ceil(T/k) times
each. For epsilon >= 1e-6 and k <= 2^20 these lie between b and a, because T/k - T/(E+k-1) > 1: see
docs/explanation/label-privacy.md.

>>> other_weight(1.0, 4) / WORDS, (WORDS - 3 * other_weight(1.0, 4)) / WORDS
(0.1748777045..., 0.4753668864...)
"""

import functools
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from sfumato import _check
from sfumato._check import InputError

WORDS = 1 << 64
"""How many words there are."""

LEAST_EPSILON, MOST_EPSILON = 1e-6, 500.0
MOST_CLASSES = 1 << 20

_DIGITS = 60
_BELOW = Fraction(1) - Fraction(1, 10 ** (_DIGITS - 2))  # more than Decimal's exp is off


def require_epsilon(epsilon: object) -> None:
    """Refuse an epsilon that no response has.

    Raises:
        InputError: it is not in [1e-6, 500].
    """
    try:
        _check.positive(epsilon=epsilon)
        _check.between(LEAST_EPSILON, MOST_EPSILON, epsilon=epsilon)
    except InputError as error:
        told = "0 would be no report and infinity no privacy"
        raise InputError(f"{error}; a response needs one in [{LEAST_EPSILON:g}, {MOST_EPSILON:g}]: {told}") from None


def require_classes(classes: object) -> None:
    """Refuse a number of classes among which nothing can be hidden, or too many of them.

    Raises:
        InputError: it is not in [2, 2^20].
    """
    _check.whole(at_least=2, classes=classes, remedy="with one class there is nothing to hide")
    _check.between(2, MOST_CLASSES, classes=classes)


@functools.lru_cache(maxsize=64)
def most_ratio(epsilon: float) -> Fraction:
    """A rational number below e^epsilon, by less than one part in 10^57."""
    return Fraction(Context(prec=_DIGITS).exp(Decimal(epsilon))) * _BELOW


@functools.lru_cache(maxsize=4096)
def other_weight(epsilon: float, size: int) -> int:
    """Words for each wrong one of `size` reports."""
    share = most_ratio(epsilon) + (size - 1)
    return -(-WORDS * share.denominator // share.numerator)


def other_weights(epsilon: float, sizes: np.ndarray) -> np.ndarray:
    """The same for each of int64 [n] sizes, uint64 [n]."""
    present = np.flatnonzero(np.bincount(sizes))
    known = np.zeros(int(sizes.max(initial=0)) + 1, np.uint64)
    known[present] = [other_weight(epsilon, int(size)) for size in present]
    return known[sizes]


def shares(words: np.ndarray, sizes: np.ndarray | np.uint64) -> np.ndarray:
    """floor(w k / 2^64): a uniform number below k; words and sizes uint64 -> int64."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    return ((high * sizes + (low * sizes >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)


def share_weight(place: int, size: int) -> int:
    """How many words `shares` turns into this place of `size`."""
    return -(-(place + 1) * WORDS // size) + (-place * WORDS // size)
