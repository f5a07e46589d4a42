"""Columns of paths: which file a cell names, and that no file is named for two people.

A relative path starts at the folder that somebody names, else at that of the table's file; an absolute one is taken as
it is. Where there is no file of that very name, `\\` is read as `/`, and a path that does not end like a picture gets
the ending of the only picture that it can mean.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     (Path(folder) / "ann").mkdir()
...     _ = (Path(folder) / "ann" / "1.jpg").write_bytes(b"")
...     [find(Path(folder), cell).name for cell in ("ann/1.jpg", "ann\\\\1.jpg", "ann/1")]
['ann/1.jpg', 'ann/1.jpg', 'ann/1.jpg']
"""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.pictures import BadImage, picture_endings, refusal, regular_file
from sfumato.data.records import Records, is_text
from sfumato.data.safeguards import Files, refuse_shared, repeat_note

_ROWS = 256  # read in one go
_FIRST = 16  # the same, where the first is looked for
_SHOWN = 200  # characters of a path in a message
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_MISSING = os.strerror(errno.ENOENT)


@dataclass(frozen=True)
class Found:
    """A file that a cell names.

    Attributes:
        name: its path from the folder, or an absolute one.
        facts: of the file, links followed: its device and number there are the same under any name.
    """

    name: str
    facts: os.stat_result

    @property
    def key(self) -> tuple[int, int]:
        """Its device and number there."""
        return self.facts.st_dev, self.facts.st_ino


def find(folder: Path, cell: str) -> Found:
    """The file that a cell names.

    Args:
        folder: where relative paths start.
        cell: a path.

    Raises:
        BadImage: there is none, or there are several; the message is the reason.
    """
    if not cell.strip():
        raise BadImage("is empty")
    if _ADDRESS.match(cell):
        raise BadImage("is an address; download the picture, and name its file")
    spellings = list(dict.fromkeys((cell, cell.replace("\\", "/"))))
    refused: list[BadImage] = []
    for name in spellings:
        try:
            return _found(folder, name)
        except BadImage as error:
            refused.append(error)
    if not _ends_like_a_picture(cell):
        meant: dict[tuple[int, int], Found] = {}
        for name in (spelling + ending for spelling in spellings for ending in _endings_of(folder / spelling)):
            if os.path.isfile(folder / name):
                one = _found(folder, name)
                meant.setdefault(one.key, one)
        if len(meant) == 1:
            return next(iter(meant.values()))
        if meant:
            several = " or ".join([os.path.basename(one.name) for one in meant.values()][:2])
            raise BadImage(f"can be {several}; write the ending, too")
    if _WINDOWS.match(cell):
        raise BadImage("is a path of Windows, not of this machine; write it from the folder of the pictures")
    raise refused[-1]


def _endings_of(path: Path) -> list[str]:
    """The endings with which there is a picture of this name, in sorted order."""
    try:
        return _pictures_in(path.parent, os.stat(path.parent).st_mtime_ns).get(path.name, [])
    except (OSError, ValueError):
        return []


@lru_cache(maxsize=8)
def _pictures_in(folder: Path, changed: int) -> dict[str, list[str]]:
    """The endings of the pictures in a folder, by what stands in front of them; listed anew once it has changed."""
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)):
        stem, ending = os.path.splitext(name)
        if ending.lower() in picture_endings():
            found.setdefault(stem, []).append(ending)
    return found


def shown(folder: Path, cell: str) -> str:
    """A cell's path in a message."""
    path = cell if _ADDRESS.match(cell) or _WINDOWS.match(cell) else str(folder / cell)
    return path if len(path) <= _SHOWN else path[:_SHOWN] + "…"


def where(records: Records, column: str, row: int, path: str | None) -> str:
    """A row's picture in a message."""
    if records.files:
        return str(records.pictures / str(path))
    file = f" ({shown(records.pictures, path)})" if path is not None and path.strip() else ""
    return f"{records.title}: {column} at {records.place(row)}{file}"


def parts(cell: Any) -> tuple[bytes | None, str | None]:
    """The bytes of a picture, or the path of its file: of such a text, or of Hugging Face's struct of both."""
    if isinstance(cell, str):
        return None, cell
    content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)
    return content, path if content is None else None


def cells_of(records: Records, array: pa.Array) -> list[tuple[bytes | None, str | None]]:
    """The bytes or the path of each cell; files of a folder are named by bytes, which may be no text."""
    if records.files:
        return [(None, os.fsdecode(cell)) for cell in array.to_pylist()]
    return [parts(cell) for cell in array.to_pylist()]


