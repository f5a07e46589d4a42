"""Arrays in npz and npy files: mapped where they lie, both parts with the same classes."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import open_examples


def test_mapped_files_are_read_where_they_lie(tmp_path: Path, pictures) -> None:
    np.save(tmp_path / "x_train.npy", pictures[0])
    np.save(tmp_path / "y_train.npy", pictures[1].astype(np.uint8))
    np.save(tmp_path / "x_test.npy", pictures[0][:5])
    np.save(tmp_path / "y_test.npy", np.full(5, 6))
    data = open_examples(tmp_path)
    base = data.inputs[0]
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert data.num_classes == open_examples(tmp_path, "test").num_classes == 7
    np.testing.assert_array_equal(data.examples([9])[0][0][0, ..., 0], pictures[0][9])


def test_both_parts_of_an_npz_number_their_classes_alike(tmp_path: Path) -> None:
    x = np.zeros((3, 2))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=["b", "c", "d"], x_test=x, y_test=["a", "d", "d"])
    train, test = open_examples(tmp_path / "a.npz"), open_examples(tmp_path / "a.npz", "test")
    assert train.targets.tolist() == [1, 2, 3]
    assert test.targets.tolist() == [0, 3, 3]
    assert list(train.label_names or ()) == list(test.label_names or ()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("keys", [("x", "y"), ("inputs", "labels"), ("images", "labels"), ("X", "y")])
def test_an_npz_with_one_part_is_for_training(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "a.npz", **dict(zip(keys, (np.zeros((3, 2)), np.array([0, 1, 1])), strict=True)))
    assert len(open_examples(tmp_path / "a.npz")) == 3
    with pytest.raises(InputError, match="one part only"):
        open_examples(tmp_path / "a.npz", "test")


@pytest.mark.shared
def test_mnist_is_read_as_published(shared: Path) -> None:
    train, test = open_examples(shared / "mnist.npz"), open_examples(shared / "mnist.npz", "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.input_shapes == ((28, 28, 1),)
    assert train.num_classes == 10
    assert train.class_counts()[:3].tolist() == [5923, 6742, 5958]  # as counted by LeCun et al.
    assert train.targets[:5].tolist() == [5, 0, 4, 1, 9]
