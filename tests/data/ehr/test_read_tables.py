"""Health records from tables: the same ones however they are written down, and bad rows refused by their place."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest

from ehr_records import assert_same
from sfumato._check import InputError
from sfumato.data import EHRDataset, ehr_from_tables
from sfumato.data.ehr.schema import Schema, categorical, numeric
from sfumato.data.ehr.values import refuse_unlearnable

VISITS = """who,day,bili,edema,ward,sex
bo,0,1.5,0,east,m
al,0,0.7,,west,f
bo,9,,1,west,m
al,3,2,0,?,f
cy,1,4.25,1,NA,
"""
STATIC = "who,age,died\nal,61,no\nbo,50,yes\ncy,,no\n"


def _frame(text: str) -> pd.DataFrame:
    (header, *rows) = (line.split(",") for line in text.strip().splitlines())
    frame = pd.DataFrame(rows, columns=header)
    for name in ("day", "bili", "edema", "age"):
        if name in frame:
            frame[name] = pd.to_numeric(frame[name].replace("", None))
    return frame.replace({"": None, "NA": None})


def _read(text: str, tmp_path: Path, static: str | None = None, **options: object) -> EHRDataset:
    visits = tmp_path / "visits.csv"
    visits.write_text(text)
    other = None
    if static is not None:
        other = tmp_path / "static.csv"
        other.write_text(static)
    return ehr_from_tables(visits, other, **{"id": "who", "time": "day", **options})  # type: ignore[arg-type]


def test_visits_are_grouped_by_patient_in_the_order_in_which_patients_come(tmp_path: Path):
    data = _read(VISITS, tmp_path)
    assert data.ids == ("bo", "al", "cy")
    assert data.lengths.tolist() == [2, 2, 1]
    assert data.times.tolist() == [0, 9, 0, 3, 1]
    assert data.schema == Schema(
        id="who",
        time="day",
        time_unit="days",
        static=(categorical("sex", ["f", "m"]),),
        temporal=(numeric("bili"), categorical("edema", ["0", "1"]), categorical("ward", ["east", "west"])),
    )
    np.testing.assert_array_equal(data.numbers[:, 0], [1.5, np.nan, 0.7, 2, 4.25])
    assert data.codes.tolist() == [[0, 0], [1, 1], [-1, 1], [0, -1], [1, -1]]
    assert data.static_codes.tolist() == [[1], [0], [-1]]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "parquet", "tsv", "csv.gz", "jsonl"])
@pytest.mark.parametrize("given", [False, True])
def test_every_kind_of_table_gives_the_same_records(kind: str, given: bool, tmp_path: Path):
    visits, static = _frame(VISITS), _frame(STATIC)
    expected = _read(VISITS, tmp_path, STATIC, outcome="died")
    sources: list[object] = []
    for name, frame in (("visits", visits), ("static", static)):
        path = tmp_path / f"{name}.{kind}"
        if kind == "parquet":
            frame.to_parquet(path, index=False)
        elif kind == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        elif kind in ("tsv", "csv.gz"):
            frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
        table = pa.Table.from_pandas(frame, preserve_index=False)
        objects = {"pandas": frame, "polars": polars.from_pandas(frame), "arrow": table}
        sources.append(objects.get(kind, path))
    if given:
        found = ehr_from_tables(sources[0], sources[1], schema=expected.schema)
    else:
        found = ehr_from_tables(sources[0], sources[1], id="who", time="day", outcome="died")
    assert_same(found, expected)
    assert expected.ids == ("al", "bo", "cy")  # of the static table
    assert expected.outcome().tolist() == [0, 1, 0]


def test_null_nan_and_an_empty_text_are_one_missing_value():
    frame = pd.DataFrame({"who": [1, 1, 2, 2], "day": [0, 1, 0, 1], "x": [np.nan, 1, 2, 3.5]})
    texts = frame.assign(x=["", "1", "2", "3.5"])
    nulls = pa.table({"who": [1, 1, 2, 2], "day": [0, 1, 0, 1], "x": [None, 1, 2, 3.5]})
    names = frame.assign(x=["NA", "1", "2", "3.5"])
    expected = ehr_from_tables(frame, id="who", time="day")
    for other in (texts, nulls, names):
        assert_same(ehr_from_tables(other, id="who", time="day"), expected)
    assert np.isnan(expected.numbers[0, 0])


def test_a_schema_that_was_saved_reads_the_same_and_leaves_columns_out(tmp_path: Path):
    data = _read(VISITS, tmp_path)
    data.schema.save(tmp_path / "schema.yaml")
    again = ehr_from_tables(tmp_path / "visits.csv", schema=tmp_path / "schema.yaml")
    assert_same(again, data)
    assert (data.schema.inferred, again.schema.inferred) == (True, False)
    text = (tmp_path / "schema.yaml").read_text()
    (tmp_path / "schema.yaml").write_text("".join(line for line in text.splitlines(True) if "edema" not in line))
    less = ehr_from_tables(tmp_path / "visits.csv", schema=tmp_path / "schema.yaml")
    assert [column.name for column in less.schema.temporal] == ["bili", "ward"]


def test_columns_named_as_numbers_are_columns(tmp_path: Path):
    data = _read(VISITS.replace("bili", "50809"), tmp_path)
    assert data.schema.temporal[0].name == "50809"


def test_flags_are_categories_and_so_are_numbers_that_are_said_to_be(tmp_path: Path):
    text = "who,day,stage,flag\na,0,1,1\na,1,2,2\nb,0,3,1\nb,1,2,2\n"
    assert _read(text, tmp_path).schema.temporal == (numeric("stage", whole=True), categorical("flag", ["1", "2"]))
    data = _read(text, tmp_path, categorical=["stage"])
    assert data.schema.temporal[0] == categorical("stage", ["1", "2", "3"])
    assert [column.name for column in _read(text, tmp_path, drop=["flag"]).schema.temporal] == ["stage"]


def test_what_is_measured_once_for_each_patient_stays_temporal(tmp_path: Path):
    text = "who,day,once,x\na,0,5,1\na,1,,2\nb,0,6,3\nb,1,,2\nc,0,7,2\n"
    assert [column.name for column in _read(text, tmp_path).schema.temporal] == ["once", "x"]


def test_numbers_of_single_precision_are_read_as_they_were_written_down():
    frame = pd.DataFrame({"who": [1, 1, 2], "day": [0, 1, 0], "x": np.array([35.1, 0.1, 92.33], np.float32)})
    assert ehr_from_tables(frame, id="who", time="day").numbers[:, 0].tolist() == [35.1, 0.1, 92.33]


@pytest.mark.parametrize("unit", ["minutes", "hours", "days"])
def test_dates_become_times_since_the_first_visit(unit: str, tmp_path: Path):
    text = "who,day,x\na,2020-02-28,1\na,2020-03-01 12:00:00,2\nb,1901-01-01T00:00,3\n"
    data = _read(text, tmp_path, time_unit=unit)
    assert data.times.tolist() == [0, 2.5 * {"minutes": 1440, "hours": 24, "days": 1}[unit], 0]


def test_time_zones_are_heeded_across_the_change_of_the_clock(tmp_path: Path):
    text = "who,day,x\na,2021-03-28T01:30:00+01:00,1\na,2021-03-28T03:30:00+02:00,2\nb,2021-01-01T00:00:00Z,3\n"
    assert _read(text, tmp_path, time_unit="hours").times.tolist() == [0, 1, 0]
    frame = pd.read_csv(tmp_path / "visits.csv")
    frame["day"] = pd.to_datetime(frame["day"], utc=True).dt.tz_convert("Europe/Berlin")
    assert ehr_from_tables(frame, id="who", time="day", time_unit="hours").times.tolist() == [0, 1, 0]


GOOD = "who,day,x,w\na,0,1,k\na,1,2,l\nb,0,3,k\nb,2,4.5,k\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a,1,2,l", "a,0,2,l", r"'a' has two visits at one time, .*visits.csv line 2 and .*visits.csv line 3; merge"),
        ("a,0,1,k\na,1,2,l", "a,1,1,k\na,0,2,l", r"'a' goes back in time from .* line 2 to .* line 3; .*'sort'"),
        ("b,2,", "b,-2,", r"the time 'day' at .*visits.csv line 5 is -2; times count from the patient's origin"),
        ("b,2,", "b,inf,", r"line 5 is inf"),
        ("b,2,", "b,,", r"the time 'day' is missing at .* line 5; fill it in"),
        ("b,2,", "b,soon,", r"the time 'day' at .* line 5 is 'soon'; write all times as numbers"),
        ("b,2,", "b,2020-01-01,", r"line 5 is '2020-01-01'; write all times as numbers"),
        ("b,2,", ",2,", r"the patient is missing \(.*\) at .* line 5"),
        (
            "b,2,4.5",
            "b,2,high",
            r"'x' is 'high' at .* line 5, but a number in 3 rows; correct it or empty the cell, or",
        ),
        ("b,2,4.5", "b,2,<4", r"'x' is '<4' at .* line 5"),
        ("b,2,4.5", "b,2,inf", r"'x' is 'inf' at .* line 5"),
        ("w\n", "x\n", r"has the column 'x' twice"),
        ("w\n", "who\n", r"has the column 'who' twice"),
        ("b,2,4.5,k", "b,2,4.5", r"line 5 has 3 columns, the first row has 4; complete or remove the row"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_a_remedy(old: str, new: str, said: str, tmp_path: Path):
    assert len(_read(GOOD, tmp_path)) == 2
    assert old in GOOD
    with pytest.raises(InputError, match=said):
        _read(GOOD.replace(old, new), tmp_path)


DATES = "who,day,x\na,2020-01-01,1\na,2020-01-02,2\nb,2020-01-01,3\n"


@pytest.mark.parametrize(
    ("date", "said"),
    [
        ("1899-12-31", r"line 4 is 1899-12-31 00:00:00, before 1900, .*drop the row"),
        ("0001-01-01", r"line 4 is 0001-01-01 00:00:00, before 1900"),
        ("2020-01-01T00:00:00Z", r"line 4 is '2020-01-01T00:00:00Z'; write all times .*or with a zone"),
        ("2020-13-01", r"line 4 is '2020-13-01'"),
        ("5", r"line 4 is '5'; write all times as numbers"),
    ],
)
def test_a_date_that_cannot_be_meant_is_refused_with_its_line(date: str, said: str, tmp_path: Path):
    assert len(_read(DATES, tmp_path)) == 2
    with pytest.raises(InputError, match=said):
        _read(DATES.replace("b,2020-01-01", f"b,{date}"), tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("who,day,x,y\na,0,1,\na,1,2,NA\nb,0,3,?\n", {}, r"'y' has no value in 3 rows; name it in drop="),
        ("who,day,x,y\na,0,1,7\na,1,2,7\nb,0,3,7\n", {}, r"'y' is '7' in all 3 rows, .* name it in drop="),
        ("who,day,x\na,0,1\na,1,2\na,2,3\n", {}, r"one patient, 'a'; .* needs at least two"),
        ("who,day,x\na,0,1\na,1,1\nb,0,2\nb,1,2\n", {}, r"at least one temporal column"),
        (GOOD, {"id": "name"}, r"no column 'name' for id='name'"),
        (GOOD, {"time": "days"}, r"no column 'days' for time='days' \(did you mean day\?\)"),
        (GOOD, {"drop": ["z"]}, r"no column 'z' for drop='z'"),
        (GOOD, {"drop": "w"}, r"drop must be a list of columns, got 'w'"),
        (GOOD, {"id": None}, r"which columns are the patient and the time\?"),
        (GOOD, {"unsorted": "no"}, r"unsorted must be one of refuse, sort"),
        (GOOD, {"outcome": "w"}, r"'a' has two values of the static 'w', at .* line 2 and .* line 3; correct one"),
        (GOOD, {"time_unit": "weeks"}, r"time_unit must be one of minutes, hours, days"),
        ("who,day,x\n", {}, r"visits.csv"),
        ("", {}, r"visits.csv is empty"),
    ],
)
def test_a_table_from_which_nothing_can_be_learned_is_refused(text: str, options: dict, said: str, tmp_path: Path):
    with pytest.raises(InputError, match=said):
        _read(text, tmp_path, **options)


def test_ten_thousand_categories_are_refused(tmp_path: Path):
    text = "who,day,x\n" + "".join(f"p{i // 2},{i % 2},text {i}\n" for i in range(10_000))
    with pytest.raises(InputError, match=r"'x' has more than 1,000 different texts, 'text 0' at .* line 2 for example"):
        _read(text, tmp_path)


def test_visits_in_any_order_are_sorted_where_that_is_asked_for_and_counted(tmp_path: Path):
    shuffled = "who,day,x,w\na,1,2,l\nb,2,4.5,k\na,0,1,k\nb,0,3,k\n"
    data = _read(shuffled, tmp_path, unsorted="sort")
    assert_same(data, _read(GOOD, tmp_path))
    assert data.notes == ("2 visits stood behind a later one of their patient: sorted by time",)


@pytest.mark.parametrize(
    ("static", "said"),
    [
        ("who,age\na,1\nb,2\nc,3\n", r"'c' at .*static.csv line 4 has no visit in .*visits.csv; add the visits, or"),
        ("who,age\na,1\n", r"'b' at .*visits.csv line 4 is not in .*static.csv; add the patient"),
        (
            "who,age\na,1\nb,2\na,3\n",
            r"'a' is there twice, at .*static.csv line 2 and .*static.csv line 4; list each",
        ),
        ("who,x\na,1\nb,2\n", r"the column 'x' twice"),
        ("who\n", r"static.csv has no rows"),
        ("name,age\na,1\n", r"no column 'who' for id='who'"),
    ],
)
def test_tables_that_do_not_fit_each_other_are_refused(static: str, said: str, tmp_path: Path):
    with pytest.raises(InputError, match=said):
        _read(GOOD, tmp_path, static)


@pytest.mark.parametrize(
    ("static", "said"),
    [
        ("who,died\na,0\nb,0\n", r"the outcome 'died' must be .* two categories, it has 1"),
        ("who,died\na,0\nb,2\nc,1\n", r"the outcome 'died' must be .* two categories, it has 3"),
    ],
)
def test_an_outcome_that_has_not_two_classes_is_refused(static: str, said: str, tmp_path: Path):
    text = GOOD + ("c,0,1,k\n" if "c," in static else "")
    with pytest.raises(InputError, match=said):
        _read(text, tmp_path, static, outcome="died")


def test_a_value_that_the_schema_does_not_know_is_refused_with_its_line(tmp_path: Path):
    _read(GOOD, tmp_path)
    schema = Schema(id="who", time="day", time_unit="days", static=(), temporal=(numeric("x"), categorical("w", ["k"])))
    with pytest.raises(InputError, match=r"'w' at .*visits.csv line 3 is 'l', which is none of its 1 categories k; "):
        ehr_from_tables(tmp_path / "visits.csv", schema=schema)
    (tmp_path / "visits.csv").write_text(GOOD.replace("4.5", "much").replace(",l", ",k"))
    with pytest.raises(InputError, match=r"'x' at .*visits.csv line 5 is 'much', which is not a finite number"):
        ehr_from_tables(tmp_path / "visits.csv", schema=schema)
    with pytest.raises(InputError, match="the schema says what id, time"):
        ehr_from_tables(tmp_path / "visits.csv", schema=schema, id="who")
    wanted = Schema(id="who", time="day", time_unit="days", static=(), temporal=(numeric("other"),))
    with pytest.raises(InputError, match="no column 'other' for schema='other'"):
        ehr_from_tables(tmp_path / "visits.csv", schema=wanted)


def test_dates_as_values_are_refused():
    frame = pd.DataFrame({"who": [1, 1], "day": [0, 1], "born": pd.to_datetime(["2000-01-01", "2000-01-02"])})
    with pytest.raises(
        InputError, match=r"'born' must be texts or numbers, but has timestamp.*count the time in numbers"
    ):
        ehr_from_tables(frame, id="who", time="day")


def test_a_column_that_is_there_or_not_can_be_learned_and_one_that_never_changes_cannot(tmp_path: Path):
    text = "who,day,x,vent\na,0,1,1\na,1,2,\nb,0,3,1\n"
    data = _read(text, tmp_path)
    assert data.schema.temporal[1] == categorical("vent", ["1"])
    refuse_unlearnable(data)
    with pytest.raises(InputError, match=r"'vent' is '1' in all 3 visits, of which there is nothing to learn"):
        refuse_unlearnable(replace(data, codes=np.zeros((3, 1), np.int32)))
    with pytest.raises(InputError, match=r"'vent' has no value in 3 visits; leave the column out"):
        refuse_unlearnable(replace(data, codes=np.full((3, 1), -1, np.int32)))
    with pytest.raises(InputError, match=r"'x' is '7' in all 3 visits"):
        refuse_unlearnable(replace(data, numbers=np.full((3, 1), 7.0)))


def test_an_outcome_of_one_class_cannot_be_learned(tmp_path: Path):
    data = _read(VISITS, tmp_path, STATIC, outcome="died")
    refuse_unlearnable(data.take([0, 1]))
    with pytest.raises(InputError, match=r"the outcome 'died' is 'no' for all 2 patients; take records with both"):
        refuse_unlearnable(data.take([0, 2]))


def test_a_file_is_read_in_blocks_and_a_late_row_keeps_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sfumato.data.readers.delimited._BYTES", 64)
    monkeypatch.setattr("sfumato.data.records._ROWS", 3)
    text = "who,day,x\n" + "".join(f"p{i // 3},{i % 3},{i}\n" for i in range(60))
    data = _read(text, tmp_path)
    assert data.numbers[:, 0].tolist() == list(range(60))
    pyarrow.parquet.write_table(pa.table({"who": ["a"] * 9, "day": range(9), "x": range(9)}), tmp_path / "v.parquet")
    schema = Schema(id="who", time="day", time_unit="days", static=(), temporal=(numeric("x"),))
    assert ehr_from_tables(tmp_path / "v.parquet", schema=schema).numbers[:, 0].tolist() == list(range(9))
    (tmp_path / "visits.csv").write_text(text.replace("p16,2,50", "p16,2,x"))
    with pytest.raises(InputError, match=r"visits.csv line 52 is 'x'"):
        ehr_from_tables(tmp_path / "visits.csv", schema=schema)
