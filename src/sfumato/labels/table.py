"""A table whose labels are randomised: its settings, and what the order of its rows reveals.

**Order.** The order of rows is public, so no report would hide labels that it follows from. Pictures in one folder a
class, tables that were sorted, several sorted files one after the other and rows that were dealt out by class have
equal labels at a fixed distance. An attacker who reads the reports in that order averages the noise away and knows
nearly every label.

*What is refused.* Under the hypothesis that the labels stand in a random order, each of these tests has an exact bound
on its false alarms, and all of them refuse fewer than one table in a million (`FALSE_ALARM`, shared out among them):

- the labels only go up or down, or each class is one block;
- runs of each class (Wald and Wolfowitz 1940), too few or too many. The number of runs of a class of `a` rows among
  `n` is hypergeometric: P(r) = C(n-a+1, r) C(a-1, a-r) / C(n, a);
- the same runs at every distance d from 1 to half of the rows, at most 65,536, too few: rows at that distance are put
  next to each other, which is another random order. This finds labels that are periodic, interleaved or in blocks. It
  looks at 16 groups at most (each class, or neighbouring classes and values of about equal number) and at the lower
  and the upper half of the values.

*What is not found:* orders in which no rows at a fixed distance resemble each other, longer periods, and structure in
so few rows that a random order shows it too (20 sorted rows of two classes do so once in 90,000 orders). So that the
order does not follow from the labels remains an assumption of the statement.

*What the test itself reveals.* It reads private labels, and whether a table passes is one bit that is computed from
them without noise. A refusal writes nothing: only the person who runs it, and has the labels, learns of it. Reports
that appear reveal that their table passed. Where rows stand in a random order, that has probability 1 - 10^-6 or more
for any labels. Let M be the response, M' the response behind the test, which gives a refusal in place of some
outputs. For every set S of reports and neighbours y and y', over order and noise,

    P(M'(y) in S) <= P(M(y) in S) <= e^epsilon P(M(y') in S) <= e^epsilon (P(M'(y') in S) + 10^-6),

and a refusal itself has at most 10^-6: the test adds a delta of at most (1 + e^epsilon) 10^-6, which is stated as an
assumption and not in delta. For one fixed order there is no such bound: an attacker who knows all other labels, and
that this table would just be refused with another label, learns it. A table that is shuffled (`--shuffle`) is not
tested, so nothing of this applies to it.

>>> order = RowOrder(classes=2)
>>> order.add(np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1] * 4)[np.random.default_rng(0).permutation(40)])
>>> order.refuse_ordered("the table")
>>> order = RowOrder(classes=2)
>>> order.add(np.array([0, 1] * 40))
>>> order.refuse_ordered("the table")
Traceback (most recent call last):
...
sfumato._check.InputError: the table: the order of rows is public and follows from the labels (they ...
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato._check import InputError
from sfumato._parts import part, plan, to_json
from sfumato._types import PLAN_FORMAT
from sfumato.labels.domains import DOMAINS, Classes, Coding, Domain, Grid
from sfumato.labels.priors import PRIORS, Counted, OpenPrior, Prior, RowPriors, Uniform

if TYPE_CHECKING:
    from sfumato.accounting import Event
    from sfumato.labels.files import Cells, LabelFile
    from sfumato.labels.response import Response


# What is randomised, and how: the settings of `randomize_table` and of its command.


@plan
class LabelSettings:
    """How labels are randomised.

    Attributes:
        label: the column of labels; all others stay as they are.
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        domain: what a label can be, public: one of some classes, or a number of a grid.
        prior: what is known of labels before: all are as likely (uniform); probabilities in a public table (public, or
            the file); or the labels are counted first under noise (counted, or its epsilon, which is a part of the
            whole).
        shuffle: write the rows in a random order, for a table whose order follows from its labels. It stays secret only
            if no column counts the rows; files that are read by the number of the row no longer fit.
    """

    label: str
    epsilon: float
    domain: Domain = part(default=Classes(), converter=DOMAINS)
    prior: Prior = part(default=Uniform(), converter=PRIORS)
    shuffle: bool = False

    renamed: ClassVar[Mapping[str, str]] = {
        "classes": "domain.names",
        "public_classes": "domain.public",
        **{name: f"domain.{name}" for name in ("low", "high", "values", "method", "loss")},
        "prior_epsilon": "prior",
        **{name: f"prior.{name}" for name in ("groups", "clusters", "features", "smoothing")},
    }

    def __post_init__(self) -> None:
        from sfumato.labels.response import require_epsilon

        require_epsilon(self.epsilon)
        if isinstance(self.domain, Classes) and not self.domain.names and not self.domain.public:
            raise InputError(
                "which classes are there? give domain.names, or domain.public to declare that those in the table are "
                "public; for numbers choose domain=grid"
            )
        _ = self.label_epsilon  # checks what it is left of
        if self.domain.method != "best" and self.prior != Uniform():
            raise InputError(
                f"domain.method {self.domain.method} uses no prior; take prior=uniform, or the method best"
            )
        if not isinstance(self.prior, Counted):
            return
        grouped = self.prior.groups is not None or self.prior.clusters is not None
        if grouped and isinstance(self.domain, Grid):
            raise InputError("bins are the same for all numbers; leave prior.groups out, and prior.clusters")
        if (self.prior.clusters is None) != (self.prior.features is None):
            raise InputError("clusters are of public features: give prior.clusters and prior.features, or neither")
        if self.prior.groups == self.label:
            raise InputError(f"prior.groups must be a public column, got the label {self.label!r}")

    @property
    def label_epsilon(self) -> float:
        """What is left for the labels, such that what the ledger adds up to is not above epsilon."""
        return self.prior.left_of(self.epsilon)

    def response(self, count: int, prior: np.ndarray | None) -> Response:
        """What turns labels into reports.

        Args:
            count: how many classes there are, or values of a number.
            prior: of all rows, for numbers; None for a uniform one.
        """
        return self.domain.response(self.label_epsilon, count, prior)

    def event(self) -> Event:
        """What all that is released of a label costs it."""
        from sfumato.accounting import PureDP

        return functools.reduce(operator.add, [*self.prior.events(), PureDP(self.label_epsilon, "replace")])

    def in_words(self, count: int) -> str:
        """The mechanism, for the statement."""
        counted = "; the prior is a histogram with discrete Laplace noise" if self.prior.events() else ""
        return f"{self.domain.in_words(count)}, epsilon {self.label_epsilon:.6g}{counted}"

    def plan(self, names: Sequence[str]) -> dict[str, Any]:
        """What plan.json holds; all of it is public.

        Args:
            names: of the classes that were found, or of the values of a number.
        """
        settings = to_json(self)
        found = {each.name: settings[each.name] for each in fields(LabelSettings)}  # none of a command's other options
        prior = found["prior"].items()
        found["prior"] = {name: value.name if isinstance(value, Path) else value for name, value in prior}
        if isinstance(self.domain, Classes):
            found["domain"]["names"] = list(names)
        return {"plan": "labeldp randomize", "format": PLAN_FORMAT, **found}


FALSE_ALARM = 1e-6
"""The most of all random orders that are refused."""


LONGEST = 1 << 16
"""The largest distance of rows that is looked at."""


_GROUPS = 16


class RowOrder:
    """The labels of rows that are read some at a time; kept in one to four bytes each.

    Args:
        classes: how many there are.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._parts: list[np.ndarray] = []

    def add(self, labels: np.ndarray) -> None:
        """Take in the labels of the next rows, int64 [n] in {0, …, classes-1}."""
        self._parts.append(labels.astype(np.min_scalar_type(self._classes)))

    def refuse_ordered(self, rows: str) -> None:
        """Refuse rows whose order follows from their labels.

        Args:
            rows: what messages call them.

        Raises:
            InputError: it does, and not by chance.
        """
        labels = np.concatenate([np.zeros(0, np.uint8), *self._parts])
        counts = np.bincount(labels, minlength=self._classes)
        if (counts > 0).sum() < 2:
            return
        found = _sorted(labels, counts) or _neighbours(labels, counts) or _periods(labels, counts)
        if found:
            raise InputError(
                f"{rows}: the order of rows is public and follows from the labels ({found}), so the noise could be "
                "averaged away; have them shuffled (shuffle, --shuffle)"
            )


