"""A table whose labels are randomised: its settings, how labels are coded, and what the order of its rows says.

**Coding.** Labels as a column holds them, as the numbers that are randomised, and back.

>>> coding = ClassCoding(["no", "yes"], pa.string())
>>> coding.numbers(pa.array(["yes", "no"]), "the label", 0).tolist(), coding.column(np.array([0, 0])).to_pylist()
([1, 0], ['no', 'no'])
>>> GridCoding(0.5, 5.0, 10).numbers(pa.array([0.7, 9.0]), "the label", 0).tolist()
[0, 9]

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

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import pyarrow as pa

if TYPE_CHECKING:
    from sfumato.accounting import Event
    from sfumato.labels.files import Cells, LabelFile
    from sfumato.labels.priors import FileClusters, NoisyHistogram, PublicPrior, RowPriors
    from sfumato.labels.response import Response


class Coding(Protocol):
    """How labels become numbers."""

    def numbers(self, cells: pa.Array, what: str, start: int) -> np.ndarray:
        """The numbers of some rows, int64.

        Args:
            cells: the labels.
            what: the column's name in messages.
            start: the number of the first row.

        Raises:
            InputError: one is missing or of no use; names the row.
        """
        ...

    def column(self, reports: np.ndarray) -> pa.Array:
        """The column that reports are written as."""
        ...


class ClassCoding:
    """Labels of classes.

    Args:
        classes: public, by number.
        kind: the type of the column.

    Raises:
        InputError: there are fewer than two, one stands there twice, or cannot be in the column.
    """

    def __init__(self, classes: Sequence[str], kind: pa.DataType) -> None:
        from sfumato.labels.response import require_classes

        require_classes(len(classes))
        try:
            self._known = pa.array(classes, pa.string()).cast(kind)
        except pa.ArrowInvalid as error:
            raise InputError(f"classes must be of the label's type, {kind}: {error}; give them as they are") from None
        if len(self._known.unique()) < len(classes):
            twice = next(name for name in classes if list(classes).count(name) > 1 or kind != pa.string())
            raise InputError(f"classes must be distinct, got {twice!r} twice; give each once")
        self._classes = tuple(classes)

    def numbers(self, cells: pa.Array, what: str, start: int) -> np.ndarray:
        import pyarrow.compute as pc

        from sfumato.data.columns import refuse_missing
        from sfumato.data.records import listed

        refuse_missing(cells, what, start)
        found = pc.index_in(cells.cast(self._known.type), value_set=self._known)  # pyright: ignore[reportAttributeAccessIssue]
        if found.null_count:
            row = int(found.is_null().to_numpy(zero_copy_only=False).argmax())
            raise InputError(
                f"{what} at position {start + row} is {cells[row].as_py()!r}, which is none of the classes "
                f"{listed(self._classes)}; add it to them, or drop the row"
            )
        return found.to_numpy().astype(np.int64)

    def column(self, reports: np.ndarray) -> pa.Array:
        return self._known.take(pa.array(reports))


class GridCoding:
    """Labels that are numbers, moved to the nearest one of a public grid; those outside of it to its ends.

    Args:
        low, high: its ends.
        count: of its values.
    """

    def __init__(self, low: float, high: float, count: int) -> None:
        self._low, self._step, self._most = low, (high - low) / (count - 1), count - 1

    def numbers(self, cells: pa.Array, what: str, start: int) -> np.ndarray:
        from sfumato.data.columns import refuse_missing

        refuse_missing(cells, what, start)
        try:
            values = cells.cast(pa.float64(), safe=False).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"{what} must be numbers where low and high are given: {said}; for classes give classes instead"
            ) from None
        if np.isnan(values).any():
            row = start + int(np.isnan(values).argmax())
            raise InputError(f"{what} at position {row} is nan; fill it in or drop the row")
        return self.places(values)

    def places(self, values: np.ndarray) -> np.ndarray:
        """The places on the grid of finite numbers, int64 of their shape."""
        return np.clip(np.rint((values - self._low) / self._step), 0, self._most).astype(np.int64)

    def column(self, reports: np.ndarray) -> pa.Array:
        return pa.array(reports.astype(np.float64))


# What is randomised, and how: the settings of `randomize_table` and of its command.


_VALUES = 256  # of a grid by default


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How labels are randomised.

    Attributes:
        label: the column of labels; all others stay as they are.
        epsilon: of one label, all that is released of it together, in [1e-6, 500].
        classes: what a label can be, public. Numbers with --low and --high need none.
        public_classes: take the classes that the table has, and declare them public: who has the only label of a class
            is then not hidden.
        prior: a table of public probabilities: columns class and probability, or a row for each label and a column for
            each class. Without it, or a counted one, all classes are as likely.
        prior_epsilon: count the labels first, under noise, and take that for the prior; a part of epsilon, 0.05 or less
            is often enough.
        groups: with --prior-epsilon: a public column; the labels of each of its values are counted alone.
        clusters: with --prior-epsilon: so many clusters of public features, and the labels of each are counted alone.
        features: of these clusters, a .npy of numbers with a row for each row of the table; public.
        smoothing: share of the prior that is spread over all classes evenly, in [0, 1].
        low: labels are numbers from this one on, public; those below count as it.
        high: and up to this one, public; those above count as it.
        values: so many numbers from low to high, evenly spaced, to which labels are rounded; 256 unless given.
        method: "best" keeps the labels that are best for the prior, or cuts numbers into the best bins. "rr" keeps all
            of them. "laplace" adds noise to numbers.
        loss: what bins are best for.
        shuffle: write the rows in a random order, for a table whose order follows from its labels. It stays secret only
            if no column counts the rows; files that are read by the number of the row no longer fit.
    """

    label: str
    epsilon: float
    classes: tuple[str, ...] | None = None
    public_classes: bool = False
    prior: Path | None = None
    prior_epsilon: float | None = None
    groups: str | None = None
    clusters: int | None = None
    features: Path | None = None
    smoothing: float = 0.0
    low: float | None = None
    high: float | None = None
    values: int | None = None
    method: Literal["best", "rr", "laplace"] = "best"
    loss: Literal["squared", "absolute", "poisson"] = "squared"
    shuffle: bool = False

    def require_valid(self) -> None:
        """Refuse settings that exclude each other.

        Raises:
            InputError: names what is wrong.
        """
        from sfumato.labels.response import require_epsilon

        require_epsilon(self.epsilon)
        _check.between(0, 1, smoothing=self.smoothing)
        _check.one_of(("best", "rr", "laplace"), method=self.method)
        if self.of_numbers:
            self._require_range()
        else:
            self._require_classes()
        if self.prior_epsilon is not None:
            require_epsilon(self.prior_epsilon)
            left_for_labels(self.epsilon, self.histogram)
        if self.prior is not None and self.prior_epsilon is not None:
            raise InputError("give prior (public) or prior_epsilon (counted under noise), not both")
        if self.prior is None and self.prior_epsilon is None and self.smoothing:
            raise InputError("smoothing is for a prior; give prior or prior_epsilon, or leave it out")
        if self.groups is not None and self.prior_epsilon is None:
            raise InputError("groups are counted under noise; give prior_epsilon, too, or leave groups out")
        self._require_clusters()
        if self.groups == self.label:
            raise InputError(f"groups must be a public column, got the label {self.label!r}")
        if self.method != "best" and (self.prior is not None or self.prior_epsilon is not None):
            raise InputError(f"method {self.method} uses no prior; leave the prior out, or take the method best")

    def _require_clusters(self) -> None:
        if (self.clusters is None) != (self.features is None):
            raise InputError("clusters are of public features: give clusters and features, or leave both out")
        if self.clusters is None:
            return
        _check.whole(clusters=self.clusters)
        if self.prior_epsilon is None:
            raise InputError("clusters are counted under noise; give prior_epsilon, too, or leave clusters out")
        if self.groups is not None:
            raise InputError("give groups or clusters, not both")

    def _require_range(self) -> None:
        from sfumato.labels.numbers import MOST_VALUES

        if self.low is None or self.high is None:
            raise InputError("numbers need both ends of their range; give low and high")
        if not -math.inf < self.low < self.high < math.inf:
            raise InputError(f"low must be below high, and both finite, got {self.low:g} and {self.high:g}")
        _check.whole(at_least=2, values=self.count)
        _check.between(2, MOST_VALUES, values=self.count)
        if self.classes is not None or self.public_classes:
            raise InputError("labels are classes or numbers: leave classes out, or low and high")
        if self.groups is not None or self.clusters is not None:
            raise InputError("bins are the same for all numbers; leave groups out, and clusters")

    def _require_classes(self) -> None:
        asked = {"values": self.values is not None, "method laplace": self.method == "laplace"}
        for name, given in {**asked, f"loss {self.loss}": self.loss != "squared"}.items():
            if given:
                raise InputError(f"{name} is for numbers; give low and high, too, or leave it out")
        if self.classes is None and not self.public_classes:
            raise InputError(
                "which classes are there? give classes, or public_classes to declare that those in the table are "
                "public; for numbers give low and high"
            )
        if self.classes is not None and self.public_classes:
            raise InputError("give classes or public_classes, not both")

    @property
    def of_numbers(self) -> bool:
        """Whether labels are numbers."""
        return self.low is not None or self.high is not None

    @property
    def count(self) -> int:
        """Of the values of a number."""
        return _VALUES if self.values is None else self.values

    @property
    def grid(self) -> np.ndarray:
        """The values of a number, float64 [count]."""
        assert self.low is not None
        assert self.high is not None
        return np.linspace(self.low, self.high, self.count)

    @property
    def histogram(self) -> NoisyHistogram | None:
        """How labels are counted for the prior, if they are."""
        from sfumato.labels.priors import NoisyHistogram

        if self.prior_epsilon is None:
            return None
        return NoisyHistogram(epsilon=self.prior_epsilon, smoothing=self.smoothing)

    @property
    def label_epsilon(self) -> float:
        """What is left for the labels, such that what the ledger adds up to is not above epsilon."""
        return left_for_labels(self.epsilon, self.histogram)

    def response(self, classes: int, prior: np.ndarray | None) -> Response:
        """What turns labels into reports.

        Args:
            classes: how many there are, or values of a number.
            prior: of all rows, for numbers; None for a uniform one.
        """
        from sfumato.labels.numbers import BinnedResponse, GridLaplace
        from sfumato.labels.response import LabelResponse

        epsilon = self.label_epsilon
        if not self.of_numbers:
            return LabelResponse(epsilon=epsilon, classes=classes, size=classes if self.method == "rr" else None)
        if self.method == "laplace":
            assert self.low is not None
            assert self.high is not None
            return GridLaplace(epsilon=epsilon, low=self.low, high=self.high, count=self.count)
        if self.method == "rr":
            return BinnedResponse.plain(self.grid, epsilon=epsilon)
        prior = np.full(classes, 1 / classes) if prior is None else prior
        return BinnedResponse.best(self.grid, prior, epsilon=epsilon, loss=self.loss)

    def event(self) -> Event:
        """What all that is released of a label costs it."""
        from sfumato.accounting import PureDP

        labels = PureDP(self.label_epsilon, "replace")
        return labels if self.histogram is None else self.histogram.event() + labels

    def in_words(self, classes: int) -> str:
        """The mechanism, for the statement."""
        if self.of_numbers:
            what = f"{self.count} values from {self.low:g} to {self.high:g}"
            ways = {"best": f"in bins that are best for the {self.loss} loss", "rr": "each by itself"}
        else:
            what = f"{classes} classes"
            ways = {"best": "of which it reports as many as is best for the prior", "rr": "all of which are reported"}
        phrase = (
            f"randomised response on {what}, {ways[self.method]}" if self.method in ways else f"Laplace noise on {what}"
        )
        counted = "" if self.histogram is None else "; the prior is a histogram with discrete Laplace noise"
        return f"{phrase}, epsilon {self.label_epsilon:.6g}{counted}"

    def plan(self, classes: tuple[str, ...] | None) -> dict[str, Any]:
        """What plan.json holds; all of it is public."""
        settings = {each.name: getattr(self, each.name) for each in fields(LabelSettings)}
        names = {name: file.name for name, file in settings.items() if isinstance(file, Path)}
        return {"plan": "labeldp randomize", **settings, **names, "classes": classes}


