"""Health records from events: whose, when, what and its value, in any order.

Events are gathered as arrays, a block at a time. An event takes 36 bytes, so a table of 1.7 million takes 60 MB
however large its file is.

>>> events = Events()
>>> events.add(
...     {"who": pa.array([7, 7]), "minute": pa.array([None, 3.0]), "what": pa.array(["sex", "pulse"]),
...      "value": pa.array(["f", "80"])},
...     Roles(id="who", time="minute", code="what", values=("value",)), str,
... )
>>> gathered = events.all
>>> gathered.times.tolist(), gathered.numbers.tolist(), [events.texts.get(place) for place in gathered.texts]
([nan, 3.0], [nan, 80.0], ['f', None])

Events of one patient at one time become a visit.

>>> import pandas as pd
>>> events = pd.DataFrame(
...     {"who": ["bo", "bo", "bo", "al", "al"], "minute": [None, 5, 5, 30, 40],
...      "code": ["sex", "pulse", "alert", "pulse", "pulse"], "value": ["m", "80", "yes", "75.5", "81"]}
... )
>>> data = ehr_from_events(events, id="who", time="minute", time_unit="minutes")
>>> data, data.ids, data.times.tolist()
(EHRDataset(2 patients, 3 visits, 1 static and 2 temporal columns), ('bo', 'al'), [5.0, 30.0, 40.0])
>>> data.numbers[:, 0].tolist(), data.codes[:, 0].tolist()
([80.0, 75.5, 81.0], [0, -1, -1])
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, guess, one_of, whole
from sfumato._types import RecordUnit
from sfumato.data.columns import Codes, Duplicates, as_number, is_missing, is_number_text, merged, repeated
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import MICROSECONDS, Column, Schema, TimeUnit, declared
from sfumato.data.ehr.schema import categorical as categories
from sfumato.data.ehr.tables import (
    dataset_of,
    profiled,
    read_static,
    subjects_of,
    whose_of,
)
from sfumato.data.ehr.values import (
    Profile,
    codes_of,
    is_absent,
    late_start,
    numbers_of,
    refuse_dates_in_numbers,
    refuse_nearly_unique,
    refuse_unlearnable,
    texts_of,
    times_of,
)
from sfumato.data.readers.tables import open_rows
from sfumato.data.records import Records, is_number, refuse_absent
from sfumato.data.safeguards import Where
from sfumato.data.schema import as_text


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
        rows: int64 [events], the row, of all that were read.
    """

    owners: np.ndarray
    times: np.ndarray
    codes: np.ndarray
    numbers: np.ndarray
    texts: np.ndarray
    rows: np.ndarray

    def taken(self, chosen: np.ndarray) -> "Gathered":
        """Some events: a mask, or places."""
        return Gathered(**{name: values[chosen] for name, values in vars(self).items()})

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
        patients: the patients that are kept; None keeps all.

    Attributes:
        ids: names of patients, as they come.
        codes: names of codes, as they come.
        texts: of values that are no numbers, by their number.
        dates: whether times are dates; None while none is known.
        left_out: events of codes that are not kept.
    """

    def __init__(
        self,
        only: Collection[str] | None = None,
        but: Collection[str] = (),
        patients: Collection[str] | None = None,
    ) -> None:
        self.ids, self.codes = Codes("patient", exact=True), Codes("code")
        self.texts: dict[int, str] = {}
        self.dates: bool | None = None
        self.left_out = 0
        self._numbers_of_texts: dict[str, int] = {}
        self._only, self._but, self._patients = only, but, patients
        self._every_code, self._everybody = Codes("code"), Codes("patient", exact=True)
        self._blocks: list[Gathered] = []
        self._starts, self._where_of_blocks = [0], list[Where]()

    @property
    def met(self) -> list[str]:
        """Names of all codes that were there, kept or not."""
        return list(dict.fromkeys([*self._every_code.names, *self.codes.names]))

    def add(self, block: Mapping[str, pa.Array], roles: Roles, where: Where) -> None:
        """Take a block of a table.

        Raises:
            InputError: a patient or a code is missing, a time is none, or a number is not finite.
        """
        first = self._starts[-1]
        self._starts.append(first + len(block[roles.id]))
        self._where_of_blocks.append(where)
        rows = np.flatnonzero(self.selected(block, roles, where))
        if len(rows) < len(block[roles.id]):
            block = {name: array.take(pa.array(rows)) for name, array in block.items()}

        def of_selected(row: int) -> str:
            return where(int(rows[row]))

        owners = self.ids.add(block[roles.id], of_selected)
        codes = self.codes.add(block[roles.code], of_selected)
        times, dates = times_of(block[roles.time], roles.time, of_selected)
        if dates is not None and self.dates not in (None, dates):
            raise InputError(f"the times are dates and numbers from {of_selected(0)} on; write them in one way")
        self.dates = self.dates if dates is None else dates
        numbers, texts = np.full(len(owners), np.nan), np.full(len(owners), -1, np.int32)
        for name in roles.values:
            found, said = self._values(block[name], name, of_selected)
            empty = np.isnan(numbers) & (texts < 0)
            numbers, texts = np.where(empty, found, numbers), np.where(empty, said, texts)
        self._blocks.append(
            Gathered(owners=owners, times=times, codes=codes, numbers=numbers, texts=texts, rows=first + rows)
        )

    def selected(self, block: Mapping[str, pa.Array], roles: Roles, where: Where) -> np.ndarray:
        """Which rows of a block are read, bool [rows]."""
        kept = np.ones(len(block[roles.id]), bool)
        if self._patients is not None:
            owners = self._everybody.add(block[roles.id], where)
            kept &= np.array([name in self._patients for name in self._everybody.names], bool)[owners]
        if self._only is not None or self._but:
            codes = self._every_code.add(block[roles.code], where)
            names, only = self._every_code.names, self._only
            kept &= np.array([name not in self._but for name in names], bool)[codes]
            if only is not None:
                wanted = np.array([name in only for name in names], bool)[codes]
                self.left_out += int((kept & ~wanted).sum())
                kept &= wanted
        return kept

    @cached_property
    def all(self) -> Gathered:
        """All events; no more can be added.

        Raises:
            InputError: there are none.
        """
        if not sum(len(block.owners) for block in self._blocks):
            raise InputError("there are no events; needed is a row for each measurement")
        joined = {name: np.concatenate([vars(block)[name] for block in self._blocks]) for name in vars(self._blocks[0])}
        self._blocks.clear()
        return Gathered(**joined)

    def where(self, event: int) -> str:
        """What messages call the row of an event."""
        row = int(self.all.rows[event])
        block = bisect_right(self._starts, row) - 1
        return self._where_of_blocks[block](row - self._starts[block])

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


# Events as health records: those of one patient at one time are a visit, each code is a column.


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


def columns_of_events(events: Events, categorical: Sequence[str] = ()) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The static and the temporal columns: static are the codes of events without a time.

    Raises:
        InputError: a code has a time in some events only, is of mixed kinds, or there are too many.
    """
    names, every = events.codes.names, events.all
    held = [name for place, name in enumerate(names) if (every.codes == place).any()]
    wanted = [name for name in held if name not in OWN_CODES]
    if len(wanted) > MOST_CODES:
        raise InputError(
            f"there are {len(wanted):,} codes, of which each would be a column, and at most {MOST_CODES:,} can be; "
            "choose some with codes="
        )
    parts: tuple[list[Column], list[Column]] = ([], [])
    for name, rows in _by_code(events, wanted).items():
        timed = ~np.isnan(every.times[rows])
        if timed.any() and not timed.all():
            raise InputError(
                f"{name!r} has a time at {events.where(rows[int(timed.argmax())])} and none at "
                f"{events.where(rows[int(timed.argmin())])}; give all of its events a time or none"
            )
        parts[bool(timed.all())].append(_column(events, name, rows, name in categorical))
    return tuple(parts[0]), tuple(parts[1])


