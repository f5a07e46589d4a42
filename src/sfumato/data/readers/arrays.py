"""Arrays: npz and npy files by example and by user, and MNIST's idx files."""

import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.drawn_glyphs import glyphs
from sfumato.data.examples import ExampleDataset, examples_from_arrays, examples_from_users
from sfumato.data.files import MissingPart, Part, mapped, read_npz, read_npz_keys, refuse_bomb
from sfumato.data.labels import classes_of
from sfumato.data.mapped import Strings
from sfumato.data.readers.tables import is_parquet_folder
from sfumato.data.records import Reader, some
from sfumato.data.store.opened import open_example_store, open_store
from sfumato.data.store.seal import is_store
from sfumato.data.users import UserDataset, from_arrays

# Examples in an npz file, or in .npy files that are mapped and never read as a whole.


INPUTS = ("x", "X", "inputs", "images", "data")
"""What an array of inputs may be called."""


_TARGETS = ("y", "labels", "label", "targets")


def npz_examples(
    path: Path | str,
    part: Part = "train",
    *,
    classes: bool = True,
    num_classes: int | None = None,
    vocabulary_sizes: Sequence[int] = (),
) -> ExampleDataset:
    """Examples in an npz file: x_train, y_train, x_test, y_test; or one part as x, y or inputs (images), labels.

    Args:
        path: the file; its arrays are read once, into memory. For data that are larger, use .npy files.
        part: "train" or "test"; a file with a single part is "train", divide it with `split_examples`.
        classes: whether whole numbers are classes; False takes them as numbers. Floats and vectors always are.
        num_classes: number of classes; without it, it is taken from the targets of both parts.
        vocabulary_sizes: how many ids there are, for ids.

    Raises:
        InputError: the file is missing or damaged, has no such part or other keys, or its arrays do not fit.
    """
    one_of(("train", "test"), part=part)
    keys = read_npz_keys(path)
    x, y = choose_keys(keys, part, str(path))
    arrays = read_npz(path)
    names = arrays.get("label_names")
    return _part_of_two(
        arrays[x],
        arrays[y],
        arrays.get(_other(y, part)),
        classes=classes,
        num_classes=num_classes,
        label_names=None if names is None else Strings.from_list(map(str, names)),
        vocabulary_sizes=vocabulary_sizes,
    )


def npy_examples(
    path: Path | str,
    part: Part = "train",
    *,
    classes: bool = True,
    num_classes: int | None = None,
    vocabulary_sizes: Sequence[int] = (),
) -> ExampleDataset:
    """Examples in a folder of .npy files, named as the arrays of `npz_examples` are, mapped and read on demand.

    Args:
        path: the folder, for example with x_train.npy and y_train.npy.
        part, classes, num_classes, vocabulary_sizes: as in `npz_examples`.

    Raises:
        InputError: as `npz_examples`.
    """
    one_of(("train", "test"), part=part)
    folder = Path(path)
    x, y = choose_keys([file.stem for file in folder.glob("*.npy")], part, str(path))
    other = folder / f"{_other(y, part)}.npy"
    return _part_of_two(
        mapped(folder / f"{x}.npy"),
        mapped(folder / f"{y}.npy"),
        mapped(other) if other.exists() else None,
        classes=classes,
        num_classes=num_classes,
        label_names=None,
        vocabulary_sizes=vocabulary_sizes,
    )


def choose_keys(keys: Sequence[str], part: Part, path: str) -> tuple[str, str]:
    """The names of the inputs and of the targets of a part.

    Raises:
        InputError: there is no such part, or the names say nothing.
    """

    def pair(ending: str) -> tuple[str, str] | None:
        x = next((f"{name}{ending}" for name in INPUTS if f"{name}{ending}" in keys), None)
        y = next((f"{name}{ending}" for name in _TARGETS if f"{name}{ending}" in keys), None)
        return (x, y) if x and y else None

    divided, single = pair(f"_{part}"), pair("")
    if divided:
        return divided
    if single and part == "train":
        return single
    if single:
        raise MissingPart(f"{path} has one part only ({', '.join(single)}); use part='train' and divide it by a seed")
    have = ", ".join(sorted(keys)[:8]) or "nothing"
    # of a part with one array only, the other has been forgotten
    kind = InputError if any(key.endswith(f"_{part}") for key in keys) else MissingPart
    raise kind(f"{path} has {have}; needed are x_{part} and y_{part}, or x and y, or inputs (images) and labels")


def _other(key: str, part: Part) -> str:
    """The name of the same array in the other part."""
    return key.removesuffix(f"_{part}") + ("_test" if part == "train" else "_train")


def _part_of_two(
    inputs: np.ndarray,
    targets: np.ndarray,
    other: np.ndarray | None,
    *,
    classes: bool,
    num_classes: int | None,
    label_names: Sequence[str] | None,
    vocabulary_sizes: Sequence[int],
) -> ExampleDataset:
    """One part, whose classes, if it has any, are those of both, so that the two agree on their numbers."""
    said: tuple[str, ...] = ()
    if classes and num_classes is None and label_names is None:
        num_classes, label_names, said = classes_of(targets, other)
    return examples_from_arrays(
        inputs,
        targets,
        classes=classes,
        num_classes=num_classes,
        label_names=label_names,
        vocabulary_sizes=vocabulary_sizes,
        found=said,
    )


