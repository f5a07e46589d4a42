"""Health records of public collections: MIMIC-IV and the challenge of PhysioNet."""

import gzip
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ehr_records import assert_same
from sfumato._check import InputError
from sfumato.data import mimic_iv, physionet2012
from sfumato.data.ehr.physionet2012 import MEASURED
from sfumato.synthesis import EHRSafe

# Stays of MIMIC-IV: who was where when, against a search row by row, and the real demonstration files.

FILES = {
    "patients": "subject_id,gender,anchor_age\n1,F,60\n2,M,71\n",
    "admissions": "subject_id,hadm_id,admission_type,insurance,marital_status,race,hospital_expire_flag\n"
    "1,10,URGENT,Other,,WHITE,0\n1,11,ELECTIVE,Other,,WHITE,1\n2,20,URGENT,Medicare,,?,0\n",
    "icustays": "subject_id,hadm_id,stay_id,first_careunit,intime,outtime\n"
    "2,20,200,CCU,2150-01-01 00:00:00,2150-01-03 00:00:00\n"
    "1,11,101,CCU,2160-05-01 12:00:00,2160-05-02 00:00:00\n"
    "1,10,100,MICU,2150-01-01 06:00:00,2150-01-01 18:00:00\n",
    "d_labitems": "itemid,label,fluid,category\n5,Glucose,Blood,Chemistry\n6,Glucose,Blood,Blood Gas\n7,pH,Blood,Gas\n",
    "labevents": "labevent_id,subject_id,itemid,charttime,valuenum\n"
    "1,1,5,2150-01-01 05:59:59,1\n"  # before the stay
    "2,1,5,2150-01-01 06:00:00,90\n"
    "3,1,6,2150-01-01 06:00:00,91.5\n"
    "4,1,5,2150-01-01 18:00:00,95\n"
    "5,1,5,2150-01-01 18:00:01,1\n"  # after it
    "6,1,5,2160-05-01 13:30:00,80\n"  # in the other stay
    "7,2,5,2150-01-02 12:00:00,70\n"
    "8,3,5,2150-01-01 06:00:00,1\n"  # of somebody without a stay
    "9,2,7,2150-01-02 12:00:00,\n"  # without a number
    "10,2,5,,1\n",  # without a time
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        place = tmp_path / ("icu" if name == "icustays" else "hosp")
        place.mkdir(exist_ok=True)
        if name == "labevents":
            (place / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (place / f"{name}.csv").write_text(text)
    return tmp_path


def test_values_belong_to_the_stay_in_which_they_were_measured(folder: Path):
    data = mimic_iv(folder)
    assert data.ids == ("200", "101", "100")
    assert [column.name for column in data.schema.temporal] == ["Glucose (5)", "Glucose (6)"]
    assert data.times.tolist() == [36, 1.5, 0, 12]
    np.testing.assert_array_equal(data.numbers, [[70, np.nan], [80, np.nan], [90, 91.5], [95, np.nan]])
    assert data.outcome().tolist() == [0, 1, 0]
    assert [column.name for column in data.schema.static] == [
        *("gender", "anchor_age", "first_careunit", "admission_type", "insurance", "race", "hospital_expire_flag")
    ]
    assert data.static_codes[:, data.schema.static_categorical.index(data.schema.static[5])].tolist() == [-1, 0, 0]
    assert (data.schema.unit, data.schema.subject, data.subjects) == ("stay", "subject_id", ("2", "1", "1"))


def test_items_that_are_named_are_read_and_only_the_first_hours(folder: Path):
    data = mimic_iv(folder, items=[5], hours=2)
    assert data.ids == ("101", "100")
    assert data.numbers.tolist() == [[80], [90]]
    assert data.schema.temporal[0].name == "Glucose (5)"  # "Glucose" is two items, of which a schema would name neither
    assert mimic_iv(folder, schema=data.schema, hours=2).numbers.tolist() == [[80], [90]]
    assert data.notes == ("1 patients without a visit were left out",)


def test_a_schema_of_stays_that_was_saved_reads_the_same_and_is_a_declaration(folder: Path, tmp_path: Path):
    data = mimic_iv(folder)
    data.schema.save(tmp_path / "schema.yaml")
    again = mimic_iv(folder, schema=tmp_path / "schema.yaml")
    assert (data.schema.inferred, again.schema.inferred) == (True, False)
    assert again.schema == data.schema
    assert again.fingerprint() == data.fingerprint()
    with pytest.raises(InputError, match="the schema says which laboratory items are read"):
        mimic_iv(folder, schema=again.schema, items=3)
    with pytest.raises(InputError, match="must have id, unit, subject"):
        mimic_iv(folder, schema=replace(again.schema, id="hadm_id"))


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "hosp/patients.csv",
            "2,M,71\n",
            "",
            r"line 2 has the subject_id '2', which .*patients.csv does not",
        ),
        (
            "icu/icustays.csv",
            "2150-01-01 18:00:00",
            "2150-01-01 05:00:00",
            r"stays.csv line 4 has a stay that does not",
        ),
        ("icu/icustays.csv", "2150-01-01 06:00:00", "", r"'intime' at .*icustays.csv line 4 must be a date"),
        ("icu/icustays.csv", "outtime", "out", r"no column 'outtime'"),
        ("hosp/admissions.csv", "WHITE,1", "WHITE,2", r"'hospital_expire_flag' at .*icustays.csv line 3 is '2'"),
        ("hosp/d_labitems.csv", "itemid", "item", r"no column 'itemid'"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(file: str, old: str, new: str, said: str, folder: Path):
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=said):
        mimic_iv(folder)


def test_what_is_not_there_is_refused(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match="there is no laboratory item 9 in"):
        mimic_iv(folder, items=[9])
    with pytest.raises(InputError, match="hours must be > 0"):
        mimic_iv(folder, hours=0)
    (folder / "hosp" / "labevents.csv.gz").unlink()
    with pytest.raises(InputError, match=r"has no labevents\.csv\.gz"):
        mimic_iv(folder)


@pytest.mark.shared
def test_the_demonstration_is_what_a_join_of_its_tables_gives(shared: Path):
    folder = shared / "mimic_iv_demo"
    data = mimic_iv(folder, items=[50912, 50931])
    stays = pd.read_csv(folder / "icustays.csv.gz", parse_dates=["intime", "outtime"])
    labs = pd.read_csv(folder / "labevents.csv.gz", parse_dates=["charttime"], low_memory=False)
    labs = labs[labs["itemid"].isin([50912, 50931]) & labs["valuenum"].notna()]
    joined = labs.merge(stays, on="subject_id")
    joined = joined[(joined["charttime"] >= joined["intime"]) & (joined["charttime"] <= joined["outtime"])]
    joined["hours"] = (joined["charttime"] - joined["intime"]).dt.total_seconds() / 3600
    wide = joined.pivot_table(index=["stay_id", "hours"], columns="itemid", values="valuenum", aggfunc="last")
    found = pd.DataFrame(data.numbers, columns=[50912, 50931])
    found.index = pd.MultiIndex.from_arrays([np.array(data.ids).astype(int)[data.owners], data.times])
    expected = wide.sort_index()
    found = found.sort_index()
    assert found.index.get_level_values(0).tolist() == expected.index.get_level_values(0).tolist()
    np.testing.assert_allclose(found.index.get_level_values(1), expected.index.get_level_values(1), rtol=1e-12)
    np.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())
    admissions = pd.read_csv(folder / "admissions.csv.gz").set_index("hadm_id")["hospital_expire_flag"]
    deaths = stays.set_index("stay_id")["hadm_id"].map(admissions)
    assert data.outcome().tolist() == deaths.loc[[int(name) for name in data.ids]].tolist()


