"""Events as health records: those of one patient at one time are a visit, each code is a column."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato._check import InputError
from sfumato.data.ehr.arrange import dataset_of
from sfumato.data.ehr.cells import codes_of, numbers_of
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import Events, Gathered
from sfumato.data.ehr.infer import Profile
from sfumato.data.ehr.plausible import late_start, refuse_dates_in_numbers
from sfumato.data.ehr.schema import MICROSECONDS, Column, Schema
from sfumato.data.ehr.schema import categorical as categories
from sfumato.data.ratings.duplicates import Duplicates, merged, repeated

VISIT = "sfumato//visit"
"""The code of an event that says no more than that there was a visit: one at which nothing was measured."""

ORIGIN = "sfumato//origin"
"""The code of an event whose time is the patient's origin; without it the origin is the first visit."""

SUBJECT = "sfumato//subject"
"""The code of an event without a time whose value, in JSON, is the patient behind the id."""

OWN_CODES = (VISIT, ORIGIN, SUBJECT)
"""Codes that become no column."""

PRESENT = "1"
"""The category of an event that has no value: that it was there."""

MOST_CODES = 1000
"""Columns at most: a matrix of visits by columns is held in memory."""


@dataclass(frozen=True, kw_only=True)
class Making:
    """How events become records.

    Attributes:
        events: what was gathered; `events.gathered()` was called once, for `all`.
        all: the events.
        where: tells of a row.
        duplicates: what becomes of several values of one patient, time and code.
        without_visits: whether a patient without a visit is refused, or left out and counted.
    """

    events: Events
    all: Gathered
    where: Callable[[int], str]
    duplicates: Duplicates = "refuse"
    without_visits: Literal["refuse", "skip"] = "refuse"


def columns_of_events(making: Making, categorical: Sequence[str] = ()) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The static and the temporal columns: static are the codes of events without a time.

    Raises:
        InputError: a code has a time in some events only, is of mixed kinds, or there are too many.
    """
    names, every = making.events.codes.names, making.all
    held = [name for place, name in enumerate(names) if (every.codes == place).any()]
    wanted = [name for name in held if name not in OWN_CODES]
    if len(wanted) > MOST_CODES:
        raise InputError(
            f"there are {len(wanted):,} codes, of which each would be a column, and at most {MOST_CODES:,} can be; "
            "choose some with codes="
        )
    parts: tuple[list[Column], list[Column]] = ([], [])
    for name, rows in _by_code(making, wanted).items():
        timed = ~np.isnan(every.times[rows])
        if timed.any() and not timed.all():
            raise InputError(
                f"{name!r} has a time at {making.where(int(every.rows[rows[int(timed.argmax())]]))} and none at "
                f"{making.where(int(every.rows[rows[int(timed.argmin())]]))}; give all of its events a time or none"
            )
        parts[bool(timed.all())].append(_column(making, name, rows, name in categorical))
    return tuple(parts[0]), tuple(parts[1])


def _column(making: Making, name: str, rows: np.ndarray, declared: bool) -> Column:
    own = making.all.taken(rows)
    if np.isnan(own.numbers).all() and (own.texts < 0).all():
        return categories(name, [PRESENT])
    profile = Profile(name, categorical=declared, constant=True)
    profile.add(own.cells(making.events.texts), lambda row: making.where(int(own.rows[row])))
    return profile.column()


def _by_code(making: Making, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The places of the events of each of some codes, in their order."""
    codes = making.all.codes
    order = np.argsort(codes, kind="stable")
    numbers = {name: number for number, name in enumerate(making.events.codes.names)}
    ends = np.searchsorted(codes[order], np.arange(len(numbers) + 1))
    none = np.empty(0, np.int64)
    return {name: order[ends[numbers[name]] : ends[numbers[name] + 1]] if name in numbers else none for name in names}


