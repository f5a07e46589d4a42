"""Stored numbers reach the model unchanged in meaning, and never share memory with the data."""

import warnings

import numpy as np
import pytest
import torch

from sfumato._check import InputError
from sfumato.data import to_tensor


@pytest.mark.parametrize("channels", [1, 3])
def test_every_byte_maps_to_its_place_in_minus_one_to_one(channels: int) -> None:
    images = np.arange(256 * channels, dtype=np.int64).reshape(2, 8, 16, channels).astype(np.uint8)
    tensor = to_tensor(images)
    assert tensor.dtype == torch.float32
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert tensor.shape == (2, channels, 8, 16)
    expected = (np.moveaxis(images, 3, 1).astype(np.float64) - 128) / 128
    assert (tensor.numpy() == expected).all()
    assert tensor.min() >= -1
    assert tensor.max() < 1


@pytest.mark.parametrize(("dtype", "expected"), [("f8", torch.float32), ("i4", torch.int64), ("?", torch.int64)])
def test_features_and_tokens_pass_and_are_copied(dtype: str, expected: torch.dtype) -> None:
    inputs = np.ones((2, 3), dtype)
    inputs.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = to_tensor(inputs)
        image = to_tensor(np.broadcast_to(np.uint8(7), (1, 2, 2, 1)))
    assert tensor.dtype == expected
    tensor.zero_()
    assert inputs.all()
    assert image[0, 0, 0, 0] == (7 - 128) / 128


def test_text_is_refused() -> None:
    with pytest.raises(InputError, match="numbers"):
        to_tensor(np.array(["a"]))
