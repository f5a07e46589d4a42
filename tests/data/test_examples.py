"""Data sets of single examples: from arrays, their targets and classes, and what of their domain was found."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    ExampleDataset,
    ehr_from_tables,
    examples_from_arrays,
    examples_from_users,
    from_arrays,
    open_examples,
    open_users,
    read_schema,
    split_examples,
    split_users,
    to_tensor,
    write_examples,
)
from sfumato.data.domain import COUNT, DECLARED_PUBLIC, NAMES
from sfumato.data.store.build import write_store

# Single examples: the same records through every view, and one line for what does not fit.


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


def test_no_one_can_change_the_records_by_accident(pictures) -> None:
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


# Targets of every kind go through reading, views, stores and splits unchanged.

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(30, 3)).astype(np.float32)
KINDS = {
    "classes": (RNG.integers(0, 4, 30), {}, np.int64, "4 classes"),
    "counts": (RNG.integers(0, 4, 30), {"classes": False}, np.int64, "a whole number each"),
    "numbers": (RNG.normal(size=30), {}, np.float32, "a number each"),
    "large": (RNG.normal(size=30).astype(np.float32) * np.float32(1e30), {}, np.float32, "a number each"),
    "vectors": (RNG.normal(size=(30, 5)), {}, np.float32, "5 numbers each"),
    "answers": (RNG.integers(0, 2, (30, 2)), {}, np.int64, "2 whole numbers each"),
    "none": (None, {}, None, "no targets"),
}


def same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_come_back_as_they_were_given(tmp_path: Path, kind: str) -> None:
    targets, options, dtype, told = KINDS[kind]
    expected = None if targets is None else np.asarray(targets, dtype)
    data = examples_from_arrays(INPUTS, targets, **options)
    assert told in repr(data)
    assert (data.num_classes is not None) == (kind == "classes")
    places = np.array([4, 2, 2])
    assert same(data.examples(places)[1], None if expected is None else expected[places])
    assert same(data.subset([7, 1]).targets, None if expected is None else expected[[7, 1]])
    stored = write_examples(data, tmp_path / "store")
    for view in (data, stored, open_examples(tmp_path / "store")):
        assert same(view.targets, expected)
        assert view.fingerprint() == data.fingerprint()
        assert view.num_classes == data.num_classes
    parts = split_examples(data, test=0.3, validation=0.2, seed=1)
    assert sum(len(part) for part in parts) == 30
    assert len(parts.test)
    if expected is not None:
        assert sorted(np.concatenate([part.targets for part in parts]).tolist()) == sorted(expected.tolist())
    blocks = [block for _, block in data.batches(8)]
    assert same(None if expected is None else np.concatenate(blocks), expected)


def test_each_target_changes_the_fingerprint_and_so_does_what_it_is() -> None:
    whole = np.arange(30) % 4
    views = [
        examples_from_arrays(INPUTS, whole),
        examples_from_arrays(INPUTS, whole, classes=False),
        examples_from_arrays(INPUTS, whole.astype(np.float32)),
        examples_from_arrays(INPUTS, whole[:, None], classes=False),
        examples_from_arrays(INPUTS),
    ]
    other = whole.astype(np.float32)
    other[29] += 1
    views.append(examples_from_arrays(INPUTS, other))
    assert len({view.fingerprint() for view in views}) == len(views)


def test_numbers_cost_no_assumption_and_whole_numbers_are_classes_unless_reported_otherwise() -> None:
    whole = np.arange(30) % 4
    assert examples_from_arrays(INPUTS, whole).found == (COUNT,)
    for targets, options in ((whole, {"classes": False}), (whole / 2, {}), (None, {})):
        assert examples_from_arrays(INPUTS, targets, **options).assumptions == ()


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        ([0.0, np.nan, 1.0], {}, "got nan in example 1; correct or drop it"),
        (np.array([[0.0, 1.0], [2.0, 3.0], [4.0, -np.inf]]), {}, "got -inf in example 2"),
        (np.array([1.0, 2.0, 1e39]), {}, r"finite in single precision, got 1e\+39 in example 2"),
        ([0, 1, 2], {"classes": False, "num_classes": 3}, "leave out classes=False"),
        ([0.5, 1, 2], {"num_classes": 3}, "got numbers, float64 .*cast class numbers to int64"),
        (["a", "b", "a"], {"classes": False}, "targets that are text must be one class an example"),
        (np.zeros((3, 2, 2)), {}, r"\[examples\] or \[examples, k\], got \(3, 2, 2\); flatten"),
        (None, {"num_classes": 3}, "are for classes, got no targets"),
        ([0.5, 1], {}, "got 3 rows of inputs and 2 targets"),
    ],
)
def test_targets_that_do_not_fit_are_named_in_one_line(targets, options, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        examples_from_arrays(np.zeros((3, 2)), targets, **options)
    assert "\n" not in str(caught.value)


def test_a_data_set_refuses_classes_of_what_are_none() -> None:
    for targets in (None, np.zeros(3, np.float32), np.zeros((3, 2), np.int64)):
        with pytest.raises(InputError, match="num_classes=2 needs class numbers"):
            ExampleDataset(inputs=(np.zeros((3, 2)),), targets=targets, num_classes=2)
    with pytest.raises(InputError, match="no classes to count"):
        examples_from_arrays(np.zeros((3, 2)), [0.5, 1, 2]).class_counts()


@pytest.mark.parametrize("container", ["npz", "npy"])
def test_arrays_in_files_are_read_by_their_type(tmp_path: Path, container: str) -> None:
    whole, numbers = np.arange(30) % 4, np.linspace(0, 1, 30)

    def read(targets: np.ndarray, **options) -> ExampleDataset:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        if container == "npz":
            np.savez(folder / "a.npz", x=INPUTS, y=targets)
            return open_examples(folder / "a.npz", **options)
        np.save(folder / "x.npy", INPUTS)
        np.save(folder / "y.npy", targets)
        return open_examples(folder, **options)

    assert read(whole).num_classes == 4
    assert read(whole, classes=False).num_classes is None
    assert read(whole, classes=False).assumptions == ()
    assert same(read(numbers).targets, numbers.astype(np.float32))
    assert same(read(np.stack([numbers, numbers], 1)).targets, np.stack([numbers, numbers], 1).astype(np.float32))


def rows(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["age,visits,price,weight", *lines]) + "\n")
    return path


AGE = {"age": {"kind": "numeric", "low": 0, "high": 100}}
DROP = {"visits": "drop", "price": "drop", "weight": "drop"}


def test_a_table_predicts_numbers_or_counts_as_its_schema_says(tmp_path: Path) -> None:
    file = rows(tmp_path / "t.csv", "10,3,-2.5,1e6", "50,0,1e30,0.25")
    price = open_examples(file, schema={**AGE, **DROP, "price": {"kind": "target"}})
    assert same(price.targets, np.array([-2.5, 1e30], np.float32))
    assert price.num_classes is None
    assert not any("class" in line.id for line in price.assumptions)
    both = open_examples(
        file, schema={**AGE, **DROP, "price": {"kind": "target"}, "weight": {"kind": "target"}}, store=tmp_path / "s"
    )
    assert same(both.targets, np.array([[-2.5, 1e6], [1e30, 0.25]], np.float32))
    assert same(open_examples(tmp_path / "s").targets, both.targets)
    visits = open_examples(file, schema={**AGE, **DROP, "visits": {"kind": "count"}})
    assert same(visits.targets, np.array([3, 0]))
    assert visits.num_classes is None


def test_parquet_has_the_targets_of_the_csv(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [10, 50], "visits": [3, 0], "price": [-2.5, 0.1], "weight": [1.0, 2.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    file = rows(tmp_path / "t.csv", "10,3,-2.5,1", "50,0,0.1,2")
    for column, kind in (("price", "target"), ("visits", "count")):
        schema = {**AGE, **DROP, column: {"kind": kind}}
        assert (
            open_examples(tmp_path / "t.parquet", schema=schema).fingerprint()
            == open_examples(file, schema=schema).fingerprint()
        )


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        ("target", "20,1,,1", "line 3: 'price' must be a finite number, it is missing; correct it or remove the row"),
        ("target", "20,1,dear,1", "line 3: 'price' must be a finite number, got 'dear'"),
        ("target", "20,1,inf,1", "got 'inf'"),
        ("target", "20,1,NaN,1", "it is missing"),
        ("target", "20,1,1e39,1", "got '1e39'"),
        ("count", "20,1,-1,1", "line 3: 'price' must be a whole number >= 0 and below 2.53, got '-1'"),
        ("count", "20,1,1.5,1", "whole number >= 0 and below 2.53, got '1.5'"),
    ],
)
def test_a_target_that_is_none_names_its_row(tmp_path: Path, kind: str, line: str, message: str) -> None:
    file = rows(tmp_path / "t.csv", "10,3,2,1", line)
    with pytest.raises(InputError, match=message) as caught:
        open_examples(file, schema={**AGE, **DROP, "price": {"kind": kind}})
    assert "\n" not in str(caught.value)


def test_a_schema_predicts_one_kind_of_thing() -> None:
    label, target, count = ({"kind": kind} for kind in ("label", "target", "count"))
    for columns in ({"a": label, "b": target}, {"a": target, "b": count}, {"a": label, "b": label}, {}):
        with pytest.raises(InputError, match="a schema needs one column of"):
            read_schema({**AGE, **columns})
    with pytest.raises(InputError, match="'a' is target and has no 'low'"):
        read_schema({**AGE, "a": {"kind": "target", "low": 0}})


def test_a_column_of_whole_numbers_is_not_taken_for_counts_unasked() -> None:
    column = (np.arange(30) % 4)[:, None]
    with pytest.raises(InputError, match=r"targets\[:, 0\]"):
        examples_from_arrays(INPUTS, column)
    assert examples_from_arrays(INPUTS, column, classes=False).num_classes is None
    assert examples_from_arrays(INPUTS, column[:, 0]).num_classes == 4


def test_a_class_0_that_no_one_has_is_reported() -> None:
    from_one = examples_from_arrays(INPUTS, 1 + np.arange(30) % 4)
    assert any("class 0" in line for line in from_one.summary())
    assert examples_from_arrays(INPUTS, np.arange(30) % 4).notes == ()
    assert examples_from_arrays(INPUTS, 1 + np.arange(30) % 4, num_classes=5).notes == ()


@pytest.mark.parametrize("make", [examples_from_arrays, lambda rows, labels: from_arrays(rows, labels, users=[0, 1])])
def test_rows_of_different_lengths_are_refused_with_what_to_do(make) -> None:
    for rows in ([[1, 2], [1, 2, 3]], [np.zeros(3), np.zeros(4)]):
        with pytest.raises(InputError, match=r"inputs cannot be put into one array .*bring all rows to one length"):
            make(rows, [0, 1])


# Classes that are declared: their numbers and their count follow from the declaration, whatever records hold.

PUBLIC = ["eel", "bee", "ant", "cat"]


def users(kinds):
    return from_arrays(np.zeros((len(kinds), 2)), kinds, [f"u{row % 4}" for row in range(len(kinds))])


def examples(kinds):
    return examples_from_arrays(np.zeros((len(kinds), 2)), kinds)


@pytest.mark.parametrize("make", [users, examples])
@pytest.mark.parametrize("kinds", [["ant", "bee"] * 4, ["bee"] * 8, ["cat", "ant"] * 4])
def test_declared_names_number_the_classes(make, kinds):
    data = make(kinds)
    assert data.found == (NAMES,)
    declared = data.with_classes(PUBLIC)
    assert (declared.found, declared.num_classes, list(declared.label_names)) == ((), 4, PUBLIC)
    read = declared.examples(0)[1] if make is users else declared.targets
    expected = data.examples(0)[1] if make is users else data.targets
    assert [PUBLIC[label] for label in read] == [data.label_names[label] for label in expected]


@pytest.mark.parametrize("make", [users, examples])
def test_a_record_of_another_class_is_refused(make):
    with pytest.raises(InputError, match="the class 'dog', which is none of the 4 that are declared"):
        make(["ant", "dog"] * 4).with_classes(PUBLIC)
    with pytest.raises(InputError, match="the class 2, which is none of the 2 that are declared"):
        make([0, 2] * 4).with_classes(2)
    with pytest.raises(InputError, match="the classes have names"):
        make(["ant", "bee"] * 4).with_classes(5)


@pytest.mark.parametrize("make", [users, examples])
def test_a_number_declares_classes_that_no_record_has(make):
    assert make([0, 2] * 4).found == (COUNT,)
    with pytest.raises(InputError, match="declare these"):  # their names and order would be the records'
        make(["ant", "bee"] * 4).with_classes(2)
    assert make([0, 2] * 4).with_classes(7).num_classes == 7
    told = make([0, 2] * 4).with_classes(None)
    assert (told.found, told.num_classes, told.assumptions[-1]) == ((), 3, DECLARED_PUBLIC)


def test_a_part_and_a_store_keep_what_is_declared_and_what_was_found(tmp_path: Path):
    data = users(["ant", "bee", "ant", "bee"] * 4)
    assert {part.num_classes for part in split_users(data.with_classes(PUBLIC), test=["u1", "u3"])} == {4}
    assert open_users(write_store(data, tmp_path / "found") and tmp_path / "found").found == (NAMES,)
    write_store(data.with_classes(PUBLIC), tmp_path / "declared")
    assert open_users(tmp_path / "declared").found == ()


@pytest.mark.parametrize("where", ["static", "visits"])
def test_a_column_of_names_or_free_text_is_refused_where_it_is_inferred(where: str):
    people = 40
    visits = pd.DataFrame({"id": np.repeat(np.arange(people), 2), "day": [0, 3] * people})
    visits["bili"] = np.arange(2.0 * people) + 0.5
    facts = pd.DataFrame({"id": np.arange(people), "sex": ["f", "m"] * (people // 2)})
    table = facts if where == "static" else visits
    table["note"] = [f"of person {row}" for row in range(len(table))]
    with pytest.raises(InputError, match=r"'note' has \d+ different texts, \d+ of them of one patient each"):
        ehr_from_tables(visits, facts, id="id", time="day")
    found = ehr_from_tables(visits, facts, id="id", time="day", drop=["note"])
    assert found.schema.inferred


# Stored numbers reach the model unchanged in meaning, and never share memory with the data.


@pytest.mark.parametrize("channels", [1, 3])
def test_every_byte_maps_to_its_place_in_minus_one_to_one(channels: int) -> None:
    images = np.arange(256 * channels, dtype=np.int64).reshape(2, 8, 16, channels).astype(np.uint8)
    tensor = to_tensor(images)
    assert tensor.dtype == torch.float32
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert tensor.shape == (2, channels, 8, 16)
    expected = (np.moveaxis(images, 3, 1).astype(np.float64) - 128) / 128
    assert (tensor.numpy() == expected).all()
    assert tensor.min() >= -1
    assert tensor.max() < 1


@pytest.mark.parametrize(("dtype", "expected"), [("f8", torch.float32), ("i4", torch.int64), ("?", torch.int64)])
def test_features_and_tokens_pass_and_are_copied(dtype: str, expected: torch.dtype) -> None:
    inputs = np.ones((2, 3), dtype)
    inputs.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = to_tensor(inputs)
        image = to_tensor(np.broadcast_to(np.uint8(7), (1, 2, 2, 1)))
    assert tensor.dtype == expected
    tensor.zero_()
    assert inputs.all()
    assert image[0, 0, 0, 0] == (7 - 128) / 128


def test_text_is_refused() -> None:
    with pytest.raises(InputError, match="numbers"):
        to_tensor(np.array(["a"]))


@pytest.mark.parametrize("owners", [[0, 2, 2], [-1, 0, 1], [0, 1]])
def test_users_are_numbered_without_gaps(owners: list[int]) -> None:
    with pytest.raises(InputError, match="owners must be"):
        ExampleDataset(inputs=(np.zeros((3, 1)),), owners=np.array(owners))


def test_examples_without_users_have_no_number_of_them() -> None:
    with pytest.raises(InputError, match="the examples have no users; declare a column as user in the schema"):
        _ = examples_from_arrays(np.zeros((3, 1))).num_users
