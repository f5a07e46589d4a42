"""Ratings: which user gave which item which value.

Which items can be rated: a public list, in its own order, that does not depend on who rated what.

>>> catalogue_of(["Alien", "Brazil"]).names
('Alien', 'Brazil')
>>> catalogue_of(["Alien", "Alien"])
Traceback (most recent call last):
...
sfumato._check.InputError: the item catalogue has 'Alien' twice; remove one

Pairs of a user and an item without values: what a model is asked for.

>>> import pyarrow as pa
>>> table = pa.table({"who": ["bo", "al"], "film": [17, 4]})
>>> asked = pairs(table, user="who", item="film", users=["al", "bo"], items=["4", "17"])
>>> asked.users.tolist(), asked.items.tolist(), asked.left_out
([1, 0], [1, 0], 0)

Ratings as a data set of users: which item each of them gave which value, in the order of time.

>>> import pyarrow as pa
>>> table = pa.table({"who": ["bo", "al", "bo"], "film": [17, 4, 4], "stars": [3.5, 5.0, 1.0], "day": [2, 1, 1]})
>>> films = ratings(table, user="who", item="film", value="stars", time="day")
>>> films, list(films.item_names)
(UserDataset(2 users, 3 values of 2 items), ['4', '17'])
>>> inputs, values = films.examples(1)
>>> inputs.tolist(), values.tolist()
([[0], [1]], [1.0, 3.5])

Ratings as single examples, for training that hides one rating: who rated what goes in, the value is the label.

>>> from sfumato.data.users import from_arrays
>>> films = from_arrays([[7], [8], [7]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"])
>>> data = examples_from_ratings(films)
>>> data, data.examples([2])[0][0].tolist()
(ExampleDataset(3 examples of (2,) int64, a number each), [[7, 1]])
>>> examples_from_ratings(films, classes=[1, 2, 3, 4, 5]).targets.tolist()  # 3.5, the last one, goes up
[0, 4, 3]
"""

import csv
import io
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato._check import InputError, one_of
from sfumato._types import Assumption
from sfumato.data.columns import (
    DATES,
    Codes,
    Duplicates,
    as_number,
    merged,
    microseconds_of,
    parsed,
    repeated,
    sorted_names,
)
from sfumato.data.domain import ITEMS
from sfumato.data.examples import ExampleDataset, examples_from_users
from sfumato.data.mapped import Strings
from sfumato.data.readers.delimited import SUFFIXES
from sfumato.data.readers.movielens import MOVIELENS, Place, columns_of, has_columns, is_movielens, parts_of, place_of
from sfumato.data.records import Reader, Records, is_date, is_number, is_text, remedy_of, some
from sfumato.data.safeguards import Where, name_notes
from sfumato.data.users import UserDataset

_MOVIELENS = {"movies.csv": ",", "movies.dat": ":", "u.item": "|"}  # the delimiter behind the number of a film


@dataclass(frozen=True)
class Catalogue:
    """Items.

    Attributes:
        title: what messages call it.
        names: of the items, in the order of their numbers.
        assumption: the sentence for the statement; None where the items were found in the records.
    """

    title: str
    names: tuple[str, ...]
    assumption: Assumption | None


def catalogue_of(items: Path | str | Sequence[object]) -> Catalogue:
    """The catalogue that was given.

    Args:
        items: a file with one id a line, or a file of films of MovieLens; or the ids.

    Raises:
        InputError: the file is missing, empty or no text, or an item is there twice.
    """
    if isinstance(items, str | Path):
        path = Path(items)
        if not path.is_file():
            raise InputError(f"there is no file of items {path}; give one with an id a line")
        return _of_file(place_of(path), f"The item catalogue {path.name}")
    names = _checked((str(item) for item in items), "the item catalogue")
    return Catalogue("the item catalogue", names, _public("The item catalogue", names))


def movielens_catalogue(place: Place | None) -> Catalogue | None:
    """The catalogue of films next to MovieLens' ratings, where there is one."""
    found = None if place is None else next(filter(None, map(place.sibling, _MOVIELENS)), None)
    return None if found is None else _of_file(found, f"The item catalogue {found.name} next to the ratings")


