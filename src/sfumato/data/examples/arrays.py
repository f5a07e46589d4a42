"""Examples from arrays: in memory, in an npz file, or in .npy files that are mapped and never read as a whole.

>>> data = examples_from_arrays(np.zeros((4, 28, 28), np.uint8), ["cat", "dog", "cat", "eel"])
>>> data
ExampleDataset(4 examples of (28, 28, 1) uint8, 3 classes)
>>> data.assumptions
('The names of the 3 classes were taken from the records and are assumed to be public.',)
>>> examples_from_arrays(np.zeros((2, 3)), [0, 9], num_classes=3)
Traceback (most recent call last):
...
sfumato._check.InputError: labels must be in 0 … 2 (num_classes=3), got 9 at position 1; number the classes from 0
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato._check import InputError, one_of, whole
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.inputs import checked_inputs
from sfumato.data.strings import Strings
from sfumato.data.users.readers import read_npz, read_npz_keys

Part = Literal["train", "test"]
"""Which of the two parts of a data set that its authors divided."""


class MissingPart(InputError):
    """The data do not come with this part, as opposed to a part that cannot be read."""


_INPUTS = ("x", "X", "inputs", "images", "data")
_LABELS = ("y", "labels", "label", "targets")
_BLOCK = 1 << 20  # labels checked in one go


def examples_from_arrays(
    inputs: Any,
    labels: Any,
    *,
    num_classes: int | None = None,
    label_names: Sequence[str] | None = None,
    vocabulary_sizes: Sequence[int] = (),
    columns: Sequence[Sequence[str]] = (),
    assumptions: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> ExampleDataset:
    """A data set from arrays with one row an example. Nothing is copied; mapped arrays stay on the disk.

    Args:
        inputs: [N, …], or a tuple of such arrays. Images are uint8 [N, H, W, C] with C = 1 or 3, or
            uint8 [N, H, W], which gets C = 1. Floats and ids pass as they are; one with NaN counts as zero in training.
        labels: [N], whole numbers 0 … num_classes − 1, or strings: the label_names, or numbered in sorted order.
        num_classes: number of classes; it follows from `label_names`. Without either it is taken from the labels, and
            an assumption says so.
        label_names: a name for each class.
        vocabulary_sizes: how many ids there are, see `ExampleDataset`.
        columns: names of the columns of each array.
        assumptions: more sentences on what is public.
        notes: lines that `summary` shows.

    Raises:
        InputError: no rows, lengths that differ, labels that are not whole numbers or out of range, or inputs that
            are not numbers.
    """
    arrays = inputs if isinstance(inputs, tuple) else (inputs,)
    rows = tuple(checked_inputs(np.asanyarray(array)) for array in arrays)
    labels = np.asanyarray(labels)
    if labels.ndim != 1:
        remedy = "give class numbers: labels.argmax(axis=1)" if labels.ndim == 2 else "give one class number an example"
        raise InputError(f"labels must have shape [examples], got {labels.shape}; {remedy}")
    if len(labels) == 0:
        raise InputError("the data has no examples: inputs and labels are empty")
    said = list(assumptions)
    if labels.dtype.kind in "US":
        labels, label_names, taken = _numbered(labels.astype(str), label_names)
        said += taken
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers >= 0 or strings, got {labels.dtype}; cast them to int64")
    if label_names is not None:
        num_classes = len(label_names) if num_classes is None else num_classes
    if num_classes is None:
        num_classes, _, taken = classes_of(labels)
        said += taken
    num_classes = num_classes or 0  # the check refuses 0 by name
    whole(num_classes=num_classes)
    _refuse_outside(labels, num_classes)
    return ExampleDataset(
        inputs=rows,
        labels=labels if labels.dtype == np.int64 else labels.astype(np.int64),
        num_classes=num_classes,
        label_names=label_names,
        vocabulary_sizes=tuple(vocabulary_sizes),
        columns=tuple(tuple(names) for names in columns),
        assumptions=tuple(said),
        notes=tuple(notes),
    )


def npz_examples(
    path: Path | str,
    part: Part = "train",
    *,
    num_classes: int | None = None,
    vocabulary_sizes: Sequence[int] = (),
) -> ExampleDataset:
    """Examples in an npz file: x_train, y_train, x_test, y_test; or one part as x, y or inputs (images), labels.

    Args:
        path: the file; its arrays are read once, into memory. For data that are larger, use .npy files.
        part: "train" or "test"; a file with a single part is "train", divide it with `split_examples`.
        num_classes: number of classes; without it, it is taken from the labels of both parts.
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
        num_classes=num_classes,
        label_names=None if names is None else Strings.from_list(map(str, names)),
        vocabulary_sizes=vocabulary_sizes,
    )


