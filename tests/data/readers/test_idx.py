"""MNIST's files as distributed: the pictures come back, and a broken file is one line."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import open_examples
from sfumato.data.readers.arrays import read_idx


def idx(array: np.ndarray, code: int = 8) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """MNIST's layout: train plain, test gzipped."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name, count in (("train", 12), ("t10k", 5)):
        images = rng.integers(0, 256, (count, 7, 6), np.uint8)
        labels = (np.arange(count) % (4 if name == "train" else 5)).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            if name == "train":
                (folder / f"{name}-{kind}-ubyte").write_bytes(idx(array))
            else:
                (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
    return folder


def test_idx_files_give_the_pictures_plain_or_packed(digits: Path) -> None:
    train, test = open_examples(digits), open_examples(digits, "test")
    assert train.input_shapes == ((7, 6, 1),)
    assert (len(train), len(test)) == (12, 5)
    assert train.num_classes == test.num_classes == 5
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(train.examples([11])[0][0][0, ..., 0], rng.integers(0, 256, (12, 7, 6), np.uint8)[11])
    np.testing.assert_array_equal(test.examples([3])[0][0][0, ..., 0], rng.integers(0, 256, (5, 7, 6), np.uint8)[3])


@pytest.mark.parametrize(("code", "dtype"), [(0x0B, np.int16), (0x0C, np.int32), (0x0D, np.float32)])
def test_other_types_of_idx_are_turned_to_native_order(tmp_path: Path, code: int, dtype: type) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    (tmp_path / "a.idx").write_bytes(idx(array, code))
    np.testing.assert_array_equal(read_idx(tmp_path / "a.idx"), array)


def test_broken_idx_files_are_refused_in_one_line(digits: Path) -> None:
    file = digits / "train-images-idx3-ubyte"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="has 503 bytes of values, 12×7×6 need 504"):
        open_examples(digits)
    file.write_bytes(b"GIF89a")
    with pytest.raises(InputError, match="not an idx file: it begins with 47494638"):
        open_examples(digits)
    file.write_bytes(whole[:9])
    with pytest.raises(InputError, match="cut off after 9 bytes"):
        open_examples(digits)
    file.unlink()
    with pytest.raises(InputError, match="has no train-images"):
        open_examples(digits)
    packed = digits / "t10k-labels-idx1-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        open_examples(digits, "test")
