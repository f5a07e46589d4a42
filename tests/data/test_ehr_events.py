"""Health records from events: read, written, and read back as they were."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ehr_records import assert_same, records
from sfumato._check import InputError
from sfumato.data import (
    EHRDataset,
    ehr_from_events,
    ehr_from_tables,
    read_meds,
    write_ehr_events,
    write_ehr_tables,
    write_meds,
)
from sfumato.data.ehr.meds import CODES, DATASET, EVENTS, OF_CODES, OF_SPLITS, SPLITS
from sfumato.data.ehr.schema import Schema, categorical, numeric
from slow import by_profile

# Health records from a table of events: visits from times, columns from codes, whatever the order of rows.

LINES = """who,hour,code,value
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
    data = _read(LINES, tmp_path, outcome="died")
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
    header, *rows = LINES.strip().splitlines()
    data = _read(LINES, tmp_path)
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    other = _read("\n".join([header, *shuffled]) + "\n", tmp_path, schema=data.schema)
    assert_same(other.take([other.ids.index(name) for name in data.ids]), data)


@pytest.mark.parametrize("block", [1, 5, 1 << 18])
def test_the_same_records_come_out_however_small_the_blocks_are(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = _read(LINES, tmp_path)
    monkeypatch.setattr("sfumato.data.records._ROWS", block)
    frame = pd.read_csv(tmp_path / "events.csv", dtype=str, keep_default_na=False)
    frame["hour"] = pd.to_numeric(frame["hour"].replace("", None))
    assert_same(ehr_from_events(frame, id="who", time="hour", time_unit="hours"), data)


def test_static_columns_may_be_in_a_table_of_their_own(tmp_path: Path):
    data = _read(LINES, tmp_path, outcome="died")
    timed = "".join(line for line in LINES.splitlines(True) if ",," not in line or "vent" in line)
    static = pd.DataFrame({"who": ["bo", "al"], "sex": ["m", "f"], "died": [0, 1]})
    assert_same(_read(timed, tmp_path, static=static, outcome="died"), data)
    assert_same(_read(timed, tmp_path, static=static, schema=data.schema), data)
    with pytest.raises(InputError, match=r"'al' of .*events.csv is not in the table; add the patient"):
        _read(timed, tmp_path, static=static[:1], schema=data.schema)
    with pytest.raises(InputError, match=r"events of 'sex' have no time, but the static columns are in the table"):
        _read(LINES, tmp_path, static=static[["who"]].assign(age=[1, 2]))


def test_a_choice_of_codes_is_read_by_name_or_by_frequency(tmp_path: Path):
    assert _names(_read(LINES, tmp_path, codes=["pulse", "sex"])) == (["sex"], ["pulse"])
    data = _read(LINES, tmp_path, codes=2)
    assert _names(data) == (["sex", "died"], ["pulse", "rhythm"])
    assert data.notes == ("2 events of codes that the schema does not have were left out",)
    assert _names(_read(LINES, tmp_path, drop=["pulse", "died"])) == (["sex"], ["rhythm", "vent"])


def _names(data: EHRDataset) -> tuple[list[str], list[str]]:
    schema = data.schema
    return [column.name for column in schema.static], [column.name for column in schema.temporal]


def test_several_values_of_one_time_are_refused_or_the_last_or_their_mean_counts(tmp_path: Path):
    text = LINES + "bo,3,pulse,90\nbo,3,rhythm,flutter\n"
    with pytest.raises(InputError, match=r"'bo' has 'pulse' twice at one time, at .*csv line 6 and .*csv line 14"):
        _read(text, tmp_path)
    last, mean = (_read(text, tmp_path, duplicates=how) for how in ("last", "mean"))
    assert (last.numbers[1, 0], mean.numbers[1, 0]) == (90, 85)
    assert last.codes[1, 0] == mean.codes[1, 0] == 0
    assert "2 values of a patient, time and code that had one before: the last" in last.notes[0]


def test_patients_without_visits_are_refused_or_left_out(tmp_path: Path):
    text = LINES + "cy,,sex,f\n"
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
    assert old in LINES
    with pytest.raises(InputError, match=said):
        _read(LINES.replace(old, new), tmp_path)


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
        _read(LINES, tmp_path, **options)


def test_a_schema_decides_what_events_must_be(tmp_path: Path):
    schema = _read(LINES, tmp_path).schema
    for old, new, said in (
        ("al,2,rhythm,flutter", "al,2,rhythm,chaos", r"'rhythm' at .*csv line 12 is 'chaos', which is none of"),
        ("al,2,rhythm,flutter", "al,,rhythm,flutter", r"'rhythm' at .*csv line 12 has no time, but the schema says"),
        ("al,1,pulse,66", "al,1,pulse,fast", r"'pulse' at .*csv line 9 is 'fast', which is not a finite number"),
    ):
        with pytest.raises(InputError, match=said):
            _read(LINES.replace(old, new), tmp_path, schema=schema)
    with pytest.raises(InputError, match="says what outcome, unit, subject, categorical, drop and codes would"):
        _read(LINES, tmp_path, schema=schema, codes=1)


def test_a_table_without_events_is_refused(tmp_path: Path):
    schema = _read(LINES, tmp_path).schema
    with pytest.raises(InputError, match="there are no events"):
        _read("who,hour,code,value\n", tmp_path)
    with pytest.raises(InputError, match="no patient has a visit"):
        _read(LINES[: LINES.index("bo,3")], tmp_path, schema=schema, without_visits="skip")


# What is written is read back as it was, in every format, whatever the schema and the records are.

SUFFIXES = st.sampled_from(["csv", "parquet"])


@settings(max_examples=by_profile(150), deadline=None)
@given(data=records(), suffix=SUFFIXES)
def test_tables_of_visits_and_patients_are_read_back_as_they_were(data: EHRDataset, suffix: str):
    with TemporaryDirectory() as folder:
        visits, static = Path(folder, f"visits.{suffix}"), Path(folder, f"static.{suffix}")
        write_ehr_tables(data, visits, static)
        assert_same(ehr_from_tables(visits, static, schema=data.schema), data)


@settings(max_examples=by_profile(150), deadline=None)
@given(data=records(), suffix=SUFFIXES)
def test_a_table_of_events_is_read_back_as_it_was(data: EHRDataset, suffix: str):
    with TemporaryDirectory() as folder:
        path = Path(folder, f"events.{suffix}")
        write_ehr_events(data, path, code="the code", value="the value")
        found = ehr_from_events(path, schema=data.schema, code="the code", value="the value")
        assert_same(found, data)


@settings(max_examples=by_profile(100), deadline=None)
@given(data=records(singles=True), synthetic=st.booleans())
def test_a_folder_of_meds_is_read_back_as_it_was_under_new_ids(data: EHRDataset, synthetic: bool):
    with TemporaryDirectory() as folder:
        write_meds(data, Path(folder, "meds"), synthetic=synthetic)
        found = read_meds(Path(folder, "meds"))
        assert_same(replace(found, times=data.times), data, ids=False)
        np.testing.assert_allclose(found.times, data.times, rtol=1e-15, atol=1e-9)
        assert found.ids == tuple(str(i + 1) for i in range(len(data)))


@settings(max_examples=by_profile(30), deadline=None)
@given(first=records(prefix="a "), more=st.integers(0, 2), suffix=SUFFIXES)
def test_parts_that_are_written_one_after_the_other_are_one_data_set(first: EHRDataset, more: int, suffix: str):
    parts = [replace(first, ids=tuple(f"{i} {name}" for name in first.ids)) for i in range(more + 1)]
    with TemporaryDirectory() as folder:
        visits, static = Path(folder, f"visits.{suffix}"), Path(folder, f"static.{suffix}")
        write_ehr_tables(iter(parts), visits, static)
        found = ehr_from_tables(visits, static, schema=first.schema)
        write_ehr_events(iter(parts), Path(folder, "events.parquet"), code="the code", value="the value")
        events = ehr_from_events(
            Path(folder, "events.parquet"), schema=first.schema, code="the code", value="the value"
        )
    assert found.ids == events.ids == tuple(name for part in parts for name in part.ids)
    for i in range(more + 1):
        places = range(i * len(first), (i + 1) * len(first))
        assert_same(found.take(places), parts[i])
        assert_same(events.take(places), parts[i])


@pytest.fixture
def small() -> EHRDataset:
    visits = pd.DataFrame(
        {"who": ["a", "a", "b"], "day": [0, 1, 0], "x": [1.5, 2.5, 3.5], "sex": ["f", "f", "m"], "y": [1, 2, 3]}
    )
    return ehr_from_tables(visits, id="who", time="day")


def test_records_of_another_schema_or_with_an_id_again_are_refused_and_nothing_is_left(
    small: EHRDataset, tmp_path: Path
):
    other = replace(small, schema=replace(small.schema, time_unit="hours"), ids=("c", "d"))
    paths = tmp_path / "v.csv", tmp_path / "s.csv"
    for parts, said in (([small, other], "must have one schema"), ([small, small], "the patient 'a' is there twice")):
        with pytest.raises(InputError, match=said):
            write_ehr_tables(parts, *paths)
        with pytest.raises(InputError, match=said):
            write_ehr_events(parts, paths[0])
        with pytest.raises(InputError, match=said):
            write_meds(parts, tmp_path / "meds", synthetic=True)
    with pytest.raises(InputError, match="no records to write"):
        write_ehr_tables([], *paths)
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_written_are_refused(small: EHRDataset, tmp_path: Path):
    with pytest.raises(InputError, match=r"must end on \.parquet or \.csv"):
        write_ehr_tables(small, tmp_path / "v.json", tmp_path / "s.csv")
    with pytest.raises(InputError, match="must be two files"):
        write_ehr_tables(small, tmp_path / "v.csv", tmp_path / "v.csv")
    with pytest.raises(InputError, match="there is no folder"):
        write_ehr_events(small, tmp_path / "none" / "v.csv")
    with pytest.raises(InputError, match="must have names of their own"):
        write_ehr_events(small, tmp_path / "v.csv", code="who")
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="is there already"):
        write_meds(small, tmp_path, synthetic=True)
    with pytest.raises(InputError, match="there is no folder"):
        write_meds(small, tmp_path / "none" / "meds", synthetic=True)


