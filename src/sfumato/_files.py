"""Files that are either whole or absent: write next to it, flush to the disk, rename.

What is private is readable by its owner only, from its first byte on; everything else follows the umask.

>>> import tempfile, pathlib
>>> target = pathlib.Path(tempfile.mkdtemp()) / "plan.json"
>>> write_atomic(target, b"{}"); target.read_bytes()
b'{}'
"""

import contextlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

_DEEPEST = 100  # lists and objects within each other that a JSON file may have; code that walks them may recurse
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.tmp")


def sibling(path: Path, *, before: str = "", after: str = "") -> Path:
    """A path in the same folder, whose name has something in front or behind; "." and ".." go by their names, too.

    >>> sibling(Path("runs/store"), after=".partial").as_posix()
    'runs/store.partial'
    """
    named = path if path.name not in ("", "..") else Path(os.path.abspath(path))
    return named.parent / f"{before}{named.name}{after}"


def write_atomic(path: Path, content: bytes | Callable[[Path], None], *, private: bool = False) -> None:
    """Replace `path` by new content; an error or a power cut leaves the old file as it was.

    Args:
        path: the file to write.
        content: the bytes, or a function that writes them to the temporary path that it is given. That is in a folder
            of its own, as libraries may put files of their own next to it.
        private: for its owner's eyes only.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    temporary = sibling(path, before=".", after=f".{os.getpid()}.tmp")
    _remove(temporary)  # of a process that had this number before
    try:
        if isinstance(content, bytes):
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _mode(private))
            try:
                write_whole(handle, content)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, path)
        else:
            os.mkdir(temporary, 0o700 if private else 0o777)
            mode, whole = os.stat(temporary).st_mode & 0o666, temporary / path.name
            content(whole)
            os.chmod(whole, mode)
            _sync(whole)
            os.replace(whole, path)
            os.rmdir(temporary)
        sync_folder(path.parent)
    except BaseException:
        _remove(temporary)
        raise


@contextlib.contextmanager
def whole_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A folder that appears when it is whole; an error or a power cut leaves none.

    Args:
        path: where it is to be; nothing, or an empty folder.
        private: for its owner's eyes only.

    Yields:
        a folder next to it, to be filled, which then takes its name.

    Raises:
        OSError: the disk is full, it cannot be made there, or something came there meanwhile.
    """
    partial = sibling(path, after=f".{os.getpid()}.partial")
    _remove(partial)  # of a process that had this number before
    try:
        os.mkdir(partial, 0o700 if private else 0o777)
        yield partial
        for each in partial.rglob("*"):
            _sync(each)
        _sync(partial)
        os.replace(partial, path)
        sync_folder(path.parent)
    except BaseException:
        _remove(partial)
        raise


def append(path: Path, content: bytes, *, private: bool = False) -> None:
    """Put bytes at the end of a file; not flushed to the disk, see `sync_file`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _mode(private))
    try:
        write_whole(handle, content)
    finally:
        os.close(handle)


def write_whole(handle: int, content: bytes) -> None:
    """Write all of it, also where the system takes a part at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync_file(path: Path) -> None:
    """Flush a file and its name, if it is there, so that what was appended survives a power cut."""
    if path.exists():
        _sync(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    _sync(folder)


def delete(path: Path) -> None:
    """Delete a file, if it is there, so that it is still gone after a power cut."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    sync_folder(path.parent)


def delete_leftovers(folder: Path, names: Collection[str]) -> None:
    """Delete what `write_atomic` left in a folder when its process died.

    Args:
        folder: where to look; it need not exist.
        names: of the files whose temporaries are meant. The caller is the only process that writes these now, so those
            that carry its own number are of another one, long dead.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        found = _TEMPORARY.fullmatch(path.name)
        if found and found["name"] in names and _is_dead(int(found["process"])):
            _remove(path)


def write_json(path: Path, value: Any, *, private: bool = False) -> None:
    """Write JSON with sorted keys, atomically."""
    content = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomic(path, content.encode(), private=private)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: it is not JSON, or not text.
        OSError: it cannot be read.
    """
    return parse_json(path.read_bytes())


def parse_json(content: bytes) -> Any:
    """JSON as Python objects.

    Raises:
        ValueError: it is not JSON, not text, or an object has a name twice.
    """
    try:
        value = json.loads(content, object_pairs_hook=_object)
    except RecursionError:
        value = None
    else:
        if content.count(b"[") + content.count(b"{") <= _DEEPEST or _depth_within(value, _DEEPEST):
            return value
    raise ValueError(f"brackets within brackets, more than {_DEEPEST} deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{name[:200]!r} is there twice in an object")
    return found


def _depth_within(value: Any, limit: int) -> bool:
    """Whether lists and objects within each other are at most so many."""
    level = [value]
    for _ in range(limit + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not inner:
            return True
        level = [each for several in inner for each in several]
    return False


def _remove(path: Path) -> None:
    """Remove a temporary, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _mode(private: bool) -> int:
    return 0o600 if private else 0o666


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_dead(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False