def _sorted(labels: np.ndarray, counts: np.ndarray) -> str:
    """Whether labels only go up or down, or each class is one block; a quarter of the false alarms."""
    present = counts[counts > 0]
    rises, falls = (bool((labels[1:] > labels[:-1]).any()), bool((labels[1:] < labels[:-1]).any()))
    orders = math.log(2)  # the logarithm of how many orders of the classes look like this: up and down
    if rises and falls:
        if np.count_nonzero(labels[1:] != labels[:-1]) != len(present) - 1:
            return ""
        orders = math.lgamma(len(present) + 1)
    orders += sum(math.lgamma(count + 1) for count in present.tolist())
    chance = orders - math.lgamma(len(labels) + 1)
    return "rows of one label are next to each other" if chance < math.log(FALSE_ALARM / 4) else ""


def _neighbours(labels: np.ndarray, counts: np.ndarray) -> str:
    """Whether a class has too few or too many runs; a quarter of the false alarms."""
    equal = labels[1:][labels[1:] == labels[:-1]]
    runs = counts - np.bincount(equal, minlength=len(counts))
    several = counts > 1
    limit = math.log(FALSE_ALARM / 8 / max(several.sum(), 1))
    for few, found in ((True, "rows of one label are next to each other"), (False, "they alternate")):
        if (_log_chance(len(labels), counts[several], runs[several], few=few) < limit).any():
            return f"{found} more often than by chance"
    return ""


