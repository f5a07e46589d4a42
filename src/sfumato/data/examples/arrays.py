"""Examples from arrays in memory or mapped, and whether their classes were found in the records.

>>> import numpy as np
>>> data = examples_from_arrays(np.zeros((4, 28, 28), np.uint8), ["cat", "dog", "cat", "eel"])
>>> data
ExampleDataset(4 examples of (28, 28, 1) uint8, 3 classes)
>>> data.found, data.with_classes(["cat", "dog", "eel", "fox"])
(('the names of the classes were',), ExampleDataset(4 examples of (28, 28, 1) uint8, 4 classes))
>>> examples_from_arrays(np.zeros((2, 3)), [3.5, 1e30]).targets.dtype, examples_from_arrays(np.zeros((2, 3)))
(dtype('float32'), ExampleDataset(2 examples of (3,) float64, no targets))
>>> examples_from_arrays({"input_ids": [[5, 7], [2, 0]], "attention_mask": [[1, 1], [1, 0]]}, [0, 1], num_classes=2)
ExampleDataset(2 examples of input_ids (2,) int64 + attention_mask (2,) int64, 2 classes)
>>> examples_from_arrays(np.zeros((2, 3)), [0, 9], num_classes=3)
Traceback (most recent call last):
...
sfumato._check.InputError: targets must be in 0 … 2 (num_classes=3), got 9 at position 1; number the classes from 0
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato._check import InputError
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.targets import checked_targets
from sfumato.data.inputs import as_array, checked_inputs


def examples_from_arrays(
    inputs: Any,
    targets: Any = None,
    *,
    classes: bool = True,
    num_classes: int | None = None,
    label_names: Sequence[str] | None = None,
    vocabulary_sizes: Sequence[int] = (),
    columns: Sequence[Sequence[str]] = (),
    assumptions: Sequence[str] = (),
    found: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> ExampleDataset:
    """A data set from arrays with one row an example. Nothing is copied; mapped arrays stay on the disk.

    Args:
        inputs: [N, …], or a tuple of such arrays, or a mapping of them by the names under which the model takes them,
            as a tokeniser gives it. Images are uint8 [N, H, W, C] with C = 1 or 3, or
            uint8 [N, H, W], which gets C = 1. Floats and ids pass as they are; one with NaN counts as zero in training.
        targets: whole numbers [N] or text: classes 0 … num_classes − 1, the label_names, or text numbered in sorted
            order; floats [N] or [N, k], finite: numbers; whole numbers [N, k]: several of them; or None.
        classes: whether whole numbers [N] are classes; False takes them as numbers, counts for example.
        num_classes: number of classes; it follows from `label_names`. Without either it is taken from the targets, and
            a run with a guarantee refuses to build a model by it.
        label_names: a name for each class.
        vocabulary_sizes: how many ids there are, see `ExampleDataset`.
        columns: names of the columns of each array.
        assumptions: more sentences on what is public.
        found: what more of the domain was found in the records.
        notes: lines that `summary` shows.

    Raises:
        InputError: no rows, lengths that differ, targets that are no numbers, not finite or out of range, or inputs
            that are not numbers.
    """
    named = isinstance(inputs, Mapping)
    arrays = tuple(inputs.values()) if named else inputs if isinstance(inputs, tuple) else (inputs,)
    rows = tuple(checked_inputs(as_array(array, "inputs")) for array in arrays)
    if targets is not None:
        targets = as_array(targets, "targets")
    if any(len(each) == 0 for each in (*rows, *([] if targets is None or not targets.ndim else [targets]))):
        raise InputError("the data has no examples: inputs or targets are empty")
    if targets is None and (num_classes is not None or label_names is not None):
        raise InputError("num_classes and label_names are for classes, got no targets; give them, or leave these out")
    read = (
        None
        if targets is None
        else checked_targets(targets, classes=classes, num_classes=num_classes, label_names=label_names)
    )
    return ExampleDataset(
        inputs=rows,
        targets=read and read.values,
        num_classes=read and read.num_classes,
        label_names=read and read.label_names,
        vocabulary_sizes=tuple(vocabulary_sizes),
        columns=tuple(tuple(names) for names in columns),
        input_names=tuple(map(str, inputs)) if named else (),
        assumptions=tuple(assumptions),
        found=(*found, *(read.found if read else ())),
        notes=(*notes, *(read.notes if read else ())),
    )
