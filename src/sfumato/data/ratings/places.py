"""Where files of ratings are: in folders, in zip files as they were downloaded, and what lies beside them."""

import gzip
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import IO

from sfumato._check import InputError
from sfumato.data.safeguards import refuse_same_files

MOVIELENS = ("ratings.csv", "ratings.dat", "u.data")
"""Names of the files of ratings in MovieLens' releases."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file that can be read from its beginning, as often as is needed.

    Attributes:
        told: what messages call it.
        name: of the file, without compression.
        path: in the file system; None within a zip file.
        open: gives its bytes.
        beside: the file of another name in the same folder, or None.
    """

    told: str
    name: str
    path: Path | None
    open: Callable[[], IO[bytes] | gzip.GzipFile]
    beside: Callable[[str], "Place | None"]


def places_of(given: Path | str | Sequence[Path | str]) -> list[Place]:
    """The files of ratings that are meant.

    Args:
        given: a file, a zip file, a folder that holds a file of MovieLens, a pattern as "ratings-*.csv", or several.

    Raises:
        InputError: there is nothing, or a folder or a zip file holds no ratings, or several.
    """
    if isinstance(given, str | Path):
        return _found(Path(given))
    refuse_same_files(map(Path, given))
    places = [place for each in given for place in _found(Path(each))]
    if not places:
        raise InputError("no file of ratings was given; name at least one")
    return places


def is_movielens_folder(path: Path) -> bool:
    """Whether a folder has a file of ratings as MovieLens' releases name them."""
    return path.is_dir() and any((path / name).is_file() for name in MOVIELENS)


def place_of(path: Path) -> Place:
    """A file of the file system; a name that ends on .gz is read unpacked."""

    def beside(name: str) -> Place | None:
        other = path.with_name(name)
        return place_of(other) if other.is_file() else None

    if path.suffix == ".gz":
        return Place(told=str(path), name=path.stem, path=path, open=lambda: gzip.open(path), beside=beside)
    return Place(told=str(path), name=path.name, path=path, open=lambda: open(path, "rb"), beside=beside)


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

        def beside(other: str) -> Place | None:
            return member(folder + slash + other) if folder + slash + other in names else None

        return Place(told=f"{path}:{name}", name=own, path=None, open=lambda: _member(path, name), beside=beside)

    return member(held[0])


def _member(path: Path, name: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:  # the member keeps what it needs of the file open
        return archive.open(name)
