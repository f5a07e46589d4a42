"""Tables: what the schema declares is all that is known about a record."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import open_examples, read_schema
from sfumato.data.domain import NAMES
from sfumato.data.schema import column
from sfumato.data.text import hashed_id
from slow import by_profile

SCHEMA = {
    "age": {"kind": "numeric", "low": 20, "high": 60},
    "income": {"kind": "numeric", "low": 0, "high": 1000, "log": True, "fill": 0},
    "job": {"kind": "category", "buckets": 50},
    "sex": {"kind": "category", "values": ["f", "m"]},
    "note": "drop",
    "bought": {"kind": "label", "values": ["no", "yes"]},
}
ROWS = [
    {"age": "30", "income": "10", "job": "cook", "sex": "m", "note": "x", "bought": "yes"},
    {"age": "99", "income": "?", "job": "?", "sex": "d", "note": "", "bought": "no"},
    {"age": "-5", "income": "1000", "job": "Cook", "sex": "", "note": "", "bought": "no"},
]

ADULT = {
    "age": {"kind": "numeric", "low": 17, "high": 90},
    "workclass": {"kind": "category", "buckets": 16},
    "fnlwgt": "drop",
    "education": {"kind": "category", "buckets": 32},
    "education-num": {"kind": "numeric", "low": 1, "high": 16},
    "marital-status": {"kind": "category", "buckets": 16},
    "occupation": {"kind": "category", "buckets": 32},
    "relationship": {"kind": "category", "buckets": 16},
    "race": {"kind": "category", "buckets": 16},
    "sex": {"kind": "category", "values": ["Female", "Male"]},
    "capital-gain": {"kind": "numeric", "low": 0, "high": 100_000, "log": True},
    "capital-loss": {"kind": "numeric", "low": 0, "high": 5_000, "log": True},
    "hours-per-week": {"kind": "numeric", "low": 0, "high": 100},
    "native-country": {"kind": "category", "buckets": 64},
    "Salary": {"kind": "label", "values": ["<=50K", ">50K"]},
}


def write(path: Path, rows: list[dict[str, str]], separator: str = ",") -> Path:
    lines = [separator.join(rows[0])] + [separator.join(row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_row_becomes_what_the_schema_says(tmp_path: Path) -> None:
    data = open_examples(write(tmp_path / "t.csv", ROWS, ", "), schema=SCHEMA)
    (numbers, ids), labels = data.examples([0, 1, 2])
    log = 2 * np.log1p(10) / np.log1p(1000) - 1
    np.testing.assert_allclose(numbers, [[-0.5, log, -1], [1, -1, 1], [-1, 1, -1]], rtol=1e-6)
    cook, capital = hashed_id("cook", 51), hashed_id("Cook", 51)
    np.testing.assert_array_equal(ids, [[cook, 3], [0, 1], [capital, 0]])
    assert labels.tolist() == [1, 0, 0]
    assert data.vocabulary_sizes == (51, 4)
    assert data.columns == (("age", "income", "income is missing"), ("job", "sex"))
    assert list(data.label_names or ()) == ["no", "yes"]
    assert numbers.dtype == np.float32
    assert ids.dtype == np.int64


def test_a_record_is_read_alike_whatever_the_others_are(tmp_path: Path) -> None:
    """The heart of the promise: no statistic of other records enters, so one record cannot change another's inputs."""
    whole = open_examples(write(tmp_path / "a.csv", ROWS), schema=SCHEMA)
    for place, row in enumerate(ROWS):
        alone = open_examples(write(tmp_path / f"{place}.csv", [row]), schema=SCHEMA)
        for one, many in zip(alone.examples([0])[0], whole.examples([place])[0], strict=True):
            np.testing.assert_array_equal(one, many)
        assert alone.num_classes == whole.num_classes
        assert alone.assumptions == whole.assumptions


