"""A disk on which one operation fails, or ends the process."""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sfumato._random import RandomSource
from sfumato.ledger import Budget
from sfumato.runs import checkpoint, run
from small_runs import work

# A disk that fails: every operation that a run asks of it is counted, and one of them goes wrong.
#
# In SQLite's way ("How SQLite is tested", section 3.2 and 3.3): a small run is repeated with the n-th operation
# failing, for every n, and afterwards the run has to be whole. Operations on one folder are watched by replacing
# those of `os`; what a power cut leaves is built from what was flushed until then: names of a folder when the folder
# was, bytes of a file when the file was. All of it happens in this process, so that hundreds of crashes take seconds.

Fault = Literal["error", "kill", "cut", "torn cut"]

_WATCHED = ("open", "write", "fsync", "replace", "unlink", "ftruncate", "mkdir", "rmdir", "chmod")
_real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in _WATCHED}


class Died(BaseException):
    """The process or the machine stopped here; no handler of the run may catch it."""


class Disk:
    """Watches one folder, and fails once.

    Args:
        root: the folder; everything outside is left alone.
        fault: "error" refuses the operation (the disk is full), "kill" ends the process, "cut" the machine: all that
            was not flushed is lost; after a "torn cut" names are there, and half of the bytes that were not flushed.
        at: which operation, from 1; 0 for none.
        after: where to put what a kill or a cut leaves.

    Attributes:
        count: operations so far.
        failed: whether the fault has happened.
    """

    def __init__(self, root: Path, fault: Fault, at: int, after: Path) -> None:
        self.root, self.after, self.count, self.failed = str(root), after, 0, False
        self._fault, self._at = fault, at
        self._bytes: dict[int, bytes] = {}  # of each file, by inode, as they were flushed
        self._names: dict[str, dict[str, int]] = {}  # of each folder, with inodes, as they were flushed
        for path in (root, *root.rglob("*")) if root.exists() else ():
            self._flush(str(path))  # what is there has been there for long

    @contextmanager
    def watched(self) -> Iterator["Disk"]:
        """Replace the functions of `os` within this context."""
        try:
            for name in _WATCHED:
                setattr(os, name, self._wrapped(name))
            yield self
        finally:
            for name in _WATCHED:
                setattr(os, name, _real[name])

    def _wrapped(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            path = self._path(arguments[0])
            reads = name == "open" and not arguments[1] & os.O_CREAT
            if self.failed or path is None or reads or "dir_fd" in options:
                return _real[name](*arguments, **options)
            self.count += 1
            if self.count == self._at:
                self.failed = True
                if name == "write":
                    _real["write"](arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                self._fail(path)
            if name == "fsync":
                return self._flush(path)
            new = name == "open" and not os.path.exists(path)
            done = _real[name](*arguments, **options)
            if new:
                self._bytes.pop(os.fstat(done).st_ino, None)  # inodes are used again
            return done

        return call

    def _path(self, given: Any) -> str | None:
        """The path that is meant, if it is within the root."""
        path = os.readlink(f"/proc/self/fd/{given}") if isinstance(given, int) else os.path.abspath(os.fspath(given))
        return path if path == self.root or path.startswith(self.root + os.sep) else None

    def _flush(self, path: str) -> None:
        if os.path.isdir(path):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        elif os.path.exists(path):
            self._bytes[os.stat(path).st_ino] = Path(path).read_bytes()

    def _fail(self, path: str) -> None:
        if self._fault == "error":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if not os.path.exists(self.root):
            pass
        elif self._fault == "kill":
            shutil.copytree(self.root, self.after)
        else:
            self._rebuild(self.root, self.after)
        raise Died

    def _rebuild(self, source: str, target: Path) -> None:
        """What the disk holds of a folder after a power cut."""
        target.mkdir()
        torn = self._fault == "torn cut"
        there = {entry.name: entry.inode() for entry in os.scandir(source)} if os.path.isdir(source) else {}
        for name, inode in (there if torn else self._names.get(source, {})).items():
            path = os.path.join(source, name)
            now = os.stat(path) if there.get(name) == inode else None
            if path in self._names or (now and stat.S_ISDIR(now.st_mode)):
                self._rebuild(path, target / name)
                continue
            kept = self._bytes.get(inode, b"")
            if torn and now and now.st_size > len(kept):
                kept = Path(path).read_bytes()[: (len(kept) + now.st_size) // 2]
            (target / name).write_bytes(kept)


def save_file(tensors: Any, path: Path, metadata: dict[str, str]) -> None:
    """`safetensors.torch.save_file` by the operations that are watched; the library's own are out of sight."""
    from safetensors.torch import save

    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, save(tensors, metadata))
    finally:
        os.close(handle)


# A small run that ends without a word at one operation on the disk: main(["ROOT", "OPERATION"]).


def main(words: list[str]) -> int:
    """0 if the run has fewer operations; 9 where it died."""
    root, at = Path(words[0]), int(words[1])
    checkpoint.save_file = run.save_file = save_file
    RandomSource.from_os = staticmethod(lambda: RandomSource(bytes(range(32)), "os"))
    Disk._fail = lambda self, path: os._exit(9)
    with Disk(root, "kill", at, Path("unused")).watched():
        work(root, budget=Budget(epsilon=3.0, delta=1e-5))
    return 0
