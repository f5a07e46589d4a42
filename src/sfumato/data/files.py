"""Files that others wrote: arrays of NumPy, the limit on what a packed file may unpack to, the parts of a data set.

**Limit:** a small file must not take all memory.

>>> from pathlib import Path
>>> import tempfile
>>> file = Path(tempfile.mkdtemp()) / "x.npz"
>>> _ = file.write_bytes(bytes(1000))
>>> refuse_bomb(file, 1 << 28)
>>> refuse_bomb(file, 1 << 31)
Traceback (most recent call last):
...
sfumato._check.InputError: ... declares 2.1 GB in a file of 0.0 MB, above 256 MiB and 200 times its size; ...
"""

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from sfumato._check import InputError
from sfumato.data.mapped import as_text

_FREE = 1 << 28  # bytes that any file may unpack to
_RATIO = 200  # beyond that, how many times its size; pictures and tables pack to a tenth, zeros alone to a thousandth


def refuse_bomb(path: Path | str, declared: int) -> None:
    """Refuse to unpack far more than what there is to unpack.

    Args:
        path: the packed file.
        declared: the bytes that it says it unpacks to.

    Raises:
        InputError: it declares more than 256 MiB and 200 times its size, or more than the machine's memory.
    """
    size = Path(path).stat().st_size
    if declared > max(_FREE, _RATIO * size):
        raise InputError(
            f"{path} declares {declared / 1e9:.1f} GB in a file of {size / 1e6:.1f} MB, above 256 MiB and "
            f"{_RATIO} times its size; unpack it yourself if you trust it"
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if declared > memory:
        raise InputError(
            f"{path} unpacks to {declared / 1e9:.1f} GB, this machine has {memory / 1e9:.1f} GB of memory; unpack it, "
            "and give a folder of .npy or plain files"
        )


# Arrays in npz and npy files; a file that is missing, damaged or holds Python objects is refused in one line.
#
# What a file declares is checked before memory is taken for it: an npz of 3 MB can unpack to gigabytes, and a damaged
# header can ask for any amount.


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """All arrays of an npz file.

    Raises:
        InputError: the file is missing, damaged, holds Python objects, or unpacks to far more than its size.
    """
    with _refusals(path, "npz", "numpy.savez"), zipfile.ZipFile(path) as file:
        refuse_bomb(path, sum(entry.file_size for entry in file.infolist()))
        _keys(file)
        return {entry.filename.removesuffix(".npy"): _array(file, entry) for entry in file.infolist()}


def read_npz_keys(path: Path | str) -> list[str]:
    """The names of the arrays in an npz file.

    Raises:
        InputError: the file is missing or damaged.
    """
    with _refusals(path, "npz", "numpy.savez"), zipfile.ZipFile(path) as file:
        return _keys(file)


def mapped(file: Path) -> np.ndarray:
    """A .npy file mapped into memory, read-only.

    Raises:
        InputError: it is missing, damaged, or holds Python objects.
    """
    with _refusals(file, "npy", "numpy.save"):
        with open(file, "rb") as content:
            size = _declared(content)
            held = file.stat().st_size - content.tell()
        if size > held:
            raise ValueError(f"its header declares {size:,} bytes of values, it has {held:,}")
        array = np.load(file, mmap_mode="r" if size else None, allow_pickle=False)  # there may be nothing to map
        return as_text(array, file.name) if array.dtype.kind in "US" else array


def array_in(content: bytes) -> np.ndarray:
    """The array in the bytes of a .npy file.

    Raises:
        ValueError: they are damaged, or hold Python objects.
    """
    file = io.BytesIO(content)
    try:
        if _declared(file) != len(content) - file.tell():
            raise ValueError("its header declares another number of bytes than it has")
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # headers raise whatever a damaged one leads them to
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _keys(file: zipfile.ZipFile) -> list[str]:
    """The names of the arrays, each once."""
    keys = [entry.filename.removesuffix(".npy") for entry in file.infolist()]
    if twice := next((key for i, key in enumerate(keys) if key in keys[:i]), None):
        raise ValueError(f"{twice[:200]!r} is there twice")
    return keys


def _array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array, read to the end of its entry, where its checksum is compared."""
    with file.open(entry) as content:
        start = _declared(content)
        if start + content.tell() != entry.file_size:
            raise ValueError(f"{entry.filename} has {entry.file_size:,} bytes, its header declares {start:,} of values")
    with file.open(entry) as content:
        array = np.lib.format.read_array(content, allow_pickle=False)
        content.read(1)
        return as_text(array, entry.filename) if array.dtype.kind in "US" else array


def _declared(content: IO[bytes]) -> int:
    """The bytes of values that a .npy header declares; the file stands behind the header."""
    version = np.lib.format.read_magic(content)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of the format is for records with names, not for arrays")
    shape, _, dtype = _HEADERS[version](content)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, and reading them could run code from the file")
    if any(isinstance(side, bool) or side < 0 for side in shape):
        raise ValueError(f"its header declares the shape {shape}")
    return math.prod(shape) * dtype.itemsize


@contextlib.contextmanager
def _refusals(path: Path | str, kind: str, remedy: str) -> Iterator[Any]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zip files and headers raise whatever a damaged one leads them to
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be read as {kind}: {reason[:200]}; write it with {remedy}") from None


# The two parts of a data set that its authors divided.


Part = Literal["train", "test"]
"""Which of the two parts of a data set that its authors divided."""


class MissingPart(InputError):
    """The data do not come with this part, as opposed to a part that cannot be read."""
