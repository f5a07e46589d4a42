"""Folders of MEDS: ours pass the standard's own check, and those of others are read."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from ehr_records import records
from sfumato._check import InputError
from sfumato.data import EHRDataset, read_meds, write_meds
from sfumato.data.ehr.meds import CODES, DATASET, EVENTS, OF_CODES, OF_SPLITS, SPLITS
from slow import by_profile


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