def _periods(labels: np.ndarray, counts: np.ndarray) -> str:
    """Whether equal labels are at some distance of each other too often; half of the false alarms."""
    rows = len(labels)
    longest = min(rows // 2, LONGEST)
    views = list(_views(counts))
    limit = math.log(FALSE_ALARM / 2 / (len(views) * longest))
    for view in views:
        shown = view[labels]
        size = int(shown.sum())
        # Rows of one remainder modulo the distance, one remainder after the other, are a random order, too. Its runs
        # are at most size - pairs: where one remainder ends and the next begins there may be a pair more.
        chances = _log_chance(rows, np.full(longest, size), size - _pairs(shown, longest), few=True)
        if chances.min() < limit:
            distance = int(chances.argmin()) + 1
            rows_away = f"{distance} row{'s' if distance > 1 else ''}"
            return f"equal labels are {rows_away} from each other more often than by chance"
    return ""


def _views(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Which classes count as one, bool [classes], each in more than one row; they follow from counts alone."""
    middle = (np.cumsum(counts) - counts / 2) / counts.sum()
    groups = np.arange(len(counts)) if len(counts) <= _GROUPS else (middle * _GROUPS).astype(int)
    for group in np.unique(groups[counts > 0]):
        yield groups == group
    if (counts > 0).sum() > 2:
        yield middle < 0.5
        yield middle >= 0.5


def _pairs(shown: np.ndarray, longest: int) -> np.ndarray:
    """How many pairs of shown rows there are at each distance from 1 on; bool [rows] -> int64 [longest]."""
    length = 1 << (2 * longest).bit_length()
    step = length - longest
    total = np.zeros(longest + 1)
    for start in range(0, len(shown), step):
        near = np.fft.rfft(shown[start : start + step].astype(np.float64), length)
        far = np.fft.rfft(shown[start : start + length].astype(np.float64), length)
        total += np.rint(np.fft.irfft(near.conj() * far, length)[: longest + 1])
    return total[1:].astype(np.int64)


def _log_chance(rows: int, sizes: np.ndarray, runs: np.ndarray, *, few: bool) -> np.ndarray:
    """A bound on the logarithm of the probability of so few, or so many, runs in a random order.

    The probabilities fall faster than a geometric series away from the mean, whose sum is the bound.

    Args:
        rows: how many there are.
        sizes: int64 [n], rows of the class, at least 1.
        runs: int64 [n], of the class.
        few: whether few of them are asked about.
    """
    a = sizes.astype(np.float64)
    b = rows - a
    r = np.clip(runs, 1, np.minimum(a, b + 1)).astype(np.float64)  # more there cannot be: all orders have as few
    at = _log_choose(b + 1, r) + _log_choose(a - 1, a - r) - _log_choose(np.full_like(a, rows), a)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = r * (r - 1) / ((b + 2 - r) * (a - r + 1))  # P(r - 1) / P(r)
        above = (b + 1 - r) * (a - r) / ((r + 1) * r)  # P(r + 1) / P(r)
        ratio = below if few else above
        return np.where((ratio >= 0) & (ratio < 1), np.minimum(at - np.log1p(-ratio), 0.0), 0.0)


def _log_choose(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    return gammaln(whole + 1) - gammaln(part + 1) - gammaln(whole - part + 1)


# A table that is to be randomised, looked at once before anything is written.
#
# Every label, group and prior is checked and counted, and a digest is made of them in the order of the rows: a run that
# goes on by other rows would put the noise of one label on another.


@dataclass
class RowDigest:
    """Of what a run that goes on must find again: labels, groups and priors of all rows, in order."""

    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, labels: np.ndarray, groups: np.ndarray | None, prior: np.ndarray | None) -> None:
        """Take in the next rows."""
        for values in (labels, groups, prior):
            if values is not None:
                self._hash.update(values.tobytes())

    @property
    def found(self) -> str:
        """So far, in hexadecimal."""
        return self._hash.hexdigest()


@dataclass(kw_only=True)
class TableWork:
    """A table that was looked at; made by `of`.

    Attributes:
        settings: how its labels are randomised.
        coding: labels as numbers and back.
        names: of the classes, or of the values of a number, public.
        prior: at work on it.
        what: the label's name in messages.
        rows: how many there are.
        counts: int64 [groups, classes], private; empty where nothing is counted.
        digest: of all rows.
    """

    settings: LabelSettings
    coding: Coding
    names: tuple[str, ...]
    prior: OpenPrior
    what: str
    rows: int = 0
    counts: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), np.int64))
    digest: str = ""

    @classmethod
    def of(cls, file: LabelFile, settings: LabelSettings) -> TableWork:
        """Look at all rows: every label and every prior is checked before anything is written."""
        kind, domain = file.kind(settings.label), settings.domain
        what = f"{file.path}: the label {settings.label!r}"
        names = domain.found(file, settings.label, what)
        coding = domain.coding(names, kind)
        prior = settings.prior.open(names, file)
        if isinstance(domain, Grid) and prior.rows() is not None:
            raise InputError("bins are the same for all numbers: give a prior with the columns class and probability")
        work = cls(settings=settings, coding=coding, names=names, prior=prior, what=what)
        work._look(file)
        return work

    @property
    def columns(self) -> list[str]:
        """That are read."""
        return [self.settings.label, *self.prior.columns]

    def new_digest(self) -> RowDigest:
        """To hold against `digest`."""
        digest = RowDigest()
        if self.prior.one is not None:
            digest.add(self.prior.one, None, None)
        return digest

    def take(self, cells: Cells, start: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Labels and groups of some rows, int64."""
        labels = self.coding.numbers(cells[self.settings.label], self.what, start)
        return labels, self.prior.groups_of(cells, start)

    def prior_of_all(self, counted: np.ndarray | None) -> np.ndarray | None:
        """The prior that bins are chosen by."""
        return self.prior.one if counted is None else counted[0]

    def prior_of(
        self, counted: np.ndarray | None, groups: np.ndarray | None, rows: RowPriors | None, count: int
    ) -> np.ndarray | None:
        """The prior of some rows."""
        if counted is not None and groups is not None:
            if groups.max(initial=0) >= len(counted):
                raise InputError(f"{self.what}: the table was changed while it was read; run it again with --resume")
            return counted[groups]
        return self.prior_of_all(counted) if rows is None else rows.take(count)

    def _look(self, file: LabelFile) -> None:
        from sfumato.labels.priors import label_counts

        digest, priors, counted = self.new_digest(), self.prior.rows(), bool(self.settings.prior.events())
        classes = len(self.names)
        counts: dict[int, np.ndarray] = {}
        order = RowOrder(classes)
        for cells in file.cells(self.columns):
            labels, groups = self.take(cells, self.rows)
            self.rows += len(labels)
            if not self.settings.shuffle:
                order.add(labels)
            if priors is not None and self.rows > priors.count:
                continue  # refused below, by how many rows there are
            digest.add(labels, groups, None if priors is None else priors.take(len(labels)))
            if counted:
                places = np.zeros(len(labels), np.int64) if groups is None else groups
                found = label_counts(places, labels, groups_count=self.prior.group_count(), classes=classes)
                for place in np.flatnonzero(found.any(axis=1)).tolist():
                    counts[place] = counts.get(place, 0) + found[place]
        if self.rows == 0:
            raise InputError(f"{file.path} has no rows; there is nothing to randomise")
        if not self.settings.shuffle:
            order.refuse_ordered(self.what)
        self.prior.require_rows(self.rows)
        if counted:
            nothing = np.zeros(classes, np.int64)
            self.counts = np.stack([counts.get(place, nothing) for place in range(self.prior.group_count())])
        self.digest = digest.found
