"""Nobody's part of a split depends on anybody else, whatever is split; the share is binomial."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    UserDataset,
    from_arrays,
    open_examples,
    split_examples,
    split_groups,
    split_labels,
    split_users,
)
from sfumato.data.split import divide, name_keys
from slow import by_profile

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
def test_one_person_more_or_less_moves_nobody_else(
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
