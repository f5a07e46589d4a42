"""Ratings as a data set of users: which item each of them gave which value, in the order of time.

>>> import pyarrow as pa
>>> table = pa.table({"who": ["bo", "al", "bo"], "film": [17, 4, 4], "stars": [3.5, 5.0, 1.0], "day": [2, 1, 1]})
>>> films = ratings(table, user="who", item="film", value="stars", time="day")
>>> films, list(films.item_names)
(UserDataset(2 users, 3 values of 2 items), ['4', '17'])
>>> inputs, values = films.examples(1)
>>> inputs.tolist(), values.tolist()
([[0], [1]], [1.0, 3.5])
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.domain import ITEMS
from sfumato.data.ratings.catalogue import Catalogue, catalogue_beside, catalogue_of, catalogue_of_records
from sfumato.data.ratings.columns import Codes, sorted_names, times_of, values_of
from sfumato.data.ratings.duplicates import Duplicates, merged, repeated
from sfumato.data.ratings.records import Records, columns_of, parts_of
from sfumato.data.safeguards import name_notes
from sfumato.data.strings import Strings
from sfumato.data.users.dataset import UserDataset


def ratings(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    time: str | None = None,
    items: Path | str | Sequence[object] | None = None,
    low: float | None = None,
    high: float | None = None,
    duplicates: Duplicates = "refuse",
    on_unknown: Literal["refuse", "skip"] = "refuse",
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """Read ratings, in memory of some 60 bytes a rating.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8, one file twice by a
    link, and a key twice in an object. Counted in `notes`: names that differ only in case, blanks, zeros or Unicode
    form, and names such as `NA` that often stand for a missing one. The rule is that of all readers,
    `sfumato.data.safeguards`.

    Args:
        source: a release of MovieLens: its folder, zip file or ratings.csv, ratings.dat or u.data; a delimited file
            with a header (also .gz), Parquet or JSON lines; a pattern, or several files; or a table of pandas, polars
            or pyarrow. A user of several files is one person.
        user, item, value: the columns; those of MovieLens need not be named.
        time: the column of times, numbers or dates; MovieLens' is taken. Without it a user's records keep the order of
            the file.
        items: the public catalogue: a file with one id a line, a file of films of MovieLens, or the ids. None takes
            MovieLens' films next to the ratings, else the items of the records, which a guarantee refuses.
        low, high: the public range of values; those outside are refused. None checks nothing.
        duplicates: what becomes of several values of one user for one item: they are refused, or the last, or their
            mean stands for all.
        on_unknown: whether a rating of an item that the catalogue does not have is refused, or left out and counted.
        progress: called with (ratings read, 0): how many there are is not known before the end.

    Returns:
        inputs int64 [n, 1], the number of the item in the catalogue; labels float32 [n], the value. Users by number
        where all are numbers, else by name; each one's records in the order of time.

    Raises:
        InputError: a file is missing or damaged, a column is not there, or a row is refused; it names the row.
    """
    one_of(("refuse", "last", "mean"), duplicates=duplicates)
    one_of(("refuse", "skip"), on_unknown=on_unknown)
    if low is not None and high is not None and not low < high:
        raise InputError(f"low must be below high, got {low:g} and {high:g}")
    parts = parts_of(source)
    wanted = [columns_of(part, user=user, item=item, value=value, time=time) for part in parts]
    known = None if items is None else catalogue_of(items)
    if known is None and parts[0].movielens:
        known = catalogue_beside(parts[0].catalogue)
    rows = _read(parts, wanted, low, high, progress)
    notes = list(rows.notes)

    catalogue, number = _numbered(rows, known)
    item_of = number[rows.items]
    kept = item_of >= 0
    if not kept.all():
        first = int((~kept).argmax())
        if on_unknown == "refuse":
            raise InputError(
                f"{rows.where(first)} rates the item {rows.item_names[rows.items[first]]!r}, which {catalogue.told} "
                "does not have; leave such ratings out with on_unknown=skip (--on-unknown skip), or train with a "
                "catalogue that has it"
            )
        notes.append(f"{int((~kept).sum()):,} ratings of items that {catalogue.told} does not have were left out")
        if not kept.any():
            raise InputError(f"no rating is of an item of {catalogue.told}; are its ids those of the ratings?")
    ranks = np.empty(len(rows.user_names), np.int32)
    by_name = sorted_names(rows.user_names)
    ranks[by_name] = np.arange(len(by_name))
    owner = ranks[rows.users]
    order = np.argsort(owner, kind="stable") if rows.times is None else np.lexsort((rows.times, owner))
    rows.times = None  # let go of, as the largest column
    order = order[kept[order]]
    owner, item_of, values = owner[order], item_of[order], rows.values[order]

    pairs = repeated(owner, item_of, len(catalogue.names))
    if pairs is not None:
        if duplicates == "refuse":
            one, other = pairs.example()
            raise InputError(
                f"the user {rows.user_names[by_name[owner[other]]]!r} has two ratings of the item "
                f"{catalogue.names[item_of[other]]!r}, at {rows.where(int(order[one]))} and "
                f"{rows.where(int(order[other]))}; take one with duplicates=last or mean (--duplicates)"
            )
        left, values = merged(pairs, values, duplicates)
        taken = "the last was" if duplicates == "last" else "their mean was"
        notes.append(f"{pairs.count:,} ratings of an item that its user had rated before: {taken} taken")
        owner, item_of, values = owner[left], item_of[left], values[left]

    counts = np.bincount(owner, minlength=len(by_name))
    held = np.flatnonzero(counts)
    if len(held) < len(counts):
        notes.append(f"{len(counts) - len(held):,} users without a rating of a known item were left out")
    names = [rows.user_names[by_name[rank]] for rank in held.tolist()]
    return UserDataset(
        inputs=item_of.astype(np.int64)[:, None],
        labels=values,
        offsets=np.concatenate([[0], np.cumsum(counts[held])]).astype(np.int64),
        names=Strings.from_list(names),
        num_classes=0,
        item_names=Strings.from_list(catalogue.names),
        assumptions=() if catalogue.assumption is None else (catalogue.assumption,),
        found=(ITEMS,) if catalogue.assumption is None else (),
        notes=(*name_notes(names), *notes),
    )


@dataclass(kw_only=True)
class _Rows:
    """All rows, in the order of the files.

    Attributes:
        users, items: int32 [rows], numbers in the order in which names came.
        values: float32 [rows].
        times: [rows], or None.
        user_names, item_names: by these numbers.
        where: tells of a row.
        notes: what was seen.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    times: np.ndarray | None
    user_names: list[str]
    item_names: list[str]
    where: Callable[[int], str]
    notes: tuple[str, ...]


