"""Single examples: the same records through every view, and one line for what does not fit."""

import numpy as np
import pytest
import torch

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    examples_from_arrays,
    examples_from_users,
    from_arrays,
    to_tensor,
)
from sfumato.data.domain import COUNT, NAMES


def test_a_subset_of_a_subset_reads_the_records_that_it_names(pictures) -> None:
    images, labels = pictures
    data = examples_from_arrays(images, labels, num_classes=4)
    view = data.subset([40, 3, 17, 8]).subset(np.array([2, 0]))
    (inputs,), classes = view.examples([1, 0, 1])
    np.testing.assert_array_equal(inputs[..., 0], images[[40, 17, 40]])
    np.testing.assert_array_equal(classes, labels[[40, 17, 40]])
    np.testing.assert_array_equal(view.targets, labels[[17, 40]])
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


def test_what_was_not_declared_was_found(pictures) -> None:
    images, labels = pictures
    assert examples_from_arrays(images, labels, num_classes=4).assumptions == ()
    assert examples_from_arrays(images, labels).found == (COUNT,)
    names = np.array(["ant", "bee", "cow", "dog"])
    found = examples_from_arrays(images, names[labels])
    assert found.found == (NAMES,)
    np.testing.assert_array_equal(found.targets, labels)
    declared = examples_from_arrays(images, names[labels], label_names=["dog", "cow", "bee", "ant", "eel"])
    assert declared.assumptions == ()
    assert declared.num_classes == 5
    np.testing.assert_array_equal(declared.targets, 3 - labels)


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
        data.targets[0] = 1
    data.examples([0])[0][0][:] = 7
    np.testing.assert_array_equal(data.examples([0])[0][0][0, ..., 0], images[0])


def test_examples_of_users_are_those_of_the_view(pictures) -> None:
    users = from_arrays(pictures[0], pictures[1], np.arange(50) % 7)
    view = users.subset([5, 1]).select_classes([1, 3])
    data = examples_from_users(view)
    expected = [view.examples(user) for user in range(len(view))]
    (inputs,), labels = data.examples(np.arange(len(data)))
    np.testing.assert_array_equal(inputs, np.concatenate([images for images, _ in expected]))
    np.testing.assert_array_equal(labels, np.concatenate([classes for _, classes in expected]))
    assert Assumption("examples_of_users") in data.assumptions


@pytest.mark.parametrize(
    ("inputs", "labels", "options", "message"),
    [
        (
            np.zeros((2, 3)),
            [0, 5],
            {"num_classes": 3},
            r"targets must be in 0 … 2 \(num_classes=3\), got 5 at position 1",
        ),
        (np.zeros((2, 3)), [0, -1], {}, r"got -1 at position 1; number the classes from 0"),
        (np.zeros((2, 3)), [0.0, 1.0], {"num_classes": 2}, r"got numbers, float64 \(2,\); cast class numbers to int64"),
        (np.zeros((2, 3)), [True, False], {}, "numbers or text, got bool; cast them"),
        (np.zeros((2, 3)), np.eye(2, dtype=int), {"num_classes": 2}, r"\(2, 2\); give class numbers: targets.argmax"),
        (np.zeros((2, 3)), [0, 1, 1], {}, "got 2 rows of inputs and 3 targets"),
        ((np.zeros((2, 3)), np.zeros((3, 1))), [0, 1], {}, "got 2 rows of inputs, 3 rows of inputs and 2 targets"),
        (np.zeros((0, 3)), [], {}, "no examples"),
        (np.zeros((2, 3), object), [0, 1], {}, "inputs must be numbers, got object"),
        (np.zeros((2, 4, 4, 5), np.uint8), [0, 1], {}, r"1 or 3 channels, got shape \(2, 4, 4, 5\)"),
        (np.zeros((2, 3)), [[0], [1]], {"num_classes": 2}, r"\(2, 1\); give class numbers: targets\[:, 0\]"),
        (np.float64(3), [0], {}, "one row an example, got a single number"),
        (np.zeros((2, 3)), ["a", "b"], {"label_names": ["a"]}, "target 'b' at position 1 is none of label_names"),
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
