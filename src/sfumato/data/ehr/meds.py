"""MEDS 0.4, the Medical Event Data Standard: health records read from a folder of it, and written."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, guess
from sfumato._files import whole_folder, write_json
from sfumato.data.columns import Codes, Duplicates
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import ORIGIN, SUBJECT, Roles, records_of_tables
from sfumato.data.ehr.schema import MICROSECONDS, Schema, TimeUnit, declared
from sfumato.data.ehr.write import EHRRecords, observed, parts_of
from sfumato.data.readers.tables import open_rows
from sfumato.data.records import refuse_absent
from sfumato.data.safeguards import refuse_same_files, refuse_twice

# The layout of MEDS 0.4, the Medical Event Data Standard: which files a folder has, and their columns.
#
# References:
#     https://github.com/Medical-Event-Data-Standard/meds


VERSION = "0.4.1"
DATA = "data"
DATASET = "metadata/dataset.json"
CODES = "metadata/codes.parquet"
SPLITS = "metadata/subject_splits.parquet"
SCHEMA = "metadata/sfumato_schema.yaml"
"""Ours, next to the standard's: with it the records are read back as they were."""


BIRTH = "MEDS_BIRTH"
SYNTHETIC = "synthetic"
"""A column of our own: whether an event was made by a model."""


EVENTS = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us")),
        pa.field("code", pa.string(), nullable=False),
        pa.field("numeric_value", pa.float32()),
        pa.field("text_value", pa.large_string()),
        pa.field(SYNTHETIC, pa.bool_(), nullable=False),
    ]
)
OF_CODES = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("description", pa.string()),
        pa.field("parent_codes", pa.list_(pa.string())),
    ]
)
OF_SPLITS = pa.schema(
    [pa.field("subject_id", pa.int64(), nullable=False), pa.field("split", pa.string(), nullable=False)]
)


# Health records from a folder of MEDS 0.4, the Medical Event Data Standard.


def read_meds(
    folder: Path | str,
    *,
    schema: Schema | Path | str | None = None,
    time_unit: TimeUnit = "hours",
    outcome: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    codes: Sequence[str] | int | None = None,
    duplicates: Duplicates = "last",
    without_visits: Literal["refuse", "skip"] = "skip",
    split: str | None = None,
) -> EHRDataset:
    """Read a folder of MEDS: a code is a column, with the numeric value or else the text as its value.

    Births are not read: they would be each patient's first visit. A folder that `write_meds` wrote is read by the
    schema in it, unless another is given.

    Refused: an event without a patient, a patient twice in the splits, and one file twice by a link. Counted in
    `notes`: names that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for
    a missing one. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        folder: with data/**/*.parquet, which are read a block at a time.
        schema, time_unit, outcome, categorical, drop, codes, duplicates, without_visits: as in `ehr_from_events`.
        split: the part of metadata/subject_splits.parquet that is read; None reads all.

    Raises:
        InputError: the folder has no such files, or a row is wrong; it names the row.
    """
    folder = Path(folder)
    files = sorted((folder / DATA).rglob("*.parquet"))
    if not files:
        raise InputError(f"{folder} has no {DATA}/**/*.parquet; give the folder of a data set of MEDS")
    inferring = outcome is not None or categorical or drop or codes is not None
    if schema is None and not inferring and (folder / SCHEMA).is_file():
        schema = folder / SCHEMA
    refuse_same_files(files)
    tables = [open_rows(file) for file in files]
    values = [name for name in ("numeric_value", "text_value") if all(name in table.names for table in tables)]
    return records_of_tables(
        tables,
        Roles(id="subject_id", time="time", code="code", values=tuple(values)),
        schema=declared(schema, outcome=outcome, categorical=categorical, drop=drop, codes=codes),
        time_unit=time_unit,
        outcome=outcome,
        categorical=categorical,
        drop=drop,
        codes=codes,
        duplicates=duplicates,
        without_visits=without_visits,
        but=(BIRTH,),
        patients=None if split is None else _patients_of(folder, split),
    )


def _patients_of(folder: Path, split: str) -> set[str]:
    """The patients of a part."""
    table = open_rows(folder / SPLITS)
    refuse_absent(table.title, table.names, "id", "subject_id")
    refuse_absent(table.title, table.names, "split", "split")
    parts: dict[str, set[str]] = {}
    subjects, listed = Codes("patient", exact=True), list[str]()
    for block, where in table.located(("subject_id", "split")):
        numbers, names = subjects.add(block["subject_id"], where).tolist(), subjects.names
        listed += [names[number] for number in numbers]
        for number, part in zip(numbers, block["split"].to_pylist(), strict=True):
            parts.setdefault(part, set()).add(names[number])
    refuse_twice(listed, "patient", table.where)
    if split not in parts:
        raise InputError(f"{table.title} has no patients of the split {split!r}{guess(split, parts)}")
    return parts[split]


# Health records written as a folder of MEDS 0.4, with new numbers for the patients.
#
# Times become dates from 2000-01-01 on, which is every patient's origin, to the microsecond. Numbers keep the seven
# digits of single precision, which is what the standard has.


START = np.datetime64("2000-01-01", "us").astype(np.int64)
_LATEST = np.datetime64("2250-01-01", "us").astype(np.int64)


