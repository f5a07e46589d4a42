"""The schema of health records: what it refuses, and that YAML holds all of it."""

from pathlib import Path

import pytest
from hypothesis import assume, given

from ehr_records import TEXTS, schemas
from sfumato._check import InputError
from sfumato.data.columns import canonical, is_missing
from sfumato.data.ehr.schema import Column, Schema, categorical, numeric


@given(schemas())
def test_yaml_holds_the_whole_schema(schema: Schema):
    assert Schema.from_yaml(schema.to_yaml()) == schema


def test_a_file_holds_the_whole_schema(tmp_path: Path):
    schema = Schema(id="who", time="t", time_unit="days", static=(), temporal=(categorical("ja", ["no", "yes"]),))
    schema.save(tmp_path / "schema.yaml")
    assert Schema.load(tmp_path / "schema.yaml") == schema


@given(TEXTS, TEXTS)
def test_a_value_has_the_code_of_its_category_however_a_number_is_written(one: str, other: str):
    assume(one and other and not is_missing(one) and not is_missing(other) and canonical(one) != canonical(other))
    column = categorical("x", [one, other])
    assert (column.code(one), column.code(other)) == (0, 1)


def test_numbers_as_categories_are_found_however_they_are_written_and_names_with_zeros_stay_names():
    column = categorical("stage", ["1", "2.50", "007"])
    assert [column.code(text) for text in ("1", "1.0", "1e0", "2.5", "007", "7", "7.0")] == [0, 0, 0, 1, 2, None, None]


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        ([], "must have 1 to 1,000 categories, got 0"),
        ([str(i) for i in range(10_000)], "got 10,000; group them"),
        (["a", "NA"], "has the category 'NA', which a file shows as a missing value"),
        (["a", "+nan"], "missing value"),
        (["a", " b"], "blanks around it"),
        (["a", "a"], "has the category 'a' twice"),
        (["1", "1.0"], "has the category '1' twice, perhaps as a number"),
    ],
)
def test_categories_that_cannot_be_told_apart_are_refused(categories: list[str], said: str):
    with pytest.raises(InputError, match=said):
        categorical("x", categories)


@pytest.mark.parametrize("name", ["", " a", "a\nb", 3])
def test_a_name_that_no_file_can_hold_is_refused(name: object):
    with pytest.raises(InputError, match="name must be text of one line"):
        Column(name=name, kind="numeric")  # type: ignore[arg-type]


GOOD = "id: who\ntime: t\ntime_unit: days\nstatic:\n- {name: died, kind: categorical, categories: ['0', '1']}\n"
TEMPORAL = "temporal:\n- {name: x, kind: numeric}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1", "is not YAML"),
        ("just text", "must be fields with values, got str"),
        (GOOD, "has no 'temporal'"),
        (GOOD + "temporal: []", "at least one temporal column"),
        (GOOD + "temporal: x", "temporal in the schema must be a list"),
        (GOOD + TEMPORAL + "outcom: died", "the unknown field 'outcom'"),
        (GOOD + TEMPORAL + "outcome: x", "there is no such static column"),
        (GOOD + TEMPORAL + "outcome: 1", "outcome in the schema must be text, got 1"),
        (GOOD.replace("['0', '1']", "['0', '1', '2']") + TEMPORAL + "outcome: died", "two categories, it has 3"),
        (GOOD.replace("['0', '1']", "[true]") + TEMPORAL, "write it in quotes"),
        (GOOD.replace("['0', '1']", "yes") + TEMPORAL, "needs a list of categories, got True"),
        (GOOD.replace("days", "weeks") + TEMPORAL, "time_unit must be one of minutes, hours, days, got weeks"),
        (GOOD.replace("days", "day") + TEMPORAL, "did you mean days"),
        (GOOD + TEMPORAL.replace("x,", "died,"), "the column 'died' twice"),
        (GOOD + TEMPORAL.replace("x,", "t,"), "the column 't' twice"),
        (GOOD + TEMPORAL.replace("numeric", "number"), "must be one of numeric, categorical, got number"),
        (GOOD + TEMPORAL.replace("numeric", "numeric, whole: 1"), "whole to be true or false"),
        (GOOD + TEMPORAL.replace("numeric", "numeric, categories: [a]"), "is numeric and has categories"),
        (GOOD + TEMPORAL.replace("numeric", "categorical, whole: true, categories: [a]"), "whole says nothing"),
    ],
)
def test_a_schema_with_a_mistake_is_refused_with_its_remedy(text: str, said: str):
    with pytest.raises(InputError, match=said):
        Schema.from_yaml(text)


def test_a_file_that_is_no_schema_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be read"):
        Schema.load(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("id: 1")
    with pytest.raises(InputError, match=r"bad\.yaml: the schema has no 'static'"):
        Schema.load(tmp_path / "bad.yaml")


def test_numbers_in_a_list_of_categories_are_taken_as_text():
    schema = Schema.from_yaml(GOOD.replace("['0', '1']", "[0, 1.5]") + TEMPORAL)
    assert schema.static[0].categories == ("0", "1.5")


def test_a_range_survives_yaml():
    schema = Schema(
        id="i", time="t", time_unit="days", static=(numeric("a"),), temporal=(numeric("b", range=(-0.5, 1e3)),)
    )
    assert "range: [-0.5, 1000.0]" in schema.to_yaml()
    assert Schema.from_yaml(schema.to_yaml()) == schema


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("kind: numeric, range: [1]", "a range of two numbers"),
        ("kind: numeric, range: [a, b]", "a range of two numbers"),
        ("kind: numeric, range: [true, 2]", "a range of two numbers"),
        ("kind: numeric, range: [2, 1]", "the lower one first, got 2, 1"),
        ("kind: numeric, range: [1, 1]", "the lower one first"),
        ("kind: numeric, range: [0, .inf]", "two finite numbers"),
        ("kind: numeric, whole: true, range: [0.5, 3]", "whole numbers, so its range must"),
        ("kind: categorical, categories: [a], range: [0, 1]", "of which a range says nothing"),
    ],
)
def test_a_range_that_is_none_is_refused(facts, message):
    text = f"id: i\ntime: t\ntime_unit: days\nstatic: []\ntemporal:\n- {{name: x, {facts}}}\n"
    with pytest.raises(InputError, match=message):
        Schema.from_yaml(text)
