"""Each user's records stay together, and a view shows exactly the users and classes that were asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import UserDataset, from_arrays
from slow import by_profile


def _random(seed: int, n: int = 200, users: int = 17, classes: int = 9) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    inputs = np.arange(n, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    return inputs, rng.integers(classes, size=n), rng.integers(users, size=n)


def _rows(dataset: UserDataset) -> list[tuple[str, int, int]]:
    """(user, row number, label name) of every example."""
    rows = []
    for user, name in enumerate(dataset.user_ids):
        inputs, labels = dataset.examples(user)
        assert len(inputs) == len(labels) == dataset.size(user)
        assert labels.dtype == np.int64
        names = dataset.label_names or [str(c) for c in range(dataset.num_classes)]
        rows += [(name, int(x[0]), int(names[label])) for x, label in zip(inputs, labels)]
    return rows


@settings(max_examples=by_profile(40), deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 60), users=st.integers(1, 12))
def test_every_row_comes_back_once_under_its_own_user(seed: int, n: int, users: int) -> None:
    inputs, labels, owners = _random(seed, n, users)
    dataset = from_arrays(inputs, labels, owners)
    expected = sorted((str(u), i, int(c)) for i, (u, c) in enumerate(zip(owners, labels)))
    assert sorted(_rows(dataset)) == expected
    assert dataset.sizes.sum() == n == dataset.num_examples
    assert list(map(int, dataset.user_ids)) == sorted({int(u) for u in owners})


def test_rows_of_one_user_keep_their_order() -> None:
    inputs, labels, owners = _random(1)
    dataset = from_arrays(inputs, labels, owners)
    for user in range(len(dataset)):
        rows = dataset.examples(user)[0][:, 0]
        assert (np.diff(rows) > 0).all()


@settings(max_examples=by_profile(40), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_subsets_and_class_filters_compose_like_filtering_the_rows(seed: int) -> None:
    inputs, labels, owners = _random(seed)
    rng = np.random.default_rng(seed + 1)
    names = [str(c) for c in range(9)]
    dataset = from_arrays(inputs, labels, owners, label_names=names)
    users = rng.permutation(len(dataset))[:11]
    classes = rng.permutation(9)[:5]
    view = dataset.subset(users).select_classes(classes)
    again = view.subset(range(0, len(view), 2)).select_classes([0, 2])
    kept = set(classes.tolist())
    expected = [row for row in _rows(dataset.subset(users)) if row[2] in kept]
    assert _rows(view) == expected
    half = set(list(view.user_ids)[::2])
    fewer = {sorted(kept)[0], sorted(kept)[2]}
    assert _rows(again) == [row for row in expected if row[0] in half and row[2] in fewer]
    assert again.sizes.tolist() == [len(again.examples(u)[0]) for u in range(len(again))]
    assert again.sizes.min() > 0
    assert again.num_classes == 2


def test_a_filter_without_renumbering_keeps_the_numbers() -> None:
    dataset = from_arrays(*_random(3))
    view = dataset.select_classes([4, 7], renumber=False)
    found = {int(c) for user in range(len(view)) for c in view.examples(user)[1]}
    assert found == {4, 7}
    assert view.num_classes == dataset.num_classes
    assert np.flatnonzero(view.classes_present()).tolist() == [4, 7]
    assert view.compact_labels().num_classes == 2


def test_a_subset_is_a_view_and_the_data_cannot_be_written_through_it() -> None:
    inputs, labels, _ = _random(4)
    dataset = from_arrays(inputs, labels, np.repeat(np.arange(20), 10))
    part = dataset.subset([3, 5]).examples(1)[0]
    assert np.shares_memory(part, inputs)
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 0


def test_strings_as_labels_and_users_are_numbered_in_sorted_order() -> None:
    dataset = from_arrays(np.zeros((3, 1)), ["dog", "cat", "dog"], ["u10", "u2", "é"])
    assert list(dataset.user_ids) == ["u10", "u2", "é"]
    assert list(dataset.label_names or ()) == ["cat", "dog"]
    assert [dataset.examples(u)[1][0] for u in range(3)] == [1, 0, 1]
    assert list(dataset.user_ids[1:]) == ["u2", "é"]


def test_grey_images_get_their_channel_axis() -> None:
    assert from_arrays(np.zeros((2, 5, 4), np.uint8), [0, 0], [0, 1]).input_shape == (5, 4, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": np.zeros((0, 2)), "labels": [], "users": []}, "no users"),
        (
            {"inputs": np.zeros((3, 2)), "labels": [0, 1], "users": [0, 1, 2]},
            r"inputs \(3, 2\), labels \(2,\)",
        ),
        ({"inputs": np.zeros((1, 2)), "labels": [-1], "users": [0]}, "got -1"),
        ({"inputs": np.zeros((1, 2)), "labels": [0.5j], "users": [0]}, "complex128"),
        (
            {"inputs": np.zeros((1, 2)), "labels": [3], "users": [0], "label_names": ["a"]},
            "label 3 has no name",
        ),
        ({"inputs": np.array([["a"]]), "labels": [0], "users": [0]}, "inputs must be numbers"),
        ({"inputs": np.zeros((1, 3, 8, 8), np.uint8), "labels": [0], "users": [0]}, "move the channels"),
        (
            {"inputs": np.zeros((1, 2)), "labels": [0], "users": [0.5]},
            "users must be whole numbers or strings",
        ),
    ],
)
def test_bad_arrays_are_refused_with_one_line(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        from_arrays(**arguments)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("users", "message"),
    [([0, 0], "listed once, got 0 twice"), ([17], "got 17"), ([-1], "got -1"), ([0.5], "list of positions")],
)
def test_a_subset_that_cannot_be_is_refused(users: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(*_random(0)).subset(users)


def test_a_class_that_nobody_holds_is_refused() -> None:
    dataset = from_arrays(np.zeros((2, 1)), [0, 2], [0, 1])
    with pytest.raises(InputError, match="no user"):
        dataset.select_classes([1])
    with pytest.raises(InputError, match="got 3"):
        dataset.select_classes([3])
    assert len(dataset.select_classes([2])) == 1


def test_an_empty_view_is_an_ordinary_view() -> None:
    empty = from_arrays(*_random(0)).subset([])
    assert len(empty) == 0
    assert empty.num_examples == 0
    assert not empty.classes_present().any()


def test_the_summary_tells_of_users_without_a_pair() -> None:
    dataset = from_arrays(np.zeros((3, 1)), [0, 0, 0], ["a", "a", "b"], notes=["2 files skipped"])
    assert dataset.summary()[1:] == ["1 of 2 users have a single example", "2 files skipped"]
    assert "only one user" in dataset.subset([0]).summary()[1]