def test_what_meds_cannot_hold_is_refused_by_its_patient(small: EHRDataset, tmp_path: Path):
    for changed, said in (
        ({"times": [0, 1e-13, 0]}, "patient 'a' has two visits within a microsecond"),
        ({"times": [0, 1e9, 0]}, r"patient 'a' has a visit at 1e\+09 days, after the year 2249"),
        ({"numbers": np.array([[1, 1], [1, 1], [1e39, 1]])}, r"patient 'b' has 'x' = 1e\+39, beyond single precision"),
    ):
        changed = {name: np.array(values, float) for name, values in changed.items()}
        with pytest.raises(InputError, match=said):
            write_meds(replace(small, **changed), tmp_path / "meds", synthetic=True)
    assert list(tmp_path.iterdir()) == []


# Folders of MEDS: ours pass the standard's own check, and those of others are read.


@settings(max_examples=by_profile(30), deadline=None)
@given(data=records(singles=True))
def test_the_standard_s_own_check_passes(data: EHRDataset):
    meds = pytest.importorskip("meds")
    second = replace(data, ids=tuple(f"again {name}" for name in data.ids))
    with TemporaryDirectory() as folder:
        root = Path(folder, "meds")
        write_meds([data, second], root, synthetic=True)
        people, codes = [], set()
        for file in sorted((root / meds.data_subdirectory).rglob("*.parquet")):
            table = pq.read_table(file)
            meds.DataSchema.validate(table)
            people.append(table["subject_id"].to_pylist())
            codes.update(table["code"].to_pylist())
            times = [moment or datetime.datetime.min for moment in table["time"].to_pylist()]
            assert list(zip(people[-1], times)) == sorted(zip(people[-1], times)), "by person and time, static first"
        assert not set(people[0]) & set(people[1]), "a person is in one file"
        described = pq.read_table(root / meds.code_metadata_filepath)
        meds.CodeMetadataSchema.validate(described)
        assert codes <= set(described["code"].to_pylist())
        splits = pq.read_table(root / meds.subject_splits_filepath)
        meds.SubjectSplitSchema.validate(splits)
        assert splits["subject_id"].to_pylist() == sorted({*people[0], *people[1]})
        meds.DatasetMetadataSchema.validate(json.loads((root / meds.dataset_metadata_filepath).read_text()))


