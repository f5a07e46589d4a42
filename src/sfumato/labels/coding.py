"""Labels as a column holds them, as the numbers that are randomised, and back.

>>> coding = ClassCoding(["no", "yes"], pa.string())
>>> coding.numbers(pa.array(["yes", "no"]), "the label", 0).tolist(), coding.column(np.array([0, 0])).to_pylist()
([1, 0], ['no', 'no'])
>>> GridCoding(0.5, 5.0, 10).numbers(pa.array([0.7, 9.0]), "the label", 0).tolist()
[0, 9]
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError
from sfumato.data.tables.cells import refuse_missing
from sfumato.data.tables.source import listed
from sfumato.mechanisms.randomized_response.words import require_classes


class Coding(Protocol):
    """How labels become numbers."""

    def numbers(self, cells: pa.Array, told: str, start: int) -> np.ndarray:
        """The numbers of some rows, int64.

        Args:
            cells: the labels.
            told: what messages call the column.
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
        require_classes(len(classes))
        try:
            self._known = pa.array(classes, pa.string()).cast(kind)
        except pa.ArrowInvalid as error:
            raise InputError(f"classes must be of the label's type, {kind}: {error}; give them as they are") from None
        if len(self._known.unique()) < len(classes):
            twice = next(name for name in classes if list(classes).count(name) > 1 or kind != pa.string())
            raise InputError(f"classes must be distinct, got {twice!r} twice; give each once")
        self._classes = tuple(classes)

    def numbers(self, cells: pa.Array, told: str, start: int) -> np.ndarray:
        refuse_missing(cells, told, start)
        found = pc.index_in(cells.cast(self._known.type), value_set=self._known)  # pyright: ignore[reportAttributeAccessIssue]
        if found.null_count:
            row = int(found.is_null().to_numpy(zero_copy_only=False).argmax())
            raise InputError(
                f"{told} at position {start + row} is {cells[row].as_py()!r}, which is none of the classes "
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

    def numbers(self, cells: pa.Array, told: str, start: int) -> np.ndarray:
        refuse_missing(cells, told, start)
        try:
            values = cells.cast(pa.float64(), safe=False).to_numpy()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            said = " ".join(str(error).split())[:200]
            raise InputError(
                f"{told} must be numbers where low and high are given: {said}; for classes give classes instead"
            ) from None
        if np.isnan(values).any():
            row = start + int(np.isnan(values).argmax())
            raise InputError(f"{told} at position {row} is nan; fill it in or drop the row")
        return self.places(values)

    def places(self, values: np.ndarray) -> np.ndarray:
        """The places on the grid of finite numbers, int64 of their shape."""
        return np.clip(np.rint((values - self._low) / self._step), 0, self._most).astype(np.int64)

    def column(self, reports: np.ndarray) -> pa.Array:
        return pa.array(reports.astype(np.float64))
