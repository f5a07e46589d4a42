"""The parts are disjoint, complete, the same for a seed, and tell when recall would be on classes already seen."""

import warnings

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import Split, UserDataset, from_arrays, split_groups, split_labels, split_users
from slow import by_profile


@pytest.fixture
def people() -> UserDataset:
    """20 users, each its own class, 1 to 20 examples."""
    owners = np.repeat(np.arange(20), np.arange(1, 21))
    rows = np.arange(len(owners), dtype=np.float64)[:, None]
    return from_arrays(
        rows, owners, [f"p{u:02}" for u in owners], label_names=[f"p{u:02}" for u in range(20)],
        label_groups=[f"g{u // 4}" for u in range(20)],
    )  # fmt: skip


@pytest.fixture
def writers() -> UserDataset:
    """12 users who share 10 classes."""
    rng = np.random.default_rng(0)
    return from_arrays(np.arange(600.0)[:, None], rng.integers(10, size=600), rng.integers(12, size=600))


def _rows(dataset: UserDataset) -> list[int]:
    return [int(x[0]) for user in range(len(dataset)) for x in dataset.examples(user)[0]]


def _names(dataset: UserDataset) -> set[str]:
    held = dataset.classes_present()
    return {name for name, present in zip(dataset.label_names or (), held) if present}


def _partition(parts: Split, whole: UserDataset) -> None:
    rows = [_rows(part) for part in parts]
    assert sorted(row for part in rows for row in part) == sorted(_rows(whole))
    assert sum(len(set(r)) for r in rows) == len(_rows(whole))


@settings(max_examples=by_profile(30), deadline=None)
@given(users=st.integers(3, 60), test=st.floats(0, 0.6), validation=st.floats(0, 0.3), seed=st.integers(0, 99))
def test_users_are_parted_the_same_way_every_time(users: int, test: float, validation: float, seed: int) -> None:
    dataset = from_arrays(np.arange(float(users))[:, None], np.arange(users), np.arange(users))
    try:
        parts = split_users(dataset, test=test, validation=validation, seed=seed)
    except InputError:  # all of a few users may be sent to the test
        reject()
    _partition(parts, dataset)
    again = split_users(dataset, test=test, validation=validation, seed=seed)
    assert [_rows(part) for part in parts] == [_rows(part) for part in again]


def test_nothing_is_kept_back_at_a_share_of_zero(people: UserDataset) -> None:
    parts = split_users(people, test=0, validation=0.0)
    assert [len(part) for part in parts] == [20, 0, 0]


def test_seeds_choose_differently(people: UserDataset) -> None:
    assert len({tuple(split_users(people, test=0.4, seed=seed).test.user_ids) for seed in range(8)}) == 8


def test_identities_are_numbered_anew_in_each_part_and_keep_their_names(people: UserDataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = split_users(people, test=0.25, validation=0.1, seed=5)
    for part in parts:
        assert part.num_classes == len(part)
        for user, name in enumerate(part.user_ids):
            labels = part.examples(user)[1]
            assert (labels == user).all()
            assert (part.label_names or ())[user] == name
    assert not _names(parts.train) & _names(parts.test)


def test_shared_classes_are_told_once_and_keep_their_numbers(writers: UserDataset) -> None:
    with pytest.warns(UserWarning, match=r"10 of 10 classes .* recall is not on unseen classes") as told:
        parts = split_users(writers, test=0.3)
    assert len(told) == 1
    assert parts.test.num_classes == writers.num_classes
    _partition(parts, writers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_users(writers, test=0.3, shared_labels=True)


def test_classes_are_parted_whoever_holds_them(writers: UserDataset) -> None:
    parts = split_labels(writers, test=range(6, 10), validation=[0])
    _partition(parts, writers)
    assert [part.num_classes for part in parts] == [5, 1, 4]
    assert len(parts.train) == len(parts.test) == 12  # every writer wrote both


def test_groups_are_parted_whole(people: UserDataset) -> None:
    parts = split_groups(people, test=people.groups[-2:])
    assert parts.test.groups == ("g3", "g4")
    assert parts.train.groups == ("g0", "g1", "g2")
    assert len(parts.validation) == 0
    _partition(parts, people)
    named = split_groups(people, test=["g1"], validation=0.4, seed=3)
    assert named.test.groups == ("g1",)
    assert not set(named.validation.groups) & {"g1", *named.train.groups}
    assert named.validation.groups
    _partition(named, people)


def test_names_and_amounts_combine(people: UserDataset) -> None:
    parts = split_users(people, test=["p03", "p11"], validation=0.3, seed=1)
    assert list(parts.test.user_ids) == ["p03", "p11"]
    without = split_users(people, test=0, validation=0.3, seed=1).validation
    assert set(parts.validation.user_ids) == set(without.user_ids) - {"p03", "p11"}
    _partition(parts, people)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test": [f"p{u:02}" for u in range(20)]}, "20 users cannot be split into 20 for test"),
        ({"test": 5}, r"test must be in \[0, 1\), got 5; for an exact number of users name them"),
        ({"test": 1.5}, r"test must be in \[0, 1\), got 1.5"),
        ({"test": 0.5, "validation": 0.5}, "must leave something to train on, got 0.5 and 0.5"),
        ({"test": True}, "share"),
        ({"test": -1}, "got -1"),
        ({"test": ["nobody"]}, "there is no user 'nobody'; for example: p00"),
        ({"test": "p00"}, "list of names"),
        ({"test": [20]}, r"0 … 19, got 20"),
        ({"test": ["p01"], "validation": ["p01"]}, "one part only, and once: test and validation name 'p01' twice"),
        ({"test": [1, 1]}, "one part only, and once: test and validation name 'p01' twice"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_split_that_cannot_be_is_one_line(people: UserDataset, arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        split_users(people, **arguments)
    assert "\n" not in str(refusal.value)


def test_one_user_and_missing_groups_are_one_line(people: UserDataset, writers: UserDataset) -> None:
    with pytest.raises(InputError, match="1 user cannot be split"):
        split_users(people.subset([3]), test=["p03"])
    with pytest.raises(InputError, match="no groups"):
        split_groups(writers)
