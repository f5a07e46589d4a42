"""Users whose examples have several attributes at once."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import examples_from_users, from_arrays, split_labels, split_users, write_store
from sfumato.federated.tasks import Classes, Verification

ROWS = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], bool)


def users(rows=ROWS, **settings):
    return from_arrays(np.arange(8.0).reshape(4, 2), labels=rows, users=["b", "a", "b", "c"], **settings)


def test_attributes_are_kept_by_user():
    data = users(label_names=["red", "round", "soft"])
    assert data.of_attributes
    assert not data.of_sequences
    assert not data.of_values
    assert repr(data) == "UserDataset(3 users, 4 examples of (2,) float64, 3 attributes each)"
    inputs, labels = data.examples(1)
    assert inputs[:, 0].tolist() == [0, 4]
    assert labels.dtype == bool
    assert labels.tolist() == ROWS[[0, 2]].tolist()
    _, labels, sizes = data.subset([2, 1]).examples_of(np.array([0, 1]))
    assert labels.tolist() == ROWS[[3, 0, 2]].tolist()
    assert sizes.tolist() == [1, 2]
    assert data.compact_labels() is data
    assert data.without_users().num_classes == 3


def test_inputs_of_the_attributes_shape_are_no_sequences():
    data = from_arrays(np.zeros((4, 3), np.int64), labels=ROWS, users=["b", "a", "b", "c"])
    assert data.of_attributes
    assert not data.of_sequences


def test_whole_numbers_for_each_token_are_sequences_as_before():
    tokens = np.array([[1, 2, 0], [2, 1, 1]])
    data = from_arrays(tokens, labels=tokens, users=["a", "b"], label_names=["", "x", "y"])
    assert data.of_sequences
    assert not data.of_attributes


def test_one_attribute_changes_the_fingerprint():
    other = ROWS.copy()
    other[1, 1] = True
    assert users().fingerprint() == users(ROWS.copy()).fingerprint() != users(other).fingerprint()


def test_users_with_attributes_are_split_by_user_and_stand_alone_as_numbers():
    split = split_users(users(), test=["c"])
    assert (len(split.train), len(split.test)) == (2, 1)
    examples = examples_from_users(users())
    assert examples.num_classes is None
    assert examples.targets.dtype == np.float32
    assert examples.targets.tolist() == ROWS[[1, 0, 2, 3]].astype(float).tolist()


@pytest.mark.parametrize(
    "act",
    [
        lambda data, folder: data.classes_present(),
        lambda data, folder: data.select_classes([0]),
        lambda data, folder: split_labels(data),
        lambda data, folder: write_store(data, folder / "store"),
        lambda data, folder: Classes().refuse_other(data),
        lambda data, folder: Verification().check(data),
    ],
)
def test_what_needs_one_class_an_example_is_refused_in_one_line(act, tmp_path):
    with pytest.raises(InputError, match=r"the labels are 3 attributes \(bool\)") as refused:
        act(users(), tmp_path)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "settings", "line"),
    [
        (ROWS, {"label_names": ["red"]}, r"label_names must have one entry an attribute \(3\), got 1"),
        (ROWS, {"label_groups": ["x"] * 4}, "label_groups must have one entry an attribute"),
        (ROWS[:, :0], {}, "one row an example"),
        (ROWS[:2], {}, "one row an example"),
        (ROWS[:, 0], {}, "labels must be whole numbers >= 0 or strings, got bool"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(rows, settings, line):
    with pytest.raises(InputError, match=line):
        users(rows, **settings)
