"""Stays in intensive care of MIMIC-IV: when each was, and what is known of it and does not change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.ehr.cells import codes_of, numbers_of, times_of
from sfumato.data.ehr.infer import Profile
from sfumato.data.ehr.rows import blocks_of, rows_of
from sfumato.data.ehr.schema import MICROSECONDS, Column, categorical
from sfumato.data.examples.schema import as_text
from sfumato.data.ratings.records import Records
from sfumato.data.safeguards import missing_name, refuse_twice
from sfumato.data.tables.cell_texts import is_missing
from sfumato.data.tables.source import refuse_absent

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
        begins, ends: float64 [stays], dates in microseconds; the end is the last moment that is read.
        columns: the static columns.
        values: of each column, float64 or int32 [stays].
    """

    ids: Sequence[str]
    subjects: Sequence[str]
    subject_of: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    columns: tuple[Column, ...]
    values: Mapping[str, np.ndarray]

    def at(self, subjects: np.ndarray, times: np.ndarray) -> np.ndarray:
        """The stay in which a patient was at a time, -1 for none.

        Args:
            subjects: int [rows], numbers of patients; beyond `subjects` those without a stay.
            times: float64 [rows], dates in microseconds; NaN is within no stay.
        """
        base = np.floor(self.begins.min() / _SECOND)
        span = np.ceil(self.ends.max() / _SECOND) - base + 2

        def keys(whose: np.ndarray, when: np.ndarray) -> np.ndarray:
            """Patient and second as one number."""
            seconds = np.clip(np.floor(np.nan_to_num(when) / _SECOND) - base, -1, span - 2)
            return whose.astype(np.int64) * int(span) + seconds.astype(np.int64)

        order = np.lexsort((self.begins, self.subject_of))
        before = np.searchsorted(keys(self.subject_of[order], self.begins[order]), keys(subjects, times), "right") - 1
        found = order[np.maximum(before, 0)]
        within = (before >= 0) & (self.subject_of[found] == subjects)
        with np.errstate(invalid="ignore"):
            within &= (times >= self.begins[found]) & (times <= self.ends[found])
        return np.where(within, found, -1)


def file_of(folder: Path, name: str) -> Records:
    """A table of a release, in the folder itself or in those of the hospital and of intensive care.

    Raises:
        InputError: it is not there.
    """
    for place in (folder, folder / "hosp", folder / "icu"):
        for suffix in (".csv.gz", ".csv", ".parquet"):
            if (path := place / f"{name}{suffix}").is_file():
                return rows_of(path)
    raise InputError(f"{folder} has no {name}.csv.gz, nor its folders hosp and icu; give the folder of a release")


def read_stays(folder: Path, hours: float | None, declared: Sequence[Column] | None = None) -> Stays:
    """Read the stays, their patients and their admissions.

    Args:
        folder: of a release.
        hours: how long after its beginning a stay is read; None reads all of it.
        declared: the static columns; None finds them in the records.

    Raises:
        InputError: a file or a column is missing, or a stay has no patient, admission or time.
    """
    table = file_of(folder, "icustays")
    stays = _texts(table, ("stay_id", "subject_id", "hadm_id", *OF_STAYS))
    begins, ends = (_dates(table, name) for name in ("intime", "outtime"))
    if hours is not None:
        ends = np.minimum(ends, begins + hours * MICROSECONDS["hours"])
    wrong = ~(ends >= begins)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"{table.told} {table.place(row)} has a stay that does not end after it begins; correct intime and outtime"
        )
    found: dict[str, list[str]] = {name: stays[name] for name in OF_STAYS}
    for name, key, columns in (("patients", "subject_id", OF_PATIENTS), ("admissions", "hadm_id", OF_ADMISSIONS)):
        other = file_of(folder, name)
        facts = _texts(other, (key, *columns))
        place = {value: row for row, value in enumerate(facts[key])}
        if lost := [row for row, value in enumerate(stays[key]) if value not in place]:
            raise InputError(
                f"{table.told} {table.place(lost[0])} has the {key} {stays[key][lost[0]]!r}, which {other.told} does "
                "not have; give files of one release"
            )
        for column in columns:
            found[column] = [facts[column][place[value]] for value in stays[key]]
    subjects = list(dict.fromkeys(stays["subject_id"]))
    number = {name: place for place, name in enumerate(subjects)}
    known = {name: found[name] for name in (*OF_PATIENTS, *OF_STAYS, *OF_ADMISSIONS)}
    columns, values = _columns(table, known) if declared is None else _declared(table, known, declared)
    return Stays(
        ids=stays["stay_id"],
        subjects=subjects,
        subject_of=np.array([number[name] for name in stays["subject_id"]], np.int64),
        begins=begins,
        ends=ends,
        columns=columns,
        values=values,
    )


def _columns(table: Records, found: Mapping[str, list[str]]) -> tuple[tuple[Column, ...], dict[str, np.ndarray]]:
    """The static columns and their values; one without any value is left out."""
    columns, values = [], {}

    def where(row: int) -> str:
        return f"{table.told} {table.place(row)}"

    for name, texts in found.items():
        if all(map(is_missing, texts)):
            continue
        cells = pa.array(texts, pa.string())
        if name == DEATH:
            column = categorical(name, ["0", "1"])
        else:
            profile = Profile(name, constant=True)
            profile.add(cells, where)
            column = profile.column()
        columns.append(column)
        values[name] = numbers_of(cells, name, where) if column.kind == "numeric" else codes_of(cells, column, where)
    return tuple(columns), values


def _declared(
    table: Records, found: Mapping[str, list[str]], columns: Sequence[Column]
) -> tuple[tuple[Column, ...], dict[str, np.ndarray]]:
    """The static columns of a schema, and their values."""

    def where(row: int) -> str:
        return f"{table.told} {table.place(row)}"

    values = {}
    for column in columns:
        if column.name not in found:
            raise InputError(
                f"the schema has the static column {column.name!r}, and stays have {', '.join(found)}; leave it out"
            )
        cells = pa.array(found[column.name], pa.string())
        numbers = column.kind == "numeric"
        values[column.name] = numbers_of(cells, column.name, where) if numbers else codes_of(cells, column, where)
    return tuple(columns), values


def _texts(table: Records, columns: Sequence[str]) -> dict[str, list[str]]:
    """Some columns as texts, "" where a value is missing; the first has each name once."""
    for name in columns:
        refuse_absent(table.told, table.names, name, name)
    held: dict[str, list[str]] = {name: [] for name in columns}
    for block, _ in blocks_of(table, columns):
        for name in columns:
            held[name] += [as_text(value).strip() for value in block[name].to_pylist()]
    key = columns[0]
    if not held[key]:
        raise InputError(f"{table.told} has no rows; give the folder of a release")

    def where(row: int) -> str:
        return f"{table.told} {table.place(row)}"

    for name in ("subject_id", key):
        if name in held and "" in held[name]:
            raise missing_name(f"the {name}", where(held[name].index("")))
    refuse_twice(held[key], key, where)
    return held


def _dates(table: Records, name: str) -> np.ndarray:
    """A column of dates in microseconds."""
    refuse_absent(table.told, table.names, name, name)
    held = []
    for block, where in blocks_of(table, (name,)):
        times, dates = times_of(block[name], name, where)
        missing = np.isnan(times)
        if missing.any() or not dates:
            row = int(missing.argmax())
            raise InputError(f"{name!r} at {where(row)} must be a date as 2150-01-31 07:30:00; correct it")
        held.append(times)
    return np.concatenate(held)
