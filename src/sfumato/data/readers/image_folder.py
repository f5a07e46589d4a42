"""A folder of pictures as a data set, decoded when a user is asked for.

For folders of some thousand pictures; a large one is better packed (`pack`), which decodes each picture once instead
of once a round. Every file is decoded once when the folder is opened, so that no broken file stops a training run
later.
"""

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
from sfumato.data.image_files import (
    LAYOUTS,
    BadImage,
    Labels,
    OnError,
    Picture,
    decode,
    folders,
    image_size,
    refuse_difference,
    user_names,
)
from sfumato.data.safeguards import file_notes, name_notes
from sfumato.data.store.pack import convert_notes, refusal, skip_notes
from sfumato.data.strings import Strings
from sfumato.data.users.dataset import UserDataset

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
