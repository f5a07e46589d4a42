"""Files that are either whole or absent: write beside, flush to the disk, rename.

>>> import tempfile, pathlib
>>> target = pathlib.Path(tempfile.mkdtemp()) / "plan.json"
>>> write_atomic(target, b"{}"); target.read_bytes()
b'{}'
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def beside(path: Path, *, before: str = "", after: str = "") -> Path:
    """A path in the same folder, whose name has something in front or behind; "." and ".." go by their names, too.

    >>> beside(Path("runs/store"), after=".partial").as_posix()
    'runs/store.partial'
    """
    named = path if path.name not in ("", "..") else Path(os.path.abspath(path))
    return named.parent / f"{before}{named.name}{after}"


def write_atomic(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Replace `path` by new content; an error or a power cut leaves the old file as it was.

    Args:
        path: the file to write.
        content: the bytes, or a function that writes them to the temporary path that it is given.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old file is untouched.
    """
    temporary = beside(path, before=".", after=f".{os.getpid()}.tmp")
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys, atomically."""
    write_atomic(path, (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text())
