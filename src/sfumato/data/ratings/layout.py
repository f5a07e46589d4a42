"""How a file of ratings is laid out, found from its first line.

| first line                            | of                            | columns                            |
| ------------------------------------- | ----------------------------- | ---------------------------------- |
| userId,movieId,rating,timestamp       | MovieLens latest, 20M to 32M  | as they are named                  |
| 1::1193::5::978300760                 | MovieLens 1M and 10M          | userId, movieId, rating, timestamp |
| 196 242 3 881250949, with tabs        | MovieLens 100K                | userId, movieId, rating, timestamp |
| any other, with commas or tabs        | other tables                  | as they are named                  |
"""

import csv
import re
from dataclasses import dataclass

from sfumato._check import InputError
from sfumato.data.ratings.places import Place
from sfumato.data.readers.csv_rows import refuse_divider

COLUMNS = ("userId", "movieId", "rating", "timestamp")
"""The names of MovieLens' columns, also where a file has no header."""

_COLONS = re.compile(rb"[^:]+(::[^:]+){2,3}")
_TABS = re.compile(rb"\d+\t\d+\t[\d.]+(\t\d+)?")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_LINE = 1 << 16  # bytes of a first line


@dataclass(frozen=True)
class Layout:
    """How a delimited file is read.

    Attributes:
        delimiter: one character.
        names: of the fields, in order; "" where nothing may stand, as between two colons.
        header: lines before the first row, 0 or 1.
        quoted: whether fields may stand in quotes.
    """

    delimiter: str
    names: tuple[str, ...]
    header: int
    quoted: bool


def layout_of(place: Place, *, headed: bool = False) -> Layout:
    """The layout of a delimited file.

    Args:
        place: the file.
        headed: whether the first line has the names of the columns, whatever they look like.

    Raises:
        InputError: the file is empty, is no text or has no header where it needs one.
    """
    try:
        with place.open() as file:
            raw, second = file.readline(_LINE), file.readline(_LINE)
    except (OSError, EOFError) as error:
        raise InputError(f"{place.told} cannot be read: {' '.join(str(error).split())}") from None
    line = raw.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    if not raw:
        raise InputError(f"{place.told} is empty; needed are the names of its columns and rows")
    if not headed and _COLONS.fullmatch(line):
        width = line.count(b"::") + 1
        names = [name for column in COLUMNS[:width] for name in (column, "")][:-1]
        return Layout(":", tuple(names), 0, False)
    if not headed and _TABS.fullmatch(line):
        return Layout("\t", COLUMNS[: line.count(b"\t") + 1], 0, False)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{place.told} is no text in UTF-8; give a table") from None
    delimiter = "\t" if place.name.lower().endswith(".tsv") or ("\t" in text and "," not in text) else ","
    names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), [])]
    if not names or "\0" in text:
        raise InputError(f"{place.told} has no names of columns in its first line; write them there")
    if len(names) == 1 and second.strip():
        refuse_divider(place.told, names, [second.decode("utf-8", "replace")], delimiter)
    if not headed and any(_NUMBER.fullmatch(name) for name in names):
        raise InputError(
            f"{place.told} has no header: its first line is {text[:60]!r}; write the names of the columns there, as "
            f"{delimiter.join(COLUMNS[: len(names)])!r}"
        )
    return Layout(delimiter, tuple(names), 1, True)
