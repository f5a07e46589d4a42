"""Folders of pictures, by user or by class: a row a picture, with its path.

Users, classes and files come in the order of their names' bytes; names that begin with a dot are passed over.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, one_of
from sfumato.data.domain import NAMES
from sfumato.data.files import MissingPart, Part
from sfumato.data.mapped import Strings
from sfumato.data.pictures import LAYOUTS, folders, is_folder, user_folder, user_names
from sfumato.data.readers.tables import is_parquet_folder
from sfumato.data.records import PICTURES, Reader, Records, RowClasses, some

Labels = Literal["shared", "per_user"]
"""Whether class folders of the same name are one class for all users, or each user's own."""

_LAYOUT = "FOLDER/<class>/<picture>, or FOLDER/train/<class>/<picture> and FOLDER/test/…"
_PARTS = {"train", "test", "val", "valid", "validation"}
PATH = "path"


def has_folders(path: object) -> bool:
    """Whether a path is a folder with folders in it, which may be of users."""
    return isinstance(path, Path) and path.is_dir() and any(entry.is_dir() for entry in path.iterdir())


def users_in_folders(path: Path, labels: Labels = "shared") -> Records:
    """`path/<user>/<picture>` (the user is the class) or `path/<user>/<class>/<picture>`.

    Args:
        path: the folder.
        labels: "shared": class folders of the same name are one class; "per_user": they are each user's own.

    Raises:
        InputError: there are no users, or two layouts.
    """
    one_of(("shared", "per_user"), labels=labels)
    users, strays = user_names(path)
    files, owner, kinds = list[str](), list[int](), list[str]()
    shared = set[str]()
    for place, folder in enumerate(folders(path, users)):
        strays += folder.strays
        for kind, file in folder.files:
            if kind is not None and labels == "shared":
                shared.add(kind)
            else:
                kind = folder.name if kind is None else f"{folder.name}/{kind}"
            files.append(file)
            owner.append(place)
            kinds.append(kind)
    names = sorted(shared, key=os.fsencode) or list(dict.fromkeys(kinds))
    number = {name: place for place, name in enumerate(names)}
    classes = RowClasses(
        values=np.array([number[kind] for kind in kinds], np.int64),
        names=Strings.from_list(names),
        whole=bool(shared),
        found=(NAMES,),
    )
    return picture_files(
        path,
        files,
        owners=(users, np.array(owner, np.int64)),
        labelled=classes,
        strays=strays,
        needs=("users with readable pictures", LAYOUTS),
        options={"labels": labels},
    )


def picture_files(
    root: Path,
    files: Sequence[str],
    *,
    owners: tuple[Sequence[str], np.ndarray] | None = None,
    labelled: RowClasses | None = None,
    strays: Sequence[tuple[str, str]] = (),
    needs: tuple[str, str],
    options: dict[str, object] | None = None,
    channels: int | None = None,
) -> Records:
    """Files of pictures as records; arguments as the fields of `Records`.

    Args:
        root: the folder that paths start at.
        files: of each row, from there.
    """
    paths = Strings.from_list(files)

    def read(columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(paths), rows):
            cells = pa.array([os.fsencode(path) for path in paths[start : start + rows]], pa.large_binary())
            yield pa.RecordBatch.from_arrays([cells] * len(columns), columns)

    return Records(
        title=str(root),
        names=(PATH,),
        count=len(paths),
        kind=lambda name: pa.large_binary(),
        read=read,
        place=lambda row: paths[row],
        parent=root,
        owners=owners,
        labelled=labelled,
        files=True,
        strays=strays,
        needs=needs,
        options=options or {},
        channels=channels,
    )


def classes_in_folders(path: Path, part: Part = "train", label_names: Sequence[str] | None = None) -> Records:
    """`path/<class>/<picture>`: the folders' names are the classes, in sorted order.

    Args:
        path: the folder, or one with the folders train and test, of which `part` is opened.
        part: "train" or "test"; a folder that is not divided is "train".
        label_names: the classes, declared; a folder that is none of them is refused. None takes the folders' names
            (those of train, where the pictures are divided).

    Raises:
        InputError: there are no classes, or folders below a class.
    """
    one_of(("train", "test"), part=part)
    root = part_of(path, part)
    found = _folders(root)
    names = list(label_names) if label_names is not None else _folders(part_of(path, "train"))
    number = {name: place for place, name in enumerate(names)}
    files, codes, strays = list[str](), list[int](), list[tuple[str, str]]()
    for name in found:
        if name not in number:
            source = "train" if label_names is None else "the declared ones"
            raise InputError(f"{root / name}: the class {name!r} is none of {source}; remove it or declare all classes")
        listed = user_folder(root, name)
        if listed.layout == "classes":
            raise InputError(f"{root / listed.files[0][1]} lies two folders deep; needed is {_LAYOUT}")
        strays += listed.strays
        files += [file for _, file in listed.files]
        codes += [number[name]] * len(listed.files)
    classes = RowClasses(
        values=np.array(codes, np.int64),
        names=Strings.from_list(names),
        whole=True,
        found=() if label_names is not None else (NAMES,),
    )
    return picture_files(root, files, labelled=classes, strays=strays, needs=("readable pictures", _LAYOUT))


def loose_pictures(path: Path) -> Records:
    """`path/<picture>`, without classes."""
    with os.scandir(path) as entries:
        files = sorted(entry.name for entry in entries if entry.is_file() and not entry.name.startswith("."))
    return picture_files(path, files, needs=("readable pictures", "FOLDER/<picture>"))


def part_of(root: Path, part: Part) -> Path:
    """The folder of a part where the pictures are divided, else the folder itself.

    Raises:
        InputError: there is no folder, or it has no such part.
    """
    if not root.is_dir():
        raise InputError(f"there is no folder {root}; give one with {_LAYOUT}")
    inside = {entry.name for entry in os.scandir(root) if is_folder(entry) and not entry.name.startswith(".")}
    if "train" in inside and inside <= _PARTS:
        if part not in inside:
            raise MissingPart(f"{root} has no folder {part}; it has {', '.join(sorted(inside))}")
        return root / part
    if part == "test":
        raise MissingPart(f"{root} is not divided into train and test; use part='train' and divide it by a seed")
    return root


def _folders(root: Path) -> list[str]:
    """The classes' folders, sorted."""
    try:
        with os.scandir(root) as entries:
            found = [entry.name for entry in entries if is_folder(entry) and not entry.name.startswith(".")]
    except OSError as error:
        raise InputError(f"{root} cannot be read: {error.strerror}") from None
    if not found:
        raise InputError(f"{root} has no classes: it has no folders; put the pictures into {_LAYOUT}")
    return sorted(found, key=os.fsencode)


USERS = Reader(
    name="a folder of pictures",
    recognises=lambda source, options: has_folders(source),
    read=lambda source, options: users_in_folders(source, **some(options, "labels")),
    endings=(),
    options=PICTURES | {"labels", "invert"},
    names_files=True,
)
CLASSES = Reader(
    name="a folder of pictures",
    recognises=lambda source, options: isinstance(source, Path) and source.is_dir() and not is_parquet_folder(source),
    read=lambda source, options: classes_in_folders(source, options["part"], **some(options, "label_names")),
    endings=(),
    options=PICTURES | {"label_names"},
    parts=True,
    names_files=True,
)
UNLABELLED = Reader(
    name="a folder of pictures",
    recognises=lambda source, options: CLASSES.recognises(source, options) and "targets" in options,
    read=lambda source, options: loose_pictures(source),
    endings=(),
    options=PICTURES | {"targets"},
    names_files=True,
)
