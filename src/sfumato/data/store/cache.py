"""Private copies of data that do not fit into memory: stores that are built once and opened the next time.

They lie in `$SFUMATO_CACHE`, else in `~/.cache/sfumato/data`, for their owner's eyes only, each under a key of what it
was made from: the reader, its options, Pillow's version, and path, size, times and inode of every file. Nothing is
deleted unasked. `sfumato data stores` lists them and `sfumato data stores --remove KEY` removes one.

>>> place = Cache(["a reader"], Path("t.csv"), lambda: ()).place("rows")
>>> place.parent == folder(), len(place.name)
(True, 16)
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import PIL

from sfumato._check import InputError
from sfumato._files import sibling
from sfumato.data.store.seal import PICTURES, partial_folder, read_facts

_KEY = re.compile(r"[0-9a-f]{16}")


def folder() -> Path:
    """Where the copies are."""
    given = os.environ.get("SFUMATO_CACHE")
    return Path(given).expanduser() / "data" if given else Path("~/.cache/sfumato/data").expanduser()


@dataclass(frozen=True)
class Cache:
    """Where a copy of a source is kept.

    Attributes:
        facts: what it was made with: the reader and its options.
        source: a file, a folder or a pattern.
        files: gives the files that it stands for, but for those that rows name.
    """

    facts: Sequence[object]
    source: Path
    files: Callable[[], Iterable[Path]]

    def place(self, *rows: str) -> Path:
        """The folder of the store.

        Args:
            rows: digests of what the source names, such as files of pictures.
        """
        identity = [
            PIL.__version__,
            str(self.source.absolute()),
            self._looks,
            *map(str, self.facts),
            *rows,
        ]
        return folder() / hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    @cached_property
    def _looks(self) -> list[list[Any]]:
        """How the files look when they are first asked for, before anything is read: what is read belongs to this."""
        return [[str(each), *look_at(os.stat(each))] for each in self.files()]

    @contextlib.contextmanager
    def building(self, place: Path) -> Iterator[bool]:
        """Alone with the folder among processes that build the same; gives whether it is there when its turn comes.

        Raises:
            InputError: the folder cannot be written.
        """

        def waiting() -> None:
            warnings.warn(f"another process reads {self.source}; waiting for its copy in {place}", stacklevel=4)

        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = _alone(sibling(place, after=".lock"), waiting)
        except OSError as error:
            raise InputError(
                f"{place.parent} cannot be written: {error.strerror}; name a folder for a copy of the data: --store "
                "FOLDER (store=), or another place for all of them: SFUMATO_CACHE"
            ) from None
        try:
            sibling(place, after=".source").write_bytes(os.fsencode(self.source.absolute()) + b"\n")
            yield place.exists()
        finally:
            os.close(handle)


def _alone(lock: Path, waiting: Callable[[], None] | None = None) -> int:
    """A descriptor of a locked file, which is the one that others find under this name: `remove` deletes it.

    Args:
        lock: the file; it is made.
        waiting: is called before this waits for another process; None refuses to wait.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be written.
    """
    while True:
        handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting is None:
                    raise
                waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(lock)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def copy_note(place: Path) -> str:
    """The line that says that there is a copy, where it is, and how it is removed."""
    how = "pictures as the bytes of their files, decoded each time they are read; " * (place / PICTURES).exists()
    return (
        f"a private copy of these data is kept in {place} ({how}{bytes_in(place) / 1e6:,.1f} MB) and trained from; "
        f"sfumato data stores --remove {place.name} removes it"
    )


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A copy that is kept.

    Attributes:
        key: its name.
        path: its folder.
        source: what it was made from.
        size: bytes.
        finished: whether it is whole; one that is not goes on where it stopped.
        users, examples: of a whole one; users is None where examples stand alone.
    """

    key: str
    path: Path
    source: str
    size: int
    finished: bool
    users: int | None = None
    examples: int | None = None


def copies() -> list[Copy]:
    """All that are kept, by their keys."""
    root = folder()
    names = {entry.name.partition(".")[0] for entry in root.iterdir()} if root.is_dir() else set[str]()
    keys = filter(_KEY.fullmatch, names)  # the folder may hold what is none of ours
    found = []
    for key in sorted(keys):
        path = root / key
        parts = [each for each in _parts(path) if each.exists()]
        if not any(each.is_dir() for each in parts):
            continue
        source = sibling(path, after=".source")
        facts = {}
        with contextlib.suppress(InputError):
            facts = read_facts(path)
        found.append(
            Copy(
                key=key,
                path=path,
                source=os.fsdecode(source.read_bytes()).strip() if source.exists() else "",
                size=sum(map(bytes_in, parts)),
                finished=bool(facts),
                users=facts.get("users"),
                examples=facts.get("examples"),
            )
        )
    return found


def remove(key: str) -> Copy:
    """Delete a copy.

    Raises:
        InputError: there is none of this key, or a process is writing it.
    """
    found = next((each for each in copies() if each.key == key), None)
    if found is None:
        have = ", ".join(each.key for each in copies()) or "none"
        raise InputError(f"there is no copy {key!r} in {folder()}; it has {have}")
    try:
        handle = _alone(sibling(found.path, after=".lock"))
    except BlockingIOError:
        raise InputError(
            f"the copy {key} of {found.source} is being written by another process; stop that one, or wait for it"
        ) from None
    try:
        for part in _parts(found.path):
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)
    finally:
        os.close(handle)
    return found


def _parts(path: Path) -> list[Path]:
    """Everything that belongs to a copy, finished or not."""
    rows = sibling(path, after=".rows")
    return [
        path,
        partial_folder(path),
        rows,
        partial_folder(rows),
        sibling(path, after=".source"),
        sibling(path, after=".lock"),
    ]


def bytes_in(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; 0 for nothing."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size if path.exists() else 0


def look_at(facts: os.stat_result) -> list[int]:
    """What a change of a file changes: its size, times and inode."""
    return [facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_dev, facts.st_ino]
