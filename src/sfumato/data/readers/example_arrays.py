"""Examples in an npz file, or in .npy files that are mapped and never read as a whole."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.examples.arrays import examples_from_arrays
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.targets import classes_of
from sfumato.data.numpy_files import mapped, read_npz, read_npz_keys
from sfumato.data.readers.part import MissingPart, Part
from sfumato.data.strings import Strings

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
        part: "train" or "test".
        classes: whether whole numbers are classes; False takes them as numbers. Floats and vectors always are.
        num_classes: number of classes; without it, it is taken from the targets of both parts.
        vocabulary_sizes: how many ids there are, for ids.

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