def test_what_was_made_by_a_model_says_so_in_every_event_and_in_the_name(tmp_path: Path):
    data = _data(tmp_path / "source")
    for synthetic in (True, False):
        root = tmp_path / f"written {synthetic}"
        write_meds(data, root, synthetic=synthetic, name="icu")
        table = pq.read_table(root / "data" / "00000.parquet")
        assert set(table["synthetic"].to_pylist()) == {synthetic}
        assert json.loads((root / DATASET).read_text())["dataset_name"] == ("icu (synthetic)" if synthetic else "icu")
        assert table.schema.equals(EVENTS)
        assert pq.read_schema(root / CODES).equals(OF_CODES)
        assert pq.read_schema(root / SPLITS).equals(OF_SPLITS)


def _moment(hour: float) -> datetime.datetime:
    return datetime.datetime(2150, 1, 1) + datetime.timedelta(hours=hour)


ROWS = [
    (7, None, "GENDER//F", None, None),
    (7, datetime.datetime(1850, 1, 1), "MEDS_BIRTH", None, None),
    (7, _moment(0), "LAB//K", 4.1, None),
    (7, _moment(6), "LAB//K", 3.9, None),
    (7, _moment(6), "VENT", None, None),
    (9, None, "GENDER//M", None, None),
    (9, _moment(1), "LAB//K", 4.4, None),
    (9, _moment(2), "RHYTHM", None, "sinus"),
    (11, _moment(2), "RHYTHM", None, "flutter"),
]
COLUMNS = ("subject_id", "time", "code", "numeric_value", "text_value")


