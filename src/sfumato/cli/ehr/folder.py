"""Health records in a folder: a data set of MEDS, or tables of visits and patients with their schema."""

from pathlib import Path

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.read_meds import read_meds
from sfumato.data.ehr.read_tables import ehr_from_tables
from sfumato.data.ehr.schema import Schema

SCHEMA = "schema.yaml"
_KINDS = (".parquet", ".csv")


def read_folder(folder: Path, schema: Schema | Path | None = None) -> EHRDataset:
    """The records in a folder.

    Args:
        folder: with data/**/*.parquet as MEDS has them, or with visits.parquet or .csv, static.parquet or .csv if there
            are static columns, and schema.yaml.
        schema: the columns, or a file that says them; None takes the one in the folder. MEDS needs none.

    Raises:
        InputError: the folder is not there or holds neither, there is no schema, or a row is wrong; it names the row.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give one with visits.parquet and schema.yaml, or of MEDS")
    visits = _table(folder, "visits")
    if visits is None:
        if (folder / "data").is_dir():
            return read_meds(folder, schema=schema)
        raise InputError(f"{folder} has neither visits.parquet nor visits.csv, nor data/ as MEDS has it; add one")
    if schema is None:
        schema = folder / SCHEMA
        if not schema.is_file():
            raise InputError(f"{folder} has no {SCHEMA}; give a schema, as Schema.save writes it")
    return ehr_from_tables(visits, _table(folder, "static"), schema=schema)


def _table(folder: Path, name: str) -> Path | None:
    found = [folder / f"{name}{kind}" for kind in _KINDS if (folder / f"{name}{kind}").exists()]
    if len(found) > 1:
        raise InputError(f"{folder} has {' and '.join(path.name for path in found)}; keep one of them")
    return found[0] if found else None