# The challenge of 2012: the real set against another program's pivot, and the files of the stays as downloaded.

HEADER = "Time,Parameter,Value\n"
START = "00:00,RecordID,{stay}\n00:00,Age,54\n00:00,Gender,0\n00:00,Height,-1\n00:00,ICUType,4\n00:00,Weight,{kg}\n"
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n1,6,1,5,-1,0\n2,1,1,1,1,1\n3,1,1,1,1,0\n"


@pytest.fixture
def challenge(tmp_path: Path) -> Path:
    """Three stays, of which the last has no measurement."""
    stays = tmp_path / "set-a"
    stays.mkdir()
    one = "00:00,HR,73\n00:07,GCS,15\n47:59,Weight,80.5\n00:07,MechVent,1\n"
    (stays / "1.txt").write_text(HEADER + START.format(stay=1, kg=-1) + one)
    (stays / "2.txt").write_text(HEADER + START.format(stay=2, kg=70.2) + "01:30,HR,60\n01:30,HR,62\n")
    (stays / "3.txt").write_text(HEADER + START.format(stay=3, kg=60))
    (tmp_path / "outcomes.txt").write_text(OUTCOMES)
    return tmp_path


def test_files_of_stays_are_read_as_they_were_downloaded(challenge: Path):
    data = physionet2012(challenge / "set-a", challenge / "outcomes.txt")
    assert data.ids == ("1", "2")
    assert data.times.tolist() == [0, 7, 2879, 90]
    names = [column.name for column in data.schema.temporal_numeric]
    np.testing.assert_array_equal(data.numbers[:, names.index("HR")], [73, np.nan, np.nan, 62])
    np.testing.assert_array_equal(data.numbers[:, names.index("Weight")], [np.nan, np.nan, 80.5, np.nan])
    assert data.codes[:, 0].tolist() == [-1, 0, -1, -1]
    np.testing.assert_array_equal(data.static_numbers, [[54, np.nan, np.nan], [54, np.nan, 70.2]])
    assert data.static_codes.tolist() == [[0, 3, 0], [0, 3, 1]]
    assert data.outcome().tolist() == [0, 1]
    assert len(data.notes) == 2
    mean = physionet2012(challenge / "set-a", challenge / "outcomes.txt", duplicates="mean")
    assert mean.numbers[3, names.index("HR")] == 61


