"""The challenge of 2012: the real set against another program's pivot, and the files of the stays as downloaded."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ehr_records import assert_same
from sfumato._check import InputError
from sfumato.data import physionet2012
from sfumato.data.ehr.physionet2012 import MEASURED
from sfumato.synthesis import EHRSafe

HEADER = "Time,Parameter,Value\n"
START = "00:00,RecordID,{stay}\n00:00,Age,54\n00:00,Gender,0\n00:00,Height,-1\n00:00,ICUType,4\n00:00,Weight,{kg}\n"
OUTCOMES = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n1,6,1,5,-1,0\n2,1,1,1,1,1\n3,1,1,1,1,0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three stays, of which the last has no measurement."""
    stays = tmp_path / "set-a"
    stays.mkdir()
    one = "00:00,HR,73\n00:07,GCS,15\n47:59,Weight,80.5\n00:07,MechVent,1\n"
    (stays / "1.txt").write_text(HEADER + START.format(stay=1, kg=-1) + one)
    (stays / "2.txt").write_text(HEADER + START.format(stay=2, kg=70.2) + "01:30,HR,60\n01:30,HR,62\n")
    (stays / "3.txt").write_text(HEADER + START.format(stay=3, kg=60))
    (tmp_path / "outcomes.txt").write_text(OUTCOMES)
    return tmp_path


def test_files_of_stays_are_read_as_they_were_downloaded(folder: Path):
    data = physionet2012(folder / "set-a", folder / "outcomes.txt")
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
    mean = physionet2012(folder / "set-a", folder / "outcomes.txt", duplicates="mean")
    assert mean.numbers[3, names.index("HR")] == 61


def test_minus_one_is_missing_whatever_it_stands_for_and_whenever(folder: Path):
    before = physionet2012(folder / "set-a", folder / "outcomes.txt")
    stay = folder / "set-a" / "2.txt"
    codes = [f"{when},{name},-1\n" for when in ("00:00", "01:30", "05:00") for name in (*MEASURED, "MechVent")]
    stay.write_text(stay.read_text() + "".join(codes) + "00:00,Gender,-1\n01:30,Temp,-1.0\n")
    assert_same(physionet2012(folder / "set-a", folder / "outcomes.txt"), before)
    mean = physionet2012(folder / "set-a", folder / "outcomes.txt", duplicates="mean")
    assert 61 in mean.numbers
    assert -1 not in mean.numbers


def test_every_number_has_a_range_and_none_is_changed_by_it(folder: Path):
    stay = folder / "set-a" / "2.txt"
    stay.write_text(stay.read_text() + "02:00,pH,735\n")
    data = physionet2012(folder / "set-a", folder / "outcomes.txt")
    assert all((column.range is None) == (column.kind == "categorical") for column in data.schema.columns)
    assert 735 in data.numbers


def test_a_private_plan_takes_the_schema_as_it_is(folder: Path):
    data = physionet2012(folder / "set-a", folder / "outcomes.txt")
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
def test_a_bad_line_is_named(old: str, new: str, said: str, folder: Path):
    file = folder / "set-a" / "1.txt"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(InputError, match=said):
        physionet2012(folder / "set-a", folder / "outcomes.txt")


def test_a_stay_without_an_outcome_and_a_folder_without_stays_are_refused(folder: Path, tmp_path: Path):
    (folder / "outcomes.txt").write_text(OUTCOMES.replace("\n2,", "\n4,"))
    with pytest.raises(InputError, match=r"outcomes.txt has no In-hospital_death of the stay '2'"):
        physionet2012(folder / "set-a", folder / "outcomes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no \.txt files"):
        physionet2012(tmp_path / "empty", folder / "outcomes.txt")


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
