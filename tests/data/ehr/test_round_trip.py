"""What is written is read back as it was, in every format, whatever the schema and the records are."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
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
from slow import by_profile

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
