"""Lists of numbers that a strategy is made of, checked."""

import numpy as np

from sfumato._check import InputError, between, whole

MOST_ROUNDS = 10**7
"""Rounds whose variances are held one by one."""


def numbers(name: str, values: object, remedy: str) -> tuple[float, ...]:
    """The values as a tuple of finite floats, at least one.

    Raises:
        InputError: there is none, or one is no finite number.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be numbers, got {values!r:.80}; {remedy}") from None
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be a list of at least one number, got {values!r:.80}; {remedy}")
    if not np.all(np.isfinite(array)):
        wrong = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"{name} must be finite, got {array[wrong]} at place {wrong}; {remedy}")
    return tuple(array.tolist())


def in_rounds(rounds: int) -> int:
    """The number of rounds, whose variances can be computed.

    Raises:
        InputError: it is not whole, or out of range.
    """
    whole(rounds=rounds)
    between(1, MOST_ROUNDS, rounds=rounds, remedy="variances of so many rounds are not held; take a shorter run")
    return int(rounds)
