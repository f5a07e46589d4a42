"""Single examples: the same records through every view, and one line for what does not fit."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sfumato._check import InputError
from sfumato.data import (
    examples_from_arrays,
    examples_from_users,
    from_arrays,
    npy_examples,
    npz_examples,
    open_examples,
    to_tensor,
    write_examples,
)


@pytest.fixture
def pictures() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (50, 6, 5), np.uint8), rng.integers(0, 4, 50)


def test_a_subset_of_a_subset_reads_the_records_that_it_names(pictures) -> None:
    images, labels = pictures
    data = examples_from_arrays(images, labels, num_classes=4)
    view = data.subset([40, 3, 17, 8]).subset(np.array([2, 0]))
    (inputs,), classes = view.examples([1, 0, 1])
    np.testing.assert_array_equal(inputs[..., 0], images[[40, 17, 40]])
    np.testing.assert_array_equal(classes, labels[[40, 17, 40]])
    np.testing.assert_array_equal(view.labels, labels[[17, 40]])
    assert classes.dtype == np.int64
    assert view.input_shapes == ((6, 5, 1),)


def test_an_empty_batch_keeps_its_shapes(pictures) -> None:
    data = examples_from_arrays((pictures[0], np.zeros((50, 3), np.int32)), pictures[1], num_classes=4)
    (images, ids), labels = data.examples([])
    assert images.shape == (0, 6, 5, 1)
    assert ids.shape == (0, 3)
    assert ids.dtype == np.int64
    assert labels.shape == (0,)
    assert len(data.subset([])) == 0


def test_inputs_become_the_tensors_that_models_take(pictures) -> None:
    data = examples_from_arrays((pictures[0], np.ones((50, 3), np.uint16)), pictures[1], num_classes=4)
    images, ids = (to_tensor(array) for array in data.examples([0, 1])[0])
    assert images.dtype == torch.float32
    assert images.shape == (2, 1, 6, 5)
    assert ids.dtype == torch.int64
    assert [str(dtype) for dtype in data.dtypes] == ["uint8", "int64"]


def test_batches_are_the_whole_in_order(pictures) -> None:
    data = examples_from_arrays(*pictures, num_classes=4)
    parts = list(data.batches(16))
    assert [len(labels) for _, labels in parts] == [16, 16, 16, 2]
    np.testing.assert_array_equal(np.concatenate([inputs[0][..., 0] for inputs, _ in parts]), pictures[0])
    np.testing.assert_array_equal(data.class_counts(), np.bincount(pictures[1], minlength=4))


def test_what_was_not_declared_is_an_assumption(pictures) -> None:
    images, labels = pictures
    assert examples_from_arrays(images, labels, num_classes=4).assumptions == ()
    assert "number of classes (4) was taken from the records" in examples_from_arrays(images, labels).assumptions[0]
    names = np.array(["ant", "bee", "cow", "dog"])
    found = examples_from_arrays(images, names[labels])
    assert "names of the 4 classes were taken from the records" in found.assumptions[0]
    np.testing.assert_array_equal(found.labels, labels)
    declared = examples_from_arrays(images, names[labels], label_names=["dog", "cow", "bee", "ant", "eel"])
    assert declared.assumptions == ()
    assert declared.num_classes == 5
    np.testing.assert_array_equal(declared.labels, 3 - labels)


def test_the_fingerprint_changes_with_any_record_label_and_declaration(pictures) -> None:
    images, labels = pictures
    data = examples_from_arrays(images, labels, num_classes=4)
    other_image, other_label = images.copy(), labels.copy()
    other_image[31, 2, 2] ^= 1
    other_label[31] = (other_label[31] + 1) % 4
    prints = [
        data.fingerprint(),
        data.subset(np.arange(49)).fingerprint(),
        data.subset(np.roll(np.arange(50), 1)).fingerprint(),
        examples_from_arrays(other_image, labels, num_classes=4).fingerprint(),
        examples_from_arrays(images, other_label, num_classes=4).fingerprint(),
        examples_from_arrays(images, labels, num_classes=5).fingerprint(),
    ]
    assert len(set(prints)) == len(prints)
    assert data.subset(np.arange(50)).fingerprint() == data.fingerprint()


def test_nobody_can_change_the_records_by_accident(pictures) -> None:
    images, labels = pictures
    data = examples_from_arrays(images, labels, num_classes=4)
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 1
    data.examples([0])[0][0][:] = 7
    np.testing.assert_array_equal(data.examples([0])[0][0][0, ..., 0], images[0])


def test_mapped_files_are_read_where_they_lie(tmp_path: Path, pictures) -> None:
    np.save(tmp_path / "x_train.npy", pictures[0])
    np.save(tmp_path / "y_train.npy", pictures[1].astype(np.uint8))
    np.save(tmp_path / "x_test.npy", pictures[0][:5])
    np.save(tmp_path / "y_test.npy", np.full(5, 6))
    data = npy_examples(tmp_path)
    base = data.inputs[0]
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert data.num_classes == npy_examples(tmp_path, "test").num_classes == 7
    np.testing.assert_array_equal(data.examples([9])[0][0][0, ..., 0], pictures[0][9])


def test_both_parts_of_an_npz_number_their_classes_alike(tmp_path: Path) -> None:
    x = np.zeros((3, 2))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=["b", "c", "d"], x_test=x, y_test=["a", "d", "d"])
    train, test = npz_examples(tmp_path / "a.npz"), npz_examples(tmp_path / "a.npz", "test")
    assert train.labels.tolist() == [1, 2, 3]
    assert test.labels.tolist() == [0, 3, 3]
    assert list(train.label_names or ()) == list(test.label_names or ()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("keys", [("x", "y"), ("inputs", "labels"), ("images", "labels"), ("X", "y")])
def test_an_npz_with_one_part_is_for_training(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "a.npz", **dict(zip(keys, (np.zeros((3, 2)), np.array([0, 1, 1])), strict=True)))
    assert len(npz_examples(tmp_path / "a.npz")) == 3
    with pytest.raises(InputError, match="one part only"):
        npz_examples(tmp_path / "a.npz", "test")


@pytest.mark.shared
def test_mnist_is_read_as_published(shared: Path) -> None:
    train, test = npz_examples(shared / "mnist.npz"), npz_examples(shared / "mnist.npz", "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.input_shapes == ((28, 28, 1),)
    assert train.num_classes == 10
    assert train.class_counts()[:3].tolist() == [5923, 6742, 5958]  # as counted by LeCun et al.
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_a_written_folder_gives_the_same_records(tmp_path: Path, pictures) -> None:
    rng = np.random.default_rng(1)
    arrays = (pictures[0], rng.normal(size=(50, 2)).astype(np.float32), rng.integers(0, 9, (50, 3)))
    data = examples_from_arrays(
        arrays, pictures[1], label_names=["a", "b", "c", "ü"], vocabulary_sizes=(9, 9, 9), columns=[[], ["p"], ["q"]]
    ).subset([4, 2, 44])
    written = write_examples(data, tmp_path / "store")
    for copy in (written, open_examples(tmp_path / "store")):
        assert copy.fingerprint() == data.fingerprint()
        assert list(copy.label_names or ()) == ["a", "b", "c", "ü"]
        assert (copy.vocabulary_sizes, copy.columns) == (data.vocabulary_sizes, data.columns)
        assert copy.assumptions == data.assumptions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    with pytest.raises(InputError, match="not empty"):
        write_examples(data, tmp_path / "store")
    (tmp_path / "store" / "labels.npy").unlink()
    with pytest.raises(InputError, match=r"no file .*labels\.npy"):
        open_examples(tmp_path / "store")


def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, pictures) -> None:
    write_examples(examples_from_arrays(*pictures), tmp_path / "a")
    file = tmp_path / "a" / "inputs0.npy"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot be read as npy"):
        open_examples(tmp_path / "a")
    np.save(file, pictures[0][:7])
    with pytest.raises(InputError, match="should have 50 examples"):
        open_examples(tmp_path / "a")
    (tmp_path / "a" / "examples.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        open_examples(tmp_path / "a")


def test_examples_of_users_are_those_of_the_view(pictures) -> None:
    users = from_arrays(pictures[0], pictures[1], np.arange(50) % 7)
    view = users.subset([5, 1]).select_classes([1, 3])
    data = examples_from_users(view)
    expected = [view.examples(user) for user in range(len(view))]
    (inputs,), labels = data.examples(np.arange(len(data)))
    np.testing.assert_array_equal(inputs, np.concatenate([images for images, _ in expected]))
    np.testing.assert_array_equal(labels, np.concatenate([classes for _, classes in expected]))
    assert any("not for a person" in line for line in data.assumptions)


@pytest.mark.parametrize(
    ("inputs", "labels", "options", "message"),
    [
        (
            np.zeros((2, 3)),
            [0, 5],
            {"num_classes": 3},
            r"labels must be in 0 … 2 \(num_classes=3\), got 5 at position 1",
        ),
        (np.zeros((2, 3)), [0, -1], {}, r"got -1 at position 1; number the classes from 0"),
        (np.zeros((2, 3)), [0.0, 1.0], {}, "whole numbers >= 0 or strings, got float64; cast"),
        (np.zeros((2, 3)), [True, False], {}, "whole numbers >= 0 or strings, got bool"),
        (np.zeros((2, 3)), np.eye(2, dtype=int), {}, r"got \(2, 2\); give class numbers: labels.argmax"),
        (np.zeros((2, 3)), [0, 1, 1], {}, "got 2 rows of inputs and 3 labels"),
        ((np.zeros((2, 3)), np.zeros((3, 1))), [0, 1], {}, "got 2 rows of inputs, 3 rows of inputs and 2 labels"),
        (np.zeros((0, 3)), [], {}, "no examples"),
        (np.zeros((2, 3), object), [0, 1], {}, "inputs must be numbers, got object"),
        (np.zeros((2, 4, 4, 5), np.uint8), [0, 1], {}, r"1 or 3 channels, got shape \(2, 4, 4, 5\)"),
        (np.float64(3), [0], {}, "one row an example, got a single number"),
        (np.zeros((2, 3)), ["a", "b"], {"label_names": ["a"]}, "label 'b' at position 1 is none of label_names"),
        (np.zeros((2, 3)), [0, 1], {"num_classes": 0}, "num_classes must be a whole number >= 1, got 0"),
        (np.zeros((2, 3)), [0, 1], {"num_classes": 2, "label_names": ["a"]}, "one name a class"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(inputs, labels, options, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        examples_from_arrays(inputs, labels, **options)
    assert "\n" not in str(caught.value)


def test_positions_that_do_not_exist_or_come_twice_are_refused(pictures) -> None:
    data = examples_from_arrays(*pictures)
    with pytest.raises(InputError, match=r"0 … 49, got 50"):
        data.subset([0, 50])
    with pytest.raises(InputError, match="listed once, got 3 twice"):
        data.subset([3, 1, 3])
    with pytest.raises(InputError, match="list of positions"):
        data.subset(np.array([0.5]))
    with pytest.raises(IndexError, match=r"0 … 49"):
        data.examples([-1])