def _of_file(place: Place, title: str) -> Catalogue:
    try:
        with place.open() as file:
            text = file.read()
    except (OSError, EOFError) as error:
        raise InputError(f"{place.title} cannot be read: {' '.join(str(error).split())}") from None
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        if place.name not in _MOVIELENS:
            raise InputError(f"{place.title} is no text in UTF-8; give a file with an id a line") from None
        lines = text.decode("latin-1").splitlines()
    delimiter = _MOVIELENS.get(place.name)
    if delimiter is not None:
        rows = csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter)
        lines = [row[0] for row in rows if row][place.name.endswith(".csv") :]
    names = _checked(lines, place.title)
    return Catalogue(place.name, names, _public(title, names))


def _public(title: str, names: Sequence[str]) -> Assumption:
    return Assumption("items_public", {"catalogue": title, "items": len(names)})


def _checked(names: Iterable[str], title: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for each in names:
        name = each.strip()
        if name in found:
            raise InputError(f"{title} has {name!r} twice; remove one")
        if name:
            found[name] = None
    if not found:
        raise InputError(f"{title} is empty; write one id a line")
    return tuple(found)


@dataclass(frozen=True)
class Pairs:
    """Whom a model is asked about, and which item, in the order of the files.

    Attributes:
        users, items: int64 [rows], positions in the lists that were given.
        left_out: rows of items that are not in the list.
    """

    users: np.ndarray
    items: np.ndarray
    left_out: int


def pairs(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    users: Sequence[str],
    items: Sequence[str],
    on_unknown: Literal["refuse", "skip"] = "refuse",
) -> Pairs:
    """Read pairs.

    Args:
        source: as for `ratings`; other columns are not looked at.
        user, item: the columns; those of MovieLens need not be named.
        users: who can be asked about.
        items: which items there are.
        on_unknown: whether an item that there is not is refused, or left out and counted.

    Raises:
        InputError: a file is missing or damaged, a column is not there, or a user or item is none of these.
    """
    one_of(("refuse", "skip"), on_unknown=on_unknown)
    number = {name: place for place, name in enumerate(items)}
    position = {name: place for place, name in enumerate(users)}
    found: list[tuple[np.ndarray, np.ndarray]] = []
    left_out = 0
    for part in parts_of(source)[0]:
        columns = columns_of(part, user=user, item=item)
        names, things = Codes("user"), Codes("item")
        for block, where in part.located(tuple(columns.values())):
            owner, thing = names.add(block[columns["user"]], where), things.add(block[columns["item"]], where)
            owner = np.array([position.get(name, -1) for name in names.names], np.int64)[owner]
            thing = np.array([number.get(name, -1) for name in things.names], np.int64)[thing]
            if (unknown := owner < 0).any():
                row = int(unknown.argmax())
                name = str(block[columns["user"]][row].as_py()).strip()
                raise InputError(f"{where(row)} asks about {name!r}, of whom the records hold nothing; add some")
            if (unknown := thing < 0).any() and on_unknown == "refuse":
                row = int(unknown.argmax())
                name = str(block[columns["item"]][row].as_py()).strip()
                raise InputError(
                    f"{where(row)} asks about the item {name!r}, which the model does not know; leave such rows out "
                    "with on_unknown=skip"
                )
            left_out += int(unknown.sum())
            found.append((owner[~unknown], thing[~unknown]))
    if not sum(len(owner) for owner, _ in found):
        raise InputError("no user is asked about; name a user and an item in each row")
    return Pairs(np.concatenate([each for each, _ in found]), np.concatenate([each for _, each in found]), left_out)


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

    Args:
        source: a release of MovieLens: its folder, zip file or ratings.csv, ratings.dat or u.data; a delimited file
            with a header (also .gz), Parquet or JSON lines; a pattern, or several files; or a table of pandas, polars
            or pyarrow. A user of several files is one person.
        user, item, value, time, items, duplicates, on_unknown, progress: as in `open_users`.
        low, high: the public range of values; those outside are refused. None checks nothing.

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
    parts, first_file = parts_of(source)
    wanted = [columns_of(part, user=user, item=item, value=value, time=time) for part in parts]
    known = None if items is None else catalogue_of(items)
    if known is None and has_columns(parts[0].names):
        known = movielens_catalogue(first_file)
    rows = _read(parts, wanted, low, high, progress)
    notes = list(rows.notes)

    catalogue, number = _numbered(rows, known)
    item_of = number[rows.items]
    kept = item_of >= 0
    if not kept.all():
        first = int((~kept).argmax())
        if on_unknown == "refuse":
            raise InputError(
                f"{rows.where(first)} rates the item {rows.item_names[rows.items[first]]!r}, which "
                f"{catalogue.title} does not have; skip such ratings (on_unknown=skip), or "
                "take a catalogue that has it"
            )
        notes.append(f"{int((~kept).sum()):,} ratings of items that {catalogue.title} does not have were left out")
        if not kept.any():
            raise InputError(f"no rating is of an item of {catalogue.title}; are its ids those of the ratings?")
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
                f"{rows.where(int(order[other]))}; take one with duplicates=last or mean"
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
        where: describes a row.
        notes: what was seen.
    """

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    times: np.ndarray | None
    user_names: list[str]
    item_names: list[str]
    where: Where
    notes: tuple[str, ...]


def _read(
    parts: Sequence[Records],
    wanted: Sequence[dict[str, str]],
    low: float | None,
    high: float | None,
    progress: Callable[[int, int], None] | None,
) -> _Rows:
    """The rows of all files, with every name as a number."""
    users, items = Codes("user", exact=True), Codes("item")
    blocks: tuple[list[np.ndarray], ...] = ([], [], [], [])
    ends, dates, users_of_part = [], set[bool](), []
    done = 0
    for part, columns in zip(parts, wanted, strict=True):
        start, held = done, []
        for block, where in part.located(tuple(columns.values())):
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
            raise InputError(f"{part.title} has no ratings; needed is a row for each")
        ends.append(done)
        blocks[0].extend(held)
        users_of_part.append(np.unique(np.concatenate([np.unique(each) for each in held])))
    timed = sum("time" in columns for columns in wanted)
    if 0 < timed < len(parts):
        raise InputError("some of the files have times and others none; give all of them, or name no time")

    def where_of(row: int) -> str:
        part = bisect_right(ends, row)
        return parts[part].where(row - (ends[part - 1] if part else 0))

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


def values_of(array: pa.Array, where: Where, low: float | None, high: float | None) -> np.ndarray:
    """A block of values, float32 [rows].

    Raises:
        InputError: one is missing, not a number, not finite, or outside of [low, high].
    """
    if is_text(array.type):
        coded = array.dictionary_encode()
        numbers = np.array([*(as_number(text.strip()) for text in coded.dictionary.to_pylist()), np.nan])
        values = numbers[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
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
        found = array[row].as_py()
        if not np.isfinite(single[row]):
            raise InputError(f"the value {found!r} at {where(row)} is not a finite number; correct or drop the row")
        raise InputError(
            f"the value {found} at {where(row)} is outside of {_interval(low, high)}; correct or drop the row, or "
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
                f"the time {texts[row].as_py()!r} at {where(row)} must be a number or a date as 2026-01-31, all "
                "with a zone or none; correct or drop the row"
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


_KINDS = (pa.int64(), pa.float64(), *DATES)


def _is_time(text: str | None) -> bool:
    return parsed(pa.array([text], pa.string()), _KINDS) is not None


def _interval(low: float | None, high: float | None) -> str:
    return f"[{'-inf' if low is None else f'{low:g}'}, {'inf' if high is None else f'{high:g}'}]"


def _joined(blocks: list[np.ndarray]) -> np.ndarray:
    """The blocks as one array; they are let go of."""
    whole = np.concatenate(blocks) if blocks else np.empty(0)
    blocks.clear()
    return whole


def _numbered(rows: _Rows, known: Catalogue | None) -> tuple[Catalogue, np.ndarray]:
    """The catalogue, and the number in it of each item as it came, or -1, int32 [items]."""
    if known is None:
        names = [rows.item_names[place] for place in sorted_names(rows.item_names)]
        known = Catalogue("the records", tuple(names), None)
    number = {name: place for place, name in enumerate(known.names)}
    return known, np.array([number.get(name, -1) for name in rows.item_names], np.int32)


# Ratings with a second column of inputs that says whose each is, for models on a server that know all users.


def with_user_column(dataset: UserDataset) -> UserDataset:
    """The same ratings with inputs (item, user).

    The user's number is that in the whole data set, so it stays the same in every part of a split.

    Args:
        dataset: inputs [n, columns] of whole numbers.

    Returns:
        inputs int64 [n, columns + 1] in memory.

    >>> from sfumato.data.users import from_arrays
    >>> films = from_arrays([[7], [8], [7]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"])
    >>> with_user_column(films).subset([1]).examples(0)[0].tolist()
    [[7, 1]]
    """
    rows = np.asarray(dataset.inputs[0 : dataset.inputs.shape[0]], np.int64)
    users = np.repeat(np.arange(len(dataset.offsets) - 1), np.diff(dataset.offsets))
    return dataset.with_inputs(np.column_stack([rows, users]))


def examples_from_ratings(ratings: UserDataset, *, classes: Sequence[object] | None = None) -> ExampleDataset:
    """Each rating as an example of its own.

    Args:
        ratings: of `sfumato.data.readers.ratings`, or a part of them; users keep their numbers.
        classes: makes the values classes: each goes to the nearest of these public numbers, the upper one of two. None
            leaves them numbers.

    Returns:
        inputs int64 [n, 2], the numbers of item and user, whose counts are `vocabulary_sizes`; targets
        float32 [n], or int64 [n].

    Raises:
        InputError: the data are no ratings, or the classes are not two or more numbers in ascending order.
    """
    if not ratings.of_values or ratings.input_shape != (1,):
        raise InputError(f"needed are ratings of items by users, got {ratings}; read them with data.open_users")
    found = examples_from_users(with_user_column(ratings))
    items = int(np.max(ratings.inputs[:])) + 1 if ratings.item_names is None else len(ratings.item_names)
    data = replace(
        found,
        vocabulary_sizes=(items, len(ratings.offsets) - 1),
        columns=(("item", "user"),),
        assumptions=(*found.assumptions, Assumption("ratings_public")),
        found=tuple(each for each in found.found if each != ITEMS),  # who rated what is public here
    )
    return data if classes is None else _of_classes(data, classes)


def _of_classes(data: ExampleDataset, classes: Sequence[object]) -> ExampleDataset:
    try:
        values = np.array(list(classes), np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the classes of ratings must be numbers, got {', '.join(map(str, classes))}") from None
    if len(values) < 2 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
        given = ", ".join(f"{value:g}" for value in values)
        raise InputError(f"the classes of ratings must be two or more ascending numbers, got {given}; as 1 2 3 4 5")
    assert data.targets is not None
    middles = (values[1:] + values[:-1]) / 2
    return replace(
        data,
        targets=np.searchsorted(middles, data.targets, side="right").astype(np.int64),
        num_classes=len(values),
        label_names=Strings.from_list([f"{value:g}" for value in values]),
    )


_OPTIONS = ("user", "item", "value", "time", "items", "duplicates", "on_unknown")


_ENDINGS = (*MOVIELENS, ".zip", *SUFFIXES)
"""Of files that may be a release of MovieLens, or laid out as one."""


def _is_rated(source: Any, options: Mapping[str, Any]) -> bool:
    if {"item", "value"} & options.keys():
        return True
    if {"input", "label", "folder", "schema", "text"} & options.keys():
        return False
    if isinstance(source, list | tuple):
        files = [Path(each) for each in source if isinstance(each, str | Path)]
        return len(files) == len(source) and not any(file.suffix in (".json", ".h5") for file in files)
    if not isinstance(source, Path) or (source.is_file() and not source.name.lower().endswith(_ENDINGS)):
        return False
    return is_movielens(source)


def _read_ratings(source: Any, options: Mapping[str, Any]) -> UserDataset:
    low, high = options.get("value_range", (None, None))
    return ratings(source, low=low, high=high, **some(options, *_OPTIONS, "progress"))


USERS = Reader(
    name="ratings",
    recognises=_is_rated,
    read=_read_ratings,
    options=frozenset((*_OPTIONS, "value_range")),
)
EXAMPLES = Reader(
    name="ratings",
    recognises=_is_rated,
    read=lambda source, options: examples_from_ratings(
        _read_ratings(source, options), classes=options.get("rating_classes")
    ),
    options=USERS.options | {"classes", "rating_classes"},
)
