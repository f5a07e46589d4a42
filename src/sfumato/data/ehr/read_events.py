"""Health records from a table of events: whose, when, what and its value, in any order.

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

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato._check import InputError, guess, one_of, whole
from sfumato._types import RecordUnit
from sfumato.data.ehr.assemble import ORIGIN, OWN_CODES, VISIT, Making, columns_of_events, records_of_events
from sfumato.data.ehr.cells import is_absent
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import Events, Roles
from sfumato.data.ehr.read_tables import profiled, read_static, subjects_of, whose_of
from sfumato.data.ehr.rows import blocks_of, rows_of, told_of
from sfumato.data.ehr.schema import Schema, TimeUnit
from sfumato.data.ehr.unlearnable import refuse_nearly_unique, refuse_unlearnable
from sfumato.data.ratings.columns import Codes
from sfumato.data.ratings.duplicates import Duplicates
from sfumato.data.ratings.records import Records
from sfumato.data.tables.source import refuse_absent


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
    found = schema if isinstance(schema, Schema) or schema is None else Schema.load(schema)
    if found is not None and (any((outcome, unit, subject, categorical, drop)) or codes is not None):
        raise InputError(
            "the schema says what outcome, unit, subject, categorical, drop and codes would; give one of both"
        )
    id, time = (found.id, found.time) if found is not None and (id, time) == (None, None) else (id, time)
    if id is None or time is None:
        raise InputError("which columns are the patient and the time? give id= and time=, or a schema")
    return records_of_tables(
        [rows_of(events)],
        Roles(id=id, time=time, code=code, values=(value,)),
        None if static is None else rows_of(static),
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
    people: Collection[str] | None = None,
) -> EHRDataset:
    """Records from events in one or several tables; arguments are as in `ehr_from_events`.

    Args:
        but: codes that are not read, and need not be there.
        people: the patients that are read; None reads all.
    """
    one_of(("refuse", "last", "mean"), duplicates=duplicates)
    one_of(("refuse", "skip"), without_visits=without_visits)
    for table in tables:
        for role, name in zip(("id", "time", "code", *["value"] * len(roles.values)), roles.names, strict=True):
            refuse_absent(table.told, table.names, role, name)
    only = None
    if schema is not None:
        only = {column.name for column in schema.columns}
    elif codes is not None:
        only = _most_frequent(tables, roles, codes, (*drop, *but), people) if isinstance(codes, int) else set(codes)
    gathering = Events(None if only is None else {*only, *OWN_CODES}, but=(*drop, *but), people=people)
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
    ends = []
    for table in tables:
        for block, where in blocks_of(table, roles.names):
            gathering.add(block, roles, where)
            if static is not None and len(gathering.ids.names) > count:
                raise InputError(
                    f"patient {gathering.ids.names[count]!r} of {table.told} is not in {static.told}; add the patient "
                    "there, or drop the events"
                )
        ends.append(gathering.seen)
    if schema is None:
        _refuse_unknown(gathering.met, "drop", drop)
        if static is None:
            _refuse_unknown(gathering.met, "categorical", categorical)
            _refuse_unknown(gathering.met, "outcome", [outcome] if outcome else [])
        if codes is not None and not isinstance(codes, int):
            _refuse_unknown(gathering.met, "codes", codes)
    making = Making(
        events=gathering,
        all=gathering.gathered(),
        where=told_of(tables, ends),
        duplicates=duplicates,
        without_visits=without_visits,
    )
    if schema is None:
        timeless, temporal = columns_of_events(making, [*categorical, *([outcome] if outcome else [])])
        if static is not None and timeless:
            raise InputError(
                f"events of {timeless[0].name!r} have no time, but the static columns are in {static.told}; fill the "
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
    records = records_of_events(making, schema, None if facts is None else facts.values, subjects)
    if schema.inferred:
        refuse_unlearnable(records)
        refuse_nearly_unique(records)
    return records


def _most_frequent(
    tables: Sequence[Records], roles: Roles, count: int, but: Sequence[str], people: Collection[str] | None
) -> set[str]:
    """The codes of most events with a time, and all of events without one; read in a pass of its own."""
    whole(codes=count)
    counts, timeless = Counter[str](), set[str]()
    sieve, seen = Events(but=(VISIT, ORIGIN, *but), people=people), Codes("code")
    for table in tables:
        for block, where in blocks_of(table, (roles.id, roles.code, roles.time)):
            numbers = seen.add(block[roles.code], where)
            kept = sieve.kept(block, roles, where)
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
