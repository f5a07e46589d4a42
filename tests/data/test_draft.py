"""Drafts of schemas: kinds of columns, nothing of private values, and refusals of columns that name people."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from sfumato._check import InputError
from sfumato.data import draft_schema, open_examples, read_schema
from sfumato.data.draft import draft_text
from sfumato.data.ehr.schema import Schema
from sfumato.data.schema import load_yaml

BANK = pd.DataFrame(
    {
        "age": [31, 44, 52, 28],
        "balance": [1.5, np.nan, 3e4, -2.0],
        "job": ["cook", "clerk", "cook", None],
        "default": ["no", "yes", "no", "no"],
        "loan": [True, False, True, True],
        "since": pd.to_datetime(["2020-01-01"] * 4),
        "y": ["no", "yes", "no", "yes"],
    }
)


@pytest.fixture(params=["bank.csv", "bank.parquet"])
def bank(request: Any, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    frame = BANK.drop(columns="since")
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


def test_a_draft_holds_kinds_and_no_value_of_the_records(bank: Path):
    assert draft_schema(bank) == {
        "age": {"kind": "numeric", "low": None, "high": None},
        "balance": {"kind": "numeric", "low": None, "high": None, "fill": None},
        "job": {"kind": "category", "buckets": 100},
        "default": {"kind": "category", "buckets": 100},
        "loan": {"kind": "category", "values": ["False", "True"]},
        "y": {"kind": "label", "values": None},
    }


def test_a_draft_is_refused_until_a_person_completes_it(bank: Path):
    text = draft_text(draft_schema(bank), "bank")
    with pytest.raises(InputError, match="column 'age' needs low to be a finite number"):
        read_schema(yaml.safe_load(text))
    completed = text.replace("low: null, high: null", "low: 0, high: 100").replace("fill: null", "fill: 0")
    (bank.parent / "bank.yaml").write_text(completed.replace("values: null", "values: [no, yes]"))
    read = open_examples(bank, schema=bank.parent / "bank.yaml")
    assert read.label_names is not None
    assert (list(read.label_names), read.vocabulary_sizes) == (["no", "yes"], (101, 101, 4))
    assert np.asarray(read.inputs[1][:])[:, 2].tolist() == [3, 2, 3, 3]  # booleans by their declared values


def test_public_records_give_their_ranges_and_categories(bank: Path):
    facts = draft_schema(bank, ranges=True)
    assert facts["balance"] == {"kind": "numeric", "low": -2.0, "high": 3e4, "fill": None}
    assert facts["job"] == {"kind": "category", "values": ["clerk", "cook"]}
    assert facts["y"] == {"kind": "label", "values": ["no", "yes"]}
    facts["balance"]["fill"] = 0
    assert len(open_examples(bank, schema=facts)) == 4


def test_dates_and_named_columns_are_dropped_and_numbers_predicted():
    facts = draft_schema(BANK, targets=["balance"], drop=["job"])
    assert (facts["since"], facts["job"], facts["balance"]) == ("drop", "drop", {"kind": "target"})


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ([f"p{i}" for i in range(40)], "'x' has a value of its own in 40 of 40 rows, as names, ids and free text have"),
        (list(range(100, 140)), "'x' has another whole number in each of 40 rows, as ids have; .*--numeric x"),
        (["12"] * 39 + ["1o"], "is '1o' at .* but a number in 39 rows; correct it"),
    ],
)
def test_a_nearly_unique_or_mistaken_column_is_refused(column: list[object], told: str):
    frame = pd.DataFrame({"x": column, "label": [0, 1] * 20})
    with pytest.raises(InputError, match=told):
        draft_schema(frame)
    assert draft_schema(frame, drop=["x"])["x"] == "drop"


def test_whole_numbers_that_differ_are_kept_where_they_are_named():
    frame = pd.DataFrame({"x": range(40), "label": [0, 1] * 20})
    assert draft_schema(frame, numeric=["x"])["x"]["kind"] == "numeric"


@pytest.mark.parametrize(
    ("content", "given", "told"),
    [
        ("", {}, "is empty"),
        ("x,label\n", {}, "has no rows"),
        ("x,z\n1,2\n", {}, "which column is predicted"),
        ("x,label\n1,2\n", {"label": "lable"}, "no column 'lable' for label='lable' .did you mean label"),
        ("x,label\n1,2\n", {"drop": ["a"]}, "no column 'a' for drop='a'"),
    ],
)
def test_a_table_without_a_use_is_refused(tmp_path: Path, content: str, given: dict[str, Any], told: str):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=told):
        draft_schema(tmp_path / "t.csv", **given)


# Booleans in schemas: yes and no are texts, true and false are booleans in any case.


@pytest.mark.parametrize("written", [("true", "false"), ("TRUE", "FALSE"), ("True", "False")])
def test_declared_booleans_are_those_of_a_table_in_any_case(tmp_path: Path, written: tuple[str, str]):
    (tmp_path / "t.csv").write_text("x,y\n{0},{1}\n{1},{0}\n".format(*written))
    (tmp_path / "s.yaml").write_text(
        "x: {kind: category, values: [false, true]}\ny: {kind: label, values: [false, true]}"
    )
    read = open_examples(tmp_path / "t.csv", schema=tmp_path / "s.yaml")
    assert np.asarray(read.inputs[1][:]).tolist() == [[3], [2]]
    assert np.asarray(read.targets).tolist() == [0, 1]


def test_yes_and_no_without_quotes_are_texts():
    assert load_yaml("values: [no, yes, off, truest]\nlog: true\nno: drop") == {
        "values": ["no", "yes", "off", "truest"],
        "log": True,
        "no": "drop",
    }


def test_booleans_are_categories_of_health_records():
    text = (
        "{id: p, time: t, time_unit: days, static: [], temporal: [{name: x, kind: categorical, "
        "categories: [false, true]}, {name: z, kind: categorical, categories: [no, yes]}]}"
    )
    x, z = Schema.from_yaml(text).temporal
    assert (x.categories, x.code("TRUE"), x.code("false"), z.categories) == (("False", "True"), 1, 0, ("no", "yes"))
