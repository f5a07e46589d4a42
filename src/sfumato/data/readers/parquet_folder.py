"""A folder of Parquet files: all in it, or in folders within it that are named column=value, as Spark writes them.

>>> keys_of("year=2024/city=S%C3%A3o/part-0.parquet"), keys_of("a=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
({'year': '2024', 'city': 'São'}, {'a': None})
"""

from collections.abc import Iterator
from pathlib import Path, PurePath
from urllib.parse import unquote

from sfumato._check import InputError

PARQUET = (".parquet", ".pq")
_MISSING = "__HIVE_DEFAULT_PARTITION__"
_DELTA = "_delta_log"


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder has files of Parquet, in itself or in folders named column=value."""
    return path.is_dir() and next(_found(path), None) is not None


def parquet_files(folder: Path) -> list[tuple[Path, dict[str, str | None]]]:
    """The files of a folder in sorted order, and of each the columns that the folders around it name.

    Raises:
        InputError: it has none; files lie in folders that name no column, or different ones; or it is a table of Delta
            Lake, some of whose files hold rows that were deleted.
    """
    if (folder / _DELTA).is_dir():
        raise InputError(
            f"{folder} is a table of Delta Lake, whose files may hold deleted rows; read it with deltalake or Spark, "
            "and write its rows as Parquet"
        )
    files = sorted(_found(folder))
    keys = [keys_of(file.relative_to(folder)) for file in files]
    if not files or keys[0]:
        for file in folder.rglob("*"):
            if file.suffix.lower() in PARQUET and file.is_file() and file not in files:
                raise InputError(
                    f"{file.parent} has Parquet files, and its name is not column=value, as in year=2024; give the "
                    "folder of the files, or name it so"
                )
    for file, own in zip(files, keys, strict=True):
        if list(own) != list(keys[0]):
            raise InputError(
                f"{files[0]} lies in folders that name {_listed(keys[0])}, {file} in such that name {_listed(own)}; "
                "name the same columns for each file"
            )
    return list(zip(files, keys, strict=True))


def keys_of(path: PurePath | str) -> dict[str, str | None]:
    """The columns that the folders of a path name, with their values as text; None where it is missing."""
    pairs = [name.partition("=")[::2] for name in PurePath(path).parts[:-1]]
    return {unquote(key): None if value == _MISSING else unquote(value) for key, value in pairs}


def _found(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.suffix.lower() in PARQUET and not entry.is_dir():
            yield entry
        elif "=" in entry.name and entry.is_dir():
            yield from _found(entry)


def _listed(keys: dict[str, str | None]) -> str:
    return ", ".join(keys) or "no column"