def names_files(records: Records, column: str, *, by_ending: bool = False) -> bool:
    """Whether the first cell of a column of texts or structs that is not empty names a file and has no bytes of it.

    A text does where it ends like a picture; and, unless only that counts, where somebody named the folder of the
    pictures.
    """
    path = _first_path(records, column)
    if path is None or not is_text(records.kind(column)):
        return path is not None
    return not _ADDRESS.match(path) and (_ends_like_a_picture(path) or (records.folder is not None and not by_ending))


def names_addresses(records: Records, column: str) -> bool:
    """Whether the first text of a column is an address such as https://…"""
    return is_text(records.kind(column)) and bool(_ADDRESS.match(_first_path(records, column) or ""))


def refuse_folder(folder: Path | str | None, title: object) -> None:
    """Refuse a folder of pictures where none is named.

    Raises:
        InputError: there is one.
    """
    if folder is not None:
        raise InputError(f"folder={str(folder)!r} is for paths of pictures in a table, {title} has none; leave it out")


def look_at_files(
    records: Records, column: str, *, skip: bool, users: tuple[Sequence[str], np.ndarray] | None
) -> tuple[list[str], str]:
    """Look for every file that a column names, before the first one is decoded.

    Args:
        records: the table.
        column: of paths.
        skip: pass over cells that name no file.
        users: their names, and which of them each row belongs to; None where rows stand alone.

    Returns:
        lines about files that are there again, and a digest of how all of them look.

    Raises:
        InputError: a cell names no file, unless these are skipped; or rows of two users name one: to leave that one out
            would make what is known of a user depend on another one.
    """
    title = f"{records.title}: {column}"
    files, rows = Files(), list[int]()
    owners = None if users is None else users[1]
    for row, (content, path) in _cells(records, column):
        if content is not None:
            continue
        try:
            if path is None:
                raise BadImage("is missing (null)")
            files.add(find(records.pictures, path).facts, 0 if owners is None else int(owners[row]))
            rows.append(row)
        except BadImage as error:
            if not skip:
                raise InputError(_no_file(records, title, row, path, str(error))) from None
    repeats = files.repeats()
    if repeats is None:
        return [], files.digest
    if repeats.shared is not None and users is not None:
        names, owner = users
        pair = [rows[place] for place in repeats.shared]
        _refuse_shared(records, title, column, pair, [str(names[owner[row]]) for row in pair])
    one, other = (records.place(rows[place]) for place in repeats.example)
    what = "file" if records.files else "row"
    return [repeat_note(repeats.count, one, other, of_users=users is not None, what=what)], files.digest


def _first_path(records: Records, column: str) -> str | None:
    """The path or text of the first cell that is not empty; None where that has bytes."""
    for block in records.blocks([column], _FIRST):
        for content, path in cells_of(records, block[column]):
            if content is not None:
                return None
            if path is not None and path.strip():
                return path
    return None


def _found(folder: Path, name: str) -> Found:
    facts = regular_file(folder / name)
    return Found(name, facts)


def _ends_like_a_picture(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in picture_endings()


def _cells(records: Records, column: str) -> Iterator[tuple[int, tuple[bytes | None, str | None]]]:
    row = 0
    for block in records.blocks([column], _ROWS):
        for cell in cells_of(records, block[column]):
            yield row, cell
            row += 1


def _no_file(records: Records, title: str, row: int, path: str | None, reason: str) -> str:
    """The line for a cell that names no file; where none of that name is there, it may be the folder that is wrong."""
    place = f"{title} at {records.place(row)}"
    if records.files:
        return refusal(records.pictures / str(path), reason)
    if path is None or not path.strip():
        return refusal(place, reason)
    line = refusal(f"{place} ({shown(records.pictures, path)})", reason)
    if os.path.isabs(path) or _ADDRESS.match(path) or _WINDOWS.match(path) or not reason.endswith(_MISSING):
        return line
    if records.folder is not None:
        return f"{line}; paths start at {records.folder}, as --folder (folder=) says"
    return f"{line}; where the pictures lie elsewhere, name their folder: --folder FOLDER or folder="


def _refuse_shared(records: Records, title: str, column: str, pair: Sequence[int], users: Sequence[str]) -> None:
    """Refuse a file that two users' rows name."""
    wanted = set(pair)
    paths = {row: path for row, (_, path) in _cells(records, column) if row in wanted}
    if records.files:
        refuse_shared(
            *(f"{records.pictures / str(paths[row])} (user {who!r})" for row, who in zip(pair, users, strict=True))
        )
    one, other = (
        f"{records.place(row)} ({shown(records.pictures, str(paths[row]))}, user {user!r})"
        for row, user in zip(pair, users, strict=True)
    )
    refuse_shared(one, f"{title} at {other}")
