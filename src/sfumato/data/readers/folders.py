"""Folders of pictures: by user, by class, or DigiFace-1M."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato._check import InputError, non_negative, one_of
from sfumato.data.digest import row_digest
from sfumato.data.domain import NAMES
from sfumato.data.examples import ExampleDataset, GatheredRows
from sfumato.data.files import MissingPart, Part
from sfumato.data.mapped import Strings
from sfumato.data.pictures import (
    LAYOUTS,
    BadImage,
    Labels,
    OnError,
    Picture,
    decode,
    folders,
    image_size,
    is_folder,
    refuse_difference,
    user_folder,
    user_names,
)
from sfumato.data.safeguards import file_notes, name_notes
from sfumato.data.store.build import convert_notes, refusal, skip_notes
from sfumato.data.users import UserDataset

# A folder of pictures as a data set, decoded when a user is asked for.
#
# For folders of some thousand pictures; a large one is better packed (`pack`), which decodes each picture once instead
# of once a round. Every file is decoded once when the folder is opened, so that no broken file stops a training run
# later.


CACHE_BYTES = 1 << 26
"""Memory for decoded pictures, unless somebody says how much."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One picture of a user.

    Attributes:
        user: the user's name; entries of one user lie side by side.
        label: the class's name.
        path: the file, relative to the root.
    """

    user: str
    label: str
    path: str


class LazyImages:
    """Rows of pictures, decoded on demand, with the latest kept in memory; `names` are their paths in the folder.

    Args:
        root: the folder.
        paths: the files, relative to it or absolute.
        shape: (height, width, channels) of every row.
        convert: the size and channels to give to `decode`.
        invert: whether black and white are exchanged.
        cache_bytes: memory for decoded pictures.
        digests: uint8 [rows, 32], SHA-256 of each row when the data were opened.
    """

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        shape: tuple[int, int, int],
        convert: tuple[tuple[int, int] | None, int | None],
        invert: bool,
        cache_bytes: int,
        digests: np.ndarray,
    ) -> None:
        self.shape = (len(paths), *shape)
        self.dtype = np.dtype(np.uint8)
        self._root = root
        self.names = paths
        self._convert = convert
        self._invert = invert
        self._room = cache_bytes // max(1, int(np.prod(shape)))
        self.digests = digests
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()  # clients train on several threads

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        """The pictures of some rows, uint8 [rows, height, width, channels].

        Raises:
            InputError: a file cannot be read any more, or shows another picture than when the data were opened.
        """
        places = range(self.shape[0])[rows]
        images = np.empty((len(places), *self.shape[1:]), np.uint8)
        for i, place in enumerate(places):
            images[i] = self._row(place)
        return images

    def _row(self, place: int) -> np.ndarray:
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                return self._kept[place]
        path = self._root / self.names[place]
        height, width, channels = self.shape[1:]
        try:
            picture = decode(path, *self._convert)
        except BadImage as error:
            raise InputError(f"{path} {error}, though it was readable when the data were opened") from None
        row = 255 - picture.pixels if self._invert else picture.pixels
        if row.shape != (height, width, channels) or row_digest(row) != self.digests[place].tobytes():
            raise InputError(
                f"{path} changed since the data were opened; start again and leave the pictures as they are"
            )
        if self._room:
            with self._lock:
                self._kept[place] = row
                if len(self._kept) > self._room:
                    self._kept.popitem(last=False)
        return row


def image_folder(
    path: Path | str,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    labels: Labels = "shared",
    *,
    invert: bool = False,
    cache_bytes: int = CACHE_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """Open `path/<user>/<picture>` (the user is the class) or `path/<user>/<class>/<picture>`.

    Refused: a name that is blank or no valid UTF-8, and one file under two users by any link. Counted in `notes`: names
    that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one,
    and a file twice for one user. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        path: the folder.
        size: side or (height, width) to bring every picture to; None if all have the same.
        channels: 1 (grey) or 3 (RGB) to convert every picture to; None if all have the same.
        on_error: "refuse" names the first file that is not a readable picture; "skip" leaves such files out and
            counts them in `notes`.
        labels: "shared": class folders of the same name are one class; "per_user": they are each user's own.
        invert: exchange black and white.
        cache_bytes: memory for decoded pictures, in bytes; 0 decodes a picture whenever it is asked for.
        progress: called with (pictures checked, pictures).

    Returns:
        inputs uint8 [height, width, channels], users and files in sorted order.

    Raises:
        InputError: no users, a bad file (with on_error="refuse"), two layouts, or pictures of different sizes or
            channels where `size` or `channels` is None.
    """
    root = Path(path)
    one_of(("refuse", "skip"), on_error=on_error)
    one_of(("shared", "per_user"), labels=labels)
    users, strays = user_names(root)
    entries: list[Entry] = []
    shared: set[str] = set()
    for folder in folders(root, users):
        strays += folder.strays
        for kind, file in folder.files:
            if kind is not None and labels == "shared":
                shared.add(kind)
                label = kind
            else:
                label = folder.name if kind is None else f"{folder.name}/{kind}"
            entries.append(Entry(user=folder.name, label=label, path=file))
    return from_entries(
        root,
        entries,
        users=users,
        label_names=sorted(shared, key=os.fsencode) or None,
        strays=strays,
        size=size,
        channels=channels,
        on_error=on_error,
        invert=invert,
        cache_bytes=cache_bytes,
        progress=progress,
    )


def from_entries(
    root: Path,
    entries: Sequence[Entry],
    *,
    users: Sequence[str],
    label_names: Sequence[str] | None = None,
    group: Callable[[str], str] | None = None,
    strays: Sequence[tuple[str, str]] = (),
    size: int | Sequence[int] | None,
    channels: int | None,
    on_error: OnError,
    invert: bool,
    cache_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> UserDataset:
    """A lazy data set from a list of pictures; each is decoded once here to check it.

    Args:
        root: the folder that the entries' paths are relative to.
        entries: the pictures, those of one user side by side.
        users: all users, to name those that have no readable picture.
        label_names: the classes in the order of their numbers; None numbers them as they come.
        group: gives the group of a class from its name.
        strays: paths that are no pictures, with the reason.
        size, channels, on_error, invert, cache_bytes, progress: as in `image_folder`.

    Raises:
        InputError: as in `image_folder`.
    """
    if channels is not None:
        one_of((1, 3), channels=channels)
    non_negative(cache_bytes=cache_bytes)
    fit = None if size is None else image_size(size)
    notes = name_notes(users)
    notes += name_notes(label_names, "class") if label_names is not None else []
    if strays and on_error == "refuse":
        raise InputError(refusal(root / strays[0][0], strays[0][1]))
    bad = [f"{path} ({reason})" for path, reason in strays]
    notes += file_notes(root, lambda: ((entry.user, entry.path) for entry in entries))
    numbers = {name: number for number, name in enumerate(label_names or ())}
    kept: list[Entry] = []
    digests = bytearray()
    first: tuple[Entry, Picture] | None = None
    resized = converted = 0
    for done, entry in enumerate(entries, 1):
        try:
            picture = decode(root / entry.path, fit, channels)
        except BadImage as error:
            if on_error == "refuse":
                raise InputError(refusal(root / entry.path, str(error))) from None
            bad.append(f"{entry.path} ({error})")
        else:
            first = first or (entry, picture)
            refuse_difference((root / first[0].path, first[1].pixels.shape), (root / entry.path, picture.pixels.shape))
            resized += picture.size != picture.pixels.shape[:2]
            converted += picture.channels != picture.pixels.shape[2]
            if label_names is None:
                numbers.setdefault(entry.label, len(numbers))
            kept.append(entry)
            digests += row_digest(255 - picture.pixels if invert else picture.pixels)
        if progress is not None:
            progress(done, len(entries))
    if first is None:
        raise InputError(f"{root} has no users with readable pictures; it needs {LAYOUTS}")
    height, width, depth = first[1].pixels.shape
    counts: dict[str, int] = {}
    for entry in kept:
        counts[entry.user] = counts.get(entry.user, 0) + 1
    empty = [user for user in users if user not in counts]
    return UserDataset(
        inputs=LazyImages(
            root,
            Strings.from_list(entry.path for entry in kept),
            (height, width, depth),
            (fit, channels),
            invert,
            int(cache_bytes),
            np.frombuffer(digests, np.uint8).reshape(-1, 32),
        ),
        labels=np.array([numbers[entry.label] for entry in kept], np.int64),
        offsets=np.concatenate([[0], np.cumsum(list(counts.values()))]).astype(np.int64),
        names=Strings.from_list(counts),
        num_classes=len(numbers),
        label_names=Strings.from_list(numbers),
        label_groups=None if group is None else Strings.from_list(map(group, numbers)),
        found=() if group is not None else (NAMES,),  # of a benchmark, which has groups, they are its own
        notes=tuple(
            notes
            + skip_notes(len(bad), bad, len(empty), empty)
            + convert_notes(resized, converted, (height, width, depth))
        ),
    )


# Pictures by their files: each is checked once, and decoded again whenever it is asked for.


@dataclass(frozen=True)
class Checked:
    """Pictures that can be read.

    Attributes:
        rows: uint8 [n, height, width, channels], decoded on demand.
        places: of each, among the files that were given.
        bad: what was left out, and why.
    """

    rows: GatheredRows
    places: list[int]
    bad: tuple[str, ...]


def checked_pictures(
    root: Path,
    files: Sequence[str],
    *,
    fit: tuple[int, int] | None,
    channels: int | None,
    on_error: OnError,
    cache_bytes: int,
    layout: str,
    progress: Callable[[int, int], None] | None,
) -> Checked:
    """Look at every file.

    Args:
        root: their folder.
        files: below it.
        fit: (height, width) to bring each to; None if all have the same.
        channels: 1 or 3 to convert each to; None if all have the same.
        on_error: "refuse" names the first file that is no readable picture; "skip" leaves such files out.
        cache_bytes: memory for decoded pictures.
        layout: what is needed, for messages.
        progress: called with (pictures checked, pictures).

    Raises:
        InputError: a bad file, pictures of different sizes or channels, or none that can be read.
    """
    places: list[int] = []
    bad: list[str] = []
    digests = bytearray()
    first: tuple[str, Picture] | None = None
    for place, file in enumerate(files):
        try:
            picture = decode(root / file, fit, channels)
        except BadImage as error:
            if on_error == "refuse":
                raise InputError(refusal(root / file, str(error))) from None
            bad.append(f"{file} ({error})")
        else:
            first = first or (file, picture)
            refuse_difference((root / first[0], first[1].pixels.shape), (root / file, picture.pixels.shape))
            places.append(place)
            digests += row_digest(picture.pixels)
        if progress is not None:
            progress(place + 1, len(files))
    if first is None:
        raise InputError(f"{root} has no readable pictures; it needs {layout}")
    height, width, depth = first[1].pixels.shape
    known = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    paths = Strings.from_list([files[place] for place in places])
    rows = LazyImages(root, paths, (height, width, depth), (fit, channels), False, cache_bytes, known)
    return Checked(GatheredRows(rows), places, tuple(bad))


# DigiFace-1M (Bae et al., WACV 2023): drawn faces in folders `<identity>/<n>.png`.


def digiface(
    path: Path | str,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    *,
    cache_bytes: int = CACHE_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """DigiFace-1M: `path/<identity>/<n>.png`; user = class = identity.

    Refused: a name that is blank or no valid UTF-8, and one file under two users by any link. Counted in `notes`: names
    that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one,
    and a file twice for one user. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        path: the folder of identities; a part of the data set is enough.
        size: side or (height, width) to scale to; None keeps 112×112.
        channels: 1 or 3 to convert to; None keeps the files' own.
        on_error: "refuse" or "skip" files that are not readable pictures.
        cache_bytes: memory for decoded pictures. For all 720,000 pictures use `pack` instead.
        progress: called with (pictures checked, pictures).

    Raises:
        InputError: as `image_folder`.
    """
    return image_folder(path, size, channels, on_error, cache_bytes=cache_bytes, progress=progress)


# Pictures in one folder a class, as single examples: `FOLDER/<class>/<picture>`.
#
# The folders' names are the classes, in sorted order. A picture is checked when the folder is opened and decoded again
# whenever it is asked for, so memory does not grow with the folder; pack a large one (`sfumato data pack`) and open the
# store, which decodes each picture once.


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