def _column(events: Events, name: str, rows: np.ndarray, declared: bool) -> Column:
    own = events.all.taken(rows)
    if np.isnan(own.numbers).all() and (own.texts < 0).all():
        return categories(name, [PRESENT])
    profile = Profile(name, categorical=declared, constant=True)
    profile.add(own.cells(events.texts), lambda row: events.where(rows[row]))
    return profile.column()


def _by_code(events: Events, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The places of the events of each of some codes, in their order."""
    codes = events.all.codes
    order = np.argsort(codes, kind="stable")
    numbers = {name: number for number, name in enumerate(events.codes.names)}
    ends = np.searchsorted(codes[order], np.arange(len(numbers) + 1))
    none = np.empty(0, np.int64)
    return {name: order[ends[numbers[name]] : ends[numbers[name] + 1]] if name in numbers else none for name in names}


def records_of_events(
    events: Events,
    schema: Schema,
    static: Mapping[str, np.ndarray] | None = None,
    subjects: Sequence[str] | None = None,
    *,
    duplicates: Duplicates,
    without_visits: Literal["refuse", "skip"],
) -> EHRDataset:
    """The records.

    Args:
        events: that were gathered.
        schema: the columns; events of other codes are left out and counted.
        static: values by patient of the static columns that do not come from events.
        subjects: the patient behind each id; None takes those that events name, where the schema has a subject.
        duplicates: what becomes of several values of one patient, time and code.
        without_visits: whether a patient without a visit is refused, or left out and counted.

    Raises:
        InputError: a value is not of its column's kind, two are of one time, or a patient has no visit.
    """
    every, notes, static = events.all, list[str](), static or {}
    names = [column.name for column in schema.columns if column.name not in static]
    places = _by_code(events, [*names, *OWN_CODES])
    if schema.subject is not None and subjects is None:
        subjects = _subjects(events, places[SUBJECT], schema)
    temporal = np.concatenate([*(places[column.name] for column in schema.temporal), places[VISIT]])
    if (untimed := np.isnan(every.times[temporal])).any():
        row = int(temporal[int(untimed.argmax())])
        raise InputError(
            f"{events.codes.names[every.codes[row]]!r} at {events.where(row)} has no time, but "
            "the schema says that it changes with time; fill it in, or make the column static"
        )
    taken = sum(len(rows) for rows in places.values())
    if left_out := events.left_out + len(every.owners) - taken:
        notes.append(f"{left_out:,} events of codes that the schema does not have were left out")

    temporal = np.sort(temporal)
    order = temporal[np.lexsort((every.times[temporal], every.owners[temporal]))]
    owners, times = every.owners[order], every.times[order]
    new = np.concatenate([[True], (owners[1:] != owners[:-1]) | (times[1:] != times[:-1])])[: len(order)]
    visit_of = np.full(len(every.owners), -1, np.int64)
    visit_of[order] = np.cumsum(new) - 1
    owners, times = owners[new], times[new]
    if not events.dates:
        refuse_dates_in_numbers(
            every.times[temporal],
            schema.time_unit,
            f"the time {schema.time!r}",
            lambda row: events.where(temporal[row]),
        )
    count = len(events.ids.names)
    lengths = np.bincount(owners, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    _refuse_without_visits(events, lengths, notes, without_visits)

    values: dict[str, np.ndarray] = {}
    again = 0
    for column in schema.temporal:
        values[column.name], more = _filled(events, column, places[column.name], visit_of, len(times), duplicates)
        again += more
    of_patients = dict(static)
    for column in (column for column in schema.static if column.name not in static):
        of_patients[column.name], more = _filled(events, column, places[column.name], every.owners, count, duplicates)
        again += more
    if again:
        how = "the last was taken" if duplicates == "last" else "their mean was taken (of categories the last)"
        notes.append(f"{again:,} values of a patient, time and code that had one before: {how}")
    if events.dates:
        times = _since_origin(events, places[ORIGIN], times, offsets, owners) / MICROSECONDS[schema.time_unit]
    else:
        notes += late_start(times[offsets[:-1][lengths > 0]], schema.time_unit)
    held = np.flatnonzero(lengths)
    ids = events.ids.names
    return dataset_of(
        schema,
        [ids[place] for place in held.tolist()],
        {name: found[held] for name, found in of_patients.items()},
        values,
        np.concatenate([[0], np.cumsum(lengths[held])]),
        times,
        notes,
        None if subjects is None else [subjects[place] for place in held.tolist()],
    )


def _subjects(events: Events, rows: np.ndarray, schema: Schema) -> list[str]:
    """The patient behind each id, as events name it."""
    every, found = events.all, dict[int, str]()
    for row in rows.tolist():
        try:
            found[int(every.owners[row])] = str(json.loads(events.texts[int(every.texts[row])]))
        except (KeyError, ValueError):
            raise InputError(f"{SUBJECT!r} at {events.where(row)} must be a text in quotes; correct it") from None
    for owner, name in enumerate(events.ids.names):
        if owner not in found:
            raise InputError(
                f"the schema has the subject {schema.subject!r}, and nothing names that of {name!r}; add the column to "
                f"the table, or an event {SUBJECT!r} with it"
            )
    return [found[owner] for owner in range(len(events.ids.names))]


def _refuse_without_visits(events: Events, lengths: np.ndarray, notes: list[str], without_visits: str) -> None:
    if lengths.all():
        return
    empty = int((lengths == 0).sum())
    if without_visits == "refuse":
        owner = int((lengths == 0).argmax())
        row = np.flatnonzero(events.all.owners == owner)[:1].tolist()
        at = f" at {events.where(row[0])}" if row else ""
        raise InputError(
            f"patient {events.ids.names[owner]!r}{at} has no visit; add events with a time, or leave such "
            "patients out with without_visits='skip'"
        )
    if empty == len(lengths):
        raise InputError("no patient has a visit; are the codes and the times those of the events?")
    notes.append(f"{empty:,} patients without a visit were left out")


def _filled(
    events: Events, column: Column, rows: np.ndarray, target_of: np.ndarray, size: int, duplicates: Duplicates
) -> tuple[np.ndarray, int]:
    """A column's values at their visits or patients, and how many were there again."""
    own = events.all.taken(rows)
    texts, targets = events.texts, target_of[rows]

    def where(row: int) -> str:
        return events.where(rows[row])

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
        if duplicates == "refuse":
            one, other = pairs.example()
            raise InputError(
                f"patient {events.ids.names[own.owners[other]]!r} has {column.name!r} twice at one time, at "
                f"{where(one)} and {where(other)}; take one with duplicates='last', or give "
                "duplicates='mean'"
            )
        again = pairs.count
        kept, found = merged(pairs, found, duplicates if column.kind == "numeric" else "last")
        targets, found = targets[kept], found[kept]
    values[targets] = found
    return values, again


def _since_origin(
    events: Events, rows: np.ndarray, times: np.ndarray, offsets: np.ndarray, owners: np.ndarray
) -> np.ndarray:
    """Times since each patient's origin, which is the first visit unless an event says another."""
    starts = np.append(times, np.nan)[offsets[:-1]]
    starts[events.all.owners[rows]] = events.all.times[rows]
    since = times - starts[owners]
    if (since < 0).any():
        owner = int(owners[int((since < 0).argmax())])
        raise InputError(f"patient {events.ids.names[owner]!r} has a visit before the event {ORIGIN!r}; correct either")
    return since


def ehr_from_events(
    events: Any,
    static: Any = None,
    *,
    schema: Schema | Path | str | None = None,
    id: str | None = None,
    time: str | None = None,
    code: str = "code",
    value: str = "value",
    time_unit: TimeUnit = "days",
    outcome: str | None = None,
    unit: RecordUnit | None = None,
    subject: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    codes: Sequence[str] | int | None = None,
    duplicates: Duplicates = "refuse",
    without_visits: Literal["refuse", "skip"] = "refuse",
) -> EHRDataset:
    """Read health records from a table of events, in memory that does not grow with the file but with its rows.

    Events of one patient at one time are a visit. What has no time does not change: it is static. An event without a
    value says that it was there, where no event of its code has a value, and else that the value is missing.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8, a patient twice in
    `static`, and a key twice in an object. Counted in `notes`: names that differ only in case, blanks, zeros or Unicode
    form, and names such as `NA` that often stand for a missing one. The rule is that of all readers,
    `sfumato.data.safeguards`.

    Args:
        events: a row an event, as a table of any kind that `ehr_from_tables` takes.
        static: a row a patient, in a table; None takes static columns from events without a time.
        schema: the columns, or a file of YAML; then id and time are the schema's unless they are given, and the fields
            below it are left out. None infers it from the records, which the statement says.
        id, time, code, value: the columns of the events.
        time_unit, outcome, unit, subject, categorical, drop: as in `ehr_from_tables`; columns are codes here, but for
            the subject, which is a column of either table.
        codes: which codes are read, or how many: the most frequent of those with a time. None reads all.
        duplicates: what becomes of several values of one patient, time and code: they are refused, or the last, or
            their mean stands for all.
        without_visits: whether a patient without any event that has a time is refused, or left out and counted.

    Raises:
        InputError: a file is missing or damaged, a column is not there, or a row is wrong; it names the row.
    """
    found = declared(
        schema, outcome=outcome, unit=unit, subject=subject, categorical=categorical, drop=drop, codes=codes
    )
    id, time = (found.id, found.time) if found is not None and (id, time) == (None, None) else (id, time)
    if id is None or time is None:
        raise InputError("which columns are the patient and the time? give id= and time=, or a schema")
    return records_of_tables(
        [open_rows(events)],
        Roles(id=id, time=time, code=code, values=(value,)),
        None if static is None else open_rows(static),
        schema=found,
        time_unit=time_unit,
        outcome=outcome,
        unit=unit,
        subject=subject,
        categorical=categorical,
        drop=drop,
        codes=codes,
        duplicates=duplicates,
        without_visits=without_visits,
    )


def records_of_tables(
    tables: Sequence[Records],
    roles: Roles,
    static: Records | None = None,
    *,
    schema: Schema | None,
    time_unit: TimeUnit,
    outcome: str | None = None,
    unit: RecordUnit | None = None,
    subject: str | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    codes: Sequence[str] | int | None = None,
    duplicates: Duplicates,
    without_visits: Literal["refuse", "skip"],
    but: Sequence[str] = (),
    patients: Collection[str] | None = None,
) -> EHRDataset:
    """Records from events in one or several tables; arguments are as in `ehr_from_events`.

    Args:
        but: codes that are not read, and need not be there.
        patients: the patients that are read; None reads all.
    """
    one_of(("refuse", "last", "mean"), duplicates=duplicates)
    one_of(("refuse", "skip"), without_visits=without_visits)
    for table in tables:
        for role, name in zip(("id", "time", "code", *["value"] * len(roles.values)), roles.names, strict=True):
            refuse_absent(table.title, table.names, role, name)
    only = None
    if schema is not None:
        only = {column.name for column in schema.columns}
    elif codes is not None:
        only = _most_frequent(tables, roles, codes, (*drop, *but), patients) if isinstance(codes, int) else set(codes)
    gathering = Events(None if only is None else {*only, *OWN_CODES}, but=(*drop, *but), patients=patients)
    having = [*tables, *([] if static is None else [static])]
    whose = whose_of(roles.id, unit, subject, having, drop) if schema is None else {}
    own = schema.subject if schema is not None else whose["subject"]
    facts, columns = None, ()
    if static is not None:
        columns = (
            schema.static
            if schema is not None
            else profiled(static, (roles.id, *filter(None, [own]), *drop), categorical, outcome)
        )
        facts = read_static(static, gathering.ids, roles.id, columns)
    count = len(gathering.ids.names)
    for table in tables:
        for block, where in table.located(roles.names):
            gathering.add(block, roles, where)
            if static is not None and len(gathering.ids.names) > count:
                raise InputError(
                    f"patient {gathering.ids.names[count]!r} of {table.title} is not in {static.title}; add the "
                    "patient there, or drop the events"
                )
    if schema is None:
        _refuse_unknown(gathering.met, "drop", drop)
        if static is None:
            _refuse_unknown(gathering.met, "categorical", categorical)
            _refuse_unknown(gathering.met, "outcome", [outcome] if outcome else [])
        if codes is not None and not isinstance(codes, int):
            _refuse_unknown(gathering.met, "codes", codes)
    if schema is None:
        timeless, temporal = columns_of_events(gathering, [*categorical, *([outcome] if outcome else [])])
        if static is not None and timeless:
            raise InputError(
                f"events of {timeless[0].name!r} have no time, but the static columns are in {static.title}; fill the "
                "times in, or drop the code"
            )
        schema = Schema(
            id=roles.id,
            time=roles.time,
            time_unit=time_unit,
            static=tuple(columns) or timeless,
            temporal=temporal,
            outcome=outcome,
            inferred=True,
            **whose,
        )
    named = any(schema.subject in table.names for table in having)
    subjects = subjects_of(having[::-1], gathering.ids.names, schema) if named else None
    records = records_of_events(
        gathering,
        schema,
        None if facts is None else facts.values,
        subjects,
        duplicates=duplicates,
        without_visits=without_visits,
    )
    if schema.inferred:
        refuse_unlearnable(records)
        refuse_nearly_unique(records)
    return records


def _most_frequent(
    tables: Sequence[Records], roles: Roles, count: int, but: Sequence[str], patients: Collection[str] | None
) -> set[str]:
    """The codes of most events with a time, and all of events without one; read in a pass of its own."""
    whole(codes=count)
    counts, timeless = Counter[str](), set[str]()
    sieve, seen = Events(but=(VISIT, ORIGIN, *but), patients=patients), Codes("code")
    for table in tables:
        for block, where in table.located((roles.id, roles.code, roles.time)):
            numbers = seen.add(block[roles.code], where)
            kept = sieve.selected(block, roles, where)
            absent = is_absent(block[roles.time])
            names = seen.names
            for name, found in zip(names, np.bincount(numbers[kept & ~absent], minlength=len(names)).tolist()):
                counts[name] += found
            timeless |= {names[number] for number in np.unique(numbers[kept & absent]).tolist()}
    timed = [name for name, found in counts.items() if found]
    return {*sorted(timed, key=lambda name: (-counts[name], name))[:count], *timeless}


def _refuse_unknown(codes: Sequence[str], role: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise InputError(f"{role} must be a list of codes, got {names!r}; write [{names!r}]")
    for name in names:
        if name not in codes:
            raise InputError(f"no event has the code {name!r} of {role}={name!r}{guess(name, codes)}")
