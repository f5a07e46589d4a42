"""Data sets whose labels are values, such as ratings, and not classes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import (
    UserDataset,
    examples_from_users,
    from_arrays,
    open_users,
    split_groups,
    split_labels,
    write_store,
)
from sfumato.data import split_users as by_user
from slow import by_profile

ITEMS = ("Alien", "Brazil", "Casino")
VALUES = st.floats(-(2.0**99), 2.0**99, width=32)


def _ratings() -> UserDataset:
    inputs = np.array([[0], [2], [1], [0], [1]])
    ratings = from_arrays(inputs, [3.5, 1.0, 5.0, 0.5, 4.0], ["bo", "al", "al", "cy", "bo"])
    return replace(ratings, item_names=ITEMS, assumptions=("The films are public.",))


def test_labels_with_a_point_are_values_in_single_precision() -> None:
    data = _ratings()
    inputs, values = data.examples(1)
    assert data.of_values
    assert not data.of_sequences
    assert data.num_classes == 0
    assert values.dtype == np.float32
    assert values.tolist() == [3.5, 4.0]
    assert inputs[:, 0].tolist() == [0, 1]
    inputs, values, sizes = data.examples_of(np.array([2, 0]))
    assert values.dtype == np.float32
    assert values.tolist() == [0.5, 1.0, 5.0]
    assert sizes.tolist() == [1, 2]
    assert inputs[:, 0].tolist() == [0, 2, 1]
    assert not from_arrays(np.zeros((2, 1)), [0, 1], [0, 1]).of_values


def test_what_is_told_of_values_counts_no_classes() -> None:
    assert repr(_ratings()) == "UserDataset(3 users, 5 values of 3 items)"
    assert repr(replace(_ratings(), item_names=None)) == "UserDataset(3 users, 5 values of (1,) int64)"
    assert _ratings().summary()[0] == "3 users, 5 values of 3 items"


@pytest.mark.parametrize(("value", "told"), [(np.nan, "nan"), (np.inf, "inf"), (1e39, "1e+39")])
def test_a_value_that_is_not_finite_is_refused_by_its_row(value: float, told: str) -> None:
    with pytest.raises(InputError, match="labels must be finite") as refusal:
        from_arrays(np.zeros((3, 1)), [0.5, 1.0, value], [0, 1, 1])
    assert f"got {told} in example 2" in str(refusal.value)


def test_values_have_no_names() -> None:
    with pytest.raises(InputError, match="cast classes to int64"):
        from_arrays(np.zeros((2, 1)), [0.5, 1.0], [0, 1], label_names=["a", "b"])


@pytest.mark.parametrize(
    "use",
    [
        lambda data: data.classes_present(),
        lambda data: data.select_classes([0]),
        lambda data: split_labels(data),
        lambda data: split_groups(data),
    ],
)
def test_what_needs_classes_refuses_values_in_one_line(use) -> None:
    with pytest.raises(InputError, match=r"the labels are values \(float32\)") as refusal:
        use(_ratings())
    assert "\n" not in str(refusal.value)


def test_users_are_split_with_their_values_and_nobody_is_lost() -> None:
    inputs = np.arange(200)[:, None] % 7
    values = np.linspace(0.5, 5, 200)
    whole = replace(from_arrays(inputs, values, np.arange(200) // 4), item_names=tuple("abcdefg"))
    parts = by_user(whole, test=0.3, validation=0.2)
    assert sum(map(len, parts)) == 50
    assert sum(part.num_examples for part in parts) == 200
    found = {name: part.examples(i)[1] for part in parts for i, name in enumerate(part.user_ids)}
    for user in range(50):
        assert found[str(user)].tolist() == values[4 * user : 4 * user + 4].astype(np.float32).tolist()
    assert all(part.of_values and part.item_names == whole.item_names for part in parts)
    assert parts.train.compact_labels() is parts.train


def test_every_value_and_every_item_counts_in_the_fingerprint() -> None:
    data = _ratings()
    changed = replace(data, labels=np.where(np.arange(5) == 3, 3.0, data.labels).astype(np.float32))
    others = [
        changed,
        replace(data, item_names=None),
        replace(data, item_names=("Alien", "Brazil", "Heat")),
        data.subset([0, 1]),
        replace(data, labels=data.labels.astype(np.int64), num_classes=6),
    ]
    assert len({each.fingerprint() for each in (data, *others)}) == 6
    assert _ratings().fingerprint() == data.fingerprint()


def test_single_examples_keep_their_values() -> None:
    alone = examples_from_users(_ratings().subset([1, 2]))
    assert alone.num_classes is None
    assert alone.targets is not None
    assert alone.targets.dtype == np.float32
    assert alone.targets.tolist() == [3.5, 4.0, 0.5]
    assert alone.assumptions[0] == "The films are public."


@settings(deadline=None, max_examples=by_profile(20))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), VALUES), min_size=1, max_size=40))
def test_a_store_gives_back_every_value_and_item(tmp_path_factory: pytest.TempPathFactory, rows: list) -> None:
    users, items, values = (np.array(column) for column in zip(*rows, strict=True))
    folder = tmp_path_factory.mktemp("values") / "store"
    memory = replace(from_arrays(items[:, None], values.astype(np.float32), users), item_names=ITEMS)
    written = write_store(memory, folder)
    opened = open_users(folder, verify=True)
    assert opened.of_values
    assert list(opened.item_names or ()) == list(ITEMS)
    assert opened.num_classes == 0
    assert list(opened.user_ids) == list(memory.user_ids)
    for user in range(len(memory)):
        for ours, theirs in zip(memory.examples(user), opened.examples(user), strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
    assert opened.fingerprint() == written.fingerprint()


def test_a_store_with_other_items_is_another_one(tmp_path: Path) -> None:
    one = write_store(_ratings(), tmp_path / "one")
    other = write_store(replace(_ratings(), item_names=("Alien", "Brazil", "Heat")), tmp_path / "other")
    none = write_store(replace(_ratings(), item_names=None), tmp_path / "none")
    assert len({one.fingerprint(), other.fingerprint(), none.fingerprint()}) == 3
    assert open_users(tmp_path / "none").item_names is None
    items = tmp_path / "one" / "items.arrow"
    items.write_bytes(items.read_bytes().replace(b"Alien", b"Aliem"))
    with pytest.raises(InputError, match="index of the store"):
        open_users(tmp_path / "one")
