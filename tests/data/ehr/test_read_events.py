"""Health records from a table of events: visits from times, columns from codes, whatever the order of rows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ehr_records import assert_same
from sfumato._check import InputError
from sfumato.data import EHRDataset, ehr_from_events
from sfumato.data.ehr.schema import Schema, categorical, numeric

EVENTS = """who,hour,code,value
bo,,sex,m
al,,sex,f
bo,,died,0
al,,died,1
bo,3,pulse,80
bo,0,pulse,75.5
bo,3,rhythm,sinus
al,1,pulse,66
al,1,vent,
bo,0,vent,
al,2,rhythm,flutter
al,4,pulse,NA
"""


def _read(text: str, tmp_path: Path, **options: object) -> EHRDataset:
    path = tmp_path / "events.csv"
    path.write_text(text)
    return ehr_from_events(path, **{"id": "who", "time": "hour", "time_unit": "hours", **options})  # type: ignore[arg-type]


def test_events_of_one_time_are_a_visit_and_each_code_is_a_column(tmp_path: Path):
    data = _read(EVENTS, tmp_path, outcome="died")
    assert data.schema == Schema(
        id="who",
        time="hour",
        time_unit="hours",
        static=(categorical("sex", ["f", "m"]), categorical("died", ["0", "1"])),
        temporal=(numeric("pulse"), categorical("rhythm", ["flutter", "sinus"]), categorical("vent", ["1"])),
        outcome="died",
    )
    assert data.ids == ("bo", "al")
    assert data.times.tolist() == [0, 3, 1, 2, 4]
    np.testing.assert_array_equal(data.numbers[:, 0], [75.5, 80, 66, np.nan, np.nan])
    assert data.codes.tolist() == [[-1, 0], [1, -1], [-1, 0], [0, -1], [-1, -1]]
    assert data.static_codes.tolist() == [[1, 0], [0, 1]]
    assert data.outcome().tolist() == [0, 1]


def test_the_order_of_rows_means_nothing_but_for_that_of_patients(tmp_path: Path):
    header, *rows = EVENTS.strip().splitlines()
    data = _read(EVENTS, tmp_path)
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    other = _read("\n".join([header, *shuffled]) + "\n", tmp_path, schema=data.schema)
    assert_same(other.take([other.ids.index(name) for name in data.ids]), data)


@pytest.mark.parametrize("block", [1, 5, 1 << 18])
def test_the_same_records_come_out_however_small_the_blocks_are(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = _read(EVENTS, tmp_path)
    monkeypatch.setattr("sfumato.data.records._ROWS", block)
    frame = pd.read_csv(tmp_path / "events.csv", dtype=str, keep_default_na=False)
    frame["hour"] = pd.to_numeric(frame["hour"].replace("", None))
    assert_same(ehr_from_events(frame, id="who", time="hour", time_unit="hours"), data)


def test_static_columns_may_be_in_a_table_of_their_own(tmp_path: Path):
    data = _read(EVENTS, tmp_path, outcome="died")
    timed = "".join(line for line in EVENTS.splitlines(True) if ",," not in line or "vent" in line)
    static = pd.DataFrame({"who": ["bo", "al"], "sex": ["m", "f"], "died": [0, 1]})
    assert_same(_read(timed, tmp_path, static=static, outcome="died"), data)
    assert_same(_read(timed, tmp_path, static=static, schema=data.schema), data)
    with pytest.raises(InputError, match=r"'al' of .*events.csv is not in the table; add the patient"):
        _read(timed, tmp_path, static=static[:1], schema=data.schema)
    with pytest.raises(InputError, match=r"events of 'sex' have no time, but the static columns are in the table"):
        _read(EVENTS, tmp_path, static=static[["who"]].assign(age=[1, 2]))


def test_a_choice_of_codes_is_read_by_name_or_by_frequency(tmp_path: Path):
    assert _names(_read(EVENTS, tmp_path, codes=["pulse", "sex"])) == (["sex"], ["pulse"])
    data = _read(EVENTS, tmp_path, codes=2)
    assert _names(data) == (["sex", "died"], ["pulse", "rhythm"])
    assert data.notes == ("2 events of codes that the schema does not have were left out",)
    assert _names(_read(EVENTS, tmp_path, drop=["pulse", "died"])) == (["sex"], ["rhythm", "vent"])


def _names(data: EHRDataset) -> tuple[list[str], list[str]]:
    schema = data.schema
    return [column.name for column in schema.static], [column.name for column in schema.temporal]


def test_several_values_of_one_time_are_refused_or_the_last_or_their_mean_counts(tmp_path: Path):
    text = EVENTS + "bo,3,pulse,90\nbo,3,rhythm,flutter\n"
    with pytest.raises(InputError, match=r"'bo' has 'pulse' twice at one time, at .*csv line 6 and .*csv line 14"):
        _read(text, tmp_path)
    last, mean = (_read(text, tmp_path, duplicates=how) for how in ("last", "mean"))
    assert (last.numbers[1, 0], mean.numbers[1, 0]) == (90, 85)
    assert last.codes[1, 0] == mean.codes[1, 0] == 0
    assert "2 values of a patient, time and code that had one before: the last" in last.notes[0]


def test_patients_without_visits_are_refused_or_left_out(tmp_path: Path):
    text = EVENTS + "cy,,sex,f\n"
    with pytest.raises(InputError, match=r"patient 'cy' at .*events.csv line 14 has no visit; .*skip"):
        _read(text, tmp_path)
    data = _read(text, tmp_path, without_visits="skip")
    assert data.ids == ("bo", "al")
    assert data.notes == ("1 patients without a visit were left out",)
    assert data.static_codes.tolist() == [[1, 0], [0, 1]]


def test_dates_count_from_the_first_visit(tmp_path: Path):
    text = "who,hour,code,value\na,2020-01-01 00:30,x,1\na,2020-01-02 02:00,x,2.5\na,,y,1\nb,2021-01-01,x,3\nb,,y,2\n"
    assert _read(text, tmp_path).times.tolist() == [0, 25.5, 0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("al,1,pulse,66", "al,,pulse,66", r"'pulse' has a time at .*csv line 6 and none at .*csv line 9; give all"),
        ("al,1,pulse,66", "al,1,pulse,high", r"'pulse' is 'high' at .*csv line 9, but a number in 2 rows"),
        ("al,1,pulse,66", "al,1,,66", r"the code is missing \(.*\) at .*csv line 9"),
        ("al,1,pulse,66", ",1,pulse,66", r"the patient is missing \(.*\) at .*csv line 9"),
        ("al,1,pulse,66", "al,-1,pulse,66", r"the time 'hour' at .*csv line 9 is -1"),
        ("al,1,pulse,66", "al,2020-01-01,pulse,66", r"the time 'hour' at .*csv line 9 is '2020-01-01'"),
        ("al,1,pulse,66", "al,1,pulse,inf", r"'pulse' is 'inf' at .*csv line 9"),
        ("al,1,pulse,66", "al,1,pulse", r"line 9 has 3 columns, the first row has 4; complete or remove the row"),
        ("who,hour,code", "who,hour,kode", r"no column 'code' for code='code' \(did you mean kode\?\)"),
    ],
)
def test_a_bad_event_is_refused_with_its_line_and_a_remedy(old: str, new: str, said: str, tmp_path: Path):
    assert old in EVENTS
    with pytest.raises(InputError, match=said):
        _read(EVENTS.replace(old, new), tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"codes": ["puls"]}, r"no event has the code 'puls' of codes='puls' \(did you mean pulse\?\)"),
        ({"drop": ["x"]}, r"no event has the code 'x' of drop='x'"),
        ({"outcome": "dead"}, r"no event has the code 'dead'"),
        ({"categorical": "pulse"}, r"categorical must be a list of codes, got 'pulse'"),
        ({"codes": 0}, r"codes must be a whole number >= 1"),
        ({"duplicates": "first"}, r"duplicates must be one of refuse, last, mean"),
        ({"without_visits": "drop"}, r"without_visits must be one of refuse, skip"),
        ({"outcome": "pulse"}, r"the outcome 'pulse' must be a static categorical column"),
        ({"id": None}, r"which columns are the patient and the time\?"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict, said: str, tmp_path: Path):
    with pytest.raises(InputError, match=said):
        _read(EVENTS, tmp_path, **options)


def test_a_schema_decides_what_events_must_be(tmp_path: Path):
    schema = _read(EVENTS, tmp_path).schema
    for old, new, said in (
        ("al,2,rhythm,flutter", "al,2,rhythm,chaos", r"'rhythm' at .*csv line 12 is 'chaos', which is none of"),
        ("al,2,rhythm,flutter", "al,,rhythm,flutter", r"'rhythm' at .*csv line 12 has no time, but the schema says"),
        ("al,1,pulse,66", "al,1,pulse,fast", r"'pulse' at .*csv line 9 is 'fast', which is not a finite number"),
    ):
        with pytest.raises(InputError, match=said):
            _read(EVENTS.replace(old, new), tmp_path, schema=schema)
    with pytest.raises(InputError, match="says what outcome, unit, subject, categorical, drop and codes would"):
        _read(EVENTS, tmp_path, schema=schema, codes=1)


def test_a_table_without_events_is_refused(tmp_path: Path):
    schema = _read(EVENTS, tmp_path).schema
    with pytest.raises(InputError, match="there are no events"):
        _read("who,hour,code,value\n", tmp_path)
    with pytest.raises(InputError, match="no patient has a visit"):
        _read(EVENTS[: EVENTS.index("bo,3")], tmp_path, schema=schema, without_visits="skip")
