"""What an id is of, and whose it is: kept by every writer, followed by every split, and said by every statement."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sfumato._check import InputError
from sfumato._types import RecordUnit
from sfumato.cli.ehr import read_folder, write_folder
from sfumato.data import EHRDataset, ehr_from_events, ehr_from_tables
from sfumato.data.ehr.schema import Schema, categorical, numeric
from sfumato.synthesis import EHRSafe

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
