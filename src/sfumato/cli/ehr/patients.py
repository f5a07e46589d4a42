"""Options that say which health records are read, and which patients are held out."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sfumato._check import InputError, between
from sfumato.cli.ehr.folder import kind_of, read_folder, schema_in, table_in
from sfumato.data import (
    EHRDataset,
    ehr_from_events,
    ehr_from_tables,
    mimic_iv,
    physionet2012,
    read_meds,
)

_SOURCES = ("data", "events", "physionet2012", "mimic_iv")
PATHS = (*_SOURCES, "static", "outcomes", "schema")
"""The options that are paths of what is read."""

_HELD_OUT = ("holdout_share", "holdout_seed", "holdout_to", "write_schema")
_COLUMNS = ("schema", "id", "time", "time_unit", "outcome", "unit", "subject", "categorical", "drop")
_EVENTS = ("codes", "most", "duplicates", "without_visits")
_FITS = {
    "a folder of tables": (*_COLUMNS, "unsorted"),
    "a table of visits": (*_COLUMNS, "unsorted", "static"),
    "a folder of events": ("schema",),
    "a folder of MEDS": ("schema", "time_unit", "outcome", "categorical", "drop", *_EVENTS, "split"),
    "--events": (*_COLUMNS, *_EVENTS, "code", "value", "static"),
    "--physionet2012": ("outcomes", "duplicates"),
    "--mimic-iv": ("schema", "items", "most", "hours", "duplicates"),
}
"""The options that each kind of source takes."""

_ARGUMENT = re.compile(
    r"(?<![\w-])(id|time|time_unit|outcome|unit|subject|categorical|drop|code|value|codes|items|duplicates|unsorted|"
    r"without_visits|split)="
    r"(?:(['\"])(.*?)\2)?"
)

COLUMN = tyro.conf.arg(metavar="COLUMN")


@dataclass(frozen=True, kw_only=True)
class PatientOptions:
    """The records, and who is held out of them.

    Attributes:
        data: a folder with visits.parquet (or .csv), static.parquet (or .csv) and schema.yaml; or of MEDS; or a table
            with a row a visit, beside --static.
        events: a table with a row an event, in place of --data.
        physionet2012: folder or table of the PhysioNet Challenge 2012, in place of --data, beside --outcomes.
        mimic_iv: folder of MIMIC-IV, in place of --data.
        static: a table with a row a patient.
        outcomes: the outcomes of the PhysioNet Challenge 2012 (Outcomes-a.txt).
        schema: the columns as YAML; without it they are inferred from the records, which --epsilon refuses.
        write_schema: write the columns that were found into this new file, for a person to review, and learn nothing.
        id: the column of patients, or of stays, admissions or records.
        unit: what an id is of, and so what a guarantee protects; without it, by the column's name (stay_id).
        subject: where that is no patient: the column that names the patient of each; without it subject_id or
            patient_id, if there is one. It is never learned from, and no patient is on both sides of the division.
        time: the column of times.
        code: of events: the column that says what; code, if nobody says so.
        value: of events: the column of values; value, if nobody says so.
        time_unit: what times are counted in.
        outcome: a static column of two categories, which classifiers learn when the records are measured.
        categorical: columns, or codes, of categories that look like numbers.
        drop: columns, or codes, that are not read.
        codes: the codes that are read of events and MEDS; without it all are.
        most: only so many codes of events and MEDS or laboratory items of MIMIC-IV, the most frequent ones.
        items: laboratory items of MIMIC-IV (itemid); without it the 30 most frequent.
        hours: of MIMIC-IV: so many hours from the admission on; without it the whole stay.
        duplicates: what becomes of several values of one patient, time and code.
        unsorted: whether visits that are not in the order of time are refused or sorted.
        without_visits: whether a patient without visits is refused or left out.
        split: of MEDS: the part that is read.
        holdout_share: each patient is held out with this probability, by a hash of the id, for sfumato ehr evaluate; 0
            holds out nobody.
        holdout_seed: public; another one holds out others.
        holdout_to: write those who are held out into this new folder as well, for your eyes only.
    """

    data: Path | None = None
    events: Path | None = None
    physionet2012: Path | None = None
    mimic_iv: Path | None = None
    static: Path | None = None
    outcomes: Path | None = None
    schema: Path | None = None
    write_schema: Path | None = None
    id: Annotated[str | None, COLUMN] = None
    time: Annotated[str | None, COLUMN] = None
    code: Annotated[str | None, COLUMN] = None
    value: Annotated[str | None, COLUMN] = None
    time_unit: Literal["minutes", "hours", "days"] | None = None
    outcome: Annotated[str | None, COLUMN] = None
    unit: Literal["patient", "stay", "admission", "record"] | None = None
    subject: Annotated[str | None, COLUMN] = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    most: int | None = None
    items: tuple[int, ...] = ()
    hours: float | None = None
    duplicates: Literal["refuse", "last", "mean"] | None = None
    unsorted: Literal["refuse", "sort"] | None = None
    without_visits: Literal["refuse", "skip"] | None = None
    split: str | None = None
    holdout_share: float = 0.25
    holdout_seed: int = 0
    holdout_to: Path | None = None

    def check(self) -> None:
        """Refuse what can be refused before anything is read.

        Raises:
            InputError: no source is named or several are, or an option is for another one.
        """
        named = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(named) != 1:
            got = " and ".join(map(_flag, named)) or "none of them"
            raise InputError(f"which records? give one of {', '.join(map(_flag, _SOURCES))}, got {got}")
        between(0.0, 1.0, ends="[)", remedy="0 holds out nobody", holdout_share=self.holdout_share)
        if self.holdout_to is not None and not self.holdout_share:
            raise InputError("--holdout-to writes those who are held out, and --holdout-share 0 holds out nobody")
        if self.physionet2012 is not None and self.outcomes is None:
            raise InputError("--physionet2012 needs the file of outcomes beside it: give --outcomes Outcomes-a.txt")
        if self.write_schema is not None and self.write_schema.exists():
            raise InputError(f"{self.write_schema} is there already; name a new file for --write-schema")
        if self.most is not None and (self.codes or self.items):
            raise InputError(f"--most chooses by number; give it or {'--codes' if self.codes else '--items'}, not both")

    def read(self) -> EHRDataset:
        """The records.

        Raises:
            InputError: as for `check`, a file is missing or damaged, or a row is wrong; it names the row.
        """
        self.check()
        try:
            return self._read()
        except InputError as error:
            raise InputError(at_the_command(str(error))) from None

    def _read(self) -> EHRDataset:
        if self.events is not None:
            return ehr_from_events(self.events, **self._fitting("--events"))
        if self.physionet2012 is not None:
            given = self._fitting("--physionet2012")
            return physionet2012(self.physionet2012, given.pop("outcomes"), **given)
        if self.mimic_iv is not None:
            return mimic_iv(self.mimic_iv, **self._fitting("--mimic-iv", most="items"))
        assert self.data is not None
        if not self.data.is_dir():
            return ehr_from_tables(self.data, **self._fitting("a table of visits"))
        readers: dict[str, Callable[[Path], EHRDataset]] = {
            "tables": self._tables,
            "events": lambda folder: read_folder(folder, **self._fitting("a folder of events")),
            "meds": lambda folder: read_meds(folder, **self._fitting("a folder of MEDS")),
        }
        return readers[kind_of(self.data)](self.data)

    def parts(self) -> tuple[EHRDataset, EHRDataset | None]:
        """Who is learned from, and who is held out; None where nobody is.

        Raises:
            InputError: as for `read`, or one of the two would be empty.
        """
        records = self.read()
        if not self.holdout_share:
            return records, None
        return records.split(self.holdout_share, seed=self.holdout_seed)

    def _tables(self, folder: Path) -> EHRDataset:
        given = self._fitting("a folder of tables")
        if "schema" not in given and not given.keys() & {"id", "time"}:
            given["schema"] = schema_in(folder)
            if given["schema"] is None:
                raise InputError(f"{folder} has no schema.yaml; give --schema, or --id and --time to infer one")
        return ehr_from_tables(table_in(folder, "visits"), table_in(folder, "static"), **given)

    def _fitting(self, source: str, *, most: str = "codes") -> dict[str, Any]:
        """What was given, for a reader; `most` is what that calls its choice by number.

        Raises:
            InputError: an option is for another kind of source.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in given.items() if value not in (None, ())}
        given = {name: value for name, value in given.items() if name not in (*_SOURCES, *_HELD_OUT)}
        for name in given:
            if name not in _FITS[source]:
                fits = [kind for kind, names in _FITS.items() if name in names]
                raise InputError(f"{_flag(name)} is for {' and '.join(fits)}, not for {source}; leave it out")
        if "most" in given:
            given[most] = given.pop("most")
        return given


def at_the_command(told: str) -> str:
    """A reader's words, with the options of the command where they name its arguments.

    >>> at_the_command("name it in drop=, or read with unsorted='sort'")
    'name it in --drop, or read with --unsorted sort'
    >>> at_the_command("no column 'cod' for code='cod' (did you mean code?)")
    "no column 'cod' for --code cod (did you mean code?)"
    """
    return _ARGUMENT.sub(lambda found: f"{_flag(found[1])}{' ' if found[3] else ''}{found[3] or ''}", told)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