def npy_examples(
    path: Path | str,
    part: Part = "train",
    *,
    num_classes: int | None = None,
    vocabulary_sizes: Sequence[int] = (),
) -> ExampleDataset:
    """Examples in a folder of .npy files, named as the arrays of `npz_examples` are, mapped and read on demand.

    Args:
        path: the folder, for example with x_train.npy and y_train.npy.
        part: "train" or "test".
        num_classes: number of classes; without it, it is taken from the labels of both parts.
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
        num_classes=num_classes,
        label_names=None,
        vocabulary_sizes=vocabulary_sizes,
    )


def class_assumption(num_classes: int) -> str:
    """The sentence for a number of classes that nobody declared."""
    return f"The number of classes ({num_classes:,}) was taken from the records and is assumed to be public."


def name_assumption(num_classes: int, source: str = "the records") -> str:
    """The sentence for names of classes that nobody declared."""
    return f"The names of the {num_classes:,} classes were taken from {source} and are assumed to be public."


def classes_of(*parts: np.ndarray | None) -> tuple[int | None, Sequence[str] | None, tuple[str, ...]]:
    """The classes that the labels of all parts hold: their number, their names, and the sentence that says so.

    Args:
        parts: labels [N] of each part, or None for a part that is not there.

    Returns:
        (None, None, ()) where the labels are neither whole numbers nor text; the check that follows says what is wrong.
    """
    given = [labels for labels in parts if labels is not None and labels.ndim == 1 and labels.size]
    if given and all(labels.dtype.kind in "US" for labels in given):
        names = np.unique(np.concatenate([np.unique(labels).astype(str) for labels in given])).tolist()
        return None, Strings.from_list(names), (name_assumption(len(names)),)
    if given and all(labels.dtype.kind in "iu" for labels in given):
        top = max(int(labels[i : i + _BLOCK].max()) for labels in given for i in range(0, len(labels), _BLOCK))
        count = max(1, top + 1)  # negative labels are refused with their position
        return count, None, (class_assumption(count),)
    return None, None, ()


def choose_keys(keys: Sequence[str], part: Part, path: str) -> tuple[str, str]:
    """The names of the inputs and of the labels of a part.

    Raises:
        InputError: there is no such part, or the names say nothing.
    """

    def pair(ending: str) -> tuple[str, str] | None:
        x = next((f"{name}{ending}" for name in _INPUTS if f"{name}{ending}" in keys), None)
        y = next((f"{name}{ending}" for name in _LABELS if f"{name}{ending}" in keys), None)
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


def _other(key: str, part: Part) -> str:
    """The name of the same array in the other part."""
    return key.removesuffix(f"_{part}") + ("_test" if part == "train" else "_train")


def _part_of_two(
    inputs: np.ndarray,
    labels: np.ndarray,
    other: np.ndarray | None,
    *,
    num_classes: int | None,
    label_names: Sequence[str] | None,
    vocabulary_sizes: Sequence[int],
) -> ExampleDataset:
    """One part, whose classes are those of both, so that the two agree on their numbers."""
    said: tuple[str, ...] = ()
    if num_classes is None and label_names is None:
        num_classes, label_names, said = classes_of(labels, other)
    return examples_from_arrays(
        inputs,
        labels,
        num_classes=num_classes,
        label_names=label_names,
        vocabulary_sizes=vocabulary_sizes,
        assumptions=said,
    )


def _numbered(labels: np.ndarray, names: Sequence[str] | None) -> tuple[np.ndarray, Sequence[str], list[str]]:
    """Labels that are text as numbers, with the names and what that assumes."""
    found, codes = np.unique(labels, return_inverse=True)
    if names is None:
        return codes.astype(np.int64), Strings.from_list(found.tolist()), [name_assumption(len(found))]
    number: Mapping[str, int] = {name: i for i, name in enumerate(names)}
    unknown = [name for name in found.tolist() if name not in number]
    if unknown:
        at = int(np.flatnonzero(labels == unknown[0])[0])
        raise InputError(f"label {unknown[0]!r} at position {at} is none of label_names; add it or drop the record")
    return np.array([number[name] for name in found.tolist()], np.int64)[codes], names, []


def _refuse_outside(labels: np.ndarray, num_classes: int) -> None:
    for start in range(0, len(labels), _BLOCK):
        block = labels[start : start + _BLOCK]
        outside = (block < 0) | (block >= num_classes)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"labels must be in 0 … {num_classes - 1} (num_classes={num_classes}), got {int(block[at])} "
                f"at position {start + at}; number the classes from 0"
            )
