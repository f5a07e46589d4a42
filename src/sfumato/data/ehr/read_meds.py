"""Health records from a folder of MEDS 0.4, the Medical Event Data Standard."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sfumato._check import InputError, guess
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import Roles
from sfumato.data.ehr.meds_files import BIRTH, DATA, SCHEMA, SPLITS
from sfumato.data.ehr.read_events import records_of_tables
from sfumato.data.ehr.rows import blocks_of, rows_of
from sfumato.data.ehr.schema import Schema, TimeUnit
from sfumato.data.ratings.columns import Codes
from sfumato.data.ratings.duplicates import Duplicates
from sfumato.data.safeguards import refuse_same_files, refuse_twice
from sfumato.data.tables.source import refuse_absent


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
    if schema is not None and inferring:
        raise InputError("the schema says what outcome, categorical, drop and codes would; give one of both")
    refuse_same_files(files)
    tables = [rows_of(file) for file in files]
    values = [name for name in ("numeric_value", "text_value") if all(name in table.names for table in tables)]
    return records_of_tables(
        tables,
        Roles(id="subject_id", time="time", code="code", values=tuple(values)),
        schema=schema if isinstance(schema, Schema) or schema is None else Schema.load(schema),
        time_unit=time_unit,
        outcome=outcome,
        categorical=categorical,
        drop=drop,
        codes=codes,
        duplicates=duplicates,
        without_visits=without_visits,
        but=(BIRTH,),
        people=None if split is None else _people(folder, split),
    )


def _people(folder: Path, split: str) -> set[str]:
    """The patients of a part."""
    table = rows_of(folder / SPLITS)
    refuse_absent(table.told, table.names, "id", "subject_id")
    refuse_absent(table.told, table.names, "split", "split")
    parts: dict[str, set[str]] = {}
    subjects, listed = Codes("patient", people=True), list[str]()
    for block, where in blocks_of(table, ("subject_id", "split")):
        people, names = subjects.add(block["subject_id"], where).tolist(), subjects.names
        listed += [names[person] for person in people]
        for person, part in zip(people, block["split"].to_pylist(), strict=True):
            parts.setdefault(part, set()).add(names[person])
    refuse_twice(listed, "patient", lambda row: f"{table.told} {table.place(row)}")
    if split not in parts:
        raise InputError(f"{table.told} has no patients of the split {split!r}{guess(split, parts)}")
    return parts[split]
