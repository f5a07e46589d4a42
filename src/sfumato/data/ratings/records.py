"""Rows of ratings as Arrow arrays, some at a time, wherever they stand: in a delimited file or in any other table."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError
from sfumato.data.ratings.layout import COLUMNS, Layout, layout_of
from sfumato.data.ratings.places import MOVIELENS, Place, is_movielens_folder, place_of, places_of
from sfumato.data.readers.csv_rows import is_delimited
from sfumato.data.readers.parquet_folder import PARQUET, is_parquet_folder
from sfumato.data.tables.open import LINES, open_source
from sfumato.data.tables.source import listed, refuse_absent

_BYTES = 1 << 23  # of a delimited file, read in one go
_ROWS = 1 << 18  # of another table
_ROW = re.compile(r"Row #(\d+): ")


@dataclass(frozen=True, kw_only=True)
class Records:
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
    if not path.is_file():
        return is_movielens_folder(path)
    if path.suffix.lower() == ".zip" or path.name in MOVIELENS:
        return True
    try:
        return is_delimited(path) and set(COLUMNS[:3]) <= set(layout_of(place_of(path)).names)
    except InputError:  # another reader tells what is wrong with it
        return False


def records_of(place: Place, *, headed: bool = False) -> Records:
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
    return Records(
        told=place.told,
        names=tuple(name for name in layout.names if name),
        blocks=lambda columns: _read(place, layout, columns),
        place=lambda row: f"line {_line(place, layout, row)}",
        catalogue=place,
    )


def records_of_table(source: Any) -> Records:
    """The rows of any other table: of pandas, pyarrow, polars or Hugging Face, of Parquet or JSON lines."""
    opened = open_source(source)
    return Records(
        told=opened.told,
        names=opened.names,
        blocks=lambda columns: opened.blocks(columns, _ROWS),
        place=opened.place,
    )


def parts_of(source: Any) -> list[Records]:
    """The rows of everything that is meant: files, folders, patterns, or a table."""
    if isinstance(source, str | Path):
        if is_parquet_folder(Path(source)):
            return [records_of_table(source)]
        return [records_of(place) for place in places_of(source)]
    if isinstance(source, list | tuple):
        return [records_of(place) for place in places_of(source)]
    return [records_of_table(source)]


def columns_of(part: Records, **given: str | None) -> dict[str, str]:
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
