"""What inputs are, and the one check of an array of them, whether its rows belong to users or stand alone.

>>> checked_inputs(np.zeros((5, 28, 28), np.uint8)).shape    # grey pictures get their channel
(5, 28, 28, 1)

From stored arrays to the tensors that models take: pictures are stored as bytes and scaled to [−1, 1), as in the EMNIST
run of Xu et al. (2022, arXiv 2211.10844). The scaling uses no statistic of the data, so it costs no privacy.

>>> to_tensor(np.array([[[[0], [128], [255]]]], dtype=np.uint8)).tolist()
[[[[-1.0, 0.0, 0.9921875]]]]

**Numbers** in single precision: every one of them is finite.

>>> to_float32(np.array([3.5, 1e40]), "labels")
Traceback (most recent call last):
...
sfumato._check.InputError: labels must be finite in single precision, got 1e+40 in example 1; correct or drop it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sfumato._check import InputError, first_line

if TYPE_CHECKING:
    import torch

_BLOCK = 1 << 20  # numbers checked in one go


def to_float32(values: np.ndarray, title: str) -> np.ndarray:
    """Numbers [N] or [N, k] as float32; a copy only where they are of another type.

    Args:
        values: of any type.
        title: what messages call them.

    Raises:
        InputError: one is NaN, or infinite in single precision.
    """
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused
        numbers = values if values.dtype == np.float32 else values.astype(np.float32)
    refuse_not_finite(numbers, title, values)
    return numbers


def refuse_not_finite(numbers: np.ndarray, title: str, original: np.ndarray | None = None) -> None:
    """Refuse a number that is NaN or infinite.

    Args:
        numbers: float32 [N] or [N, k].
        title: what messages call them.
        original: what they were before they were made single, for the message.

    Raises:
        InputError: names the first such example.
    """
    for start in range(0, len(numbers), _BLOCK):
        wrong = ~np.isfinite(numbers[start : start + _BLOCK].reshape(len(numbers[start : start + _BLOCK]), -1))
        if wrong.any():
            row = start + int(wrong.any(axis=1).argmax())
            found = np.atleast_1d((numbers if original is None else original)[row])[wrong[row - start].argmax()]
            raise InputError(
                f"{title} must be finite in single precision, got {found} in example {row}; correct or drop it"
            )


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


def positions(given: Any, count: int, name: str, what: str) -> np.ndarray:
    """Positions in a data set, int64 [n], each at most once: who is listed twice would pay twice.

    Args:
        given: a list of them.
        count: how many there are.
        name: what messages call the list.
        what: what each position is of.

    Raises:
        InputError: a position does not exist or is listed twice.
    """
    places = np.asarray(given)
    if places.size == 0:
        places = places.astype(np.int64)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise InputError(f"{name} must be a list of positions 0 … {count - 1}, got {places.dtype} {places.shape}")
    places = places.astype(np.int64)
    outside = (places < 0) | (places >= count)
    if outside.any():
        raise InputError(f"{name} must be positions 0 … {count - 1}, got {int(places[outside][0])}")
    seen = np.zeros(count, bool)
    seen[places] = True
    if int(seen.sum()) < len(places):
        values, counts = np.unique(places, return_counts=True)
        raise InputError(f"each {what} may be listed once, got {int(values[counts > 1][0])} twice")
    return places


def as_array(values: Any, name: str) -> np.ndarray:
    """Values as one array; a memory-mapped one stays where it is.

    Raises:
        InputError: its rows have different lengths.
    """
    try:
        return np.asanyarray(values)
    except ValueError as error:
        raise InputError(
            f"{name} cannot be put into one array ({first_line(error)}); bring all rows to one length, by padding for "
            "example"
        ) from None


def to_tensor(inputs: np.ndarray) -> torch.Tensor:
    """A new tensor on the CPU that shares no memory with the data.

    Args:
        inputs: uint8 [n, H, W, C] → float32 [n, C, H, W] = (x − 128) / 128, in [−1, 1); floats of any shape →
            float32; other integers and booleans → int64.

    Raises:
        InputError: the inputs are not numbers.
    """
    import torch  # late: opening and packing data needs no torch, and its import takes seconds

    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        # x / 128 - 1 is exact too; torch converts faster than NumPy, but does not take what is read-only.
        images = torch.from_numpy(np.require(inputs, requirements="W")).to(torch.float32)
        torch.add(torch.tensor(-1.0), images, alpha=1 / 128, out=images)
        # Stored pixel by pixel, which is torch's channels_last: nothing moves, and convolutions and pooling on a CPU
        # are a fifth faster than channel by channel.
        return images.permute(0, 3, 1, 2)
    if inputs.dtype.kind == "f":
        # In torch's own memory: how an operation rounds may follow from where its numbers lie.
        return torch.from_numpy(np.require(inputs, requirements="W")).to(torch.float32, copy=True)
    if inputs.dtype.kind in "iub":
        return torch.from_numpy(np.array(inputs, dtype=np.int64))
    raise InputError(f"inputs must be numbers, got {inputs.dtype}")
