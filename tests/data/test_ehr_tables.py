"""Health records from tables: their schema, units, times and rows."""

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ehr_records import TEXTS, assert_same, schemas
from sfumato._check import InputError
from sfumato._types import RecordUnit
from sfumato.data import EHRDataset, ehr_from_events, ehr_from_tables, open_users
from sfumato.data.columns import canonical, is_missing
from sfumato.data.ehr.folders import read_folder, write_folder
from sfumato.data.ehr.schema import Column, Schema, categorical, numeric
from sfumato.data.ehr.values import refuse_unlearnable
from sfumato.synthesis import EHRSafe
from slow import by_profile

# Health records in memory: what fits together, what is refused, and how patients are taken out and divided.

SCHEMA = Schema(
    id="stay",
    time="hour",
    time_unit="hours",
    static=(numeric("age", whole=True), categorical("died", ["no", "yes"])),
    temporal=(numeric("pulse"), categorical("ward", ["a", "b", "c"])),
    outcome="died",
)


def _records(patients: int = 3) -> EHRDataset:
    """Patient i has i + 1 visits, an hour apart."""
    lengths = np.arange(patients) + 1
    visits = int(lengths.sum())
    return EHRDataset(
        schema=SCHEMA,
        ids=tuple(f"p{i}" for i in range(patients)),
        static_numbers=np.arange(patients, dtype=float)[:, None] + 30,
        static_codes=np.arange(patients)[:, None] % 2,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.concatenate([np.arange(length, dtype=float) for length in lengths]),
        numbers=np.arange(visits, dtype=float)[:, None],
        codes=np.arange(visits)[:, None] % 3,
    )


def test_patients_are_taken_in_the_given_order_with_their_visits():
    data = _records()
    taken = data.take([2, 0])
    assert taken.ids == ("p2", "p0")
    assert taken.offsets.tolist() == [0, 3, 4]
    assert taken.numbers[:, 0].tolist() == [3, 4, 5, 0]
    assert taken.codes[:, 0].tolist() == [0, 1, 2, 0]
    assert taken.times.tolist() == [0, 1, 2, 0]
    assert taken.static_numbers[:, 0].tolist() == [32, 30]
    assert taken.owners.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("rows", "said"), [([3], "0 … 2, got 3"), ([-1], "got -1"), ([0, 0], "listed once, got 0 twice")]
)
def test_patients_that_are_not_there_or_are_named_twice_are_refused(rows: list[int], said: str):
    with pytest.raises(InputError, match=said):
        _records().take(rows)


def test_a_split_has_every_patient_once_and_a_new_patient_moves_no_other():
    data = _records(60)
    train, test = data.split(0.25, seed=1)
    assert sorted([*train.ids, *test.ids]) == sorted(data.ids)
    assert 5 <= len(test) <= 25  # 60 draws of 1/4: beyond that in less than one seed of a thousand
    without = data.take(range(1, 60))
    assert set(without.split(0.25, seed=1)[1].ids) == set(test.ids) - {"p0"}
    assert set(data.split(0.25, seed=2)[1].ids) != set(test.ids)


def test_a_split_with_an_empty_part_is_refused():
    with pytest.raises(InputError, match="two parts that both have some"):
        _records(1).split(0.5, seed=0)


def test_the_outcome_is_the_second_category():
    assert _records(4).outcome().tolist() == [0, 1, 0, 1]
    with pytest.raises(InputError, match=r"'died' of patient 'p1' is missing"):
        replace(_records(), static_codes=np.array([[0], [-1], [1]])).outcome()
    with pytest.raises(InputError, match="names no outcome"):
        replace(_records(), schema=replace(SCHEMA, outcome=None)).outcome()


@pytest.mark.parametrize("field", ["static_numbers", "static_codes", "times", "numbers", "codes"])
def test_the_fingerprint_shows_a_change_of_any_value(field: str):
    data = _records()
    assert _records().fingerprint() == data.fingerprint()
    values = getattr(data, field).copy()
    values.reshape(-1)[-1] += -1 if field in ("codes", "static_codes") and values.reshape(-1)[-1] else 1
    assert replace(data, **{field: values}).fingerprint() != data.fingerprint()


