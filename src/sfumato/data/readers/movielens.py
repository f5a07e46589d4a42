"""Files of ratings: where they are, how they are laid out, and their rows as Arrow arrays.

Columns of ratings as numbers: names as codes, values, times; a row that is wrong is named by its place.

>>> codes = Codes("user")
>>> codes.add(pa.array(["bo", "al", "bo"]), str).tolist(), codes.names
([0, 1, 0], ['bo', 'al'])
>>> sorted_names(["10", "9", "2"]), sorted_names(["10", "9", "007"])
([2, 1, 0], [2, 0, 1])

What becomes of a user's values of one and the same item: one of them, or none.

>>> users, items, values = np.array([0, 0, 0]), np.array([5, 7, 5]), np.array([1, 2, 4], np.float32)
>>> pairs = repeated(users, items, 8)
>>> kept, values = merged(pairs, values, "mean")
>>> kept.tolist(), values.tolist()
([False, True, True], [1.0, 2.0, 2.5])
"""

import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError
from sfumato.data.columns import DATES, microseconds_of, parsed
from sfumato.data.readers.delimited import is_delimited, refuse_divider
from sfumato.data.readers.tables import LINES, PARQUET, is_parquet_folder, open_source
from sfumato.data.records import is_date, is_number, is_text, listed, refuse_absent, remedy_of
from sfumato.data.safeguards import names_in, refuse_same_files

# Where files of ratings are: in folders, in zip files as they were downloaded, and what lies beside them.


MOVIELENS = ("ratings.csv", "ratings.dat", "u.data")
"""Names of the files of ratings in MovieLens' releases."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file that can be read from its beginning, as often as is needed.

    Attributes:
        told: what messages call it.
        name: of the file, without compression.
        path: in the file system; None within a zip file.
        open: gives its bytes.
        beside: the file of another name in the same folder, or None.
    """

    told: str
    name: str
    path: Path | None
    open: Callable[[], IO[bytes] | gzip.GzipFile]
    beside: Callable[[str], "Place | None"]


def places_of(given: Path | str | Sequence[Path | str]) -> list[Place]:
    """The files of ratings that are meant.

    Args:
        given: a file, a zip file, a folder that holds a file of MovieLens, a pattern as "ratings-*.csv", or several.

    Raises:
        InputError: there is nothing, or a folder or a zip file holds no ratings, or several.
    """
    if isinstance(given, str | Path):
        return _found(Path(given))
    refuse_same_files(map(Path, given))
    places = [place for each in given for place in _found(Path(each))]
    if not places:
        raise InputError("no file of ratings was given; name at least one")
    return places


def is_movielens_folder(path: Path) -> bool:
    """Whether a folder has a file of ratings as MovieLens' releases name them."""
    return path.is_dir() and any((path / name).is_file() for name in MOVIELENS)


def place_of(path: Path) -> Place:
    """A file of the file system; a name that ends on .gz is read unpacked."""

    def beside(name: str) -> Place | None:
        other = path.with_name(name)
        return place_of(other) if other.is_file() else None

    if path.suffix == ".gz":
        return Place(told=str(path), name=path.stem, path=path, open=lambda: gzip.open(path), beside=beside)
    return Place(told=str(path), name=path.name, path=path, open=lambda: open(path, "rb"), beside=beside)


def _found(path: Path) -> list[Place]:
    if path.is_dir():
        names = [name for name in MOVIELENS if (path / name).is_file()]
        if len(names) != 1:
            raise InputError(
                f"the folder {path} has {' and '.join(names) or 'no ' + ', '.join(MOVIELENS)}; name the file of ratings"
            )
        return [place_of(path / names[0])]
    if path.is_file():
        return [_in_zip(path)] if path.suffix.lower() == ".zip" else [place_of(path)]
    files = sorted(map(Path, glob(str(path))))
    if not files:
        raise InputError(f"there is nothing at {path}; give a file of ratings, a zip file or folder of MovieLens")
    refuse_same_files(files)
    return [place for file in files for place in _found(file)]


