"""Numbers that are told of examples, in single precision: the check that every one of them is finite.

>>> as_singles(np.array([3.5, 1e40]), "labels")
Traceback (most recent call last):
...
sfumato._check.InputError: labels must be finite in single precision, got 1e+40 in example 1; correct or drop it
"""

import numpy as np

from sfumato._check import InputError

_BLOCK = 1 << 20  # numbers checked in one go


def as_singles(values: np.ndarray, told: str) -> np.ndarray:
    """Numbers [N] or [N, k] as float32; a copy only where they are of another type.

    Args:
        values: of any type.
        told: what messages call them.

    Raises:
        InputError: one is NaN, or infinite in single precision.
    """
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused
        numbers = values if values.dtype == np.float32 else values.astype(np.float32)
    refuse_not_finite(numbers, told, values)
    return numbers


def refuse_not_finite(numbers: np.ndarray, told: str, given: np.ndarray | None = None) -> None:
    """Refuse a number that is NaN or infinite.

    Args:
        numbers: float32 [N] or [N, k].
        told: what messages call them.
        given: what they were before they were made single, for the message.

    Raises:
        InputError: names the first such example.
    """
    for start in range(0, len(numbers), _BLOCK):
        wrong = ~np.isfinite(numbers[start : start + _BLOCK].reshape(len(numbers[start : start + _BLOCK]), -1))
        if wrong.any():
            row = start + int(wrong.any(axis=1).argmax())
            found = np.atleast_1d((numbers if given is None else given)[row])[wrong[row - start].argmax()]
            raise InputError(
                f"{told} must be finite in single precision, got {found} in example {row}; correct or drop it"
            )
