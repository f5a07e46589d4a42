"""Lists of numbers that a strategy is made of, checked."""

import numpy as np

from sfumato._check import InputError, whole


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
    """The number of rounds, checked."""
    whole(rounds=rounds)
    return int(rounds)
