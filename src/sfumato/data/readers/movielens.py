"""Files of ratings: where they are, how they are laid out, and their rows."""

import gzip
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.readers.delimited import Delimited, is_delimited
from sfumato.data.readers.tables import LINES, PARQUET, is_parquet_folder, open_source
from sfumato.data.records import Records, listed, refuse_absent
from sfumato.data.safeguards import refuse_same_files

# Where files of ratings are: in folders, in zip files as they were downloaded, and what lies next to them.


MOVIELENS = ("ratings.csv", "ratings.dat", "u.data")
"""Names of the files of ratings in MovieLens' releases."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file that can be read from its beginning, as often as is needed.

    Attributes:
        title: what messages call it.
        name: of the file, without compression.
        path: in the file system; None within a zip file.
        open: gives its bytes.
        sibling: the file of another name in the same folder, or None.
    """

    title: str
    name: str
    path: Path | None
    open: Callable[[], IO[bytes] | gzip.GzipFile]
    sibling: Callable[[str], "Place | None"]


def places_of(source: Path | str | Sequence[Path | str]) -> list[Place]:
    """The files of ratings that are meant.

    Args:
        source: a file, a zip file, a folder that holds a file of MovieLens, a pattern as "ratings-*.csv", or several.

    Raises:
        InputError: there is nothing, or a folder or a zip file holds no ratings, or several.
    """
    if isinstance(source, str | Path):
        return _found(Path(source))
    refuse_same_files(map(Path, source))
    places = [place for each in source for place in _found(Path(each))]
    if not places:
        raise InputError("no file of ratings was given; name at least one")
    return places


def place_of(path: Path) -> Place:
    """A file of the file system; a name that ends on .gz is read unpacked."""

    def sibling(name: str) -> Place | None:
        other = path.with_name(name)
        return place_of(other) if other.is_file() else None

    if path.suffix == ".gz":
        return Place(title=str(path), name=path.stem, path=path, open=lambda: gzip.open(path), sibling=sibling)
    return Place(title=str(path), name=path.name, path=path, open=lambda: open(path, "rb"), sibling=sibling)


def _found(path: Path) -> list[Place]:
    if path.is_dir():
        names = [name for name in MOVIELENS if (path / name).is_file()]
        if len(names) != 1:
            raise InputError(
                f"the folder {path} has {' and '.join(names) or 'no ' + ', '.join(MOVIELENS)}; name the file of ratings"
            )
        return [place_of(path / names[0])]
    if path.is_file():
        return [_in_zip(path)] if path.suffix.lower() == ".zip" else [place_of(path)]
    files = sorted(map(Path, glob(str(path))))
    if not files:
        raise InputError(f"there is nothing at {path}; give a file of ratings, a zip file or folder of MovieLens")
    refuse_same_files(files)
    return [place for file in files for place in _found(file)]


def _in_zip(path: Path) -> Place:
    """The file of ratings within a zip file, which is not unpacked to the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as a zip file: {error}; download it again") from None
    held = [name for name in names if name.rpartition("/")[2] in MOVIELENS]
    if len(held) != 1:
        found = " and ".join(held) or f"no {', '.join(MOVIELENS)}"
        raise InputError(f"{path} has {found}; unpack it and name the file")

    def member(name: str) -> Place:
        folder, slash, own = name.rpartition("/")

        def sibling(other: str) -> Place | None:
            return member(folder + slash + other) if folder + slash + other in names else None

        return Place(title=f"{path}:{name}", name=own, path=None, open=lambda: _member(path, name), sibling=sibling)

    return member(held[0])


def _member(path: Path, name: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:  # the member keeps what it needs of the file open
        return archive.open(name)


# How a file of ratings is laid out, found from its first line.
#
# | first line                            | of                            | columns                            |
# | ------------------------------------- | ----------------------------- | ---------------------------------- |
# | userId,movieId,rating,timestamp       | MovieLens latest, 20M to 32M  | as they are named                  |
# | 1::1193::5::978300760                 | MovieLens 1M and 10M          | userId, movieId, rating, timestamp |
# | 196 242 3 881250949, with tabs        | MovieLens 100K                | userId, movieId, rating, timestamp |
# | any other, with commas or tabs        | other tables                  | as they are named                  |


COLUMNS = ("userId", "movieId", "rating", "timestamp")
"""The names of MovieLens' columns, also where a file has no header."""


