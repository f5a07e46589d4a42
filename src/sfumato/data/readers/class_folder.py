"""Pictures in one folder a class, as single examples: `FOLDER/<class>/<picture>`.

The folders' names are the classes, in sorted order. A picture is checked when the folder is opened and decoded again
whenever it is asked for, so memory does not grow with the folder; pack a large one (`sfumato data pack`) and open the
store, which decodes each picture once.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, non_negative, one_of
from sfumato.data.domain import NAMES
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.image_files import OnError, image_size, is_folder, user_folder
from sfumato.data.readers.image_folder import CACHE_BYTES
from sfumato.data.readers.part import MissingPart, Part
from sfumato.data.readers.pictures import checked_pictures
from sfumato.data.safeguards import file_notes, name_notes
from sfumato.data.store.pack import refusal
from sfumato.data.strings import Strings

_LAYOUT = "FOLDER/<class>/<picture>, or FOLDER/train/<class>/<picture> and FOLDER/test/…"
_PARTS = {"train", "test", "val", "valid", "validation"}


def class_folder(
    path: Path | str,
    part: Part = "train",
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    *,
    label_names: Sequence[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Open `path/<class>/<picture>`.

    Refused: a class's name that is blank or no valid UTF-8. Counted in `notes`: classes that differ only in case,
    blanks, zeros or Unicode form, and a file that is two examples by a link. The rule is that of all readers,
    `sfumato.data.safeguards`.

    Args:
        path: the folder, or one with the folders train and test, of which `part` is opened.
        part: "train" or "test"; a folder that is not divided is "train", divide it with `split_examples`.
        size: side or (height, width) to bring every picture to; None if all have the same.
        channels: 1 (grey) or 3 (RGB) to convert every picture to; None if all have the same.
        on_error: "refuse" names the first file that is not a readable picture; "skip" leaves such files out.
        label_names: the classes, declared; a folder that is none of them is refused. None takes the folders' names
            (those of train, where the pictures are divided), and an assumption says so.
        cache_bytes: memory for decoded pictures, in bytes; 0 decodes a picture whenever it is asked for.
        progress: called with (pictures checked, pictures).

    Returns:
        inputs uint8 [N, height, width, channels].

    Raises:
        InputError: no classes, a bad file (with on_error="refuse"), folders below a class, or pictures of different
            sizes or channels where `size` or `channels` is None.
    """
    one_of(("train", "test"), part=part)
    one_of(("refuse", "skip"), on_error=on_error)
    non_negative(cache_bytes=cache_bytes)
    if channels is not None:
        one_of((1, 3), channels=channels)
    fit = None if size is None else image_size(size)
    root = part_of(Path(path), part)
    found = _folders(root)
    names = list(label_names) if label_names is not None else _folders(part_of(Path(path), "train"))
    number = {name: i for i, name in enumerate(names)}
    notes = name_notes(names, "class")
    files: list[tuple[int, str]] = []
    bad: list[str] = []
    for name in found:
        if name not in number:
            source = "train" if label_names is None else "the declared ones"
            raise InputError(f"{root / name}: the class {name!r} is none of {source}; remove it or declare all classes")
        listed = user_folder(root, name)
        if listed.layout == "classes":
            raise InputError(f"{root / listed.files[0][1]} lies two folders deep; needed is {_LAYOUT}")
        if listed.strays and on_error == "refuse":
            raise InputError(refusal(root / listed.strays[0][0], listed.strays[0][1]))
        bad += [f"{place} ({reason})" for place, reason in listed.strays]
        files += [(number[name], file) for _, file in listed.files]
    notes += file_notes(root, lambda: ((found[0], file) for _, file in files), of_users=False)
    pictures = checked_pictures(
        root,
        [file for _, file in files],
        fit=fit,
        channels=channels,
        on_error=on_error,
        cache_bytes=int(cache_bytes),
        layout=_LAYOUT,
        progress=progress,
    )
    bad += pictures.bad
    return ExampleDataset(
        inputs=(pictures.rows,),
        targets=np.array([files[place][0] for place in pictures.places], np.int64),
        num_classes=len(names),
        label_names=Strings.from_list(names),
        found=() if label_names is not None else (NAMES,),
        notes=(*notes, *([f"{len(bad):,} files were skipped, for example {bad[0]}"] if bad else [])),
    )


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
