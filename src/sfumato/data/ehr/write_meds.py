"""Health records written as a folder of MEDS 0.4, with new numbers for the patients.

Times become dates from 2000-01-01 on, which is every patient's origin, to the microsecond. Numbers keep the seven
digits of single precision, which is what the standard has.
"""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import whole_folder, write_json
from sfumato.data.ehr.assemble import ORIGIN, SUBJECT
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.meds_files import (
    CODES,
    DATA,
    DATASET,
    EVENTS,
    OF_CODES,
    OF_SPLITS,
    SCHEMA,
    SPLITS,
    SYNTHETIC,
    VERSION,
)
from sfumato.data.ehr.schema import MICROSECONDS, Schema
from sfumato.data.ehr.write_tables import Records, observed, parts_of

START = np.datetime64("2000-01-01", "us").astype(np.int64)
_LATEST = np.datetime64("2250-01-01", "us").astype(np.int64)


def write_meds(
    records: Records, folder: Path | str, *, synthetic: bool, name: str | None = None, split: str = "train"
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
        numbers.append(_singles(part, name, whose, cells) if is_number else pa.nulls(len(whose), pa.float32()))
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


def _singles(part: EHRDataset, name: str, whose: np.ndarray, cells: pa.Array) -> pa.Array:
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
