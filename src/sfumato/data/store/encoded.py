"""Pictures that a store keeps as their files have them, decoded when they are read.

`pictures.bin` holds the files' bytes one after another. In `examples.arrow` a reference stands for each picture: where
its bytes begin, how many there are, and their SHA-256, so that the digest of the references is one of the pictures.
What is decoded is what the store would hold otherwise, to the last bit, as long as Pillow stays the same.

>>> reference_of(70, b"bytes of a file")[:2].tolist(), reference_of(70, b"").shape
([70, 15], (6,))
"""

import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from sfumato._check import InputError
from sfumato.data.pictures import BadImage, decode
from sfumato.data.store.format import Column

_KEPT = 1 << 26  # bytes of decoded pictures
_SHA = 32


@dataclass(frozen=True)
class Encoded:
    """Pictures that belong to references.

    Attributes:
        file: their bytes.
        columns: how those of each column are decoded: shape, size, channels and invert; JSON.
    """

    file: Path
    columns: Mapping[str, Mapping[str, Any]]


def reference_column(name: str) -> Column:
    """The column of references to pictures."""
    return Column(name, (2 + _SHA // 8,), np.dtype("<i8"))


def reference_of(start: int, content: bytes) -> np.ndarray:
    """The reference to a picture whose bytes begin at a place."""
    return np.array([start, len(content), *np.frombuffer(hashlib.sha256(content).digest(), "<i8")])


class EncodedRows:
    """Pictures uint8 [n, height, width, channels] that are decoded when they are asked for; 64 MiB are kept.

    Args:
        references: rows of references.
        file: where the bytes are.
        shape: of a picture.
        size: (height, width) to bring it to, or None.
        channels: 1 or 3 to convert it to, or None.
        invert: whether black and white are exchanged.
    """

    def __init__(
        self,
        references: Any,
        file: Path,
        *,
        shape: Sequence[int],
        size: Sequence[int] | None,
        channels: int | None,
        invert: bool,
    ) -> None:
        self._references, self._file, self._invert = references, file, invert
        self._content = np.memmap(file, np.uint8, "r")
        self._convert = None if size is None else (int(size[0]), int(size[1])), channels
        self._held, self._lock = OrderedDict[int, np.ndarray](), threading.Lock()
        self.shape = (len(references), *map(int, shape))
        self.dtype = np.dtype(np.uint8)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The pictures of a slice, or at int64 [n].

        Raises:
            InputError: the file was changed, or this Pillow reads a picture otherwise.
        """
        references = np.asarray(self._references[rows])
        found = np.empty((len(references), *self.shape[1:]), np.uint8)
        for picture, reference in zip(found, references, strict=True):
            picture[...] = self._picture(reference)
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def hold(self) -> bool:
        """Whether all bytes are those that were packed; reads them all."""
        return all(
            self._bytes(reference) is not None
            for start in range(0, len(self), 1 << 12)
            for reference in self._references[start : start + (1 << 12)]
        )

    def _bytes(self, reference: np.ndarray) -> bytes | None:
        start, length = map(int, reference[:2])
        content = self._content[start : start + length].tobytes()
        return content if (reference_of(start, content) == reference).all() else None

    def _picture(self, reference: np.ndarray) -> np.ndarray:
        start = int(reference[0])
        with self._lock:
            if (kept := self._held.get(start)) is not None:
                self._held.move_to_end(start)
                return kept
        if (content := self._bytes(reference)) is None:
            raise InputError(f"{self._file} was changed after packing; pack the store again")
        try:
            pixels = decode(io.BytesIO(content), *self._convert).pixels
        except BadImage as error:
            pixels, said = np.empty(0), str(error)
        else:
            said = f"has the shape {pixels.shape}"
        if pixels.shape != self.shape[1:]:
            raise InputError(
                f"a picture in {self._file} {said} for Pillow {PIL.__version__}, unlike when it was packed; pack the "
                "store again"
            )
        pixels = 255 - pixels if self._invert else pixels
        with self._lock:
            self._held[start] = pixels
            while len(self._held) * max(pixels.nbytes, 1) > _KEPT:
                self._held.popitem(last=False)
        return pixels