def test_minus_one_is_missing_whatever_it_stands_for_and_whenever(challenge: Path):
    before = physionet2012(challenge / "set-a", challenge / "outcomes.txt")
    stay = challenge / "set-a" / "2.txt"
    codes = [f"{when},{name},-1\n" for when in ("00:00", "01:30", "05:00") for name in (*MEASURED, "MechVent")]
    stay.write_text(stay.read_text() + "".join(codes) + "00:00,Gender,-1\n01:30,Temp,-1.0\n")
    assert_same(physionet2012(challenge / "set-a", challenge / "outcomes.txt"), before)
    mean = physionet2012(challenge / "set-a", challenge / "outcomes.txt", duplicates="mean")
    assert 61 in mean.numbers
    assert -1 not in mean.numbers


def test_every_number_has_a_range_and_none_is_changed_by_it(challenge: Path):
    stay = challenge / "set-a" / "2.txt"
    stay.write_text(stay.read_text() + "02:00,pH,735\n")
    data = physionet2012(challenge / "set-a", challenge / "outcomes.txt")
    assert all((column.range is None) == (column.kind == "categorical") for column in data.schema.columns)
    assert 735 in data.numbers


def test_a_private_plan_takes_the_schema_as_it_is(challenge: Path):
    data = physionet2012(challenge / "set-a", challenge / "outcomes.txt")
    plan = EHRSafe(epsilon=8.0, horizon=2880.0, batch_size=1, gan_batch_size=1, gan_steps=2, critic_steps=1, epochs=1)
    told = plan.try_out(data)
    assert told.epsilon <= 8.0
    assert "ehr_schema_public" in [line.id for line in told.assumptions]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("00:07,GCS,15", "0007,GCS,15", r"the time at .*1.txt line 9 is '0007', must be hours and minutes as 07:30"),
        ("00:07,GCS,15", "00:07,GCX,15", r"1.txt line 9 has the unknown parameter 'GCX'"),
        ("00:07,GCS,15", "00:07,GCS,x", r"'GCS' at .*1.txt line 9 is 'x', which is not a finite number"),
        (
            "00:00,ICUType,4",
            "00:00,ICUType,5",
            r"'ICUType' at .*1.txt line 6 is '5', which is none of its 4 categories",
        ),
        (HEADER, "Time,Value\n", r"1.txt"),
    ],
)
def test_a_bad_line_is_named(old: str, new: str, said: str, challenge: Path):
    file = challenge / "set-a" / "1.txt"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(InputError, match=said):
        physionet2012(challenge / "set-a", challenge / "outcomes.txt")


def test_a_stay_without_an_outcome_and_a_folder_without_stays_are_refused(challenge: Path, tmp_path: Path):
    (challenge / "outcomes.txt").write_text(OUTCOMES.replace("\n2,", "\n4,"))
    with pytest.raises(InputError, match=r"outcomes.txt has no In-hospital_death of the stay '2'"):
        physionet2012(challenge / "set-a", challenge / "outcomes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no \.txt files"):
        physionet2012(tmp_path / "empty", challenge / "outcomes.txt")


@pytest.mark.slow
@pytest.mark.shared
def test_the_real_set_is_what_another_pivot_gives_and_is_read_within_20_seconds(shared: Path):
    start = time.perf_counter()
    data = physionet2012(shared / "physionet2012_set_a.parquet", shared / "physionet2012_outcomes_a.txt")
    assert time.perf_counter() - start < 20
    table = pd.read_parquet(shared / "physionet2012_set_a.parquet")
    table["Parameter"] = table["Parameter"].astype(str)
    described = (table["minute"] == 0) & table["Parameter"].isin(["Age", "Gender", "Height", "ICUType", "Weight"])
    static = table[described].pivot_table(index="RecordID", columns="Parameter", values="Value").replace(-1, np.nan)
    visits = table[~described].pivot_table(
        index=["RecordID", "minute"], columns="Parameter", values="Value", aggfunc="last"
    )
    stays = visits.index.get_level_values(0)
    assert data.ids == tuple(map(str, stays.unique()))
    assert data.times.tolist() == visits.index.get_level_values(1).tolist()
    assert data.lengths.tolist() == stays.value_counts().sort_index().tolist()
    for place, column in enumerate(data.schema.temporal_numeric):
        np.testing.assert_array_equal(data.numbers[:, place].astype(np.float32), visits[column.name].to_numpy())
    np.testing.assert_array_equal(data.codes[:, 0] >= 0, visits["MechVent"].notna())
    for place, name in enumerate(["Age", "Height", "Weight"]):
        expected = static.loc[stays.unique(), name].to_numpy()
        np.testing.assert_array_equal(data.static_numbers[:, place].astype(np.float32), expected)
    deaths = pd.read_csv(shared / "physionet2012_outcomes_a.txt").set_index("RecordID")["In-hospital_death"]
    assert data.outcome().tolist() == deaths.loc[stays.unique()].tolist()
    assert_same(data.take(range(len(data))), data)
