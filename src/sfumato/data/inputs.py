"""What inputs are, and the one check of an array of them, whether its rows belong to users or stand alone.

>>> checked_inputs(np.zeros((5, 28, 28), np.uint8)).shape    # grey pictures get their channel
(5, 28, 28, 1)
"""

from typing import Any, Protocol

import numpy as np

from sfumato._check import InputError, first_line


class Shaped(Protocol):
    """Inputs of one shape and type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[examples, *input_shape]."""
        ...

    @property
    def dtype(self) -> np.dtype: ...


def checked_inputs(inputs: np.ndarray) -> np.ndarray:
    """Inputs as models take them: numbers in native order, pictures with their channels last.

    Raises:
        InputError: they are not numbers, or not one row an example.
    """
    if inputs.dtype.kind not in "biuf":
        raise InputError(f"inputs must be numbers, got {inputs.dtype}; convert them to uint8, integers or floats")
    if inputs.ndim == 0:
        raise InputError("inputs must have one row an example, got a single number")
    if not inputs.dtype.isnative:
        inputs = inputs.astype(inputs.dtype.newbyteorder("="))
    if inputs.dtype == np.uint8 and inputs.ndim == 3:
        inputs = inputs[..., None]
    if inputs.dtype == np.uint8 and inputs.ndim == 4 and inputs.shape[3] not in (1, 3):
        raise InputError(
            "images must be uint8 [n, height, width, channels] with 1 or 3 channels, "
            f"got shape {inputs.shape}; move the channels to the end"
        )
    return inputs


def as_array(given: Any, name: str) -> np.ndarray:
    """What was given as one array; a memory-mapped one stays where it is.

    Raises:
        InputError: its rows have different lengths.
    """
    try:
        return np.asanyarray(given)
    except ValueError as error:
        raise InputError(
            f"{name} cannot be put into one array ({first_line(error)}); bring all rows to one length, by padding for "
            "example"
        ) from None
