"""What is known of labels before they are reported: nothing, a public prior, or a noisy histogram of groups of rows.

A prior has to be public, or released under an epsilon of its own. The parts of settings (`Uniform`, `PublicPrior`,
`Counted`) state what a prior costs, release it, and open it for a table (`OpenPrior`).

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

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._parts import Kinds
from sfumato._random import RandomSource
from sfumato.labels.domains import MOST_FOUND
from sfumato.labels.response import LEAST_EPSILON, LabelResponse, require_epsilon, require_labels, require_prior

if TYPE_CHECKING:
    from sfumato.accounting import DiscreteLaplace, Event
    from sfumato.data.records import Records
    from sfumato.labels.files import Cells, LabelFile
    from sfumato.runs import Run

PHASE = "prior"
"""The name of the release of counts, in a run and in its ledger."""

CLASS, PROBABILITY = "class", "probability"
"""The columns of a table with one prior for all rows."""

_ROWS, _BATCH = 1 << 14, 4096


# The parts of settings and plans.


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is known of labels before they are reported; by itself nothing, which costs nothing."""

    def events(self) -> list[Event]:
        """What the prior costs one label."""
        return []

    def left_of(self, epsilon: float) -> float:
        """What the prior leaves of an epsilon for the labels."""
        return float(epsilon)

    def release(self, run: Run, counts: np.ndarray) -> np.ndarray | None:
        """The prior of each group of rows, float64 [groups, classes]; None where nothing is counted.

        Args:
            run: open, and started; its ledger gets the cost.
            counts: int64 [groups, classes], how many rows of each group have each label.
        """
        return None

    def open(self, names: Sequence[str], file: LabelFile) -> OpenPrior:
        """The prior at work on a table.

        Args:
            names: of the classes, or of the values of a number.
            file: whose labels are randomised.

        Raises:
            InputError: a file or a column is of no use.
        """
        return OpenPrior()


@dataclass(frozen=True, kw_only=True)
class Uniform(Prior):
    """All classes are as likely, or all values of a number."""


@dataclass(frozen=True, kw_only=True)
class PublicPrior(Prior):
    """Public probabilities, which cost nothing.

    Attributes:
        table: with the columns class and probability, or a row for each label and a column for each class.
        smoothing: share that is spread over all classes evenly, in [0, 1].
    """

    table: Path
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check.between(0, 1, smoothing=self.smoothing)

    def open(self, names: Sequence[str], file: LabelFile) -> OpenPrior:
        return PriorTable(Path(self.table), names, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class Counted(Prior):
    """Labels are counted first, under noise, in groups of rows.

    Attributes:
        epsilon: of one label, a part of the whole; 0.05 or less is often enough.
        smoothing: share that is spread over all classes evenly, in [0, 1].
        groups: a public column; the labels of each of its values are counted alone.
        clusters: so many clusters of public features, and the labels of each are counted alone.
        features: of these clusters, a .npy of numbers with a row for each row of the table; public.
    """

    epsilon: float = 0.05
    smoothing: float = 0.0
    groups: str | None = None
    clusters: int | None = None
    features: Path | None = None

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _check.between(0, 1, smoothing=self.smoothing)
        if self.clusters is not None:
            _check.whole(clusters=self.clusters)
        if self.groups is not None and self.clusters is not None:
            raise InputError("groups and clusters exclude each other; give one of them")

    def event(self) -> DiscreteLaplace:
        """What all counts together cost one label."""
        from sfumato.accounting import DiscreteLaplace

        return DiscreteLaplace(self.epsilon / 2)

    def events(self) -> list[Event]:
        return [self.event()]

    def left_of(self, epsilon: float) -> float:
        """Such that what the ledger adds up to is not above epsilon.

        Raises:
            InputError: nothing is left.
        """
        from sfumato.accounting import guarantee

        if self.epsilon > epsilon - LEAST_EPSILON:
            raise InputError(
                f"the prior's epsilon must be below epsilon, {epsilon:g}, of which it is a part, got "
                f"{self.epsilon:g}; give a lower prior_epsilon, such as {epsilon / 10:g}"
            )
        left, counted = float(epsilon) - self.epsilon, self.event()
        while guarantee(counted + LabelResponse(epsilon=left, classes=2).event(), "replace").epsilon(0.0) > epsilon:
            left = math.nextafter(left, 0.0)
        return left

    def release(self, run: Run, counts: np.ndarray) -> np.ndarray:
        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            from sfumato.mechanisms.discrete import discrete_laplace

            stream = source.stream("label histogram")
            noise = discrete_laplace(stream, rate=self.epsilon / 2, count=counts.size)
            return {"counts": torch.from_numpy(counts + noise.reshape(counts.shape))}

        noisy = run.release(PHASE, self.event(), draw, groups=len(counts), classes=counts.shape[1])
        return prior_of(noisy["counts"].numpy(), smoothing=self.smoothing)

    def open(self, names: Sequence[str], file: LabelFile) -> OpenPrior:
        if self.groups is not None:
            file.kind(self.groups)
            return ColumnGroups(self.groups)
        if self.clusters is not None and self.features is not None:
            return FileClusters(Path(self.features), count=self.clusters, seed=0)
        return OpenPrior()


class _Priors(Kinds[Prior]):
    """A number is the epsilon of counts, and a path that of a public table."""

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.kinds, "FILE")

    def __call__(
        self,
        value: Prior | float | str | Path | Mapping[str, Any] | None,
        default: Prior | None = None,
        *,
        of: str = "",
    ) -> Prior:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = {"kind": "counted", "epsilon": value}
        elif isinstance(value, Path) or (isinstance(value, str) and value not in self.kinds and Path(value).suffix):
            value = {"kind": "public", "table": Path(value)}
        return super().__call__(value, default, of=of)


