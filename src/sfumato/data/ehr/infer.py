"""What a column holds, found from its cells where no schema says it.

Numbers are numeric, unless there are only one or two different ones, which are a flag and thus categories. Texts are
categories. Some texts among numbers are a mistake more often than not, and are refused with the first such row.

>>> seen = Profile("stage")
>>> seen.add(pa.array(["1", "2", "", "1"]), str)
>>> seen.column()
Column(name='stage', kind='categorical', categories=('1', '2'), whole=False, range=None)
>>> seen.add(pa.array([3.5]), str)
>>> seen.column().kind
'numeric'
>>> seen.add(pa.array(["late"]), "table.csv line {}".format)
>>> seen.column()
Traceback (most recent call last):
...
sfumato._check.InputError: 'stage' is 'late' at table.csv line 0, but a number in 4 rows; correct it or empty the cell,
or name the column in categorical= or drop=
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.ehr.cells import Where, numbers_of, texts_of
from sfumato.data.ehr.dataset import LARGEST_WHOLE
from sfumato.data.ehr.schema import MOST_CATEGORIES, Column, categorical, numeric
from sfumato.data.examples.schema import as_text
from sfumato.data.tables.cell_texts import as_number, is_comma_number, is_missing, is_number_text
from sfumato.data.tables.kinds import is_number

_FLAG = 2  # different numbers at most of a column that is taken for categories
_AMONG = "name the column in categorical= or drop="


class Profile:
    """What has been seen of a column, block by block, in memory for at most so many values as it may have categories.

    Args:
        name: of the column.
        categorical: whether it is declared to hold categories.
        constant: whether one value in all rows may stand.
    """

    def __init__(self, name: str, *, categorical: bool = False, constant: bool = False) -> None:
        self._name, self._categorical, self._constant = name, categorical, constant
        self._found: set[str] = set()
        self._numbers = self._others = self._missing = 0
        self._whole = True
        self._commas = True  # in all texts that are no numbers, as if they were
        self._odd = ""  # where the first text is that is no number, and what it is

    def add(self, array: pa.Array, where: Where) -> None:
        """Look at a block.

        Args:
            array: its cells.
            where: tells of a row.

        Raises:
            InputError: they are neither numbers nor texts, or a number is not finite.
        """
        if is_number(array.type) and not pa.types.is_boolean(array.type):
            values = numbers_of(array, self._name, where)
            present = values[~np.isnan(values)]
            self._count(present)
            self._missing += len(values) - len(present)
            return
        texts, rows = texts_of(array, self._name, where)
        counts = np.bincount(rows, minlength=len(texts) + 1)
        blank = np.array([*map(is_missing, texts), True])
        self._missing += int(counts[blank].sum())
        numbers = np.array([*map(is_number_text, texts), False])
        self._count(np.array([*map(as_number, texts), 0.0])[rows[numbers[rows]]])
        others = ~(blank | numbers)
        for place in np.flatnonzero(others).tolist():
            self._add(texts[place])
            self._commas &= is_comma_number(texts[place])
            self._odd = self._odd or f"{texts[place]!r} at {where(int((rows == place).argmax()))}"
        self._others += int(counts[others].sum())

    def _count(self, values: np.ndarray) -> None:
        distinct = np.unique(values)
        self._numbers += len(values)
        self._whole &= bool((np.floor(distinct) == distinct).all() and (np.abs(distinct) <= LARGEST_WHOLE).all())
        for value in distinct[: MOST_CATEGORIES + 1].tolist():
            self._add(as_text(value))

    def _add(self, text: str) -> None:
        if len(self._found) <= MOST_CATEGORIES:
            self._found.add(text)

    def column(self) -> Column:
        """The column.

        Raises:
            InputError: it has no value, one value in every row, too many categories, numbers with commas, or texts
                among numbers.
        """
        name = self._name
        if not self._found:
            raise InputError(f"{name!r} has no value in {self._missing:,} rows; name it in drop=")
        if len(self._found) == 1 and not self._missing and not self._constant and self._numbers + self._others > 1:
            (only,) = self._found
            raise InputError(
                f"{name!r} is {only!r} in all {self._numbers + self._others:,} rows, of which there is nothing to "
                "learn; name it in drop="
            )
        if self._others and self._commas and not self._categorical:
            raise InputError(
                f"{name!r} is {self._odd}, a number with a comma; write numbers with a point and without commas, or "
                f"{_AMONG}"
            )
        if self._others and self._numbers >= self._others and not self._categorical:
            raise InputError(
                f"{name!r} is {self._odd}, but a number in {self._numbers:,} rows; correct it or empty the cell, or "
                f"{_AMONG}"
            )
        if not self._others and len(self._found) > _FLAG and not self._categorical:
            return numeric(name, whole=self._whole)
        if len(self._found) > MOST_CATEGORIES:
            first = f", {self._odd} for example" if self._odd else ""
            raise InputError(
                f"{name!r} has more than {MOST_CATEGORIES:,} different texts{first}; group them, or name the column in "
                "drop="
            )
        return categorical(name, in_order(self._found))


def in_order(texts: set[str]) -> Sequence[str]:
    """Categories by number where all are numbers, else as text."""
    values = {text: as_number(text) for text in texts}
    if np.isnan(list(values.values())).any():
        return sorted(texts)
    return sorted(texts, key=lambda text: values[text])
