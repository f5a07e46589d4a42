"""Groups of rows whose inputs look alike: k-means on public inputs, for a prior of each group (`histogram`).

Inputs are public where only labels are hidden, so finding clusters costs nothing. Features that tell classes apart, of
a network that was trained on other data or without labels, make priors that are worth having.

>>> inputs = np.array([[0.0], [0.1], [5.0], [5.1]])
>>> groups = clusters(inputs, count=2, seed=0)
>>> bool(groups[0] == groups[1] != groups[2] == groups[3])
True
>>> label_counts(groups, np.array([1, 1, 0, 1]), groups_count=2, classes=2)[groups[2]].tolist()
[1, 1]
"""

import numpy as np

from sfumato import _check
from sfumato._check import InputError

_BATCH = 4096


def clusters(inputs: np.ndarray, *, count: int, seed: int) -> np.ndarray:
    """The cluster of each row, int64 [rows], by scikit-learn's k-means in batches.

    Args:
        inputs: float [rows, features], public and finite.
        count: of clusters; some may stay empty.
        seed: of the first centres. They are public, too.

    Raises:
        InputError: inputs are no such array, or there are fewer rows than clusters.
    """
    from sklearn.cluster import MiniBatchKMeans

    _check.whole(count=count)
    if inputs.ndim != 2 or not np.isfinite(inputs).all():
        raise InputError(f"inputs must be finite numbers [rows, features], got shape {list(inputs.shape)}")
    if len(inputs) < count:
        raise InputError(f"count must be at most the number of rows, {len(inputs)}, got {count}")
    found = MiniBatchKMeans(count, batch_size=_BATCH, random_state=seed).fit_predict(inputs)
    return found.astype(np.int64)


def label_counts(groups: np.ndarray, labels: np.ndarray, *, groups_count: int, classes: int) -> np.ndarray:
    """How many rows of each group have each label, int64 [groups_count, classes]; private.

    Args:
        groups: int64 [rows].
        labels: int64 [rows].
        groups_count: how many groups there are.
        classes: how many classes there are.
    """
    found = np.bincount(groups * classes + labels, minlength=groups_count * classes)
    return found.reshape(groups_count, classes)