def _folder(root: Path, rows: list = ROWS) -> Path:
    """A folder as others write it: two parts, each in a folder of its own."""
    kinds = pa.schema(list(EVENTS)[:5])
    for name, people in (("train", {7, 9}), ("held_out", {11})):
        (root / "data" / name).mkdir(parents=True)
        held = [dict(zip(COLUMNS, row)) for row in rows if row[0] in people]
        pq.write_table(pa.Table.from_pylist(held, kinds), root / "data" / name / "0.parquet")
    (root / "metadata").mkdir()
    parts = [{"subject_id": 7, "split": "train"}, {"subject_id": 9, "split": "train"}]
    pq.write_table(pa.Table.from_pylist([*parts, {"subject_id": 11, "split": "held_out"}]), root / SPLITS)
    return root


def _data(root: Path) -> EHRDataset:
    return read_meds(_folder(root), drop=["VENT"])


def test_a_folder_of_others_is_read_without_births(tmp_path: Path):
    data = read_meds(_folder(tmp_path))
    assert data.ids == ("11", "7", "9")  # in the order of the files
    assert [column.name for column in data.schema.static] == ["GENDER//F", "GENDER//M"]
    assert [column.name for column in data.schema.temporal] == ["RHYTHM", "LAB//K", "VENT"]
    assert data.times.tolist() == [0, 0, 6, 0, 1]
    assert data.codes.tolist() == [[0, -1], [-1, -1], [-1, 0], [-1, -1], [1, -1]]
    assert data.numbers[1:4, 0].tolist() == [4.1, 3.9, 4.4]
    assert data.static_codes.tolist() == [[-1, -1], [0, -1], [-1, 0]]


def test_one_part_or_some_codes_are_read(tmp_path: Path):
    _folder(tmp_path)
    assert read_meds(tmp_path, split="train").ids == ("7", "9")
    data = read_meds(tmp_path, codes=["LAB//K"])
    assert (data.ids, [column.name for column in data.schema.columns]) == (("7", "9"), ["LAB//K"])
    assert [column.name for column in read_meds(tmp_path, codes=1).schema.temporal] == ["LAB//K"]
    with pytest.raises(InputError, match=r"has no patients of the split 'trian' \(did you mean train\?\)"):
        read_meds(tmp_path, split="trian")


def test_a_folder_that_is_none_and_a_row_that_is_wrong_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"has no data/\*\*/\*\.parquet; give the folder of a data set of MEDS"):
        read_meds(tmp_path)
    _folder(tmp_path / "old", [*ROWS[:-1], (11, datetime.datetime(1850, 1, 1), "RHYTHM", None, "flutter")])
    with pytest.raises(
        InputError, match=r"the time 'time' at .*0.parquet position 0 is 1850-01-01 00:00:00, before 1900"
    ):
        read_meds(tmp_path / "old")
    _folder(tmp_path / "mixed", [*ROWS, (11, _moment(3), "LAB//K", None, "high")])
    with pytest.raises(InputError, match=r"'LAB//K' is 'high' at .*held_out/0.parquet position 1, but a number in 3"):
        read_meds(tmp_path / "mixed")
    write_meds(_data(tmp_path / "a"), tmp_path / "ours", synthetic=False)
    schema = read_meds(tmp_path / "ours").schema
    with pytest.raises(InputError, match="give one of both"):
        read_meds(tmp_path / "ours", schema=schema, codes=1)
