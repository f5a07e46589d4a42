"""Writing a store one user at a time, in constant memory, so that a stop at any moment loses no finished user.

The files grow in `DESTINATION.partial`. `mark` ends a user in memory; `commit` flushes the files to the disk
and then records, in one atomic write, how long each file was at the last mark. After a crash every file is
cut back to that length, so what is written next is what would have been written without the crash.
"""

import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._files import read_json, sync_folder, write_json
from sfumato.data.store.users import (
    FORMAT,
    VERSION,
    chained,
    index_digest,
    looks_of,
    note_verified,
    open_store,
    partial_folder,
    seal,
)
from sfumato.data.users.dataset import UserDataset

_BUFFER = 1 << 20  # bytes kept per file before they are written
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class _Stream:
    """An append-only file with a buffer, whose length can be set back."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        self._waiting = bytearray()
        self.length = 0

    def resume(self, length: int) -> bool:
        """Cut the file to a length; False if it is shorter than that."""
        if os.fstat(self._handle).st_size < length:
            return False
        os.ftruncate(self._handle, length)
        os.lseek(self._handle, length, os.SEEK_SET)
        self.length = length
        return True

    def write(self, content: bytes | memoryview) -> None:
        self._waiting += content
        self.length += len(content)
        if len(self._waiting) >= _BUFFER:
            self._drain()

    def flush(self) -> None:
        self._drain()
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)

    def _drain(self) -> None:
        while self._waiting:  # what could not be written stays, so that a failed flush can never look like a good one
            del self._waiting[: os.write(self._handle, self._waiting)]


class StoreWriter:
    """A store in the making.

    Args:
        destination: the finished store's folder; it must not exist or be empty.
        shape: the shape of one input.
        dtype: the type of the inputs.
        class_names: whether classes have names.
        class_groups: whether classes have groups.
        options: JSON values that must be the same when writing goes on after a stop.
        resume: go on where an earlier run stopped, if there was one.

    Raises:
        InputError: the destination is not empty, another process writes it, or what an earlier run left there
            was made with other options or is damaged.
    """

    def __init__(
        self,
        destination: Path,
        shape: tuple[int, ...],
        dtype: np.dtype,
        *,
        class_names: bool,
        class_groups: bool = False,
        options: dict[str, Any],
        resume: bool = True,
    ) -> None:
        self.destination = destination
        self.folder = partial_folder(destination)
        self.shape = shape
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.users = 0
        self.examples = 0
        self.classes = 0
        self.extra: dict[str, Any] = {}
        self._options = {"shape": list(shape), "dtype": self.dtype.str, **options}
        self._chain = bytes(32)
        self._own = hashlib.sha256(), hashlib.sha256()
        refuse_full(destination)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._locked()
        self._open = True
        names = ["inputs", "labels", "offsets", "users", "users.offsets"]
        names += ["classes", "classes.offsets"] * class_names + ["groups", "groups.offsets"] * class_groups
        self._streams = {f"{name}.bin": _Stream(self.folder / f"{name}.bin") for name in names}
        self._streams["skipped.jsonl"] = _Stream(self.folder / "skipped.jsonl")
        self.resumed = resume and self._resume()
        if not self.resumed:
            for name, stream in self._streams.items():
                stream.resume(0)
                if name.endswith("offsets.bin"):
                    stream.write(bytes(8))
        self.mark()

    def add(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        """Append examples to the current user: inputs [n, *shape], integer labels [n]."""
        content = np.ascontiguousarray(inputs, self.dtype)
        numbers = np.ascontiguousarray(labels, "<i8")
        for name, array, digest in zip(("inputs.bin", "labels.bin"), (content, numbers), self._own, strict=True):
            raw = array.tobytes()
            digest.update(raw)
            self._streams[name].write(raw)
        self.examples += len(numbers)

    def end_user(self, name: str) -> None:
        """Close the current user under a name."""
        self._chain = chained(self._chain, name, *(digest.digest() for digest in self._own))
        self._own = hashlib.sha256(), hashlib.sha256()
        self._streams["offsets.bin"].write(self.examples.to_bytes(8, "little"))
        self._string("users", name)
        self.users += 1

    def add_class(self, name: str | None = None, group: str | None = None) -> int:
        """Register the next class and return its number."""
        if name is not None:
            self._string("classes", name)
        if group is not None:
            self._string("groups", group)
        self.classes += 1
        return self.classes - 1

    def skip(self, what: str, reason: str) -> None:
        """Record what was left out."""
        self._streams["skipped.jsonl"].write((json.dumps({"what": what, "reason": reason}) + "\n").encode())

    def mark(self) -> None:
        """All users so far are complete: a stop from here on goes back to this point."""
        self._state = {
            "options": self._options,
            "users": self.users,
            "examples": self.examples,
            "classes": self.classes,
            "chain": self._chain.hex(),
            "extra": json.loads(json.dumps(self.extra)),
            "lengths": {name: stream.length for name, stream in self._streams.items()},
        }

    def commit(self) -> None:
        """Put everything up to the last mark safely on the disk."""
        for stream in self._streams.values():
            stream.flush()
        write_json(self.folder / "state.json", self._state)

    def finish(self, notes: list[str]) -> UserDataset:
        """Seal the store, give it its name, and open it.

        Raises:
            InputError: no user was written.
        """
        self.mark()
        self.commit()
        if self.users == 0:
            raise InputError(f"there are no users with examples to write to {self.destination}")
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "users": self.users,
            "examples": self.examples,
            "classes": self.classes,
            "files": self._state["lengths"],
            "index_sha256": index_digest(self.folder),
            "content_sha256": self._chain.hex(),
            "options": self._options,
            "notes": notes,
        }
        write_json(self.folder / "store.json", {**facts, "sha256": seal(facts)})
        os.rename(self.folder, self.destination)
        for name in ("state.json", "lock"):  # after the rename: a stop before it leaves all that a later run needs
            (self.destination / name).unlink()
        if not self.resumed:  # what an earlier run wrote may have been changed since
            note_verified(self.destination, looks_of(self.destination, self._chain.hex()))
        sync_folder(self.destination)
        sync_folder(self.destination.absolute().parent)
        self.close()
        return open_store(self.destination)

    def close(self) -> None:
        """Release the files; what was committed stays for a later run."""
        if self._open:
            self._open = False
            for stream in self._streams.values():
                stream.close()
            os.close(self._lock)

    def _string(self, name: str, value: str) -> None:
        content = self._streams[f"{name}.bin"]
        content.write(value.encode("utf-8", "surrogateescape"))
        self._streams[f"{name}.offsets.bin"].write(content.length.to_bytes(8, "little"))

    def _locked(self) -> int:
        handle = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise InputError(f"another process is writing {self.destination}; wait for it to end") from None
        return handle

    def _resume(self) -> bool:
        file = self.folder / "state.json"
        if not file.exists():
            return False
        again = f"delete {self.folder} to start again"
        try:
            state = read_json(file)
            options, lengths = state["options"], state["lengths"]
            self.users, self.examples, self.classes = state["users"], state["examples"], state["classes"]
            self._chain, self.extra = bytes.fromhex(state["chain"]), state["extra"]
            whole = set(lengths) == set(self._streams) or options != self._options
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{file} is damaged; {again}") from None
        if options != self._options:
            differ = [key for key in self._options if options.get(key) != self._options[key]]
            what = ", ".join(f"{key}={options.get(key)!r} then, {self._options[key]!r} now" for key in differ)
            raise InputError(f"{self.destination} was begun with other options ({what}); use the same, or {again}")
        if not whole or not all(stream.resume(lengths[name]) for name, stream in self._streams.items()):
            raise InputError(f"the unfinished store {self.folder} is damaged; {again}")
        return True


def refuse_full(destination: Path) -> None:
    """Refuse a destination that is not an empty or absent folder, or is in use as the working folder."""
    if os.path.abspath(destination) == os.getcwd():
        raise InputError(f"{destination} is the folder you are in, which cannot be replaced; name a new one")
    if destination.exists() and not destination.is_dir():
        raise InputError(f"{destination} is a file; choose a folder that does not exist yet")
    if destination.is_dir() and any(destination.iterdir()):
        raise InputError(f"{destination} is not empty; choose another folder or delete it")


def disk_full(error: OSError, writer: StoreWriter) -> InputError | None:
    """The line for a disk that is full, or None if the error is another one."""
    if error.errno not in _FULL:
        return None
    return InputError(
        f"no space left for {writer.destination} after {writer.users:,} users; make room and run the same command "
        "again: it goes on from there"
    )
