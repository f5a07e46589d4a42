"""Opens a file of rows by its name."""

from pathlib import Path

from sfumato._check import InputError
from sfumato.labels.files.delimited import DelimitedLabels
from sfumato.labels.files.label_file import LabelFile
from sfumato.labels.files.lines import LineLabels
from sfumato.labels.files.parquet import ParquetLabels

_FORMATS = (ParquetLabels, DelimitedLabels, LineLabels)
UNDERSTOOD = ".parquet, .csv, .tsv (also .gz) or .jsonl"


def open_label_file(path: Path) -> LabelFile:
    """Open a table whose labels are to be exchanged.

    Raises:
        InputError: there is no such file, or it is none of those that are understood.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}; give one table: {UNDERSTOOD}")
    for kind in _FORMATS:
        if path.name.lower().endswith(kind.suffixes):
            return kind(path)
    raise InputError(f"{path} is no table that can be copied; give {UNDERSTOOD}")


def refuse_other_format(file: LabelFile, out: Path) -> None:
    """Refuse an output of another format than the table's.

    Raises:
        InputError: it is.
    """
    if not out.name.lower().endswith(file.suffixes):
        raise InputError(f"{out} must be of the table's format: let its name end in {' or '.join(file.suffixes)}")
