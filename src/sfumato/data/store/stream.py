"""An append-only file with a buffer, whose length can be set back: what a writer that may be killed writes to."""

import os
from pathlib import Path

_BUFFER = 1 << 20  # bytes kept per file before they are written


class Stream:
    """The file at `path`, made if it is not there; `length` counts what was written, flushed or not."""

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
        """Put what was written safely on the disk."""
        self._drain()
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)

    def _drain(self) -> None:
        while self._waiting:  # what could not be written stays, so that a failed flush can never look like a good one
            del self._waiting[: os.write(self._handle, self._waiting)]