def _read(
    parts: Sequence[Records],
    wanted: Sequence[dict[str, str]],
    low: float | None,
    high: float | None,
    progress: Callable[[int, int], None] | None,
) -> _Rows:
    """The rows of all files, with every name as a number."""
    users, items = Codes("user", people=True), Codes("item")
    blocks: tuple[list[np.ndarray], ...] = ([], [], [], [])
    ends, dates, users_of_part = [], set[bool](), []
    done = 0
    for part, columns in zip(parts, wanted, strict=True):
        start, held = done, []
        for block in part.blocks(tuple(columns.values())):

            def where(row: int, part: Records = part, first: int = done - start) -> str:
                return f"{part.told} {part.place(first + row)}"

            held.append(users.add(block[columns["user"]], where))
            blocks[1].append(items.add(block[columns["item"]], where))
            blocks[2].append(values_of(block[columns["value"]], where, low, high))
            if "time" in columns:
                times, of_dates = times_of(block[columns["time"]], where)
                blocks[3].append(times)
                dates.add(of_dates)
                if len(dates) > 1:
                    raise InputError(f"the times are dates and numbers from {where(0)} on; write them in one way")
            done += len(held[-1])
            if progress is not None:
                progress(done, 0)
        if done == start:
            raise InputError(f"{part.told} has no ratings; needed is a row for each")
        ends.append(done)
        blocks[0].extend(held)
        users_of_part.append(np.unique(np.concatenate([np.unique(each) for each in held])))
    timed = sum("time" in columns for columns in wanted)
    if 0 < timed < len(parts):
        raise InputError("some of the files have times and others none; give all of them, or name no time")

    def where_of(row: int) -> str:
        part = int(np.searchsorted(ends, row, side="right"))
        return f"{parts[part].told} {parts[part].place(row - (ends[part - 1] if part else 0))}"

    several = int((np.bincount(np.concatenate(users_of_part)) > 1).sum())
    notes = (f"{several:,} users are in several of the {len(parts)} files: each is one person",) if several else ()
    columns = [_joined(each) for each in blocks]
    return _Rows(
        users=columns[0],
        items=columns[1],
        values=columns[2],
        times=columns[3] if timed else None,
        user_names=users.names,
        item_names=items.names,
        where=where_of,
        notes=notes,
    )


def _joined(blocks: list[np.ndarray]) -> np.ndarray:
    """The blocks as one array; they are let go of."""
    whole = np.concatenate(blocks) if blocks else np.empty(0)
    blocks.clear()
    return whole


def _numbered(rows: _Rows, known: Catalogue | None) -> tuple[Catalogue, np.ndarray]:
    """The catalogue, and the number in it of each item as it came, or -1, int32 [items]."""
    if known is None:
        known = catalogue_of_records([rows.item_names[place] for place in sorted_names(rows.item_names)])
    number = {name: place for place, name in enumerate(known.names)}
    return known, np.array([number.get(name, -1) for name in rows.item_names], np.int32)
