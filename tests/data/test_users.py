"""Data sets divided by user: from arrays, with attributes or values, and those that are drawn."""

import hashlib
import os
import subprocess
import sys
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
    glyphs,
    open_users,
    split_groups,
    split_labels,
    split_users,
    write_store,
)
from sfumato.data import split_users as by_user
from sfumato.data.drawn_glyphs import FIELD, faces, identities
from sfumato.federated.tasks import Classes, Verification
from slow import by_profile

# Each user's records stay together, and a view shows exactly the users and classes that were asked for.


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


def test_a_class_that_no_one_holds_is_refused() -> None:
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


def test_the_summary_reports_of_users_without_a_pair() -> None:
    dataset = from_arrays(np.zeros((3, 1)), [0, 0, 0], ["a", "a", "b"], notes=["2 files skipped"])
    assert dataset.summary()[1:] == ["1 of 2 users have a single example", "2 files skipped"]
    assert "only one user" in dataset.subset([0]).summary()[1]


# Users whose examples have several attributes at once.

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


# Data sets whose labels are values, such as ratings, and not classes.

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


def test_what_is_reported_of_values_counts_no_classes() -> None:
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


def test_users_are_split_with_their_values_and_no_one_is_lost() -> None:
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


# The embedded data: the same seed gives the same bytes, identities differ; a bad cache only costs time.


def _all(dataset: UserDataset) -> np.ndarray:
    return np.asarray(dataset.inputs[0 : dataset.num_examples])


@pytest.fixture(scope="module")
def small() -> UserDataset:
    return glyphs(40, 12, seed=3, cache=None)


def test_another_process_with_other_threads_draws_the_same_bytes(small: UserDataset) -> None:
    code = (
        "import hashlib; from sfumato.data import glyphs; d = glyphs(40, 12, seed=3, cache=None);"
        "print(hashlib.sha256(d.inputs.tobytes()).hexdigest())"
    )
    environment = {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "PYTHONHASHSEED": "7",
        "HOME": "/nonexistent",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == hashlib.sha256(_all(small).tobytes()).hexdigest()


def test_fewer_identities_are_a_subset_with_the_same_images(small: UserDataset) -> None:
    fewer = glyphs(10, 12, seed=3, cache=None)
    places = [list(small.user_ids).index(name) for name in fewer.user_ids]
    assert all((fewer.examples(i)[0] == small.examples(place)[0]).all() for i, place in enumerate(places))


def test_another_seed_draws_other_characters_and_other_images(small: UserDataset) -> None:
    other = glyphs(40, 12, seed=4, cache=None)
    assert set(other.user_ids) != set(small.user_ids)


def test_there_are_thousands_of_identities_and_no_two_are_one_shape() -> None:
    codes = identities()
    assert len(codes) > 2000
    letters = [code for code in codes if chr(code) in "AΑАᎪ"]  # Latin, Greek, Cyrillic, Cherokee
    assert len(letters) == 1
    fonts = faces()
    pictures = {fonts.render(fonts.reference, code).tobytes() for code in codes}  # type: ignore[union-attr]
    assert len(pictures) == len(codes)
    assert bytes(FIELD * FIELD) not in pictures


def test_an_identity_has_many_faces_and_no_two_images_are_equal(small: UserDataset) -> None:
    images = _all(small).reshape(len(small), 12, -1)
    assert len({image.tobytes() for image in images.reshape(-1, images.shape[2])}) == images.shape[0] * 12
    assert min(len(faces().coverage[int(name[2:], 16)]) for name in small.user_ids) >= 4


def test_images_of_one_identity_are_closer_than_images_of_two(small: UserDataset) -> None:
    flat = _all(small).reshape(len(small) * 12, -1).astype(np.float64)
    flat -= flat.mean(1, keepdims=True)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    similar = flat @ flat.T
    same = np.equal.outer(np.arange(len(flat)) // 12, np.arange(len(flat)) // 12)
    genuine, impostor = similar[same & ~np.eye(len(flat), dtype=bool)], similar[~same]
    above = (genuine[:, None] > impostor[None, ::101]).mean()  # AUC of raw pixels
    assert 0.65 < above < 0.97  # learnable, and not solved by pixels alone


def test_labels_users_and_names_agree(small: UserDataset) -> None:
    assert small.input_shape == (28, 28, 1)
    assert small.dtype == np.uint8
    assert small.num_classes == len(small) == 40
    for user in (0, 17, 39):
        _, labels = small.examples(user)
        assert (labels == user).all()
        assert len(labels) == 12
        name = (small.label_names or ())[user]
        assert name == f"{small.user_ids[user]} {chr(int(small.user_ids[user][2:], 16))}"


def test_the_cache_gives_the_same_images_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    first = _all(glyphs(5, 4, seed=1, cache=tmp_path))
    (file,) = tmp_path.iterdir()
    good = file.read_bytes()
    calls: list[tuple[int, int]] = []
    assert (_all(glyphs(5, 4, seed=1, cache=tmp_path, progress=lambda *c: calls.append(c))) == first).all()
    assert calls == []
    for damage in (good[:-100], good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], b"", b"not a cache"):
        file.write_bytes(damage)
        assert (_all(glyphs(5, 4, seed=1, cache=tmp_path, progress=lambda *c: calls.append(c))) == first).all()
        assert file.read_bytes() == good
    assert calls == [(5, 5)] * 4


def test_the_folder_of_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "here"))
    glyphs(2, 2)
    assert len(list((tmp_path / "here").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="SFUMATO_CACHE"):
        assert len(glyphs(2, 2, cache=tmp_path / "file")) == 2


def test_too_many_identities_are_refused_with_the_number_there_are() -> None:
    with pytest.raises(InputError, match=f"at most {len(identities())}, got 100000"):
        glyphs(100_000)
    with pytest.raises(InputError, match="identities"):
        glyphs(0)