PRIORS = _Priors({"uniform": Uniform, "public": PublicPrior, "counted": Counted})


def prior_of(counts: np.ndarray, *, smoothing: float) -> np.ndarray:
    """The priors that noisy counts give: clipped at zero and normalised; float64 [groups, classes]."""
    positive = np.maximum(counts, 0).astype(np.float64)
    totals = positive.sum(axis=1, keepdims=True)
    even = np.full_like(positive, 1 / positive.shape[1])
    return smoothed(np.divide(positive, totals, out=even, where=totals > 0), smoothing)


def smoothed(prior: np.ndarray, share: float) -> np.ndarray:
    """A prior of which a share is spread over all classes evenly.

    Args:
        prior: float [classes] or [rows, classes].
        share: in [0, 1].
    """
    return prior if share == 0 else (1 - share) * prior + share / prior.shape[-1]


def label_counts(groups: np.ndarray, labels: np.ndarray, *, groups_count: int, classes: int) -> np.ndarray:
    """How many rows of each group have each label, int64 [groups_count, classes]; private.

    Args:
        groups: int64 [rows].
        labels: int64 [rows].
        groups_count: how many groups there are.
        classes: how many classes there are.

    Raises:
        InputError: a group or a label is not one of them.
    """
    require_labels(labels, classes)
    if (wrong := (groups < 0) | (groups >= groups_count)).any():
        row = int(wrong.argmax())
        raise InputError(f"the group at position {row} must be in 0 … {groups_count - 1}, got {groups[row]}")
    found = np.bincount(groups * classes + labels, minlength=groups_count * classes)
    return found.reshape(groups_count, classes)


# A prior at work on a table.


class OpenPrior:
    """What is known of the labels of a table: nothing but what all rows have in common.

    Attributes:
        columns: that are read for it.
        one: of all rows, public, float64 [classes]; None for an even one, or one for each row.
    """

    columns: tuple[str, ...] = ()
    one: np.ndarray | None = None

    def group_count(self) -> int:
        """Groups of rows that were found so far."""
        return 1

    def groups_of(self, cells: Cells, start: int) -> np.ndarray | None:
        """The groups of some rows, int64; None where all rows are one.

        Args:
            cells: of the rows.
            start: the number of the first row.
        """
        return None

    def rows(self) -> RowPriors | None:
        """The public priors of rows, from the first on, if they have some of their own."""
        return None

    def require_rows(self, count: int) -> None:
        """Refuse what has not as many rows as the table.

        Raises:
            InputError: it has not.
        """


class ColumnGroups(OpenPrior):
    """Groups of rows: those that have one value of a public column.

    Args:
        column: its name.
    """

    def __init__(self, column: str) -> None:
        self.columns, self._column = (column,), column
        self._known: dict[str, int] = {}

    def group_count(self) -> int:
        return max(len(self._known), 1)

    def groups_of(self, cells: Cells, start: int) -> np.ndarray:
        from sfumato.data.records import refuse_missing

        column = cells[self._column]
        refuse_missing(column, f"the group {self._column!r}", start)
        names = column.dictionary_encode()
        numbers = [self._known.setdefault(str(name), len(self._known)) for name in names.dictionary.to_pylist()]
        if len(self._known) > MOST_FOUND:
            raise InputError(
                f"groups must be few, each is counted; {self._column!r} has more than {MOST_FOUND:,} values"
            )
        return np.array(numbers, np.int64)[names.indices.to_numpy()]


class PriorTable(OpenPrior):
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
        from sfumato.data.readers.tables import open_source

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
        if self.one is None and self._source.count != count:
            raise InputError(
                f"{self._source.title} has {self._source.count} rows for {count} labels; give one for each"
            )

    def rows(self) -> RowPriors | None:
        return None if self.one is not None else RowPriors(self._blocks(), self._source.count)

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
    """Priors that are taken some rows at a time, in order.

    Args:
        blocks: of them, float64 [n, classes].
        count: how many rows there are.
    """

    def __init__(self, blocks: Iterator[np.ndarray], count: int) -> None:
        self._blocks, self.count, self._held = blocks, count, np.zeros((0, 0))

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
    from sfumato.data.columns import numbers

    return numbers(array, f"{source.title}: the column {name!r}", start, source.place).astype(np.float64)  # type: ignore[arg-type]


class FileClusters(OpenPrior):
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

        self._path, self._rows, self._count = path, feature_rows(path), count
        if len(self._rows) < count:
            raise InputError(f"clusters must be at most the number of rows, {len(self._rows):,}, got {count:,}")
        self._found, step = MiniBatchKMeans(count, random_state=seed), max(_BATCH, count)
        for start in range(0, len(self._rows), step):
            self._found.partial_fit(self._block(start, step))

    def group_count(self) -> int:
        return self._count

    def groups_of(self, cells: Cells, start: int) -> np.ndarray:
        return self.of(start, len(next(iter(cells.values()))))

    def require_rows(self, count: int) -> None:
        if len(self._rows) != count:
            raise InputError(f"{self._path} has {len(self._rows):,} rows for {count:,} labels")

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
        from sfumato.data.inputs import refuse_not_finite

        block = np.asarray(self._rows[start : start + count], np.float32)
        refuse_not_finite(block, f"{self._path} from row {start} on")
        return block


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