_COLONS = re.compile(r"[^:]+(::[^:]+){2,3}")
_TABS = re.compile(r"\d+\t\d+\t[\d.]+(\t\d+)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")


def has_columns(names: Sequence[str]) -> bool:
    """Whether a table has the columns of MovieLens."""
    return set(COLUMNS[:3]) <= set(names)


def records_of(place: Place) -> Records:
    """The rows of a file of ratings.

    Raises:
        InputError: it is none that is understood.
    """
    if place.path is not None and place.path.suffix.lower() in (*PARQUET, *LINES):
        return open_source(place.path)
    file = Delimited(place.title, open=place.open)
    first = file.delimiter.join(file.first)
    if _TABS.fullmatch(first):
        return file.records(COLUMNS[: len(file.first)])
    if _COLONS.fullmatch(first):
        return _between_colons(Delimited(place.title, delimiter=":", quoted=False, open=place.open))
    if any(_NUMBER.fullmatch(name) for name in file.names):
        raise InputError(
            f"{place.title} has no header: its first line is {first[:60]!r}; write the names "
            f"of the columns there, as {file.delimiter.join(COLUMNS[: len(file.first)])!r}"
        )
    return file.records()


def _between_colons(file: Delimited) -> Records:
    """The rows of a file that is divided by two colons: for Arrow, by one, and nothing stands in every second field."""
    between = [f"between {place}" for place in range(1, len(file.first), 2)]
    names = [name for pair in zip(COLUMNS, [*between, ""]) for name in pair][: len(file.first)]
    rows = file.records(names)

    def read(columns: list[str], count: int) -> Iterator[pa.RecordBatch]:
        start = 0
        for block in rows.read([*columns, *between], count):
            for name in between:
                cells = block.column(name)
                if (row := cells.is_valid().index(True).as_py()) >= 0:
                    raise InputError(
                        f"{rows.where(start + row)} is not divided by '::' as the first line is; correct or drop it"
                    )
            yield block.select(columns)
            start += len(block)

    return replace(rows, names=COLUMNS[: len(between) + 1], read=read)


def is_movielens(path: Path) -> bool:
    """Whether a path is a release of MovieLens, or a file of ratings laid out as one."""
    if not path.exists():
        files = sorted(glob(str(path)))
        return bool(files) and is_movielens(Path(files[0]))
    if path.is_dir():
        return any((path / name).is_file() for name in MOVIELENS)
    if path.suffix.lower() == ".zip" or path.name in MOVIELENS:
        return True
    try:
        return is_delimited(path) and has_columns(records_of(place_of(path)).names)
    except InputError:  # another reader reports what is wrong with it
        return False


def parts_of(source: Any) -> tuple[list[Records], Place | None]:
    """The rows of everything that is meant: files, folders, patterns, or a table; and the first file."""
    if isinstance(source, list | tuple) or (isinstance(source, str | Path) and not is_parquet_folder(Path(source))):
        places = places_of(source)
        return [records_of(place) for place in places], places[0]
    return [open_source(source)], None


def columns_of(part: Records, **given: str | None) -> dict[str, str]:
    """The name of the column of each role, of user, item, value and time; the time may be absent.

    Raises:
        InputError: a column is not there or not named, or two roles have the same.
    """
    usual = dict(zip(given, COLUMNS))
    if all(name is None for name in given.values()) and has_columns(part.names):
        return {role: name for role, name in usual.items() if role != "time" or name in part.names}
    chosen: dict[str, str] = {}
    for role, name in given.items():
        if name is None and role == "time":
            continue
        if name is None and usual[role] not in part.names:
            raise InputError(
                f"{part.title}: which column is the {role}? say --{role} COLUMN or {role}=, of {listed(part.names)}"
            )
        chosen[role] = name or usual[role]
        refuse_absent(part.title, part.names, role, chosen[role])
    if len(set(chosen.values())) < len(chosen):
        raise InputError(f"{', '.join(chosen)} must be columns of their own, got {', '.join(chosen.values())}")
    return chosen
