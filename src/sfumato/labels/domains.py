"""What a label can be, which is public: one of some classes, or a number of a grid.

A domain turns labels as a column holds them into the numbers that are randomised, and back, and gives the response that
randomises them.

>>> classes = Classes(names=("no", "yes")).coding(("no", "yes"), pa.string())
>>> classes.numbers(pa.array(["yes", "no"]), "the label", 0).tolist(), classes.column(np.array([0, 0])).to_pylist()
([1, 0], ['no', 'no'])
>>> Grid(low=0.5, high=5.0, values=10).numbers(pa.array([0.7, 9.0]), "the label", 0).tolist()
[0, 9]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import pyarrow as pa
from sfumato._parts import Kinds

if TYPE_CHECKING:
    from sfumato.labels.files import LabelFile
    from sfumato.labels.response import Response

MOST_FOUND = 100_000
"""Classes, or groups of rows, that a table may have."""


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

        from sfumato.data.records import listed, refuse_missing

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


@dataclass(frozen=True, kw_only=True)
class Classes:
    """Labels are classes.

    Attributes:
        names: what a label can be, public.
        public: take the classes that the table has, and declare them public: who has the only label of a class is then
            not hidden.
        method: "best" reports the labels that are best for the prior, "rr" all of them.
    """

    names: tuple[str, ...] = ()
    public: bool = False
    method: Literal["best", "rr"] = "best"

    def __post_init__(self) -> None:
        _check.one_of(("best", "rr"), method=self.method)
        if self.names and self.public:
            raise InputError("names and public exclude each other; give one of them")

    def found(self, file: LabelFile, label: str, what: str) -> tuple[str, ...]:
        """The names of what a label can be, by number: the declared ones, or those that the table has, in order.

        Args:
            file: the table.
            label: its column of labels.
            what: the label's name in messages.
        """
        from sfumato.data.records import refuse_missing
        from sfumato.data.safeguards import odd_values

        if self.names:
            return self.names
        seen: set[str] = set()
        start = 0
        for cells in file.cells([label]):
            refuse_missing(cells[label], what, start)
            seen.update(cells[label].unique().cast(pa.string()).to_pylist())
            start += len(cells[label])
            if len(seen) > MOST_FOUND:
                raise InputError(f"{what} has more than {MOST_FOUND:,} values; for numbers choose domain=grid")
        names = tuple(sorted(seen, key=_in_order))
        if odd := odd_values(what, names):
            raise InputError(f"{odd[0]}, or declare the classes: domain.names")
        return names

    def coding(self, names: tuple[str, ...], kind: pa.DataType) -> Coding:
        """Labels of these names as numbers and back, for a column of this type."""
        return ClassCoding(names, kind)

    def response(self, epsilon: float, count: int, prior: np.ndarray | None = None) -> Response:
        """What turns labels into reports.

        Args:
            epsilon: of one label.
            count: how many classes there are.
            prior: not used: each row has one of its own when it is drawn.
        """
        from sfumato.labels.response import LabelResponse

        return LabelResponse(epsilon=epsilon, classes=count, size=count if self.method == "rr" else None)

    def in_words(self, count: int) -> str:
        """The mechanism, for the statement."""
        which = {"best": "of which it reports as many as is best for the prior", "rr": "all of which are reported"}
        return f"randomised response on {count} classes, {which[self.method]}"


def _in_order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Labels are numbers, each moved to the nearest one of a public grid; those outside of it to its ends.

    Attributes:
        low: numbers from this one on, public; those below count as it.
        high: and up to this one, public; those above count as it.
        values: so many numbers from low to high, evenly spaced.
        method: "best" cuts numbers into the bins that are best for the prior, "rr" reports all values, "laplace" adds
            noise.
        loss: that bins are best for.
    """

    low: float
    high: float
    values: int = 256
    method: Literal["best", "rr", "laplace"] = "best"
    loss: Literal["squared", "absolute", "poisson"] = "squared"

    def __post_init__(self) -> None:
        from sfumato.labels.numbers import MOST_VALUES

        if not -math.inf < self.low < self.high < math.inf:
            raise InputError(f"low must be below high, and both finite, got {self.low:g} and {self.high:g}")
        _check.whole(at_least=2, values=self.values)
        _check.between(2, MOST_VALUES, values=self.values)
        _check.one_of(("best", "rr", "laplace"), method=self.method)
        _check.one_of(("squared", "absolute", "poisson"), loss=self.loss)

    @property
    def grid(self) -> np.ndarray:
        """What a number can be, float64 [values]."""
        return np.linspace(self.low, self.high, self.values)

    def found(self, file: LabelFile, label: str, what: str) -> tuple[str, ...]:
        """The numbers as a prior names them."""
        return tuple(f"{value:g}" for value in self.grid)

    def coding(self, names: tuple[str, ...], kind: pa.DataType) -> Coding:
        """The grid itself."""
        return self

    def response(self, epsilon: float, count: int, prior: np.ndarray | None = None) -> Response:
        """What turns numbers into reports.

        Args:
            epsilon: of one label.
            count: of values.
            prior: of all rows, float64 [values], that bins are best for; None for an even one.
        """
        from sfumato.labels.numbers import BinnedResponse, GridLaplace

        if self.method == "laplace":
            return GridLaplace(epsilon=epsilon, low=self.low, high=self.high, count=self.values)
        if self.method == "rr":
            return BinnedResponse.plain(self.grid, epsilon=epsilon)
        prior = np.full(self.values, 1 / self.values) if prior is None else prior
        return BinnedResponse.best(self.grid, prior, epsilon=epsilon, loss=self.loss)

    def in_words(self, count: int) -> str:
        """The mechanism, for the statement."""
        what = f"{count} values from {self.low:g} to {self.high:g}"
        if self.method == "laplace":
            return f"Laplace noise on {what}"
        ways = {"best": f"in bins that are best for the {self.loss} loss", "rr": "each by itself"}
        return f"randomised response on {what}, {ways[self.method]}"

    def numbers(self, cells: pa.Array, what: str, start: int) -> np.ndarray:
        from sfumato.data.records import refuse_missing

        refuse_missing(cells, what, start)
        try:
            values = cells.cast(pa.float64(), safe=False).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{what} must be numbers for domain=grid: {reason}; else choose domain=classes") from None
        if np.isnan(values).any():
            row = start + int(np.isnan(values).argmax())
            raise InputError(f"{what} at position {row} is nan; fill it in or drop the row")
        return self.places(values)

    def places(self, values: np.ndarray) -> np.ndarray:
        """The places on the grid of finite numbers, int64 of their shape."""
        step = (self.high - self.low) / (self.values - 1)
        return np.clip(np.rint((values - self.low) / step), 0, self.values - 1).astype(np.int64)

    def column(self, reports: np.ndarray) -> pa.Array:
        return pa.array(reports.astype(np.float64))


Domain = Classes | Grid

DOMAINS = Kinds[Classes | Grid]({"classes": Classes, "grid": Grid})