def write_meds(
    records: EHRRecords, folder: Path | str, *, synthetic: bool, name: str | None = None, split: str = "train"
) -> None:
    """Write a folder of MEDS.

    Args:
        records: a data set, or several of one schema, of which each becomes a file; memory does not grow with their
            number.
        folder: a new folder, which appears when it is whole.
        synthetic: whether the records were made by a model; each event says so, and the name of the data set.
        name: of the data set; None takes the folder's.
        split: the part that all patients are of, "train", "tuning" or "held_out".

    Raises:
        InputError: the folder has something in it, there are no records, schemas or ids clash, or a time or a number is
            out of the standard's range.
    """
    import pyarrow.parquet  # late: other formats need none of it

    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; name a new folder")
    if not folder.parent.is_dir():
        raise InputError(f"there is no folder {folder.parent}; make it, or name another")
    schema, parts = parts_of(records)
    with whole_folder(folder) as partial:
        for path in (partial / DATA, (partial / DATASET).parent):
            path.mkdir(parents=True)
        count, codes = 0, set[str]()
        for number, part in enumerate(parts):
            table = _table(part, count, synthetic)
            pyarrow.parquet.write_table(table, partial / DATA / f"{number:05d}.parquet")
            codes.update(table["code"].unique().to_pylist())
            count += len(part)
        pyarrow.parquet.write_table(_codes(schema, codes), partial / CODES)
        subjects = {"subject_id": np.arange(1, count + 1), "split": [split] * count}
        pyarrow.parquet.write_table(pa.table(subjects, OF_SPLITS), partial / SPLITS)
        named = folder.resolve().name if name is None else name
        facts = {
            "dataset_name": f"{named} (synthetic)" if synthetic else named,
            "etl_name": "sfumato",
            "etl_version": version("sfumato"),
            "meds_version": VERSION,
            "other_extension_columns": [SYNTHETIC],
        }
        write_json(partial / DATASET, facts)
        schema.save(partial / SCHEMA)


def _table(part: EHRDataset, before: int, synthetic: bool) -> pa.Table:
    """The events by patient and time, those without a time first; patients are numbered behind those before."""
    part = replace(part, times=_ticks(part).astype(np.float64))  # exact: below 2⁵³
    origins = ORIGIN, np.arange(len(part)), np.full(len(part), float(START)), pa.nulls(len(part))
    kinds = {column.name: column.kind for column in part.schema.columns}
    owners, times, codes, numbers, texts = [], [], [], [], []
    for name, whose, when, cells in [origins, *observed(part)]:
        owners.append(whose)
        times.append(when)
        codes.append(pa.repeat(pa.scalar(name, pa.string()), len(whose)))
        is_number = kinds.get(name) == "numeric"
        numbers.append(_to_float32(part, name, whose, cells) if is_number else pa.nulls(len(whose), pa.float32()))
        texts.append(pa.nulls(len(whose), pa.large_string()) if is_number else cells.cast(pa.large_string()))
    owner, time = np.concatenate(owners), np.concatenate(times)
    static = np.isnan(time)
    ticks = np.where(static, -1, time).astype(np.int64)
    table = pa.Table.from_arrays(
        [
            pa.array(owner + before + 1),
            pa.array(ticks, mask=static).cast(pa.timestamp("us")),
            pa.concat_arrays(codes),
            pa.concat_arrays(numbers),
            pa.concat_arrays(texts),
            pa.repeat(synthetic, len(owner)),
        ],
        schema=EVENTS,
    )
    return table.take(pa.array(np.lexsort((ticks, owner))))


def _ticks(part: EHRDataset) -> np.ndarray:
    """The visits' times in microseconds."""
    unit = part.schema.time_unit
    exact = START + part.times * MICROSECONDS[unit]
    if (late := exact > _LATEST).any():
        row = int(late.argmax())
        raise InputError(
            f"patient {part.ids[part.owners[row]]!r} has a visit at {part.times[row]:g} {unit}, after the year 2249; "
            "correct it, or write tables"
        )
    ticks = np.round(exact).astype(np.int64)
    owners = part.owners
    same = (owners[1:] == owners[:-1]) & (ticks[1:] == ticks[:-1])
    if same.any():
        row = int(same.argmax())
        raise InputError(
            f"patient {part.ids[owners[row]]!r} has two visits within a microsecond at {part.times[row]:g} {unit}; "
            "merge them, or write tables"
        )
    return ticks


def _to_float32(part: EHRDataset, name: str, whose: np.ndarray, cells: pa.Array) -> pa.Array:
    values = cells.to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(over="ignore"):
        singles = values.astype(np.float32)
    if (large := np.isinf(singles)).any():
        row = int(large.argmax())
        raise InputError(
            f"patient {part.ids[whose[row]]!r} has {name!r} = {values[row]:g}, beyond single precision, which the "
            "standard has; correct it, or write tables"
        )
    return pa.array(singles)


def _codes(schema: Schema, codes: set[str]) -> pa.Table:
    described = {ORIGIN: "when the patient's time is 0", SUBJECT: f"the {schema.subject} of the {schema.unit}"}
    described |= {column.name: f"{column.kind}, static" for column in schema.static}
    described |= {column.name: column.kind for column in schema.temporal}
    names = sorted(codes)
    facts = {"code": names, "description": [described.get(name) for name in names], "parent_codes": [None] * len(names)}
    return pa.table(facts, OF_CODES)
