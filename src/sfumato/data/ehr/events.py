"""Events as arrays, gathered a block at a time: whose each is, when it was, what it is, and its value.

An event takes 36 bytes, so a table of 1.7 million takes 60 MB however large its file is.

>>> events = Events()
>>> events.add(
...     {"who": pa.array([7, 7]), "minute": pa.array([None, 3.0]), "what": pa.array(["sex", "pulse"]),
...      "value": pa.array(["f", "80"])},
...     Roles(id="who", time="minute", code="what", values=("value",)), str,
... )
>>> gathered = events.gathered()
>>> gathered.times.tolist(), gathered.numbers.tolist(), [events.texts.get(place) for place in gathered.texts]
([nan, 3.0], [nan, 80.0], ['f', None])
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.ehr.cells import Where, numbers_of, texts_of, times_of
from sfumato.data.examples.schema import as_text
from sfumato.data.ratings.columns import Codes
from sfumato.data.tables.cell_texts import as_number, is_missing, is_number_text
from sfumato.data.tables.kinds import is_number


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which columns of a table of events are what.

    Attributes:
        id, time, code: whose, when (missing for what does not change) and what.
        values: one column, or several of which the first that has something counts.
    """

    id: str
    time: str
    code: str
    values: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id, self.time, self.code, *self.values)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """All events, in the order of their rows.

    Attributes:
        owners: int32 [events], the number of the patient.
        times: float64 [events], NaN where there is none; dates in microseconds.
        codes: int32 [events], the number of the code.
        numbers: float64 [events], the value where it is a number, else NaN.
        texts: int32 [events], the number of the text where it is one, else -1.
        rows: int64 [events], the row of the table.
    """

    owners: np.ndarray
    times: np.ndarray
    codes: np.ndarray
    numbers: np.ndarray
    texts: np.ndarray
    rows: np.ndarray

    def taken(self, kept: np.ndarray) -> "Gathered":
        """Some events: a mask, or places."""
        return Gathered(**{name: values[kept] for name, values in vars(self).items()})

    def cells(self, texts: Mapping[int, str]) -> pa.Array:
        """The values as a column, null where an event has none."""
        if (self.texts < 0).all():
            return pa.array(self.numbers)
        return pa.array(
            [
                texts[text] if text >= 0 else None if np.isnan(number) else as_text(number)
                for text, number in zip(self.texts.tolist(), self.numbers.tolist(), strict=True)
            ],
            pa.large_string(),
        )


class Events:
    """Collects events.

    Args:
        only: the codes that are kept; None keeps all.
        but: codes that are not read.
        people: the patients that are kept; None keeps all.

    Attributes:
        ids: names of patients, as they come.
        codes: names of codes, as they come.
        texts: of values that are no numbers, by their number.
        dates: whether times are dates; None while none is known.
        left_out: events of codes that are not kept.
        seen: rows that were read.
    """

    def __init__(
        self,
        only: Collection[str] | None = None,
        but: Collection[str] = (),
        people: Collection[str] | None = None,
    ) -> None:
        self.ids, self.codes = Codes("patient", people=True), Codes("code")
        self.texts: dict[int, str] = {}
        self.dates: bool | None = None
        self.left_out = self.seen = 0
        self._numbers_of_texts: dict[str, int] = {}
        self._only, self._but, self._people = only, but, people
        self._every_code, self._everybody = Codes("code"), Codes("patient", people=True)
        self._blocks: list[Gathered] = []

    @property
    def met(self) -> list[str]:
        """Names of all codes that were there, kept or not."""
        return list(dict.fromkeys([*self._every_code.names, *self.codes.names]))

    def add(self, block: Mapping[str, pa.Array], roles: Roles, where: Where) -> None:
        """Take a block of a table.

        Raises:
            InputError: a patient or a code is missing, a time is none, or a number is not finite.
        """
        first = self.seen
        rows = np.flatnonzero(self.kept(block, roles, where))
        if len(rows) < len(block[roles.id]):
            block = {name: array.take(pa.array(rows)) for name, array in block.items()}

        def of_kept(row: int) -> str:
            return where(int(rows[row]))

        owners = self.ids.add(block[roles.id], of_kept)
        codes = self.codes.add(block[roles.code], of_kept)
        times, dates = times_of(block[roles.time], roles.time, of_kept)
        if dates is not None and self.dates not in (None, dates):
            raise InputError(f"the times are dates and numbers from {of_kept(0)} on; write them in one way")
        self.dates = self.dates if dates is None else dates
        numbers, texts = np.full(len(owners), np.nan), np.full(len(owners), -1, np.int32)
        for name in roles.values:
            found, said = self._values(block[name], name, of_kept)
            empty = np.isnan(numbers) & (texts < 0)
            numbers, texts = np.where(empty, found, numbers), np.where(empty, said, texts)
        self._blocks.append(
            Gathered(owners=owners, times=times, codes=codes, numbers=numbers, texts=texts, rows=first + rows)
        )

    def kept(self, block: Mapping[str, pa.Array], roles: Roles, where: Where) -> np.ndarray:
        """Which rows of a block are read, bool [rows]."""
        kept = np.ones(len(block[roles.id]), bool)
        self.seen += len(kept)
        if self._people is not None:
            owners = self._everybody.add(block[roles.id], where)
            kept &= np.array([name in self._people for name in self._everybody.names], bool)[owners]
        if self._only is not None or self._but:
            codes = self._every_code.add(block[roles.code], where)
            names, only = self._every_code.names, self._only
            kept &= np.array([name not in self._but for name in names], bool)[codes]
            if only is not None:
                wanted = np.array([name in only for name in names], bool)[codes]
                self.left_out += int((kept & ~wanted).sum())
                kept &= wanted
        return kept

    def gathered(self) -> Gathered:
        """All events; the blocks are let go of.

        Raises:
            InputError: there are none.
        """
        if not sum(len(block.owners) for block in self._blocks):
            raise InputError("there are no events; needed is a row for each measurement")
        joined = {}
        for name in vars(self._blocks[0]):
            joined[name] = np.concatenate([vars(block)[name] for block in self._blocks])
        self._blocks.clear()
        return Gathered(**joined)

    def _values(self, array: pa.Array, name: str, where: Where) -> tuple[np.ndarray, np.ndarray]:
        """The numbers and the texts of a column of values."""
        if is_number(array.type) or pa.types.is_null(array.type):
            return numbers_of(array, name, where), np.full(len(array), -1, np.int32)
        found, rows = texts_of(array, name, where)
        numbers, texts = np.full(len(found) + 1, np.nan), np.full(len(found) + 1, -1, np.int32)
        for place, text in enumerate(found):
            if is_number_text(text):
                numbers[place] = as_number(text)
            elif not is_missing(text):
                texts[place] = self._numbers_of_texts.setdefault(text, len(self._numbers_of_texts))
                self.texts[int(texts[place])] = text
        return numbers[rows], texts[rows]
