"""Parts of data sets: by a hash of each one's own name, whole users, classes, groups or examples."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    ExampleDataset,
    Split,
    UserDataset,
    examples_from_arrays,
    from_arrays,
    open_examples,
    split_examples,
    split_groups,
    split_labels,
    split_users,
)
from sfumato.data.split import divide, name_keys
from slow import by_profile

# Nobody's part of a split depends on anybody else, whatever is split; the share is binomial.

NAMES = [f"person {i}" for i in range(40)]
RECORDS = [(owner, kind) for owner in range(40) for kind in range(owner % 3, 24, 5)]
"""Who (0 … 39) has a record of which class (0 … 23); classes 4g … 4g + 3 are of group g."""


def _people(present: list[int]) -> UserDataset:
    """The records of some people, with the classes and groups that they hold and no others."""
    rows = [(number, owner, kind) for number, (owner, kind) in enumerate(RECORDS) if owner in set(present)]
    kinds = sorted({kind for _, _, kind in rows})
    return from_arrays(
        np.array([[number] for number, _, _ in rows], np.float64),
        [kinds.index(kind) for _, _, kind in rows],
        [NAMES[owner] for _, owner, _ in rows],
        label_names=[f"class {kind}" for kind in kinds],
        label_groups=[f"group {kind // 4}" for kind in kinds],
    )


def _rows(dataset: UserDataset) -> set[int]:
    return {int(x[0]) for user in range(len(dataset)) for x in dataset.examples(user)[0]}


@pytest.mark.filterwarnings("ignore:.* of .* classes are in train and in")
@pytest.mark.parametrize("split", [split_users, split_labels, split_groups])
@settings(max_examples=by_profile(40), deadline=None)
@given(
    present=st.sets(st.integers(0, 39), min_size=25), leaves=st.integers(0, 39), seed=st.integers(0, 2**31),
    test=st.floats(0, 0.4), validation=st.floats(0, 0.3),
)  # fmt: skip
def test_one_person_more_or_less_moves_no_one_else(
    split: Callable, present: set[int], leaves: int, seed: int, test: float, validation: float
) -> None:
    own = {number for number, (owner, _) in enumerate(RECORDS) if owner == leaves}
    try:
        with_them, without = (
            [_rows(part) for part in split(_people(sorted(people)), test=test, validation=validation, seed=seed)]
            for people in (present | {leaves}, present - {leaves})
        )
    except InputError:  # six groups may all be sent to the test
        reject()
    assert [part - own for part in with_them] == without


@settings(max_examples=by_profile(20), deadline=None)
@given(seed=st.integers(0, 2**31), test=st.floats(0.05, 0.6), validation=st.floats(0, 0.3), gone=st.integers(0, 299))
def test_names_go_where_they_go_alone(seed: int, test: float, validation: float, gone: int) -> None:
    names = [f"n{i}" for i in range(300)]
    whole = divide(300, names, "user", test=test, validation=validation, seed=seed).parts
    part_of = {names[i]: number for number, part in enumerate(whole) for i in part}
    fewer = [name for name in reversed(names) if name != f"n{gone}"]
    parts = divide(299, fewer, "user", test=test, validation=validation, seed=seed).parts
    assert all(part_of[fewer[i]] == number for number, part in enumerate(parts) for i in part)
    assert sum(map(len, whole)) == 300


def test_the_number_in_a_part_is_binomial() -> None:
    """2,000 seeds of 50 names each; false alarms 1 in 10⁴ for either test."""
    names = [f"name {i}" for i in range(50)]
    keys = np.stack([name_keys(names, "user", seed) for seed in range(2000)])
    assert stats.kstest(keys.ravel(), "uniform").pvalue > 1e-4
    counts = np.bincount((keys < 0.2).sum(1), minlength=51)
    expected = 2000 * stats.binom.pmf(np.arange(51), 50, 0.2)
    pooled = [
        (counts[a:b].sum(), expected[a:b].sum()) for a, b in ((0, 6), *((k, k + 1) for k in range(6, 15)), (15, 51))
    ]
    seen, wanted = map(np.array, zip(*pooled, strict=True))
    assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > 1e-4


def test_users_classes_and_groups_of_one_name_go_their_own_ways() -> None:
    names = [f"{i}" for i in range(200)]
    keys = [name_keys(names, what, 0) for what in ("user", "class", "group", "example")]
    assert len({tuple(key < 0.5) for key in keys}) == 4


def test_pictures_go_by_their_path(class_folder_of_many: Callable) -> None:
    def paths(gone: int | None) -> list[set[str]]:
        data = open_examples(class_folder_of_many(gone))
        names = data.example_names
        value = {int(data.examples([i])[0][0][0, 0, 0, 0]): name for i, name in enumerate(names)}
        parts = split_examples(data, test=0.3, validation=0.2, seed=4)
        assert not parts.train.assumptions[len(data.assumptions) :]
        return [{value[int(v)] for v in part.examples(np.arange(len(part)))[0][0][:, 0, 0, 0]} for part in parts]

    whole, fewer = paths(None), paths(7)
    gone = set.union(*whole) - set.union(*fewer)
    assert len(gone) == 1
    assert [part - gone for part in whole] == fewer


@pytest.fixture
def class_folder_of_many(tmp_path, save: Callable) -> Callable:
    def make(gone: int | None):
        root = tmp_path / f"without {gone}"
        for i in range(40):
            if i != gone:
                save(root / f"kind{i % 3}" / f"{i}.png", np.full((4, 4, 1), i, np.uint8))
        return root

    return make


def test_a_choice_by_position_is_an_assumption_of_the_training_part() -> None:
    people = _people(list(range(40)))
    assert split_users(people, shared_labels=True).train.assumptions == ()
    assert split_users(people, test=["person 3"], shared_labels=True).train.assumptions == ()
    (said,) = split_users(people, test=[3], shared_labels=True).train.assumptions
    assert said == Assumption("divided_by_position", {"things": "users"})
    # without names the numbers that the classes came with are their names
    numbers = from_arrays(np.zeros((6, 1)), labels=range(6), users=range(6))
    assert split_labels(numbers, test=[3], seed=0).train.assumptions == ()
    assert split_labels(people, test=[3]).train.assumptions


def test_classes_without_names_keep_their_part_in_a_view_of_some() -> None:
    people = from_arrays(np.arange(60.0)[:, None], labels=np.arange(60) % 30, users=np.arange(60))
    parts = [_rows(part) for part in split_labels(people, test=0.4, seed=1)]
    fewer = people.select_classes([label for label in range(30) if label != 5])
    assert [_rows(part) for part in split_labels(fewer, test=0.4, seed=1)] == [part - {5, 35} for part in parts]


# The parts are disjoint, complete, the same for a seed, and tell when recall would be on classes already seen.


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


def _examples_of(dataset: UserDataset) -> list[int]:
    return [int(x[0]) for user in range(len(dataset)) for x in dataset.examples(user)[0]]


def _names(dataset: UserDataset) -> set[str]:
    held = dataset.classes_present()
    return {name for name, present in zip(dataset.label_names or (), held) if present}


def _partition(parts: Split, whole: UserDataset) -> None:
    rows = [_examples_of(part) for part in parts]
    assert sorted(row for part in rows for row in part) == sorted(_examples_of(whole))
    assert sum(len(set(r)) for r in rows) == len(_examples_of(whole))


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
    assert [_examples_of(part) for part in parts] == [_examples_of(part) for part in again]


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


def test_shared_classes_are_reported_once_and_keep_their_numbers(writers: UserDataset) -> None:
    with pytest.warns(UserWarning, match=r"10 of 10 classes .* recall is not on unseen classes") as told:
        parts = split_users(writers, test=0.3)
    assert len(told) == 1
    assert parts.test.num_classes == writers.num_classes
    _partition(parts, writers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_users(writers, test=0.3, shared_labels=True)


def test_classes_are_parted_anyone_who_holds_them(writers: UserDataset) -> None:
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


# The parts of a split, and what a record more changes in them.


def numbered(count: int) -> ExampleDataset:
    return examples_from_arrays(np.arange(count, dtype=np.int64), np.zeros(count, np.int64), num_classes=2)


def members(part: ExampleDataset) -> set[int]:
    return set(part.examples(np.arange(len(part)))[0][0].tolist())


amounts = st.floats(0, 0.4)


@settings(max_examples=by_profile(60), deadline=None)
@given(count=st.integers(50, 200), test=amounts, validation=amounts, seed=st.integers(0, 2**31))
def test_one_record_more_at_the_end_moves_no_other(count, test, validation, seed) -> None:
    def split(n: int) -> list[set[int]]:
        return [members(part) for part in split_examples(numbered(n), test=test, validation=validation, seed=seed)]

    before, after = split(count), split(count + 1)
    assert set.union(*before) == set(range(count))
    assert sum(map(len, before)) == count
    assert [part - {count} for part in after] == before


def test_a_record_more_stays_alone_also_behind_the_first_block_of_the_stream() -> None:
    before, after = (members(split_examples(numbered(n), test=0.3, seed=2).train) for n in (40_000, 40_001))
    assert after - {40_000} == before


def test_shares_are_near_and_a_seed_repeats_itself() -> None:
    parts = split_examples(numbered(5000), test=0.2, validation=0.25, seed=3)
    for part, share in ((parts.test, 0.2), (parts.validation, 0.25)):
        assert abs(len(part) - 5000 * share) < 6 * np.sqrt(5000 * share * (1 - share))  # 6 standard deviations: 2e-9
    same = split_examples(numbered(5000), test=0.2, validation=0.25, seed=3)
    other = split_examples(numbered(5000), test=0.2, validation=0.25, seed=4)
    assert members(parts.train) == members(same.train) != members(other.train)


def test_a_division_by_position_is_an_assumption_of_the_training_part() -> None:
    (said,) = split_examples(numbered(100), test=0.2).train.assumptions
    assert said == Assumption("divided_by_position", {"things": "examples"})
    assert split_examples(numbered(100), test=0).train.assumptions == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": range(10)}, "10 examples cannot be split into 10 for test"),
        ({"test": 1.0}, r"test must be in \[0, 1\)"),
        ({"test": 3}, "for an exact number of examples name them"),
        ({"test": -1}, r"test must be in \[0, 1\), got -1"),
        ({"validation": True}, "validation must be a share"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
    ],
)
def test_what_cannot_be_divided_is_refused(options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_examples(numbered(10), **options)


def test_examples_of_one_user_stay_in_one_part() -> None:
    rng = np.random.default_rng(0)
    users = rng.zipf(1.5, 2000) % 400
    data = examples_from_arrays(np.arange(2000), rng.integers(0, 2, 2000), num_classes=2, users=users)
    parts = split_examples(data, test=0.2, validation=0.1, seed=0)
    held = [set(users[np.asarray(part.inputs[0][:])]) for part in parts]
    assert [len(names) for names in held] == [part.num_users for part in parts]
    assert sum(map(len, held)) == data.num_users
    assert 0.1 * data.num_users < len(held[2]) < 0.3 * data.num_users
    assert (parts.train.inputs[0][:] == parts.places).all()
    for part in parts:  # the same examples are of one user as before
        before = users[np.asarray(part.inputs[0][:])]
        assert len({*zip(before.tolist(), part.owners.tolist(), strict=True)}) == part.num_users
    assert parts.train.assumptions[0].values == {"things": "users"}
