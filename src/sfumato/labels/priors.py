"""Priors on labels: published ones, and noisy histograms of groups of rows.

A prior has to be public, or released under an epsilon of its own.

**Published:** read from a table, one for all rows or one for each, and smoothed. Zeros are refused unless they are
smoothed: a label whose prior is zero is as good as never reported.

>>> smoothed(np.array([1.0, 0.0]), 0.5).tolist()
[0.75, 0.25]

**Groups** of rows with similar inputs, each with a prior of its own, by k-means. Inputs are public where only labels
are hidden, so finding clusters costs nothing. Features that separate classes, of a network that was trained on other
data or without labels, make priors that are worth having.

>>> inputs = np.array([[0.0], [0.1], [5.0], [5.1]])
>>> groups = clusters(inputs, count=2, seed=0)
>>> bool(groups[0] == groups[1] != groups[2] == groups[3])
True
>>> label_counts(groups, np.array([1, 1, 0, 1]), groups_count=2, classes=2)[groups[2]].tolist()
[1, 1]

**Counted:** a noisy histogram of the labels themselves for each group of rows, released before the labels are.

- **Unit.** One label; groups are public: a column of the table, or clusters of public inputs.
- **Sensitivity.** A label that is replaced takes 1 from one count of its group and gives 1 to another: 2 in L1 norm,
  which is twice that of a label that comes or goes.
- **Noise.** Discrete Laplace of rate epsilon / 2 on each count, drawn exactly.
- **Event.** `DiscreteLaplace(epsilon / 2)`, which costs epsilon where labels are replaced. What randomises the labels
  afterwards has an epsilon of its own, and both add up.
- **Edges.** Counts below zero become zero; a group of which nothing is left, such as an empty one, has a uniform prior.

>>> prior_of(np.array([[3, -1, 1], [-2, -1, 0]]), smoothing=0.0).round(3).tolist()
[[0.75, 0.0, 0.25], [0.333, 0.333, 0.333]]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import DiscreteLaplace
from sfumato.data.columns import numbers
from sfumato.data.inputs import refuse_not_finite
from sfumato.data.readers.tables import open_source
from sfumato.data.records import Records
from sfumato.labels.response import require_epsilon, require_prior
from sfumato.mechanisms.discrete import discrete_laplace
from sfumato.runs import Run

CLASS, PROBABILITY = "class", "probability"
"""The columns of a table with one prior for all rows."""


_ROWS = 1 << 14


def smoothed(prior: np.ndarray, share: float) -> np.ndarray:
    """A prior of which a share is spread over all classes evenly.

    Args:
        prior: float [classes] or [rows, classes].
        share: in [0, 1].
    """
    return prior if share == 0 else (1 - share) * prior + share / prior.shape[-1]


class PublicPrior:
    """A table of public probabilities.

    With the columns `class` and `probability` it is one prior for all rows; else it has a row for each label, and a
    column for each class, by its name.

    Args:
        path: of the table: .parquet, .csv or .jsonl.
        classes: by number.
        smoothing: share that is spread evenly.

    Raises:
        InputError: it is no such table, or no prior.
    """

    def __init__(self, path: Path, classes: Sequence[str], smoothing: float = 0.0) -> None:
        _check.between(0, 1, smoothing=smoothing)
        self._source, self._classes, self._smoothing = open_source(path), list(classes), smoothing
        names = self._source.names
        self.one = self._one() if CLASS in names and PROBABILITY in names else None
        if self.one is None:
            missing = [name for name in self._classes if name not in names]
            if missing:
                raise InputError(
                    f"{path} has no column {missing[0]!r}; a prior has the columns {CLASS} and {PROBABILITY}, or a row "
                    "for each label and a column for each class"
                )

    def require_rows(self, count: int) -> None:
        """Refuse a prior for each row that has not as many rows.

        Raises:
            InputError: it has not.
        """
        if self.one is None and self.count != count:
            raise InputError(f"{self._source.title} has {self.count} rows for {count} labels; give one for each")

    @property
    def count(self) -> int:
        """Rows of the table."""
        return self._source.count

    def rows(self) -> "RowPriors":
        """Those of each row, from the first row on."""
        return RowPriors(self._blocks())

    def _blocks(self) -> Iterator[np.ndarray]:
        start = 0
        for block in self._source.blocks(self._classes, _ROWS):
            columns = [_column(self._source, name, block[name], start) for name in self._classes]
            found = np.stack(columns, axis=1)
            yield self._fit(found, f"the prior in {self._source.title} (rows from {start} on)")
            start += len(found)

    def _one(self) -> np.ndarray:
        found: dict[str, float] = {}
        for block in self._source.blocks([CLASS, PROBABILITY], _ROWS):
            values = _column(self._source, PROBABILITY, block[PROBABILITY], 0)
            for name, value in zip(block[CLASS].to_pylist(), values.tolist(), strict=True):
                if str(name) in found:
                    raise InputError(f"{self._source.title} has the class {str(name)!r} twice")
                found[str(name)] = value
        odd = sorted(set(found) ^ set(self._classes))
        if odd:
            there = "is none of the classes" if odd[0] in found else "has no probability there"
            raise InputError(f"{self._source.title}: the class {odd[0]!r} {there}; give one row for each class")
        return self._fit(np.array([found[name] for name in self._classes]), f"the prior in {self._source.title}")

    def _fit(self, prior: np.ndarray, what: str) -> np.ndarray:
        require_prior(prior, len(self._classes), what)
        if self._smoothing == 0 and (prior == 0).any():
            name = self._classes[int(np.argwhere(prior == 0)[0][-1])]
            raise InputError(
                f"{what} is 0 for the class {name!r}, so it is hardly ever reported; give a smoothing, such as 0.01"
            )
        return smoothed(prior, self._smoothing)


class RowPriors:
    """Priors that are taken some rows at a time, in order."""

    def __init__(self, blocks: Iterator[np.ndarray]) -> None:
        self._blocks, self._held = blocks, np.zeros((0, 0))

    def take(self, count: int) -> np.ndarray:
        """Those of the next rows, float64 [count, classes]."""
        parts = [self._held]
        while sum(map(len, parts)) < count:
            block = next(self._blocks, None)
            if block is None:
                raise InputError("the prior has fewer rows than before; run it again with the same one")
            parts.append(block)
        whole = np.concatenate([part for part in parts if len(part)]) if count else self._held
        self._held = whole[count:]
        return whole[:count]


def _column(source: Records, name: str, array: object, start: int) -> np.ndarray:
    return numbers(array, f"{source.title}: the column {name!r}", start, source.place).astype(np.float64)  # type: ignore[arg-type]


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
        found = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else "several arrays"
        raise InputError(f"{path} must hold numbers [rows, features], got {found}")
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


PHASE = "prior"
"""The name of the release, in a run and in its ledger."""


@dataclass(frozen=True, kw_only=True)
class NoisyHistogram:
    """How labels are counted.

    Attributes:
        epsilon: of one label; 0.05 or less leaves most of a budget to the labels.
        smoothing: share of each prior that is spread over all classes evenly.
    """

    epsilon: float
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _check.between(0, 1, smoothing=self.smoothing)

    def event(self) -> DiscreteLaplace:
        """What all counts together cost one label."""
        return DiscreteLaplace(self.epsilon / 2)

    def release(self, run: Run, counts: np.ndarray) -> np.ndarray:
        """The prior of each group, as a phase of a run.

        Args:
            run: an open run that has started; its ledger gets the cost.
            counts: int64 [groups, classes], how many rows of each group have each label.

        Returns:
            float64 [groups, classes].
        """

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            stream = source.stream("label histogram")
            noise = discrete_laplace(stream, rate=self.epsilon / 2, count=counts.size)
            return {"counts": torch.from_numpy(counts + noise.reshape(counts.shape))}

        noisy = run.release(PHASE, self.event(), draw, groups=len(counts), classes=counts.shape[1])
        return prior_of(noisy["counts"].numpy(), smoothing=self.smoothing)


def prior_of(counts: np.ndarray, *, smoothing: float) -> np.ndarray:
    """The priors that noisy counts give: clipped at zero and normalised; float64 [groups, classes]."""
    kept = np.maximum(counts, 0).astype(np.float64)
    totals = kept.sum(axis=1, keepdims=True)
    even = np.full_like(kept, 1 / kept.shape[1])
    return smoothed(np.divide(kept, totals, out=even, where=totals > 0), smoothing)