def test_the_fingerprint_shows_other_ids_and_another_schema():
    data = _records()
    assert replace(data, ids=("p0", "p1", "x")).fingerprint() != data.fingerprint()
    assert replace(data, schema=replace(SCHEMA, time_unit="days")).fingerprint() != data.fingerprint()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"offsets": [0, 0, 3, 6]}, "patient 'p0' has no visit"),
        ({"offsets": [0, 2, 1, 6]}, "offsets must ascend"),
        ({"offsets": [0, 1, 3, 5]}, "offsets must ascend"),
        ({"times": [0, 0, 0, 0, 1, 2]}, "patient 'p1' has two visits at 0 hours"),
        ({"times": [0, 2, 1, 0, 1, 2]}, "patient 'p1' has a visit at 1 hours behind one at 2; sort"),
        ({"times": [-1, 0, 1, 0, 1, 2]}, "patient 'p0' has a visit at -1 hours"),
        ({"times": [0, 0, np.nan, 0, 1, 2]}, "patient 'p1' has a visit at nan hours"),
        ({"times": [0, 0, np.inf, 0, 1, 2]}, "patient 'p1' has a visit at inf hours"),
        ({"numbers": [[0], [np.inf], [0], [0], [0], [0]]}, "patient 'p1' has 'pulse' = inf"),
        ({"static_numbers": [[30], [30.5], [np.nan]]}, "patient 'p1' has 'age' = 30.5; numbers must be whole"),
        ({"static_numbers": [[30], [np.inf], [np.nan]]}, "patient 'p1' has 'age' = inf"),
        ({"static_numbers": [[30], [1e300], [np.nan]]}, r"patient 'p1' has 'age' = 1e\+300"),
        ({"codes": [[0], [3], [0], [0], [0], [0]]}, r"codes of 'ward' must be 0 … 2, .* got 3"),
        ({"static_codes": [[0], [-2], [0]]}, "codes of 'died' must be 0 … 1, .* got -2"),
        ({"numbers": [[0], [0]]}, "numbers must have the shape"),
        ({"ids": ("a", "b", "a")}, "the patient 'a' is there twice"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_patient(changed: dict, said: str):
    changed = {name: value if name == "ids" else np.array(value) for name, value in changed.items()}
    with pytest.raises(InputError, match=said):
        replace(_records(), **changed)


def test_no_patients_are_refused():
    with pytest.raises(InputError, match="there are no patients"):
        _records().take([])


# The schema of health records: what it refuses, and that YAML holds all of it.


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
def test_categories_that_cannot_be_distinguished_are_refused(categories: list[str], said: str):
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
        (GOOD.replace("['0', '1']", "[null]") + TEMPORAL, "write it in quotes"),
        (GOOD.replace("['0', '1']", "yes") + TEMPORAL, "needs a list of categories, got 'yes'"),
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


# What an id is of, and whose it is: kept by every writer, followed by every split, and said by every statement.

PEOPLE, EACH = 12, 3


def stays(unit: RecordUnit = "stay", subject: str | None = "person") -> EHRDataset:
    """Three stays of each of twelve patients, whose names look like numbers with zeros in front."""
    schema = Schema(
        id="stay",
        unit=unit,
        subject=subject,
        time="hour",
        time_unit="hours",
        static=(categorical("ward", ["a", "b"]),),
        temporal=(numeric("pulse", range=(0.0, 200.0)),),
    )
    count = PEOPLE * EACH
    return EHRDataset(
        schema=schema,
        ids=tuple(f"s{i}" for i in range(count)),
        subjects=None if subject is None else tuple(f"00{i // EACH}" for i in range(count)),
        static_numbers=np.empty((count, 0)),
        static_codes=(np.arange(count) % 2)[:, None],
        offsets=np.arange(count + 1) * 2,
        times=np.tile([0.0, 1.5], count),
        numbers=np.arange(2.0 * count)[:, None],
        codes=np.empty((2 * count, 0)),
    )


@pytest.mark.parametrize("layout", ["parquet", "csv", "events", "meds"])
@pytest.mark.parametrize("unit", ["stay", "admission", "record"])
def test_every_writer_keeps_what_an_id_is_of_and_whose(layout: str, unit: RecordUnit, tmp_path: Path):
    data = stays(unit)
    write_folder(data, tmp_path / "folder", layout, synthetic=False)  # type: ignore[arg-type]
    again = read_folder(tmp_path / "folder")
    assert (again.schema.unit, again.schema.subject) == (unit, "person")
    assert again.subjects == data.subjects
    again = replace(again, ids=data.ids)  # MEDS numbers them anew
    assert again.fingerprint() == data.fingerprint()


@pytest.mark.parametrize("seed", range(5))
def test_no_patient_is_on_both_sides_of_a_split(seed: int):
    learned, held_out = stays().split(0.4, seed=seed)
    assert not {*learned.subjects} & {*held_out.subjects}  # type: ignore[misc]
    assert len(learned) + len(held_out) == PEOPLE * EACH
    assert {*map(learned.subjects.count, learned.subjects)} == {EACH}  # type: ignore[union-attr]


@pytest.mark.parametrize("unit", ["patient", "stay", "admission", "record"])
def test_a_statement_protects_what_an_id_is_of(unit: RecordUnit, tmp_path: Path):
    data = stays(unit, subject=None)
    plan = EHRSafe(epsilon=8.0, horizon=48, max_visits=6, batch_size=8, epochs=1, gan_steps=2, gan_batch_size=8, seed=1)
    told = plan.try_out(data)
    assert told.unit == unit
    assert f"one {unit} " in told.text()
    assert (f"a {'person' if unit == 'patient' else 'patient'}" in told.text()) or unit == "patient"
    assert EHRSafe(seed=1).try_out(data).unit == unit


def test_records_without_subjects_have_a_schema_without_one():
    data = stays()
    assert replace(data, subjects=None).schema.subject is None
    with pytest.raises(InputError, match="subjects must be one for each of the 36 ids"):
        replace(data, schema=replace(data.schema, subject=None))


def test_tables_of_stays_are_known_by_the_names_of_their_columns():
    visits = pd.DataFrame({"stay_id": [1, 1, 2, 2], "hour": [0, 1, 0, 1], "pulse": [70, 71.5, 80, 82]})
    facts = pd.DataFrame({"stay_id": [1, 2], "subject_id": ["07", "07"], "sex": ["f", "m"], "age": [30, 41]})
    found = ehr_from_tables(visits, facts, id="stay_id", time="hour")
    assert (found.schema.unit, found.subjects) == ("stay", ("07", "07"))
    assert [column.name for column in found.schema.static] == ["sex", "age"]
    given = ehr_from_tables(visits, facts, id="stay_id", time="hour", unit="record", subject="sex", drop=["subject_id"])
    assert (given.schema.unit, given.subjects) == ("record", ("f", "m"))
    events = pd.DataFrame({"hadm_id": [1, 1, 2], "subject_id": [7, 7, 8], "hour": [0, 1, 0], "code": ["x"] * 3})
    events["value"] = [1.5, 2.5, 3.5]
    found = ehr_from_events(events, id="hadm_id", time="hour")
    assert (found.schema.unit, found.subjects) == ("admission", ("7", "8"))


def test_one_id_of_two_patients_is_refused():
    visits = pd.DataFrame({"stay_id": [1, 1], "hour": [0, 1], "pulse": [70, 71.5], "subject_id": ["a", "b"]})
    with pytest.raises(InputError, match="the stay '1' has two subjects, 'a' and 'b' at the table position 1"):
        ehr_from_tables(visits, id="stay_id", time="hour")


# Times that are dates in numbers, and dates that stand for a missing one.

DAYS = st.dates(datetime.date(1990, 1, 1), datetime.date(2100, 1, 1))
EPOCH = datetime.date(1970, 1, 1)
WRITTEN: dict[str, Callable[[datetime.date], float]] = {
    "YYYYMMDD": lambda day: int(day.strftime("%Y%m%d")),
    "YYYYMMDDHHMM": lambda day: int(day.strftime("%Y%m%d1230")),
    "seconds": lambda day: (day - EPOCH).days * 86_400,
    "milliseconds": lambda day: (day - EPOCH).days * 86_400_000,
    "nanoseconds": lambda day: (day - EPOCH).days * 86_400_000_000_000,
    "Excel": lambda day: (day - datetime.date(1899, 12, 30)).days,
}


def _visits(times: list) -> pd.DataFrame:
    return pd.DataFrame({"who": list("aabb"), "when": times, "bili": [1.5, 1.2, 1.0, 2.0]})


def _tables(times: list, **options: Any) -> Any:
    return ehr_from_tables(_visits(times), id="who", time="when", unsorted="sort", **options)


def _events(times: list, **options: Any) -> Any:
    frame = _visits(times).rename(columns={"bili": "value"}).assign(code="bili")
    return ehr_from_events(frame, id="who", time="when", **options)


@pytest.mark.parametrize("read", [_tables, _events])
@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("unit", ["minutes", "hours", "days"])
@settings(max_examples=by_profile(30), deadline=None)
@given(days=st.lists(DAYS, min_size=4, max_size=4, unique=True))
def test_dates_in_numbers_are_refused_or_reported(read: Callable, form: str, unit: str, days: list):
    times = [WRITTEN[form](day) for day in days]
    try:
        said = [*read(times, time_unit=unit).notes, ""]
    except InputError as refusal:
        said = [str(refusal)]
    if said[-1]:
        assert said[0].startswith("the time 'when' at")
        assert "Write dates as 2024-01-31" in said[0]
    else:  # within a life: 90 years in days; 30 days in minutes, as a stay lasts
        assert form == "Excel"
        assert unit != "days" or any("numbers that are dates" in line for line in said)


@pytest.mark.parametrize(
    ("time", "meant"),
    [
        (20240131, "2024-01-31 written as a number"),
        (202401311230, "2024-01-31 written as a number"),
        (1706659200, "2024-01-31, in seconds since 1970"),
        (1706659200000, "2024-01-31, in milliseconds since 1970"),
        (45322, "2024-01-31, as Excel counts days"),
    ],
)
def test_the_date_that_may_be_meant_is_named(time: int, meant: str):
    with pytest.raises(InputError, match=meant):
        _tables([time, time + 1, time, time + 1])


@settings(max_examples=by_profile(30), deadline=None)
@given(st.lists(st.integers(0, 120 * 365 - 1), min_size=3, max_size=3, unique=True).filter(lambda times: times[0] != 0))
def test_times_within_a_life_are_taken_as_they_are(times: list[int]):
    read = _tables([0, *times])
    assert sorted(read.times.tolist()) == sorted([0, *times])
    assert not any("origin" in note for note in read.notes)


@pytest.mark.parametrize("read", [_tables, _events])
@pytest.mark.parametrize("kind", [None, pa.timestamp("s"), pa.timestamp("us"), pa.date32(), pa.timestamp("ms", "UTC")])
@pytest.mark.parametrize("day", ["0001-01-01", "1858-11-17", "1899-12-31", "2250-01-01", "2999-12-31", "9999-12-31"])
def test_a_date_that_stands_for_a_missing_one_is_refused_at_either_end(read: Callable, kind: Any, day: str):
    texts = ["2024-01-31", "2024-02-01", "2024-01-31", day]
    dates = pa.array(map(datetime.datetime.fromisoformat, texts), pa.timestamp("s"))
    times: Any = texts if kind is None else pd.Series(dates.cast(kind).to_pandas(types_mapper=pd.ArrowDtype))
    end = "before 1900" if day < "1900" else "after 2249"
    with pytest.raises(InputError, match=rf"the time 'when' at .* is {day} 00:00:00, {end}, as a missing date is"):
        read(times)
    films = _visits(times).assign(film=[1, 2, 1, 2])
    with pytest.raises(InputError, match=rf"the time at .* is {day} 00:00:00, {end}"):
        open_users(films, user="who", item="film", value="bili", time="when")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_are_the_same_in_every_unit_and_zone(unit: str):
    texts = ("2024-01-31T06", "2024-02-02T18", "1950-01-01", "1950-01-09")
    days = [datetime.datetime.fromisoformat(each) for each in texts]
    for zone in (None, "UTC", "America/New_York"):
        column = pa.array(days, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
        frame = pd.Series(column.to_pandas(types_mapper=pd.ArrowDtype))
        assert _tables(frame).times.tolist() == [0, 2.5, 0, 8]


def test_durations_and_times_of_day_are_no_times():
    for kind in (pa.duration("s"), pa.time64("us")):
        column = pd.Series(pa.array([1, 2, 1, 2]).cast(kind), dtype=pd.ArrowDtype(kind))
        with pytest.raises(InputError, match=r"the time 'when' must be numbers or dates, got .*; write it as a number"):
            _tables(column)
        with pytest.raises(InputError, match=r"the times must be numbers or dates, got .*; write it as a number"):
            open_users(_visits(column).assign(film=[1, 2, 1, 2]), user="who", item="film", value="bili", time="when")


# Health records from tables: the same ones however they are written down, and bad rows refused by their place.

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


GOOD_VISITS = "who,day,x,w\na,0,1,k\na,1,2,l\nb,0,3,k\nb,2,4.5,k\n"


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
    assert len(_read(GOOD_VISITS, tmp_path)) == 2
    assert old in GOOD_VISITS
    with pytest.raises(InputError, match=said):
        _read(GOOD_VISITS.replace(old, new), tmp_path)


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
        (GOOD_VISITS, {"id": "name"}, r"no column 'name' for id='name'"),
        (GOOD_VISITS, {"time": "days"}, r"no column 'days' for time='days' \(did you mean day\?\)"),
        (GOOD_VISITS, {"drop": ["z"]}, r"no column 'z' for drop='z'"),
        (GOOD_VISITS, {"drop": "w"}, r"drop must be a list of columns, got 'w'"),
        (GOOD_VISITS, {"id": None}, r"which columns are the patient and the time\?"),
        (GOOD_VISITS, {"unsorted": "no"}, r"unsorted must be one of refuse, sort"),
        (
            GOOD_VISITS,
            {"outcome": "w"},
            r"'a' has two values of the static 'w', at .* line 2 and .* line 3; correct one",
        ),
        (GOOD_VISITS, {"time_unit": "weeks"}, r"time_unit must be one of minutes, hours, days"),
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
    assert_same(data, _read(GOOD_VISITS, tmp_path))
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
        _read(GOOD_VISITS, tmp_path, static)


@pytest.mark.parametrize(
    ("static", "said"),
    [
        ("who,died\na,0\nb,0\n", r"the outcome 'died' must be .* two categories, it has 1"),
        ("who,died\na,0\nb,2\nc,1\n", r"the outcome 'died' must be .* two categories, it has 3"),
    ],
)
def test_an_outcome_that_has_not_two_classes_is_refused(static: str, said: str, tmp_path: Path):
    text = GOOD_VISITS + ("c,0,1,k\n" if "c," in static else "")
    with pytest.raises(InputError, match=said):
        _read(text, tmp_path, static, outcome="died")


def test_a_value_that_the_schema_does_not_know_is_refused_with_its_line(tmp_path: Path):
    _read(GOOD_VISITS, tmp_path)
    schema = Schema(id="who", time="day", time_unit="days", static=(), temporal=(numeric("x"), categorical("w", ["k"])))
    with pytest.raises(InputError, match=r"'w' at .*visits.csv line 3 is 'l', which is none of its 1 categories k; "):
        ehr_from_tables(tmp_path / "visits.csv", schema=schema)
    (tmp_path / "visits.csv").write_text(GOOD_VISITS.replace("4.5", "much").replace(",l", ",k"))
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