# MNIST's files as distributed: pictures and labels in the idx format, plain or gzipped.
#
# An idx file is two zero bytes, the type, the number of dimensions, each dimension as a big-endian 32-bit number, and
# the values (LeCun's page on MNIST describes it). Plain files are mapped; gzipped ones are unpacked into memory once.


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


# Users in an npz file of arrays, and pictures in memory brought to one size.


def array_file(path: Path | str) -> UserDataset:
    """An npz file of arrays: `images` or `inputs` [n, …], `users` [n], and `labels` [n]; without, a class a user.

    Raises:
        InputError: the file is missing, damaged, or has other keys, or its arrays do not fit together.
    """
    arrays = read_npz(path)
    inputs = arrays.get("inputs", arrays.get("images"))
    if inputs is None or "users" not in arrays:
        raise InputError(
            f"{path} has the keys {', '.join(arrays)}; needed are images or inputs, users, and labels "
            "(without labels each user is a class)"
        )
    if "inputs" not in arrays and inputs.dtype != np.uint8:
        raise InputError(
            f"{path}: images must be uint8 [n, height, width] or [n, height, width, channels], got "
            f"{inputs.dtype} {inputs.shape}; scale pixels to 0–255, or name the array inputs"
        )
    users = arrays["users"]
    labels = arrays["labels"] if "labels" in arrays else users.astype(str)
    names = arrays.get("label_names")
    if names is not None and names.ndim != 1:
        raise InputError(f"{path}: label_names must be a list of names, got shape {names.shape}")
    return from_arrays(inputs, labels, users, None if names is None else Strings.from_list(map(str, names)))


def unlabelled_array(path: Path) -> ExampleDataset:
    """The inputs of an npz file, or a npy file, without targets.

    Raises:
        InputError: there are none.
    """
    if path.suffix.lower() == ".npy":
        return examples_from_arrays(mapped(path))
    arrays = read_npz(path)
    names = [f"{name}{ending}" for ending in ("_train", "") for name in INPUTS]
    found = next((name for name in names if name in arrays), None)
    if found is None:
        raise InputError(f"{path} has {', '.join(sorted(arrays)[:8]) or 'nothing'}; needed is x, inputs or images")
    return examples_from_arrays(arrays[found])


def _is_word(source: object) -> bool:
    return isinstance(source, Path) and source == Path("glyphs") and not source.exists()


def _is_store(source: object) -> bool:
    return isinstance(source, Path) and is_store(source)


def _ends(source: object, *endings: str) -> bool:
    return isinstance(source, Path) and source.suffix.lower() in endings and not source.is_dir()


def _is_folder(source: object) -> bool:
    return isinstance(source, Path) and source.is_dir() and not is_store(source) and not is_parquet_folder(source)


_SIZED = frozenset({"size", "channels"})
_DECLARED = frozenset({"classes", "num_classes", "vocabulary_sizes"})
GLYPHS = Reader(
    name="the embedded data",
    recognises=lambda source, options: _is_word(source),
    read=lambda source, options: glyphs(**some(options, "progress")),
    options=_SIZED,
)
STORES = Reader(
    name="a packed store",
    recognises=lambda source, options: _is_store(source),
    read=lambda source, options: open_store(source, **some(options, "verify")),
    options=_SIZED | {"verify"},
)
USERS = Reader(
    name="an npz file of arrays",
    recognises=lambda source, options: _ends(source, ".npz"),
    read=lambda source, options: array_file(source),
    endings=(".npz",),
    options=_SIZED,
)
GLYPH_EXAMPLES = Reader(
    name="the embedded data",
    recognises=lambda source, options: _is_word(source),
    read=lambda source, options: examples_from_users(glyphs(**some(options, "progress"))),
    options=_SIZED,
)
EXAMPLE_STORES = Reader(
    name="a packed store",
    recognises=lambda source, options: _is_store(source),
    read=lambda source, options: open_example_store(source),
    options=frozenset({"vocabulary", "length"}),  # as they were when it was written, so that the same words go on
)
UNLABELLED = Reader(
    name="a file of arrays",
    recognises=lambda source, options: "targets" in options and _ends(source, ".npz", ".npy"),
    read=lambda source, options: unlabelled_array(source),
    endings=(".npz", ".npy"),
    options=frozenset({"targets"}),
)
IDX = Reader(
    name="MNIST's idx files",
    recognises=lambda source, options: _is_folder(source) and is_idx_folder(source),
    read=lambda source, options: idx_images(source, options["part"], **some(options, "num_classes")),
    options=frozenset({"num_classes"}),
    parts=True,
)
LOOSE = Reader(
    name="a folder of .npy files",
    recognises=lambda source, options: _is_folder(source) and any(source.glob("*.npy")),
    read=lambda source, options: npy_examples(source, options["part"], **some(options, *_DECLARED)),
    options=_DECLARED,
    parts=True,
)
EXAMPLES = Reader(
    name="an npz file of arrays",
    recognises=lambda source, options: _ends(source, ".npz"),
    read=lambda source, options: npz_examples(source, options["part"], **some(options, *_DECLARED)),
    endings=(".npz",),
    options=_DECLARED,
    parts=True,
)