def left_for_labels(epsilon: float, histogram: NoisyHistogram | None) -> float:
    """What a counted prior leaves of epsilon, such that what the ledger adds up to is not above it.

    Raises:
        InputError: the prior leaves nothing.
    """
    from sfumato.accounting import guarantee
    from sfumato.labels.response import LEAST_EPSILON, LabelResponse

    if histogram is None:
        return float(epsilon)
    if histogram.epsilon > epsilon - LEAST_EPSILON:
        raise InputError(
            f"prior_epsilon must be below epsilon, {epsilon:g}, of which it is a part, got {histogram.epsilon:g}; 0.05 "
            "is often enough"
        )
    left, counted = float(epsilon) - histogram.epsilon, histogram.event()
    while guarantee(counted + LabelResponse(epsilon=left, classes=2).event(), "replace").epsilon(0.0) > epsilon:
        left = math.nextafter(left, 0.0)
    return left


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


_MOST_GROUPS = 100_000


@dataclass
class RowDigest:
    """Of what a run that goes on must find again: labels, groups and priors of all rows, in order."""

    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

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
        what: the label's name in messages.
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
    what: str
    rows: int = 0
    counts: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), np.int64))
    digest: str = ""
    groups: dict[str, int] = field(default_factory=dict)
    clusters: FileClusters | None = None

    @classmethod
    def of(cls, file: LabelFile, settings: LabelSettings) -> TableWork:
        """Look at all rows: every label and every prior is checked before anything is written."""
        from sfumato.data.safeguards import odd_values
        from sfumato.labels.priors import FileClusters, PublicPrior

        kind = file.kind(settings.label)
        what = f"{file.path}: the label {settings.label!r}"
        classes = None
        if settings.of_numbers:
            assert settings.low is not None
            assert settings.high is not None
            coding: Coding = GridCoding(settings.low, settings.high, settings.count)
            names = tuple(f"{value:g}" for value in settings.grid)
        else:
            names = classes = settings.classes or _classes_in(file, settings.label, what)
            if settings.classes is None and (odd := odd_values(what, names)):
                raise InputError(f"{odd[0]}, or declare the classes: --classes or classes=")
            coding = ClassCoding(names, kind)
        prior = None if settings.prior is None else PublicPrior(settings.prior, names, settings.smoothing)
        if settings.of_numbers and prior is not None and prior.one is None:
            raise InputError("bins are the same for all numbers: give a prior with the columns class and probability")
        work = cls(settings=settings, coding=coding, classes=classes, class_count=len(names), prior=prior, what=what)
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
        from sfumato.data.columns import refuse_missing

        labels = self.coding.numbers(cells[self.settings.label], self.what, start)
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
                raise InputError(f"{self.what}: the table was changed while it was read; run it again with --resume")
            return counted[groups]
        return self.prior_of_all(counted) if rows is None else rows.take(count)

    @property
    def _group_count(self) -> int:
        return max(len(self.groups), 1) if self.clusters is None else self.clusters.count

    def _look(self, file: LabelFile) -> None:
        from sfumato.labels.priors import label_counts

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
            order.refuse_ordered(self.what)
        if self.prior is not None:
            self.prior.require_rows(self.rows)
        if self.clusters is not None and len(self.clusters) != self.rows:
            raise InputError(f"{self.settings.features} has {len(self.clusters):,} rows for {self.rows:,} labels")
        if counted:
            nothing = np.zeros(self.class_count, np.int64)
            self.counts = np.stack([counts.get(place, nothing) for place in range(self._group_count)])
        self.digest = digest.found


def _classes_in(file: LabelFile, label: str, what: str) -> tuple[str, ...]:
    """The values that labels have, in order."""
    from sfumato.data.columns import refuse_missing

    seen: set[str] = set()
    start = 0
    for cells in file.cells([label]):
        refuse_missing(cells[label], what, start)
        seen.update(cells[label].unique().cast(pa.string()).to_pylist())
        start += len(cells[label])
        if len(seen) > _MOST_GROUPS:
            raise InputError(f"{what} has more than {_MOST_GROUPS:,} values; for numbers give low and high")
    return tuple(sorted(seen, key=_in_order))


def _in_order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