def records_of_events(
    making: Making,
    schema: Schema,
    static: Mapping[str, np.ndarray] | None = None,
    subjects: Sequence[str] | None = None,
) -> EHRDataset:
    """The records.

    Args:
        making: the events, and what becomes of odd ones.
        schema: the columns; events of other codes are left out and counted.
        static: values by patient of the static columns that do not come from events.
        subjects: the patient behind each id; None takes those that events name, where the schema has a subject.

    Raises:
        InputError: a value is not of its column's kind, two are of one time, or a patient has no visit.
    """
    every, notes, static = making.all, list[str](), static or {}
    names = [column.name for column in schema.columns if column.name not in static]
    places = _by_code(making, [*names, *OWN_CODES])
    if schema.subject is not None and subjects is None:
        subjects = _subjects(making, places[SUBJECT], schema)
    temporal = np.concatenate([*(places[column.name] for column in schema.temporal), places[VISIT]])
    if (untimed := np.isnan(every.times[temporal])).any():
        row = int(temporal[int(untimed.argmax())])
        raise InputError(
            f"{making.events.codes.names[every.codes[row]]!r} at {making.where(int(every.rows[row]))} has no time, but "
            "the schema says that it changes with time; fill it in, or make the column static"
        )
    taken = sum(len(rows) for rows in places.values())
    if left_out := making.events.left_out + len(every.owners) - taken:
        notes.append(f"{left_out:,} events of codes that the schema does not have were left out")

    temporal = np.sort(temporal)
    order = temporal[np.lexsort((every.times[temporal], every.owners[temporal]))]
    owners, times = every.owners[order], every.times[order]
    new = np.concatenate([[True], (owners[1:] != owners[:-1]) | (times[1:] != times[:-1])])[: len(order)]
    visit_of = np.full(len(every.owners), -1, np.int64)
    visit_of[order] = np.cumsum(new) - 1
    owners, times = owners[new], times[new]
    if not making.events.dates:
        refuse_dates_in_numbers(
            every.times[temporal],
            schema.time_unit,
            f"the time {schema.time!r}",
            lambda row: making.where(int(every.rows[temporal[row]])),
        )
    count = len(making.events.ids.names)
    lengths = np.bincount(owners, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    _refuse_without_visits(making, lengths, notes)

    values: dict[str, np.ndarray] = {}
    again = 0
    for column in schema.temporal:
        values[column.name], more = _filled(making, column, places[column.name], visit_of, len(times))
        again += more
    of_patients = dict(static)
    for column in (column for column in schema.static if column.name not in static):
        of_patients[column.name], more = _filled(making, column, places[column.name], every.owners, count)
        again += more
    if again:
        how = "the last was taken" if making.duplicates == "last" else "their mean was taken (of categories the last)"
        notes.append(f"{again:,} values of a patient, time and code that had one before: {how}")
    if making.events.dates:
        times = _since_origin(making, places[ORIGIN], times, offsets, owners) / MICROSECONDS[schema.time_unit]
    else:
        notes += late_start(times[offsets[:-1][lengths > 0]], schema.time_unit)
    return _without_the_empty(schema, making, of_patients, values, lengths, times, notes, subjects)


def _subjects(making: Making, rows: np.ndarray, schema: Schema) -> list[str]:
    """The patient behind each id, as events name it."""
    every, found = making.all, dict[int, str]()
    for row in rows.tolist():
        try:
            found[int(every.owners[row])] = str(json.loads(making.events.texts[int(every.texts[row])]))
        except (KeyError, ValueError):
            raise InputError(
                f"{SUBJECT!r} at {making.where(int(every.rows[row]))} must be a text in quotes; correct it"
            ) from None
    for owner, name in enumerate(making.events.ids.names):
        if owner not in found:
            raise InputError(
                f"the schema has the subject {schema.subject!r}, and nothing names that of {name!r}; add the column to "
                f"the table, or an event {SUBJECT!r} with it"
            )
    return [found[owner] for owner in range(len(making.events.ids.names))]


def _refuse_without_visits(making: Making, lengths: np.ndarray, notes: list[str]) -> None:
    if lengths.all():
        return
    empty = int((lengths == 0).sum())
    if making.without_visits == "refuse":
        owner = int((lengths == 0).argmax())
        row = np.flatnonzero(making.all.owners == owner)[:1].tolist()
        at = f" at {making.where(int(making.all.rows[row[0]]))}" if row else ""
        raise InputError(
            f"patient {making.events.ids.names[owner]!r}{at} has no visit; add events with a time, or leave such "
            "patients out with without_visits='skip'"
        )
    if empty == len(lengths):
        raise InputError("no patient has a visit; are the codes and the times those of the events?")
    notes.append(f"{empty:,} patients without a visit were left out")


def _filled(
    making: Making, column: Column, rows: np.ndarray, target_of: np.ndarray, size: int
) -> tuple[np.ndarray, int]:
    """A column's values at their visits or patients, and how many were there again."""
    own = making.all.taken(rows)
    texts, targets = making.events.texts, target_of[rows]

    def where(row: int) -> str:
        return making.where(int(own.rows[row]))

    if column.kind == "numeric":
        found = numbers_of(own.cells(texts), column.name, where)
        values = np.full(size, np.nan)
    else:
        found = codes_of(own.cells(texts), column, where)
        if len(column.categories) == 1:  # its events say that it was there, with a value or without
            found = np.zeros_like(found)
        values = np.full(size, -1, np.int32)
    pairs = repeated(targets, np.zeros_like(targets), 1)
    again = 0
    if pairs is not None:
        if making.duplicates == "refuse":
            one, other = pairs.example()
            raise InputError(
                f"patient {making.events.ids.names[own.owners[other]]!r} has {column.name!r} twice at one time, at "
                f"{where(one)} and {where(other)}; take one with duplicates='last', or give "
                "duplicates='mean'"
            )
        again = pairs.count
        kept, found = merged(pairs, found, making.duplicates if column.kind == "numeric" else "last")
        targets, found = targets[kept], found[kept]
    values[targets] = found
    return values, again


def _since_origin(
    making: Making, rows: np.ndarray, times: np.ndarray, offsets: np.ndarray, owners: np.ndarray
) -> np.ndarray:
    """Times since each patient's origin, which is the first visit unless an event says another."""
    starts = np.append(times, np.nan)[offsets[:-1]]
    starts[making.all.owners[rows]] = making.all.times[rows]
    since = times - starts[owners]
    if (since < 0).any():
        owner = int(owners[int((since < 0).argmax())])
        raise InputError(
            f"patient {making.events.ids.names[owner]!r} has a visit before the event {ORIGIN!r}; correct either"
        )
    return since


def _without_the_empty(
    schema: Schema,
    making: Making,
    static: Mapping[str, np.ndarray],
    temporal: Mapping[str, np.ndarray],
    lengths: np.ndarray,
    times: np.ndarray,
    notes: Sequence[str],
    subjects: Sequence[str] | None,
) -> EHRDataset:
    """The records of those who have a visit."""
    kept = np.flatnonzero(lengths)
    ids = making.events.ids.names
    return dataset_of(
        schema,
        [ids[place] for place in kept.tolist()],
        {name: values[kept] for name, values in static.items()},
        temporal,
        np.concatenate([[0], np.cumsum(lengths[kept])]),
        times,
        notes,
        None if subjects is None else [subjects[place] for place in kept.tolist()],
    )