@settings(max_examples=by_profile(100), deadline=None)
@given(
    low=st.floats(-1e9, 1e9),
    width=st.floats(1e-3, 1e9),
    log=st.booleans(),
    values=st.lists(st.floats(allow_nan=False), min_size=1),
)
def test_numbers_stay_within_one_and_keep_their_order(low, width, log, values) -> None:
    one = column("x", {"kind": "numeric", "low": low, "high": low + width, "log": log})
    values = sorted(values)
    scaled = one.numbers([repr(value) for value in values], str)[:, 0]  # type: ignore[union-attr]
    assert np.abs(scaled).max() <= 1
    assert (np.diff(scaled) >= -1e-6).all()


def test_parquet_gives_the_same_as_csv(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{**row, "age": float(row["age"])} for row in ROWS]
    rows[1] = {**rows[1], "income": None, "job": None}
    rows[2] = {**rows[2], "sex": None}
    frame = pandas.DataFrame(rows)
    frame["income"] = pandas.to_numeric(frame["income"])
    frame.to_parquet(tmp_path / "t.parquet")
    csv = open_examples(write(tmp_path / "t.csv", ROWS), schema=SCHEMA)
    assert open_examples(tmp_path / "t.parquet", schema=SCHEMA).fingerprint() == csv.fingerprint()
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_examples(tmp_path / "t.parquet", schema=SCHEMA)
    with pytest.raises(InputError, match="there is nothing at"):
        open_examples(tmp_path / "none.parquet", schema=SCHEMA)


def test_schemas_come_from_files_too(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "s.yaml").write_text("a: {kind: numeric, low: 0, high: 1.5}\nb: drop\ny: {kind: label}\n")
    assert read_schema(tmp_path / "s.json") == read_schema(SCHEMA)
    assert read_schema(tmp_path / "s.yaml").numeric[0].high == 1.5
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n")
    assert len(open_examples(tmp_path / "t.csv", schema=tmp_path / "s.yaml")) == 1


def test_classes_that_are_not_declared_were_found(tmp_path: Path) -> None:
    assert len(open_examples(write(tmp_path / "t.csv", ROWS), schema=SCHEMA).assumptions) == 1
    data = open_examples(tmp_path / "t.csv", schema={**SCHEMA, "bought": {"kind": "label"}})
    assert data.assumptions[0].id == "schema_public"
    assert data.found == (NAMES,)
    assert data.targets.tolist() == [1, 0, 0]