def _in_zip(path: Path) -> Place:
    """The file of ratings within a zip file, which is not unpacked to the disk."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} cannot be read as a zip file: {error}; download it again") from None
    held = [name for name in names if name.rpartition("/")[2] in MOVIELENS]
    if len(held) != 1:
        found = " and ".join(held) or f"no {', '.join(MOVIELENS)}"
        raise InputError(f"{path} has {found}; unpack it and name the file")

    def member(name: str) -> Place:
        folder, slash, own = name.rpartition("/")

        def beside(other: str) -> Place | None:
            return member(folder + slash + other) if folder + slash + other in names else None

        return Place(told=f"{path}:{name}", name=own, path=None, open=lambda: _member(path, name), beside=beside)

    return member(held[0])


def _member(path: Path, name: str) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:  # the member keeps what it needs of the file open
        return archive.open(name)


# How a file of ratings is laid out, found from its first line.
#
# | first line                            | of                            | columns                            |
# | ------------------------------------- | ----------------------------- | ---------------------------------- |
# | userId,movieId,rating,timestamp       | MovieLens latest, 20M to 32M  | as they are named                  |
# | 1::1193::5::978300760                 | MovieLens 1M and 10M          | userId, movieId, rating, timestamp |
# | 196 242 3 881250949, with tabs        | MovieLens 100K                | userId, movieId, rating, timestamp |
# | any other, with commas or tabs        | other tables                  | as they are named                  |


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
    except (OSError, EOFError, zlib.error) as error:
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


# Rows of ratings as Arrow arrays, some at a time, wherever they stand: in a delimited file or in any other table.


_BYTES = 1 << 23  # of a delimited file, read in one go
_ROWS = 1 << 18  # of another table
_ROW = re.compile(r"Row #(\d+): ")


@dataclass(frozen=True, kw_only=True)
class RatingRecords:
    """Rows that can be read once more.

    Attributes:
        told: what messages call them.
        names: of the columns.
        blocks: gives some columns, as arrays by their names.
        place: what messages call a row, from 0.
        catalogue: where the files beside are; None for tables that are no file.
    """

    told: str
    names: tuple[str, ...]
    blocks: Callable[[Sequence[str]], Iterator[dict[str, pa.Array]]]
    place: Callable[[int], str]
    catalogue: Place | None = None

    @property
    def movielens(self) -> bool:
        """Whether the columns are those of MovieLens."""
        return set(COLUMNS[:3]) <= set(self.names)


def is_movielens(path: Path) -> bool:
    """Whether a path is a release of MovieLens, or a file of ratings laid out as one."""
    if not path.exists():
        files = sorted(glob(str(path)))
        return bool(files) and is_movielens(Path(files[0]))
    if path.is_dir():
        return is_movielens_folder(path)
    if path.suffix.lower() == ".zip" or path.name in MOVIELENS:
        return True
    try:
        return is_delimited(path) and set(COLUMNS[:3]) <= set(layout_of(place_of(path)).names)
    except InputError:  # another reader tells what is wrong with it
        return False


def records_of(place: Place, *, headed: bool = False) -> RatingRecords:
    """The rows of a file.

    Args:
        place: the file.
        headed: whether a delimited file's first line has the names of its columns, whatever they look like.

    Raises:
        InputError: it is none that is understood.
    """
    if place.path is not None and place.path.suffix.lower() in (*PARQUET, *LINES):
        return records_of_table(place.path)
    layout = layout_of(place, headed=headed)
    return RatingRecords(
        told=place.told,
        names=tuple(name for name in layout.names if name),
        blocks=lambda columns: _read(place, layout, columns),
        place=lambda row: f"line {_line(place, layout, row)}",
        catalogue=place,
    )


def records_of_table(source: Any) -> RatingRecords:
    """The rows of any other table: of pandas, pyarrow, polars or Hugging Face, of Parquet or JSON lines."""
    opened = open_source(source)
    return RatingRecords(
        told=opened.told,
        names=opened.names,
        blocks=lambda columns: opened.blocks(columns, _ROWS),
        place=opened.place,
    )


def parts_of(source: Any) -> list[RatingRecords]:
    """The rows of everything that is meant: files, folders, patterns, or a table."""
    if isinstance(source, str | Path):
        if is_parquet_folder(Path(source)):
            return [records_of_table(source)]
        return [records_of(place) for place in places_of(source)]
    if isinstance(source, list | tuple):
        return [records_of(place) for place in places_of(source)]
    return [records_of_table(source)]


def columns_of(part: RatingRecords, **given: str | None) -> dict[str, str]:
    """The name of the column of each role, of user, item, value and time; the time may be absent.

    Raises:
        InputError: a column is not there or not named, or two roles have the same.
    """
    usual = dict(zip(given, COLUMNS))
    if all(name is None for name in given.values()) and part.movielens:
        return {role: name for role, name in usual.items() if role != "time" or name in part.names}
    chosen: dict[str, str] = {}
    for role, name in given.items():
        if name is None and role == "time":
            continue
        if name is None and usual[role] not in part.names:
            raise InputError(
                f"{part.told}: which column is the {role}? say --{role} COLUMN or {role}=, of {listed(part.names)}"
            )
        chosen[role] = name or usual[role]
        refuse_absent(part.told, part.names, role, chosen[role])
    if len(set(chosen.values())) < len(chosen):
        raise InputError(f"{', '.join(chosen)} must be columns of their own, got {', '.join(chosen.values())}")
    return chosen


def _read(place: Place, layout: Layout, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    """Some columns as texts; what is wrong with a line is told with its number."""
    import pyarrow.csv  # late: other data need none of it

    names = [name or f"between {number}" for number, name in enumerate(layout.names)]
    between = [name for name, own in zip(names, layout.names, strict=True) if not own]
    wanted = [*dict.fromkeys(columns), *between]
    start = 0
    try:
        with place.open() as file:
            if layout.header:
                file.readline()
            reader = pyarrow.csv.open_csv(
                file,
                pyarrow.csv.ReadOptions(use_threads=False, column_names=names, block_size=_BYTES),  # threads lose lines
                pyarrow.csv.ParseOptions(
                    delimiter=layout.delimiter,
                    quote_char='"' if layout.quoted else False,
                    newlines_in_values=layout.quoted,
                ),
                pyarrow.csv.ConvertOptions(
                    column_types={name: pa.large_string() for name in wanted}, include_columns=wanted
                ),
            )
            for batch in reader:
                for name in between:
                    texts = batch.column(name).dictionary_encode()
                    if texts.dictionary.to_pylist() not in ([], [""]):
                        row = start + next(row for row, text in enumerate(texts.to_pylist()) if text)
                        raise InputError(
                            f"{place.told} line {_line(place, layout, row)} is not divided by '::' as the first line "
                            "is; correct or drop it"
                        )
                yield {
                    name: pc.utf8_trim_whitespace(batch.column(name))  # pyright: ignore[reportAttributeAccessIssue]
                    for name in columns
                }
                start += len(batch)
    except (OSError, EOFError, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:200]
        if "Empty CSV" in said:
            return
        if row := _ROW.search(said):
            line = _line(place, layout, int(row[1]) - 1)
            said = f"line {line}: {said[row.end() :]}"
        raise InputError(f"{place.told} cannot be read, {said}; correct the row") from None


def _line(place: Place, layout: Layout, row: int) -> int:
    """The line that a row ends on, from 1; lines without anything are no rows."""
    with place.open() as file:
        text = io.TextIOWrapper(file, "utf-8", "replace", newline="")
        reader = csv.reader(
            text, delimiter=layout.delimiter, quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE
        )
        next(islice((fields for fields in reader if fields), row + layout.header, None), None)
        return reader.line_num


Where = Callable[[int], str]
"""What messages call a row of a block."""


class Codes:
    """Names as they come, numbered from 0.

    Args:
        role: what they are of, for messages.
        people: whether they are of users, whose names are taken as they are; else blanks around a name do not count.
    """

    def __init__(self, role: str, *, people: bool = False) -> None:
        self._role, self._people = role, people
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """All names, by their numbers."""
        return list(self._numbers)

    def add(self, array: pa.Array, where: Where) -> np.ndarray:
        """The numbers of a block's names, int32 [rows].

        Args:
            array: texts or whole numbers.
            where: tells of a row.

        Raises:
            InputError: a name is missing, or they are neither.
        """
        found, rows = names_in(array, f"the {self._role}", where)
        texts = [str(name) if self._people else str(name).strip() for name in found]
        return np.array([self._numbers.setdefault(text, len(self._numbers)) for text in texts], np.int32)[rows]


def values_of(array: pa.Array, where: Where, low: float | None, high: float | None) -> np.ndarray:
    """A block of values, float32 [rows].

    Raises:
        InputError: one is missing, not a number, not finite, or outside of [low, high].
    """
    if is_text(array.type):
        coded = array.dictionary_encode()
        texts = pc.utf8_trim_whitespace(coded.dictionary)  # pyright: ignore[reportAttributeAccessIssue]
        numbers = _numbers(texts)
        numbers = np.append(numbers, np.nan)
        rows = coded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        values = numbers[rows]
    elif is_number(array.type):
        values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        raise InputError(f"the values must be numbers, got {array.type}; {remedy_of(array.type)}")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    wrong = ~np.isfinite(single)
    if low is not None:
        wrong |= values < low
    if high is not None:
        wrong |= values > high
    if wrong.any():
        row = int(wrong.argmax())
        told = array[row].as_py()
        if not np.isfinite(single[row]):
            raise InputError(f"the value {told!r} at {where(row)} is not a finite number; correct or drop the row")
        raise InputError(
            f"the value {told} at {where(row)} is outside of {_interval(low, high)}; correct or drop the row, or "
            "widen the range"
        )
    return single


def times_of(array: pa.Array, where: Where) -> tuple[np.ndarray, bool]:
    """A block of times, int64 where they are whole numbers or dates, else float64, [rows]; and whether they are dates.

    Raises:
        InputError: one is missing, neither a number nor a date, or a date that is not from 1900 to 2249.
    """
    if is_text(array.type):
        texts = pc.utf8_trim_whitespace(array)  # pyright: ignore[reportAttributeAccessIssue]
        array = parsed(texts, _KINDS)
        if array is None:
            row = next((row for row, text in enumerate(texts.to_pylist()) if not _is_time(text)), 0)
            raise InputError(
                f"the time {texts[row].as_py()!r} at {where(row)} is neither a number nor a date as 2026-01-31, all "
                "with a time zone or all without; correct or drop the row"
            )
    dates = is_date(array.type)
    if not (dates or is_number(array.type) or pa.types.is_null(array.type)):
        raise InputError(f"the times must be numbers or dates, got {array.type}; {remedy_of(array.type)}")
    if array.null_count:
        row = array.is_null().to_pylist().index(True)
        raise InputError(f"the time is missing at {where(row)}; fill it in or drop the row")
    times = microseconds_of(array, "the time", where) if dates else array.to_numpy(zero_copy_only=False)
    if times.dtype.kind == "f" and (wrong := np.isnan(times)).any():
        raise InputError(f"the time is missing (NaN) at {where(int(wrong.argmax()))}; fill it in or drop the row")
    return times if times.dtype.kind == "f" else times.astype(np.int64), dates


def sorted_names(names: Sequence[str]) -> list[int]:
    """The order of names: by their number if all are whole numbers without zeros in front, else as text."""
    if all(name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") for name in names):
        return sorted(range(len(names)), key=lambda place: int(names[place]))
    return sorted(range(len(names)), key=names.__getitem__)


def _numbers(texts: pa.Array) -> np.ndarray:
    """Texts as numbers, NaN for those that are none."""
    try:
        return texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return np.array([_number(text) for text in texts.to_pylist()], np.float64)


def _number(text: str) -> float:
    try:
        return pa.scalar(text).cast(pa.float64()).as_py()
    except pa.ArrowInvalid:
        return np.nan


_KINDS = (pa.int64(), pa.float64(), *DATES)


def _is_time(text: str | None) -> bool:
    return parsed(pa.array([text], pa.string()), _KINDS) is not None


def _interval(low: float | None, high: float | None) -> str:
    return f"[{'-inf' if low is None else f'{low:g}'}, {'inf' if high is None else f'{high:g}'}]"


Duplicates = Literal["refuse", "last", "mean"]


@dataclass(frozen=True)
class Repeated:
    """Rows by their pair of user and item.

    Attributes:
        order: int64 [rows], rows of one pair side by side, in their order.
        first: bool [rows], whether a row of that order is the first of its pair.
    """

    order: np.ndarray
    first: np.ndarray

    @property
    def count(self) -> int:
        """Rows that are not the first of their pair."""
        return int((~self.first).sum())

    def example(self) -> tuple[int, int]:
        """A row whose pair was there before, and the row that had it."""
        again = int((~self.first).argmax())
        return int(self.order[again - 1]), int(self.order[again])


def repeated(users: np.ndarray, items: np.ndarray, count: int) -> Repeated | None:
    """The rows by pair, or None where no pair is there twice.

    Args:
        users: [rows], numbers from 0.
        items: [rows], 0 … count − 1.
        count: of items.
    """
    pairs = users.astype(np.int64) * count + items
    pairs.sort()
    if not (pairs[1:] == pairs[:-1]).any():
        return None
    pairs = users.astype(np.int64) * count + items
    order = np.argsort(pairs, kind="stable")
    held = pairs[order]
    return Repeated(order, np.concatenate([[True], held[1:] != held[:-1]]))


def merged(pairs: Repeated, values: np.ndarray, how: Duplicates) -> tuple[np.ndarray, np.ndarray]:
    """One row for each pair: the last.

    Args:
        pairs: rows by pair.
        values: float32 [rows].
        how: whether it keeps its value ("last") or gets the mean of all.

    Returns:
        which rows are kept, bool [rows], and values [rows].
    """
    starts = np.flatnonzero(pairs.first)
    ends = np.append(starts[1:], len(values))
    last = pairs.order[ends - 1]
    kept = np.zeros(len(values), bool)
    kept[last] = True
    if how == "mean":
        sums = np.add.reduceat(values[pairs.order].astype(np.float64), starts)
        values = values.copy()
        values[last] = sums / (ends - starts)
    return kept, values
