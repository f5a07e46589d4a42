"""Stores that are built from other records: decode or compute once, train often."""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError, one_of
from sfumato._types import Stated, stated_to_json
from sfumato.data.mapped import ChunkedRows
from sfumato.data.pictures import (
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
from sfumato.data.safeguards import Listing, file_notes, name_notes
from sfumato.data.store.format import Column
from sfumato.data.store.opened import INPUTS, Opened, open_store, user_columns
from sfumato.data.store.seal import read_facts
from sfumato.data.store.writer import StoreWriter, disk_full, refuse_full
from sfumato.data.users import UserDataset

# Any data set, or any stream of users, as a store: written in one go, in constant memory.


def write_users(
    users: Iterable[tuple[str, np.ndarray, np.ndarray]],
    destination: Path | str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    *,
    target_shape: tuple[int, ...] = (),
    target_dtype: np.dtype | None = None,
    num_classes: int = 0,
    label_names: Sequence[str] | None = None,
    label_groups: Sequence[str] | None = None,
    item_names: Sequence[str] | None = None,
    assumptions: Sequence[Stated] = (),
    found: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> UserDataset:
    """Write users as they come as a store, in constant memory.

    Refused: a name that is blank or no valid UTF-8, and a user who comes twice. Counted in `notes`: names that differ
    only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one. The rule is
    that of all readers, `sfumato.data.safeguards`. Names take some ten bytes a user.

    Args:
        users: (name, inputs [n, *shape], labels [n, *target_shape]) of each user, once; users without examples are left
            out.
        destination: a folder that does not exist or is empty.
        shape: the shape of one input.
        dtype: the type of the inputs.
        target_shape: the shape of one label: (length,) for sequences, whose labels are ids as the inputs are.
        target_dtype: the type of the labels: float32 for values; None for classes.
        num_classes: number of classes; with `label_names` it follows from them.
        label_names: the classes' names.
        label_groups: the classes' groups.
        item_names: the public names of the numbers in column 0 of the inputs.
        assumptions: sentences that a guarantee for these users rests on.
        found: what of the domain was found in the records.
        notes: lines that `summary` shows.

    Returns:
        the store, opened.

    Raises:
        InputError: the destination is not empty, the disk is full, or there are no users.
    """
    writer = StoreWriter(
        Path(destination),
        user_columns(shape, dtype, target_shape, target_dtype),
        class_names=label_names is not None,
        class_groups=label_groups is not None,
        options={},
        resume=False,  # nothing tells whether an earlier run wrote these users
    )
    listing = Listing()
    try:
        for label in range(num_classes if label_names is None else len(label_names)):
            name = None if label_names is None else label_names[label]
            writer.add_class(name, None if label_groups is None else label_groups[label])
        for name, inputs, labels in users:
            if len(labels):
                listing.add(name)
                writer.add(labels, inputs)
                writer.end_user(name)
        told = list(dict.fromkeys([*listing.notes(), *notes]))
        return open_store(
            writer.finish(
                {"notes": told, "assumptions": stated_to_json(assumptions), "found": list(found)}, items=item_names
            )
        )
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()


def write_store(
    dataset: UserDataset, destination: Path | str, progress: Callable[[int, int], None] | None = None
) -> UserDataset:
    """Write any data set as a store, user by user in constant memory.

    Args:
        dataset: what to write.
        destination: a folder that does not exist or is empty.
        progress: called with (users done, users).

    Returns:
        the store, opened.

    Raises:
        InputError: the destination is not empty, the disk is full, or labels are attributes.
    """
    dataset.refuse_attributes("be packed into a store; keep them in memory")

    def users() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for user, name in enumerate(dataset.user_ids):
            yield name, *dataset.examples(user)
            if progress is not None:
                progress(user + 1, len(dataset))

    return write_users(
        users(),
        destination,
        dataset.input_shape,
        dataset.dtype,
        target_shape=dataset.labels.shape[1:],
        target_dtype=np.dtype(np.float32) if dataset.of_values else None,
        num_classes=dataset.num_classes,
        label_names=dataset.label_names,
        label_groups=dataset.label_groups,
        item_names=dataset.item_names,
        assumptions=dataset.assumptions,
        found=dataset.found,
        notes=dataset.notes,
    )


# Packing a folder of pictures into a store: decode once, train often.
#
# Memory holds one picture, a buffer a file and the users' names, however many pictures there are. Packing may
# be stopped at any moment (ctrl-C, kill -9, a full disk); the same command goes on behind the last user that
# was safely written, and the finished store is byte for byte the one that an undisturbed run writes. Users that
# are already packed must not have changed in the meantime; that is checked by name, size and time of change of
# their files.


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


# Rows that are computed from records, as a store: written in a stream, taken up after a stop, opened mapped.
#
# The folder is that of every store (`facts.py`), with one column and neither users nor classes. What the rows were
# computed from and how is told by `origin`, JSON values that are sealed with it: a store of another origin is refused,
# never used, and one that was not finished goes on where it stopped.
#
# Such rows are as private as the records, so the folder is for its owner only.


_SAFE_EVERY = 20.0  # seconds between points that a stop goes back to


@dataclass(frozen=True)
class StoredRows:
    """Rows of a finished store.

    Attributes:
        rows: [n, *shape], mapped.
        digest: gives the SHA-256 of all of them; reads them again only where the file looks different.
    """

    rows: ChunkedRows
    digest: Callable[[], str]


def stored_rows(
    path: Path,
    column: tuple[tuple[int, ...], np.dtype],
    count: int,
    origin: dict[str, Any],
    compute: Callable[[int, int], np.ndarray],
    *,
    block: int,
    progress: Callable[[int, int], None] | None = None,
    told: str = "",
    meaning: Mapping[str, str] | None = None,
) -> StoredRows:
    """Open computed rows, or compute and write those that are not there yet.

    Args:
        path: the store's folder.
        column: shape and type of a row.
        count: rows, >= 1.
        origin: what they follow from; JSON.
        compute: gives the rows from one number to another, [stop − start, *shape].
        block: rows computed at once, >= 1: all that is held in memory, beside a batch of the file.
        progress: called with (rows done, rows).
        told: a line on what the rows are, kept in store.json.
        meaning: for each name of `origin`, what it means that it differs.

    Raises:
        InputError: the folder holds something else, rows of another origin or damaged ones; another process writes it;
            or the disk is full.
    """
    if path.exists():
        return _opened(path, origin, meaning or {})
    shape, dtype = column
    writer = StoreWriter(
        path,
        [Column(INPUTS, shape, dtype)],
        users=False,
        class_names=False,
        options=origin,
        private=True,
    )
    try:
        _fill(writer, count, compute, block, progress)
        writer.finish({"notes": [told], "assumptions": []})
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()
    return _opened(path, origin, meaning or {})


def _fill(
    writer: StoreWriter,
    count: int,
    compute: Callable[[int, int], np.ndarray],
    block: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    saved = time.monotonic()
    try:
        while writer.examples < count:
            start = writer.examples
            writer.add(compute(start, min(start + block, count)))
            writer.mark()
            if time.monotonic() - saved > _SAFE_EVERY:
                writer.commit()
                saved = time.monotonic()
            if progress is not None:
                progress(writer.examples, count)
    except BaseException:  # ctrl-C, too: what was computed is not computed again
        writer.commit()
        raise


def _opened(path: Path, origin: dict[str, Any], meaning: Mapping[str, str]) -> StoredRows:
    try:
        found = read_facts(path)["options"]
        if found == origin:
            store = Opened(path)
            store.digest()
            return StoredRows(store.rows(INPUTS), store.digest)
    except InputError as error:
        what = str(error).rpartition(";")[0] or str(error)
        raise InputError(f"{what}; delete {path}, and it is made again") from None
    differ = [name for name, value in origin.items() if found.get(name) != value]
    what = ", ".join(f"{name} {_short(found.get(name))} then, {_short(origin[name])} now" for name in differ)
    means = " and ".join(meaning[name] for name in differ if name in meaning)
    raise InputError(
        f"{path} was made of something else ({what}){means and f': {means}'}; give another folder, or delete this one "
        "and it is made again"
    )


def _short(value: Any) -> str:
    """A digest by its first digits."""
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 12 else f"{value}"