def test_a_table_of_categories_alone_has_an_empty_array_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\nu,1\nv,0\n")
    schema = {"a": {"kind": "category", "values": ["u"]}, "y": {"kind": "label"}}
    data = open_examples(tmp_path / "t.csv", schema=schema)
    (numbers, ids), _ = data.examples([0, 1])
    assert numbers.shape == (2, 0)
    assert ids.tolist() == [[2], [1]]
    assert open_examples(tmp_path / "t.csv", schema=schema, store=tmp_path / "s").fingerprint() == data.fingerprint()
    assert open_examples(tmp_path / "s").fingerprint() == data.fingerprint()
    only = open_examples(
        write(tmp_path / "n.csv", [{"x": "1", "y": "0"}]), schema={"x": SCHEMA["age"], "y": {"kind": "label"}}
    )
    assert only.input_shapes == ((1,),)
    assert only.vocabulary_sizes == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": ""}, "line 3: 'age' is missing; declare a public fill"),
        ({"age": "old"}, "line 3: 'age' is numeric, got 'old'"),
        ({"bought": "maybe"}, "line 3: the label 'maybe' is none of no, yes; add it to the values of 'bought'"),
        ({"note": "a,b"}, "line 3 has 7 columns, the first row has 6"),
    ],
)
def test_a_bad_row_is_named_in_one_line(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        open_examples(write(tmp_path / "t.csv", [ROWS[0], {**ROWS[1], **change}]), schema=SCHEMA)
    assert "\n" not in str(caught.value)


def test_a_row_with_a_missing_column_is_named(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", ROWS)
    with open(tmp_path / "t.csv", "a") as file:
        file.write("1,2\n")
    with pytest.raises(InputError, match="line 5 has 2 columns, the first row has 6"):
        open_examples(tmp_path / "t.csv", schema=SCHEMA)


def test_table_and_schema_must_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", ROWS)
    with pytest.raises(InputError, match="has the column 'note', which the schema does not declare; declare each"):
        open_examples(tmp_path / "t.csv", schema={name: facts for name, facts in SCHEMA.items() if name != "note"})
    with pytest.raises(InputError, match="no column 'town' of the schema"):
        open_examples(tmp_path / "t.csv", schema={**SCHEMA, "town": "drop"})
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(InputError, match="column 'a' twice"):
        open_examples(tmp_path / "t.csv", schema={"a": SCHEMA["age"], "y": {"kind": "label"}})
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(InputError, match="is empty"):
        open_examples(tmp_path / "t.csv", schema=SCHEMA)
    (tmp_path / "t.csv").write_text("age,income,job,sex,note,bought\n")
    with pytest.raises(InputError, match="no examples"):
        open_examples(tmp_path / "t.csv", schema=SCHEMA)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"kind": "numeric"}, "needs low to be a finite number"),
        ({"kind": "numeric", "low": 0, "high": float("inf")}, "needs high to be a finite number"),
        ({"kind": "numeric", "low": 3, "high": 3}, "needs low < high, got low=3, high=3"),
        ({"kind": "numeric", "low": "0", "high": 3}, "needs low to be a finite number .*got '0'"),
        ({"kind": "numeric", "low": 0, "high": 3, "fill": 4}, "fill between its bounds 0 and 3, got 4"),
        ({"kind": "numeric", "low": 0, "high": 3, "log": 1}, "log to be true or false"),
        ({"kind": "numeric", "low": 0, "high": 3, "mean": 1}, "is numeric and has no 'mean'"),
        ({"kind": "category"}, "needs either buckets or values"),
        ({"kind": "category", "buckets": 3, "values": ["a"]}, "needs either buckets or values"),
        ({"kind": "category", "buckets": 0}, "buckets to be a whole number >= 1, got 0"),
        ({"kind": "category", "values": "ab"}, "needs a list of values"),
        ({"kind": "category", "values": ["a", "a"]}, "declares the value 'a' twice"),
        ({"kind": "category", "values": [True]}, "write it in quotes"),
        ("keep", "must be one of numeric"),
        (7, "must be one of numeric"),
        ({"low": 1}, "must be one of numeric"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declared: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_schema({"x": declared, "y": {"kind": "label"}})
    assert str(caught.value).startswith("column 'x'")


def test_schemas_need_one_label_and_something_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one column of .*label.*; got 0 labels, 0 targets"):
        read_schema({"x": SCHEMA["age"]})
    with pytest.raises(InputError, match="at least one numeric or category column"):
        read_schema({"y": {"kind": "label"}})
    with pytest.raises(InputError, match="there is no schema"):
        read_schema(tmp_path / "none.yaml")
    (tmp_path / "s.yaml").write_text("a: [")
    with pytest.raises(InputError, match="cannot be read") as caught:
        read_schema(tmp_path / "s.yaml")
    assert "\n" not in str(caught.value)
    (tmp_path / "s.yaml").write_text("- a")
    with pytest.raises(InputError, match="must map each column"):
        read_schema(tmp_path / "s.yaml")


@pytest.mark.shared
def test_the_census_table_is_read_row_for_row(shared: Path) -> None:
    data = open_examples(shared / "adult.csv.gz", schema=ADULT)
    with gzip.open(shared / "adult.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file, skipinitialspace=True) if row["age"]]
    assert len(data) == len(rows) == 32_561
    assert data.class_counts().tolist() == [24_720, 7_841]  # UCI: 24.08 % above 50K
    (numbers, ids), _ = data.examples(np.arange(len(data)))
    age = np.array([float(row["age"]) for row in rows])
    np.testing.assert_allclose(numbers[:, 0], 2 * (age - 17) / 73 - 1, atol=1e-6)
    jobs = data.columns[1].index("occupation")
    assert (ids[:, jobs] == 0).sum() == sum(row["occupation"] == "?" for row in rows) == 1843
    assert ids.min() == 0
    assert (ids.max(0) < np.array(data.vocabulary_sizes)).all()
