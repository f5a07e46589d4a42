"""Targets of every kind go through reading, views, stores and splits unchanged."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import (
    ExampleDataset,
    examples_from_arrays,
    from_arrays,
    open_examples,
    read_schema,
    split_examples,
    write_examples,
)
from sfumato.data.domain import COUNT

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


def test_numbers_cost_no_assumption_and_whole_numbers_are_classes_unless_told_otherwise() -> None:
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
        ("count", "20,1,-1,1", "line 3: 'price' must be a whole number >= 0, got '-1'"),
        ("count", "20,1,1.5,1", "whole number >= 0, got '1.5'"),
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


def test_a_class_0_that_nobody_has_is_told() -> None:
    from_one = examples_from_arrays(INPUTS, 1 + np.arange(30) % 4)
    assert any("class 0" in line for line in from_one.summary())
    assert examples_from_arrays(INPUTS, np.arange(30) % 4).notes == ()
    assert examples_from_arrays(INPUTS, 1 + np.arange(30) % 4, num_classes=5).notes == ()


@pytest.mark.parametrize("make", [examples_from_arrays, lambda rows, labels: from_arrays(rows, labels, users=[0, 1])])
def test_rows_of_different_lengths_are_refused_with_what_to_do(make) -> None:
    for rows in ([[1, 2], [1, 2, 3]], [np.zeros(3), np.zeros(4)]):
        with pytest.raises(InputError, match=r"inputs cannot be put into one array .*bring all rows to one length"):
            make(rows, [0, 1])
