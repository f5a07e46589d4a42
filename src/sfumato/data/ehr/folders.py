"""Health records where they lie: what reads each kind of source, and folders that hold tables, events or MEDS."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from sfumato._check import InputError
from sfumato._files import whole_folder
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import ehr_from_events
from sfumato.data.ehr.meds import read_meds, write_meds
from sfumato.data.ehr.mimic_iv import mimic_iv
from sfumato.data.ehr.physionet2012 import physionet2012
from sfumato.data.ehr.schema import Schema
from sfumato.data.ehr.tables import ehr_from_tables
from sfumato.data.ehr.write import write_ehr_events, write_ehr_tables

SCHEMA = "schema.yaml"
_KINDS = (".parquet", ".csv")
Layout = Literal["parquet", "csv", "meds", "events"]
"""How records lie in a folder that is written: tables of Parquet or CSV, MEDS, or a table of events of Parquet."""


@dataclass(frozen=True)
class EHRReader:
    """What reads one kind of source.

    Attributes:
        read: from its path and options by their names.
        options: the names.
        most: of these, the one that `most` stands for, which chooses codes or items by their number.
    """

    read: Callable[..., EHRDataset]
    options: tuple[str, ...]
    most: str = "codes"


def schema_in(folder: Path) -> Path | None:
    """The file of the schema next to the tables, if it is there."""
    path = folder / SCHEMA
    return path if path.is_file() else None


def table_in(folder: Path, name: str) -> Path | None:
    """The table of this name, if it is there.

    Raises:
        InputError: it is there twice.
    """
    found = [folder / f"{name}{kind}" for kind in _KINDS if (folder / f"{name}{kind}").exists()]
    if len(found) > 1:
        raise InputError(f"{folder} has {' and '.join(path.name for path in found)}; keep one of them")
    return found[0] if found else None


def _declared(folder: Path, schema: Schema | Path | None) -> Schema | Path:
    found = schema_in(folder) if schema is None else schema
    if found is None:
        raise InputError(f"{folder} has no {SCHEMA}; give a schema, as Schema.save writes it")
    return found


def _tables(folder: Path, **given: Any) -> EHRDataset:
    if "schema" not in given and not given.keys() & {"id", "time"}:
        given["schema"] = schema_in(folder)
        if given["schema"] is None:
            raise InputError(f"{folder} has no {SCHEMA}; give schema=, or id= and time= to infer one")
    return ehr_from_tables(table_in(folder, "visits"), table_in(folder, "static"), **given)


def _events(folder: Path, schema: Schema | Path | None = None) -> EHRDataset:
    return ehr_from_events(table_in(folder, "events"), schema=_declared(folder, schema))


_COLUMNS = ("schema", "id", "time", "time_unit", "outcome", "unit", "subject", "categorical", "drop")
_CODES = ("codes", "most", "duplicates", "without_visits")
READERS = {
    "a folder of tables": EHRReader(_tables, (*_COLUMNS, "unsorted")),
    "a table of visits": EHRReader(ehr_from_tables, (*_COLUMNS, "unsorted", "static")),
    "a folder of events": EHRReader(_events, ("schema",)),
    "a folder of MEDS": EHRReader(
        read_meds, ("schema", "time_unit", "outcome", "categorical", "drop", *_CODES, "split")
    ),
    "events": EHRReader(ehr_from_events, (*_COLUMNS, *_CODES, "code", "value", "static")),
    "physionet2012": EHRReader(physionet2012, ("outcomes", "duplicates")),
    "mimic_iv": EHRReader(mimic_iv, ("schema", "items", "most", "hours", "duplicates"), most="items"),
}
"""By what messages call such a source; those that nothing but the reader knows by the reader's name."""


def kind_of(source: Path) -> str:
    """Which of `READERS` reads a folder, or a table of visits.

    Raises:
        InputError: a folder holds no records.
    """
    if not source.is_dir():
        return "a table of visits"
    if table_in(source, "visits") is not None:
        return "a folder of tables"
    if table_in(source, "events") is not None:
        return "a folder of events"
    if (source / "data").is_dir():
        return "a folder of MEDS"
    raise InputError(f"{source} has neither visits.parquet nor visits.csv, nor data/ as MEDS has it; add one")


def read_folder(folder: Path, schema: Schema | Path | None = None) -> EHRDataset:
    """The records in a folder.

    Args:
        folder: with data/**/*.parquet as MEDS has them; or with visits.parquet or .csv, static.parquet or .csv if there
            are static columns, and schema.yaml; or with events.parquet or .csv and schema.yaml.
        schema: the columns, or a file that declares them; None takes the one in the folder. MEDS needs none.

    Raises:
        InputError: the folder is not there or holds none of them, there is no schema, or a row is wrong; it names the
            row.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give one with visits.parquet and schema.yaml, or of MEDS")
    kind = kind_of(folder)
    if kind != "a folder of MEDS":
        schema = _declared(folder, schema)
    return READERS[kind].read(folder, schema=schema)


def refuse_taken(folder: Path) -> None:
    """Refuse a place where a new folder cannot be.

    Raises:
        InputError: something is there, or the folder above is not.
    """
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is there already; name a new folder, or delete it first")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"there is no folder {folder.parent}; make it, or name another")


def write_folder(
    records: EHRDataset | Iterable[EHRDataset],
    folder: Path,
    layout: Layout,
    *,
    synthetic: bool,
    private: bool = False,
) -> None:
    """Write records into a new folder that `read_folder` reads; it appears when it is whole.

    Args:
        records: a data set, or several of one schema and with ids of their own; memory does not grow with their number.
        folder: a new one.
        layout: how they lie in it.
        synthetic: whether the records were made by a model; MEDS says so of every event.
        private: for its owner's eyes only; MEDS has no such folders.

    Raises:
        InputError: the folder is there, there are no records, or MEDS cannot hold a time or a number.
    """
    refuse_taken(folder)
    if layout == "meds":
        write_meds(records, folder, synthetic=synthetic)
        return
    parts = iter([records] if isinstance(records, EHRDataset) else records)
    first = next(parts, None)  # before anything is written: a condition that no patient meets leaves nothing
    if first is None:
        raise InputError("there are no records to write; give at least one data set")
    every: Any = chain([first], parts)
    with whole_folder(folder, private=private) as partial:
        if layout == "events":
            write_ehr_events(every, partial / "events.parquet")
        else:
            write_ehr_tables(every, partial / f"visits.{layout}", partial / f"static.{layout}")
        first.schema.save(partial / SCHEMA)
