"""Arrays in npz and npy files; a file that is missing, damaged or holds Python objects is refused in one line."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """All arrays of an npz file.

    Raises:
        InputError: the file is missing, damaged, or holds Python objects.
    """
    with _npz(path) as file:
        return {key: file[key] for key in file.files}


def read_npz_keys(path: Path | str) -> list[str]:
    """The names of the arrays in an npz file.

    Raises:
        InputError: the file is missing or damaged.
    """
    with _npz(path) as file:
        return list(file.files)


@contextlib.contextmanager
def _npz(path: Path | str) -> Iterator[Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())
        if "pickle" in reason:
            reason = "it is no zip file of arrays of numbers or text"
        raise InputError(f"{path} cannot be read as npz: {reason}; write it with numpy.savez") from None


def mapped(file: Path) -> np.ndarray:
    """A .npy file mapped into memory, read-only.

    Raises:
        InputError: it is missing, damaged, or holds Python objects.
    """
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        return array if array.size else np.zeros(array.shape, array.dtype)  # there is nothing to map
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file} cannot be read as npy: {' '.join(str(error).split())}") from None
