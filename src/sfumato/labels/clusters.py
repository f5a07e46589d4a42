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

from pathlib import Path

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.data.singles import refuse_not_finite

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


def feature_rows(path: Path) -> np.ndarray:
    """Public features in a .npy, [rows, d], mapped: only what is looked at is read.

    Raises:
        InputError: it is not there, or holds something else.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; give a .npy of numbers, a row for each row of the data")
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise InputError(f"{path} is no .npy of numbers; write one with numpy.save") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind not in "fiu":
        told = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else "several arrays"
        raise InputError(f"{path} must hold numbers [rows, features], got {told}")
    return rows


class FileClusters:
    """Clusters of the rows of a file, in memory that does not grow with it: they are found in one pass.

    Args:
        path: a .npy of public numbers [rows, features].
        count: of clusters; some may stay empty.
        seed: of the first centres, public.

    Raises:
        InputError: the file is of no use, a number is not finite, or there are fewer rows than clusters.
    """

    def __init__(self, path: Path, *, count: int, seed: int) -> None:
        from sklearn.cluster import MiniBatchKMeans

        self._path, self._rows, self.count = path, feature_rows(path), count
        if len(self._rows) < count:
            raise InputError(f"clusters must be at most the number of rows, {len(self._rows):,}, got {count:,}")
        self._found, step = MiniBatchKMeans(count, random_state=seed), max(_BATCH, count)
        for start in range(0, len(self._rows), step):
            self._found.partial_fit(self._block(start, step))

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, start: int, count: int) -> np.ndarray:
        """The cluster of so many rows from this one on, int64 [count].

        Raises:
            InputError: the file has fewer.
        """
        if start + count > len(self._rows):
            raise InputError(f"{self._path} has {len(self._rows):,} rows, and the table more; give one for each")
        found = np.empty(count, np.int64)
        for place in range(0, count, _BATCH):
            stop = min(place + _BATCH, count)
            found[place:stop] = self._found.predict(self._block(start + place, stop - place))
        return found

    def _block(self, start: int, count: int) -> np.ndarray:
        block = np.asarray(self._rows[start : start + count], np.float32)
        refuse_not_finite(block, f"{self._path} from row {start} on")
        return block


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
