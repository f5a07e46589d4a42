"""MIMIC-IV: stays in intensive care with their laboratory values, and who died in hospital."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, positive, whole
from sfumato.data.columns import Codes, Duplicates
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import Events, Roles, records_of_events
from sfumato.data.ehr.schema import MICROSECONDS, Column, Schema, categorical, declared, numeric
from sfumato.data.ehr.values import (
    Profile,
    is_absent,
    numbers_of,
    refuse_nearly_unique,
    texts_of,
    times_of,
    values_of,
)
from sfumato.data.readers.tables import open_rows
from sfumato.data.records import Records, refuse_absent
from sfumato.data.safeguards import Where, missing_name, refuse_twice
from sfumato.data.schema import as_text

# Stays in intensive care of MIMIC-IV: when each was, and what is known of it and does not change.


DEATH = "hospital_expire_flag"
OF_PATIENTS = ("gender", "anchor_age")
OF_ADMISSIONS = ("admission_type", "insurance", "marital_status", "race", DEATH)
OF_STAYS = ("first_careunit",)
"""The static columns, by the table that has them."""


_SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Stays:
    """All stays, in the order of their table.

    Attributes:
        ids: names of the stays.
        subjects: names of the patients, each once.
        subject_of: int64 [stays], the number of the patient.
        starts, ends: float64 [stays], dates in microseconds; the end is the last moment that is read.
        columns: the static columns.
        values: of each column, float64 or int32 [stays].
    """

    ids: Sequence[str]
    subjects: Sequence[str]
    subject_of: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    columns: tuple[Column, ...]
    values: Mapping[str, np.ndarray]

    def at(self, subjects: np.ndarray, times: np.ndarray) -> np.ndarray:
        """The stay in which a patient was at a time, -1 for none.

        Args:
            subjects: int [rows], numbers of patients; beyond `subjects` those without a stay.
            times: float64 [rows], dates in microseconds; NaN is within no stay.
        """
        base = np.floor(self.starts.min() / _SECOND)
        span = np.ceil(self.ends.max() / _SECOND) - base + 2

        def keys(whose: np.ndarray, when: np.ndarray) -> np.ndarray:
            """Patient and second as one number."""
            seconds = np.clip(np.floor(np.nan_to_num(when) / _SECOND) - base, -1, span - 2)
            return whose.astype(np.int64) * int(span) + seconds.astype(np.int64)

        order = np.lexsort((self.starts, self.subject_of))
        before = np.searchsorted(keys(self.subject_of[order], self.starts[order]), keys(subjects, times), "right") - 1
        found = order[np.maximum(before, 0)]
        within = (before >= 0) & (self.subject_of[found] == subjects)
        with np.errstate(invalid="ignore"):
            within &= (times >= self.starts[found]) & (times <= self.ends[found])
        return np.where(within, found, -1)


def file_of(folder: Path, name: str) -> Records:
    """A table of a release, in the folder itself or in those of the hospital and of intensive care.

    Raises:
        InputError: it is not there.
    """
    for place in (folder, folder / "hosp", folder / "icu"):
        for suffix in (".csv.gz", ".csv", ".parquet"):
            if (path := place / f"{name}{suffix}").is_file():
                return open_rows(path)
    raise InputError(f"{folder} has no {name}.csv.gz, nor its folders hosp and icu; give the folder of a release")


def read_stays(folder: Path, hours: float | None, static: Sequence[Column] | None = None) -> Stays:
    """Read the stays, their patients and their admissions.

    Args:
        folder: of a release.
        hours: how long after its beginning a stay is read; None reads all of it.
        static: the static columns; None finds them in the records.

    Raises:
        InputError: a file or a column is missing, or a stay has no patient, admission or time.
    """
    table = file_of(folder, "icustays")
    stays = _texts(table, ("stay_id", "subject_id", "hadm_id", *OF_STAYS))
    starts, ends = (_dates(table, name) for name in ("intime", "outtime"))
    if hours is not None:
        ends = np.minimum(ends, starts + hours * MICROSECONDS["hours"])
    wrong = ~(ends >= starts)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"{table.where(row)} has a stay that does not end after it begins; correct intime and outtime")
    found: dict[str, list[str]] = {name: stays[name] for name in OF_STAYS}
    for name, key, columns in (("patients", "subject_id", OF_PATIENTS), ("admissions", "hadm_id", OF_ADMISSIONS)):
        other = file_of(folder, name)
        facts = _texts(other, (key, *columns))
        place = {value: row for row, value in enumerate(facts[key])}
        if lost := [row for row, value in enumerate(stays[key]) if value not in place]:
            raise InputError(
                f"{table.where(lost[0])} has the {key} {stays[key][lost[0]]!r}, which {other.title} does "
                "not have; give files of one release"
            )
        for column in columns:
            found[column] = [facts[column][place[value]] for value in stays[key]]
    subjects = list(dict.fromkeys(stays["subject_id"]))
    number = {name: place for place, name in enumerate(subjects)}
    known = {name: pa.array(found[name], pa.string()) for name in (*OF_PATIENTS, *OF_STAYS, *OF_ADMISSIONS)}
    columns = _columns(table, known) if static is None else tuple(static)
    if unknown := [column.name for column in columns if column.name not in known]:
        raise InputError(
            f"the schema has the static column {unknown[0]!r}, and stays have {', '.join(known)}; leave it out"
        )
    return Stays(
        ids=stays["stay_id"],
        subjects=subjects,
        subject_of=np.array([number[name] for name in stays["subject_id"]], np.int64),
        starts=starts,
        ends=ends,
        columns=columns,
        values={column.name: values_of(known[column.name], column, table.where) for column in columns},
    )


def _columns(table: Records, found: Mapping[str, pa.Array]) -> tuple[Column, ...]:
    """The static columns, as they are found to be; one without any value is left out."""
    columns = []
    for name, cells in found.items():
        if is_absent(cells).all():
            continue
        if name == DEATH:
            columns.append(categorical(name, ["0", "1"]))
        else:
            profile = Profile(name, constant=True)
            profile.add(cells, table.where)
            columns.append(profile.column())
    return tuple(columns)


def _texts(table: Records, columns: Sequence[str]) -> dict[str, list[str]]:
    """Some columns as texts, "" where a value is missing; the first has each name once."""
    for name in columns:
        refuse_absent(table.title, table.names, name, name)
    held: dict[str, list[str]] = {name: [] for name in columns}
    for block, _ in table.located(columns):
        for name in columns:
            held[name] += [as_text(value).strip() for value in block[name].to_pylist()]
    key = columns[0]
    if not held[key]:
        raise InputError(f"{table.title} has no rows; give the folder of a release")
    for name in ("subject_id", key):
        if name in held and "" in held[name]:
            raise missing_name(f"the {name}", table.where(held[name].index("")))
    refuse_twice(held[key], key, table.where)
    return held


def _dates(table: Records, name: str) -> np.ndarray:
    """A column of dates in microseconds."""
    refuse_absent(table.title, table.names, name, name)
    held = []
    for block, where in table.located((name,)):
        times, dates = times_of(block[name], name, where)
        missing = np.isnan(times)
        if missing.any() or not dates:
            row = int(missing.argmax())
            raise InputError(f"{name!r} at {where(row)} must be a date as 2150-01-31 07:30:00; correct it")
        held.append(times)
    return np.concatenate(held)


# MIMIC-IV: stays in intensive care with their laboratory values, and who died in hospital.
#
# A record is a stay, and the unit of a guarantee; subject_id names its patient, and a split follows it. Times count
# from the admission to intensive care, and what was measured before it or after the stay is left out.
#
# References:
#     Johnson et al. 2023, MIMIC-IV, a freely accessible electronic health record dataset.


_UNIT = MICROSECONDS["hours"]
_SUBJECT = "subject_id"
_ROLES = Roles(id="stay_id", time="hours", code="item", values=("valuenum",))


def mimic_iv(
    folder: Path | str,
    *,
    items: int | Sequence[int] | None = None,
    schema: Schema | Path | str | None = None,
    hours: float | None = None,
    duplicates: Duplicates = "last",
) -> EHRDataset:
    """Read the stays of MIMIC-IV; those without a value of any of the items are left out and counted.

    Refused: a row without its id, and a stay, admission or patient that is listed twice. Counted in `notes`: names that
    differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one. The
    rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        folder: with patients, admissions, icustays, labevents and d_labitems (.csv, .csv.gz or .parquet), or with the
            folders hosp and icu that have them. Laboratory values are read a block at a time, twice where items is a
            number.
        items: the laboratory items (itemid), a choice that is public; or how many: the most frequent within stays,
            as the categories then taken from the records, which a guarantee refuses. None takes 30, or the schema's.
        schema: the columns, or a file of them: those that this reader finds, edited. A temporal column is named by the
            label of its item, or "label (itemid)".
        hours: how long after the admission to intensive care; None reads the whole stay.
        duplicates: what becomes of several values of one stay, time and item.

    Raises:
        InputError: a file is missing or damaged, an item is unknown, or a row is wrong; it names the row.
    """
    folder = Path(folder)
    if hours is not None:
        positive(hours=hours)
    given = declared(schema)
    if given is not None:
        _refuse_other(given, items)
    stays = read_stays(folder, hours, None if given is None else given.static)
    labs = file_of(folder, "labevents")
    for name in ("subject_id", "charttime", "itemid", "valuenum"):
        refuse_absent(labs.title, labs.names, name, name)
    labels = _labels(file_of(folder, "d_labitems"))
    if given is not None:
        names = _items_of(given, labels, folder)
    else:
        names = _column_names(_chosen(items, labs, stays, labels, folder), labels, [c.name for c in stays.columns])
    events = _events(labs, stays, names)
    found = given or Schema(
        id=_ROLES.id,
        unit="stay",
        subject=_SUBJECT,
        time=_ROLES.time,
        time_unit="hours",
        static=stays.columns,
        temporal=tuple(numeric(name, whole=_is_whole(events, name)) for name in names.values()),
        outcome=DEATH,
        inferred=True,
    )
    subjects: list[str] = [stays.subjects[int(number)] for number in stays.subject_of]
    records = records_of_events(events, found, stays.values, subjects, duplicates=duplicates, without_visits="skip")
    if found.inferred:
        refuse_nearly_unique(records)
    return records


def _refuse_other(schema: Schema, items: int | Sequence[int] | None) -> None:
    """Refuse a schema that is not of stays, and a choice of items next to one."""
    if items is not None:
        raise InputError("the schema says which laboratory items are read; leave items out, or the schema")
    own = (schema.id, schema.unit, schema.subject, schema.time, schema.time_unit)
    needed = (_ROLES.id, "stay", _SUBJECT, _ROLES.time, "hours")
    if own != needed:
        raise InputError(
            f"the schema of MIMIC-IV must have id, unit, subject, time and time_unit {', '.join(needed)}, got "
            f"{', '.join(map(str, own))}; correct them"
        )


def _chosen(
    items: int | Sequence[int] | None, labs: Records, stays: Stays, labels: dict[str, str], folder: Path
) -> list[str]:
    """The items that are read where no schema says it."""
    if items is None or isinstance(items, int):
        count = 30 if items is None else items
        whole(items=count)
        chosen = _most_frequent(labs, stays, count)
    else:
        chosen = [str(item) for item in items]
        if unknown := [item for item in chosen if item not in labels]:
            raise InputError(f"there is no laboratory item {unknown[0]} in {folder}; look it up in d_labitems")
    if not chosen:
        raise InputError(f"{labs.title} has no value within a stay; are these the stays of the same release?")
    return chosen


def _items_of(schema: Schema, labels: dict[str, str], folder: Path) -> dict[str, str]:
    """The column of each item that a schema names."""
    counts = Counter(labels.values())
    known = {label: item for item, label in labels.items() if counts[label] == 1}
    known |= {f"{label} ({item})": item for item, label in labels.items()}
    for column in schema.temporal:
        if column.name not in known or column.kind != "numeric":
            raise InputError(
                f"the schema's {column.name!r} must be numeric and the label of one item in d_labitems of "
                f"{folder} ('label (itemid)' where several share it); correct it"
            )
    return {known[column.name]: column.name for column in schema.temporal}


def _events(labs: Records, stays: Stays, names: dict[str, str]) -> Events:
    """The values of the items that have a name."""
    events = Events()
    events.ids.add(pa.array(stays.ids), str)  # in the order of the stays, those without a value too
    for found in _within(labs, stays):
        kept = np.flatnonzero([item in names for item in found.items])
        block = {
            "stay_id": pa.array([stays.ids[stay] for stay in found.stays[kept].tolist()], pa.string()),
            "hours": pa.array(found.since[kept] / _UNIT),
            "item": pa.array([names[found.items[place]] for place in kept.tolist()], pa.string()),
            "valuenum": pa.array(found.values[kept]),
        }
        events.add(block, _ROLES, lambda row, rows=found.rows[kept]: labs.where(int(rows[row])))
    return events


class _Found(NamedTuple):
    """Values within stays.

    Attributes:
        stays: [values], the number of the stay.
        since: [values], microseconds since its beginning.
        items: [values], what was measured.
        values: float64 [values].
        rows: [values], the row of the table.
    """

    stays: np.ndarray
    since: np.ndarray
    items: list[str]
    values: np.ndarray
    rows: np.ndarray


def _within(labs: Records, stays: Stays) -> Iterator[_Found]:
    """What was measured within a stay and has a number, a block at a time."""
    subjects = Codes("patient", exact=True)
    subjects.add(pa.array(stays.subjects), str)
    start = 0
    for block, where in labs.located(("subject_id", "charttime", "itemid", "valuenum")):
        size = len(block["subject_id"])
        person = subjects.add(block["subject_id"], where)
        times = dates_of(block["charttime"], "charttime", where)
        stay = stays.at(person, times)
        rows = np.flatnonzero(stay >= 0)
        values = numbers_of(block["valuenum"], "valuenum", where)[rows]
        rows = rows[~np.isnan(values)]
        texts, places = texts_of(block["itemid"], "itemid", where)
        yield _Found(
            stays=stay[rows],
            since=times[rows] - stays.starts[stay[rows]],
            items=[texts[place] for place in places[rows].tolist()],
            values=values[~np.isnan(values)],
            rows=start + rows,
        )
        start += size


def dates_of(array: pa.Array, name: str, where: Where) -> np.ndarray:
    """A block of dates, in microseconds, NaN where there is none.

    Raises:
        InputError: they are numbers, or none at all.
    """
    times, dates = times_of(array, name, where)
    if dates is False:
        raise InputError(f"{name!r} must be dates as 2150-01-31 07:30:00, but is a number at {where(0)}; correct it")
    return times


def _most_frequent(labs: Records, stays: Stays, count: int) -> list[str]:
    counts = Counter[str]()
    for found in _within(labs, stays):
        counts.update(found.items)
    return sorted(counts, key=lambda item: (-counts[item], item))[:count]


def _labels(table: Records) -> dict[str, str]:
    """What each item is called."""
    labels: dict[str, str] = {}
    for name in ("itemid", "label"):
        refuse_absent(table.title, table.names, name, name)
    for block, where in table.located(("itemid", "label")):
        texts, places = texts_of(block["itemid"], "itemid", where)
        for place, label in zip(places.tolist(), block["label"].to_pylist(), strict=True):
            labels[texts[place]] = " ".join((label or "").split()) or texts[place]
    return labels


def _column_names(items: Sequence[str], labels: dict[str, str], taken: Sequence[str]) -> dict[str, str]:
    """The name of each item's column: its label, with its number where other items or columns are called the same."""
    counts = Counter([*labels.values(), *taken])
    return {
        item: label if counts[label] <= 1 else f"{label} ({item})"
        for item, label in ((item, labels.get(item, item)) for item in items)
    }


def _is_whole(events: Events, name: str) -> bool:
    names = events.codes.names
    if name not in names:
        return False
    values = events.all.numbers[events.all.codes == names.index(name)]
    return bool((values == np.floor(values)).all())
