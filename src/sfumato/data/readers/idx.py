"""MNIST's files as distributed: pictures and labels in the idx format, plain or gzipped.

An idx file is two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit number, and
the values (LeCun's page on MNIST describes it). Plain files are mapped; gzipped ones are unpacked into memory once.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.examples.arrays import examples_from_arrays
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.targets import classes_of
from sfumato.data.readers.part import MissingPart, Part
from sfumato.data.unpacked import refuse_bomb

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_PREFIX = {"train": "train", "test": "t10k"}


def idx_images(path: Path | str, part: Part = "train", *, num_classes: int | None = None) -> ExampleDataset:
    """Pictures and labels of MNIST, or of another data set that is distributed like it.

    Args:
        path: the folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-… (a dot before idx, and .gz
            behind it, are understood).
        part: "train" or "test".
        num_classes: number of classes; without it, it is taken from the labels of both parts.

    Returns:
        inputs uint8 [N, H, W, 1].

    Raises:
        InputError: a file is missing, is not idx, or is cut off; or pictures and labels are not equally many.
    """
    one_of(("train", "test"), part=part)
    folder = Path(path)
    if part == "test" and not any(folder.glob(f"{_PREFIX[part]}-*")):
        raise MissingPart(f"{folder} has no {_PREFIX[part]}-… files; use part='train' and divide it by a seed")
    images, labels = (read_idx(_file(folder, f"{_PREFIX[part]}-{kind}")) for kind in ("images", "labels"))
    said: tuple[str, ...] = ()
    if num_classes is None:
        other = next(folder.glob(f"{_PREFIX['test' if part == 'train' else 'train']}-labels*idx*"), None)
        num_classes, _, said = classes_of(labels, None if other is None else read_idx(other))
    return examples_from_arrays(images, labels, num_classes=num_classes, found=said)


def is_idx_folder(path: Path) -> bool:
    """Whether a folder holds MNIST's files."""
    return any(path.glob("*-images*idx3-ubyte*"))


def read_idx(file: Path | str) -> np.ndarray:
    """The array in an idx file, in native byte order; a plain file of bytes is mapped.

    Raises:
        InputError: the file is missing, is not idx, or is shorter or longer than it says.
    """
    file = Path(file)
    try:
        if file.suffix != ".gz":
            with open(file, "rb") as plain:
                dtype, shape, start = _header(file, plain.read(4 + 4 * 255))
            length = file.stat().st_size - start
            _refuse_length(file, length, dtype, shape)
            if length == 0:
                return np.zeros(shape, dtype.newbyteorder("="))
            array = np.memmap(file, dtype, "r", start, shape)
        else:
            with gzip.open(file) as packed:
                head = packed.read(4)
                dtype, shape, _ = _header(file, head + packed.read(4 * head[3] if len(head) == 4 else 0))
                declared = math.prod(shape) * dtype.itemsize
                refuse_bomb(file, declared)
                content = packed.read(declared + 1)  # and no more than it should hold, whatever is packed
                content += packed.read(1)  # at the end, where the checksum is compared
            _refuse_length(file, len(content), dtype, shape)
            array = np.frombuffer(content, dtype).reshape(shape)
    except FileNotFoundError:
        raise InputError(f"there is no file {file}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} cannot be read: {' '.join(str(error).split())}; download it again") from None
    return array if array.dtype.itemsize == 1 else array.astype(array.dtype.newbyteorder("="))


def _header(file: Path, content: bytes) -> tuple[np.dtype, tuple[int, ...], int]:
    """Type, shape, and where the values start."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES or content[3] == 0:
        raise InputError(f"{file} is not an idx file: it begins with {content[:4].hex() or 'nothing'}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise InputError(f"{file} is cut off after {len(content)} bytes; download it again")
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist())
    return np.dtype(_TYPES[content[2]]), shape, start


def _refuse_length(file: Path, length: int, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    expected = math.prod(shape) * dtype.itemsize
    if length != expected:
        sides = "×".join(map(str, shape))
        raise InputError(f"{file} has {length:,} bytes of values, {sides} need {expected:,}; download it again")


def _file(folder: Path, name: str) -> Path:
    found = sorted(file for file in folder.glob(f"{name}*") if "idx" in file.name)
    if not found:
        raise InputError(f"{folder} has no {name}-idx…-ubyte or .gz; give the folder of MNIST's four files")
    return found[0]  # the plain file sorts before its .gz
