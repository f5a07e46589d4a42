"""Priors that somebody publishes: read from a table, one for all rows or one for each, and smoothed.

A prior has to be public, or released under an epsilon of its own (`histogram`). Zeros are refused unless they are
smoothed: a label whose prior is zero is as good as never reported.

>>> smoothed(np.array([1.0, 0.0]), 0.5).tolist()
[0.75, 0.25]
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.data.tables.cells import numbers
from sfumato.data.tables.open import open_source
from sfumato.data.tables.source import Source
from sfumato.mechanisms.randomized_response.priors import require_prior

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
            raise InputError(f"{self._source.told} has {self.count} rows for {count} labels; give one for each")

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
            yield self._fit(found, f"the prior in {self._source.told} (rows from {start} on)")
            start += len(found)

    def _one(self) -> np.ndarray:
        found: dict[str, float] = {}
        for block in self._source.blocks([CLASS, PROBABILITY], _ROWS):
            values = _column(self._source, PROBABILITY, block[PROBABILITY], 0)
            for name, value in zip(block[CLASS].to_pylist(), values.tolist(), strict=True):
                if str(name) in found:
                    raise InputError(f"{self._source.told} has the class {str(name)!r} twice")
                found[str(name)] = value
        odd = sorted(set(found) ^ set(self._classes))
        if odd:
            there = "is none of the classes" if odd[0] in found else "has no probability there"
            raise InputError(f"{self._source.told}: the class {odd[0]!r} {there}; give one row for each class")
        return self._fit(np.array([found[name] for name in self._classes]), f"the prior in {self._source.told}")

    def _fit(self, prior: np.ndarray, told: str) -> np.ndarray:
        require_prior(prior, len(self._classes), told)
        if self._smoothing == 0 and (prior == 0).any():
            name = self._classes[int(np.argwhere(prior == 0)[0][-1])]
            raise InputError(
                f"{told} is 0 for the class {name!r}, so it is hardly ever reported; give a smoothing, such as 0.01"
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


def _column(source: Source, name: str, array: object, start: int) -> np.ndarray:
    return numbers(array, f"{source.told}: the column {name!r}", start, source.place).astype(np.float64)  # type: ignore[arg-type]
