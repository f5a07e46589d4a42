"""A table that is to be randomised, looked at once before anything is written.

Every label, group and prior is checked and counted, and a digest is made of them in the order of the rows: a run that
goes on by other rows would put the noise of one label on another.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.spellings import odd_values
from sfumato.data.tables.cells import refuse_missing
from sfumato.labels.clusters import FileClusters, label_counts
from sfumato.labels.coding import ClassCoding, Coding, GridCoding
from sfumato.labels.files.label_file import Cells, LabelFile
from sfumato.labels.priors import PublicPrior, RowPriors
from sfumato.labels.row_order import RowOrder
from sfumato.labels.settings import LabelSettings

_MOST_GROUPS = 100_000


@dataclass
class RowDigest:
    """Of what a run that goes on must find again: labels, groups and priors of all rows, in order."""

    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def add(self, labels: np.ndarray, groups: np.ndarray | None, prior: np.ndarray | None) -> None:
        """Take in the next rows."""
        for part in (labels, groups, prior):
            if part is not None:
                self._hash.update(part.tobytes())

    @property
    def found(self) -> str:
        """So far, in hexadecimal."""
        return self._hash.hexdigest()


@dataclass(kw_only=True)
class TableWork:
    """A table that was looked at; made by `of`.

    Attributes:
        settings: given.
        coding: labels as numbers and back.
        classes: names, public; None for numbers.
        class_count: how many classes, or values of a number.
        prior: public, or None.
        told: what messages call the label.
        rows: how many there are.
        counts: int64 [groups, classes], private; empty where nothing is counted.
        digest: of all rows.
        groups: the number of each group, by its value.
        clusters: the groups of rows, where they are clusters; None elsewhere.
    """

    settings: LabelSettings
    coding: Coding
    classes: tuple[str, ...] | None
    class_count: int
    prior: PublicPrior | None
    told: str
    rows: int = 0
    counts: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), np.int64))
    digest: str = ""
    groups: dict[str, int] = field(default_factory=dict)
    clusters: FileClusters | None = None

    @classmethod
    def of(cls, file: LabelFile, settings: LabelSettings) -> "TableWork":
        """Look at all rows: every label and every prior is checked before anything is written."""
        kind = file.kind(settings.label)
        told = f"{file.path}: the label {settings.label!r}"
        classes = None
        if settings.of_numbers:
            assert settings.low is not None
            assert settings.high is not None
            coding: Coding = GridCoding(settings.low, settings.high, settings.count)
            names = tuple(f"{value:g}" for value in settings.grid)
        else:
            names = classes = settings.classes or _classes_in(file, settings.label, told)
            if settings.classes is None and (odd := odd_values(told, names)):
                raise InputError(f"{odd[0]}, or declare the classes: --classes or classes=")
            coding = ClassCoding(names, kind)
        prior = None if settings.prior is None else PublicPrior(settings.prior, names, settings.smoothing)
        if settings.of_numbers and prior is not None and prior.one is None:
            raise InputError("bins are the same for all numbers: give a prior with the columns class and probability")
        work = cls(settings=settings, coding=coding, classes=classes, class_count=len(names), prior=prior, told=told)
        if settings.groups is not None:
            file.kind(settings.groups)
        if settings.clusters is not None and settings.features is not None:
            work.clusters = FileClusters(settings.features, count=settings.clusters, seed=0)
        work._look(file)
        return work

    @property
    def columns(self) -> list[str]:
        """That are read."""
        return [self.settings.label, *([] if self.settings.groups is None else [self.settings.groups])]

    def new_digest(self) -> RowDigest:
        """To hold against `digest`."""
        digest = RowDigest()
        if self.prior is not None and self.prior.one is not None:
            digest.add(self.prior.one, None, None)
        return digest

    def row_priors(self) -> RowPriors | None:
        """The public priors of rows, from the first on, if they have some of their own."""
        return None if self.prior is None or self.prior.one is not None else self.prior.rows()

    def take(self, cells: Cells, start: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Labels and groups of some rows, int64."""
        labels = self.coding.numbers(cells[self.settings.label], self.told, start)
        if self.clusters is not None:
            return labels, self.clusters.of(start, len(labels))
        if self.settings.groups is None:
            return labels, None
        column = cells[self.settings.groups]
        refuse_missing(column, f"the group {self.settings.groups!r}", start)
        names = column.dictionary_encode()
        known = [self.groups.setdefault(str(name), len(self.groups)) for name in names.dictionary.to_pylist()]
        if len(self.groups) > _MOST_GROUPS:
            raise InputError(
                f"groups must be few, each is counted; {self.settings.groups!r} has more than {_MOST_GROUPS:,} values"
            )
        return labels, np.array(known, np.int64)[names.indices.to_numpy()]

    def prior_of_all(self, counted: np.ndarray | None) -> np.ndarray | None:
        """The prior that bins are chosen by."""
        if counted is not None:
            return counted[0]
        return None if self.prior is None else self.prior.one

    def prior_of(
        self, counted: np.ndarray | None, groups: np.ndarray | None, rows: RowPriors | None, count: int
    ) -> np.ndarray | None:
        """The prior of some rows."""
        if counted is not None and groups is not None:
            if groups.max(initial=0) >= len(counted):
                raise InputError(f"{self.told}: the table was changed while it was read; run it again with --resume")
            return counted[groups]
        return self.prior_of_all(counted) if rows is None else rows.take(count)

    @property
    def _group_count(self) -> int:
        return max(len(self.groups), 1) if self.clusters is None else self.clusters.count

    def _look(self, file: LabelFile) -> None:
        digest, priors, counted = self.new_digest(), self.row_priors(), self.settings.histogram is not None
        counts: dict[int, np.ndarray] = {}
        order = RowOrder(self.class_count)
        for cells in file.cells(self.columns):
            labels, groups = self.take(cells, self.rows)
            self.rows += len(labels)
            if not self.settings.shuffle:
                order.add(labels)
            if priors is not None and self.prior is not None and self.rows > self.prior.count:
                continue  # refused below, by how many rows there are
            digest.add(labels, groups, None if priors is None else priors.take(len(labels)))
            if counted:
                places = np.zeros(len(labels), np.int64) if groups is None else groups
                found = label_counts(places, labels, groups_count=self._group_count, classes=self.class_count)
                for place in np.flatnonzero(found.any(axis=1)).tolist():
                    counts[place] = counts.get(place, 0) + found[place]
        if self.rows == 0:
            raise InputError(f"{file.path} has no rows; there is nothing to randomise")
        if not self.settings.shuffle:
            order.refuse_ordered(self.told)
        if self.prior is not None:
            self.prior.require_rows(self.rows)
        if self.clusters is not None and len(self.clusters) != self.rows:
            raise InputError(f"{self.settings.features} has {len(self.clusters):,} rows for {self.rows:,} labels")
        if counted:
            nothing = np.zeros(self.class_count, np.int64)
            self.counts = np.stack([counts.get(place, nothing) for place in range(self._group_count)])
        self.digest = digest.found


def _classes_in(file: LabelFile, label: str, told: str) -> tuple[str, ...]:
    """The values that labels have, in order."""
    seen: set[str] = set()
    start = 0
    for cells in file.cells([label]):
        refuse_missing(cells[label], told, start)
        seen.update(cells[label].unique().cast(pa.string()).to_pylist())
        start += len(cells[label])
        if len(seen) > _MOST_GROUPS:
            raise InputError(f"{told} has more than {_MOST_GROUPS:,} values; for numbers give low and high")
    return tuple(sorted(seen, key=_in_order))


def _in_order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
