"""Packing a folder of pictures into a store: decode once, train often.

Memory holds one picture, a buffer a file and the users' names, however many pictures there are. Packing may
be stopped at any moment (ctrl-C, kill -9, a full disk); the same command goes on behind the last user that
was safely written, and the finished store is byte for byte the one that an undisturbed run writes. Users that
are already packed must not have changed in the meantime; that is checked by name, size and time of change of
their files.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.image_files import (
    LAYOUTS,
    BadImage,
    Labels,
    OnError,
    UserFolder,
    decode,
    folders,
    image_size,
    peek,
    refuse_difference,
    user_names,
)
from sfumato.data.safeguards import file_notes, name_notes
from sfumato.data.store.users import open_store, user_columns
from sfumato.data.store.writer import StoreWriter, disk_full, refuse_full
from sfumato.data.users.dataset import UserDataset

_COMMIT_SECONDS = 2.0  # work that a kill may cost
_NAMED = 5  # examples in a note; skipped.jsonl has them all


def pack(
    source: Path | str,
    destination: Path | str,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    labels: Labels = "shared",
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """Decode and resize a folder of pictures into a store.

    Refused: a name that is blank or no valid UTF-8, and one file under two users by any link. Counted in `notes`: names
    that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one,
    and a file twice for one user. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        source: `source/<user>/<picture>` (the user is the class) or `source/<user>/<class>/<picture>`.
        destination: a folder that does not exist or is empty; the store appears there when it is whole. Until
            then it grows in `destination.partial`.
        size: side, or (height, width). A picture of other proportions is cut to the middle, then scaled. None keeps
            the size of the pictures, which must be the same.
        channels: 1 (grey) or 3 (RGB); None keeps what the pictures have, which must be the same.
        on_error: "refuse" stops at the first file that is not a readable picture and names it; "skip" leaves
            such files out, counts them and lists them in the store's `skipped.jsonl`.
        labels: "shared": class folders of the same name are one class; "per_user": they are each user's own.
        progress: called after each picture with (pictures done, pictures).

    Returns:
        the finished store, opened; its `notes` tell what was skipped and converted.

    Raises:
        InputError: no users, a bad file (with on_error="refuse"), pictures of different sizes or channels where
            `size` or `channels` is None, a destination that is not empty, a full disk, or a source that changed
            between two runs. What was packed stays, and the same command goes on.
    """
    source, destination = Path(source), Path(destination)
    fit = None if size is None else image_size(size)
    if channels is not None:
        one_of((1, 3), channels=channels)
    one_of(("refuse", "skip"), on_error=on_error)
    one_of(("shared", "per_user"), labels=labels)
    users, strays = user_names(source)
    if destination.resolve().is_relative_to(source.resolve()):
        raise InputError(f"{destination} lies inside {source}; choose a folder outside of the pictures")
    refuse_full(destination)
    shape = _shape(source, users, fit, channels)
    writer = StoreWriter(
        destination,
        user_columns(shape, np.dtype(np.uint8)),
        class_names=True,
        options={
            "shape": list(shape),
            "labels": labels,
        },  # on_error may change: what is packed so far had no bad file, or skipped it
    )
    packing = _Packing(source, writer, shape, (fit, channels), on_error, labels, progress)
    try:
        packing.prepare(users, strays)
        packing.users(users)
        return open_store(writer.finish({"notes": packing.notes()}))
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()


class _Packing:
    """The state of one run; what must survive a stop is in `writer.extra`."""

    def __init__(
        self,
        source: Path,
        writer: StoreWriter,
        shape: tuple[int, int, int],
        convert: tuple[tuple[int, int] | None, int | None],
        on_error: OnError,
        labels: Labels,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.source = source
        self.writer = writer
        self.shape = shape
        self.convert = convert
        self.on_error = on_error
        self.labels = labels
        self.progress = progress
        self.total = 0
        self.done = 0
        self.classes: dict[str, int] = {}
        self.committed = time.monotonic()
        self.found: list[str] = []

    def prepare(self, users: Sequence[str], strays: Iterable[tuple[str, str]]) -> None:
        """Look at all names once: the total, the shared classes, one layout."""
        shared: set[str] = set()
        self.found = name_notes(users)
        for folder in folders(self.source, users):
            self.total += len(folder.files)
            if self.labels == "shared":
                shared.update(kind for kind, _ in folder.files if kind is not None)
        names = sorted(shared, key=os.fsencode)
        self.found += name_notes(names, "class")
        self.found += file_notes(
            self.source,
            lambda: ((folder.name, path) for folder in folders(self.source, users) for _, path in folder.files),
        )
        self.classes = {name: number for number, name in enumerate(names)}
        digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()
        extra = self.writer.extra
        if "position" not in extra:  # nothing was packed yet
            extra.update(
                position=0, pictures=0, source=bytes(32).hex(), classes=digest, resized=0, converted=0,
                bad_files=0, bad_names=[], empty_users=0, empty_names=[],
            )  # fmt: skip
            for path, reason in strays:
                self._bad(path, reason)
            for name in names:
                self.writer.add_class(name)
            self.writer.mark()
        elif extra["classes"] != digest:
            raise self._changed("its class folders are not the same")

    def users(self, users: Sequence[str]) -> None:
        """Pack the users that are not packed yet."""
        extra = self.writer.extra
        packed, expected = extra["position"], extra["source"]
        self.done = extra["pictures"]
        if packed > len(users):
            raise self._changed(f"it has {len(users):,} users, {packed:,} were packed")
        chain = bytes(32)
        for position, folder in enumerate(folders(self.source, users)):
            if position == packed and chain.hex() != expected:
                raise self._changed("users that are already packed differ")
            chain = self._fingerprint(chain, folder)
            if position >= packed:
                self._user(folder)
                extra.update(position=position + 1, pictures=self.done, source=chain.hex())
                self.writer.mark()
                if time.monotonic() - self.committed >= _COMMIT_SECONDS:
                    self.writer.commit()
                    self.committed = time.monotonic()
        if chain.hex() != extra["source"]:
            raise self._changed("users that are already packed differ")

    def notes(self) -> list[str]:
        """What to tell people about the finished store."""
        extra = self.writer.extra
        return (
            self.found
            + skip_notes(extra["bad_files"], extra["bad_names"], extra["empty_users"], extra["empty_names"])
            + convert_notes(extra["resized"], extra["converted"], self.shape)
        )

    def _user(self, folder: UserFolder) -> None:
        extra = self.writer.extra
        own: dict[str | None, int] = {}
        before = self.writer.examples
        for path, reason in folder.strays:
            self._bad(path, reason)
        for kind, path in folder.files:
            try:
                picture = decode(self.source / path, *self.convert)
            except BadImage as error:
                self._bad(path, str(error))
            else:
                if kind is not None and self.labels == "shared":
                    if kind not in self.classes:
                        raise self._changed(f"the class {kind} appeared")
                    label = self.classes[kind]
                elif kind in own:
                    label = own[kind]
                else:
                    name = folder.name if kind is None else f"{folder.name}/{kind}"
                    label = own[kind] = self.writer.add_class(name)
                if picture.pixels.shape != self.shape:
                    raise InputError(
                        f"{self.source / path} is not of the size and colour in its header; give --size and --channels"
                    )
                extra["resized"] += picture.size != self.shape[:2]
                extra["converted"] += picture.channels != self.shape[2]
                self.writer.add(np.array([label]), picture.pixels[None])
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.total)
        if self.writer.examples > before:
            self.writer.end_user(folder.name)
        else:
            extra["empty_users"] += 1
            extra["empty_names"] = [*extra["empty_names"], folder.name][:_NAMED]
            self.writer.skip(folder.name, "has no readable pictures")

    def _bad(self, path: str, reason: str) -> None:
        if self.on_error == "refuse":
            self.writer.commit()  # up to the last whole user
            raise InputError(refusal(self.source / path, reason) + "; packing goes on from here when it is run again")
        extra = self.writer.extra
        extra["bad_files"] += 1
        extra["bad_names"] = [*extra["bad_names"], f"{path} ({reason})"][:_NAMED]
        self.writer.skip(path, reason)

    def _fingerprint(self, chain: bytes, folder: UserFolder) -> bytes:
        digest = hashlib.sha256(chain + os.fsencode(folder.name))
        for _, path in folder.files:
            try:
                facts = os.stat(self.source / path)
                digest.update(os.fsencode(path) + b"\0%d %d\0" % (facts.st_size, facts.st_mtime_ns))
            except OSError:  # decoding reports it
                digest.update(os.fsencode(path) + b"\0gone\0")
        for path, _ in folder.strays:
            digest.update(os.fsencode(path) + b"\0stray\0")
        return digest.digest()

    def _changed(self, how: str) -> InputError:
        return InputError(
            f"{self.source} changed since packing stopped: {how}; delete {self.writer.folder} to pack it from the start"
        )


def _shape(
    source: Path, users: Sequence[str], size: tuple[int, int] | None, channels: int | None
) -> tuple[int, int, int]:
    """The shape of every row: as asked for, else what all pictures have by their headers.

    A picture whose header cannot be read is left to the packing, which names or skips it.
    """
    if size is not None and channels is not None:
        return *size, channels
    first: tuple[Path, tuple[int, int, int]] | None = None
    bad: tuple[Path, str] | None = None
    for folder in folders(source, users):
        for _, path in folder.files:
            try:
                own = peek(source / path)
            except BadImage as error:
                bad = bad or (source / path, str(error))
                continue
            shape = (*(size or own[:2]), channels or own[2])
            first = first or (source / path, shape)
            refuse_difference(first, (source / path, shape))
    if first is None:
        hint = "" if bad is None else f": {bad[0]} {bad[1]}"
        raise InputError(f"{source} has no users with readable pictures{hint}; it needs {LAYOUTS}")
    return first[1]


def refusal(path: Path | str, reason: str) -> str:
    """The line for a file that is not a readable picture."""
    return f"{path} {reason}; remove it, or leave out such files with on_error=skip"


def skip_notes(files: int, file_names: Sequence[str], users: int, user_names: Sequence[str]) -> list[str]:
    """Lines that count and name what was left out."""
    notes = []
    if files:
        notes.append(f"skipped {files:,} file{'s' * (files > 1)}: {_named(file_names, files)}")
    if users:
        text = f"skipped {users:,} user{'s' * (users > 1)} without readable pictures"
        notes.append(f"{text}: {_named(user_names, users)}")
    return notes


def convert_notes(resized: int, converted: int, shape: Sequence[int]) -> list[str]:
    """Lines that count what was changed to fit."""
    notes = []
    if resized:
        notes.append(f"brought {resized:,} picture{'s' * (resized > 1)} to {shape[0]}×{shape[1]}")
    if converted:
        notes.append(f"turned {converted:,} picture{'s' * (converted > 1)} to {'grey' if shape[2] == 1 else 'RGB'}")
    return notes


def _named(names: Sequence[str], count: int) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if count <= _NAMED else f"{shown} and {count - _NAMED:,} more"
