"""Rows of a table of health records, a block at a time, with the place of each for a message."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sfumato.data.ehr.cells import Where
from sfumato.data.ratings.places import place_of
from sfumato.data.ratings.records import Records, records_of, records_of_table
from sfumato.data.readers.csv_rows import is_delimited


def rows_of(source: Any) -> Records:
    """The rows of a file (CSV, TSV or TXT, also .gz, whose cells stay texts; Parquet, JSON lines) or of a table.

    Raises:
        InputError: it is none of these, or is damaged.
    """
    if isinstance(source, str | Path) and (is_delimited(Path(source)) or Path(source).suffix.lower() == ".txt"):
        return records_of(place_of(Path(source)), headed=True)
    return records_of_table(source)


def blocks_of(rows: Records, columns: Sequence[str]) -> Iterator[tuple[dict[str, pa.Array], Where]]:
    """Blocks of some columns, each with what tells of one of its rows."""
    start = 0
    for block in rows.blocks(columns):

        def where(row: int, first: int = start) -> str:
            return f"{rows.told} {rows.place(first + row)}"

        yield block, where
        start += len(block[columns[0]])


def told_of(tables: Sequence[Records], ends: Sequence[int]) -> Where:
    """What tells of a row of several tables, read one after the other.

    Args:
        tables: in the order in which they were read.
        ends: how many rows were read behind each.
    """

    def told(row: int) -> str:
        table = bisect_right(ends, row)
        return f"{tables[table].told} {tables[table].place(row - (ends[table - 1] if table else 0))}"

    return told
