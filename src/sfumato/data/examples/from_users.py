"""A data set by user as one of single examples, for training that protects each example and not each person.

>>> from sfumato.data.users.arrays import from_arrays
>>> users = from_arrays(np.zeros((3, 2)), labels=[0, 1, 1], users=["bo", "al", "bo"])
>>> examples_from_users(users)
ExampleDataset(3 examples of (2,) float64, 2 classes)

Attributes are a number each, 0 or 1. Values, such as ratings, are numbers of the examples:

>>> examples_from_users(from_arrays([[0], [1], [0]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"]))
ExampleDataset(3 examples of (1,) int64, a number each)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sfumato.data.chunked import ChunkedRows
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.users.dataset import UserDataset


def examples_from_users(users: UserDataset) -> ExampleDataset:
    """The examples of a data set by user, each standing for itself: a weaker promise, and an assumption says so.

    Args:
        users: any view; a store stays on the disk.
    """
    first, last = np.asarray(users.offsets[:-1]), np.asarray(users.offsets[1:])
    if users.chosen is not None:
        first, last = first[users.chosen], last[users.chosen]
    counts = last - first
    rows = np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    labels = np.asarray(users.labels)
    if users.class_map is not None:
        labels = users.class_map[labels.astype(np.int64)]
        rows = rows[labels[rows] >= 0]
    whole_data = users.chosen is None and len(rows) == len(labels)
    said = ["One example is one unit: the promise is for each example, not for a person who has several."]
    classes = not (users.of_values or users.of_attributes)
    said = [*users.assumptions, *said]
    if users.of_attributes:
        said.insert(0, f"What the {users.num_classes:,} attributes are is public.")
    dataset = ExampleDataset(
        inputs=(users.inputs if isinstance(users.inputs, np.ndarray | ChunkedRows) else GatheredRows(users.inputs),),
        targets=_targets(users, labels),
        num_classes=users.num_classes if classes else None,
        label_names=users.label_names if classes else None,
        assumptions=tuple(said),
        found=users.found,
        notes=users.notes,
    )
    return dataset if whole_data else dataset.subset(rows)


def _targets(users: UserDataset, labels: np.ndarray) -> np.ndarray:
    """Values as they are, attributes as 0 and 1, which losses of logits read, and classes without the left-out −1."""
    if users.of_values:
        return labels
    return labels.astype(np.float32) if users.of_attributes else np.where(labels >= 0, labels, 0).astype(np.int64)


class GatheredRows:
    """Rows that can only be read as slices, made to be read one by one; they keep names and digests.

    Args:
        rows: pictures that are decoded on demand.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.shape: tuple[int, ...] = tuple(rows.shape)
        self.dtype: np.dtype = np.dtype(rows.dtype)
        self.names: Sequence[str] | None = getattr(rows, "names", None)
        self.digests: np.ndarray | None = getattr(rows, "digests", None)

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows at these positions, [n, *input_shape]."""
        places = np.arange(self.shape[0])[rows]
        result = np.empty((len(places), *self.shape[1:]), self.dtype)
        for i, place in enumerate(places.tolist()):
            result[i] = self._rows[place : place + 1][0]
        return result
