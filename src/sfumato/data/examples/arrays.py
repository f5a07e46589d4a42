"""Examples from arrays in memory or mapped, and what it assumes to take their classes from the records.

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
from typing import Any

import numpy as np

from sfumato._check import InputError, whole
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.inputs import checked_inputs
from sfumato.data.strings import Strings

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
