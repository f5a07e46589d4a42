"""Stays of MIMIC-IV: who was where when, against a search row by row, and the real demonstration files."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sfumato._check import InputError
from sfumato.data import mimic_iv

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
    assert data.schema.temporal[0].name == "Glucose"
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
