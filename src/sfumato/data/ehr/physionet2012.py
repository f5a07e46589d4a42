"""The PhysioNet/CinC Challenge 2012: stays in intensive care, their first 48 hours, and who died in hospital.

Its columns are those of the challenge's description, which is public. Age, Gender, Height, ICUType and Weight at minute
0 describe the stay; Weight later on is measured again. −1 means missing, whatever it stands for and whenever. All other
values are taken as they were recorded, mistakes as a pH of 735 included. Numbers have public ranges, for runs with a
guarantee.

References:
    Silva et al. 2012, Predicting in-hospital mortality of ICU patients: the PhysioNet/Computing in Cardiology
    Challenge 2012.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.columns import Codes, Duplicates
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import Events, Roles, records_of_events
from sfumato.data.ehr.schema import Column, Schema, categorical, numeric
from sfumato.data.ehr.tables import read_static
from sfumato.data.readers.delimited import Delimited
from sfumato.data.readers.tables import is_parquet_folder, open_rows
from sfumato.data.records import Records, refuse_absent
from sfumato.data.safeguards import Where, refuse_shared_files, refuse_undecodable

DESCRIPTORS = ("Age", "Gender", "Height", "ICUType", "Weight")
"""What describes a stay, at minute 0."""

ADMISSION_WEIGHT = "AdmissionWeight"
"""The static column of the weight at minute 0, next to the temporal Weight."""

DEATH = "In-hospital_death"

WHOLE = ("GCS",)
MEASURED = (
    *("ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS"),
    *("Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "Mg", "NIDiasABP", "NIMAP", "NISysABP", "Na", "PaCO2"),
    *("PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC", "Weight"),
    "pH",
)
"""Numeric time series; MechVent is a flag that is there or not."""

RANGES: dict[str, tuple[float, float]] = {
    "Age": (0, 120), "Height": (50, 250), "AdmissionWeight": (20, 300), "ALP": (0, 3000), "ALT": (0, 10000),
    "AST": (0, 10000), "Albumin": (0, 7), "BUN": (0, 250), "Bilirubin": (0, 60), "Cholesterol": (0, 800),
    "Creatinine": (0, 30), "DiasABP": (0, 200), "FiO2": (0.2, 1), "GCS": (3, 15), "Glucose": (0, 1000), "HCO3": (0, 60),
    "HCT": (0, 75), "HR": (0, 300), "K": (1, 12), "Lactate": (0, 30), "MAP": (0, 250), "Mg": (0, 10),
    "NIDiasABP": (0, 200), "NIMAP": (0, 250), "NISysABP": (0, 300), "Na": (90, 200), "PaCO2": (0, 150),
    "PaO2": (0, 700), "Platelets": (0, 1500), "RespRate": (0, 100), "SaO2": (0, 100), "SysABP": (0, 300),
    "Temp": (25, 45), "TroponinI": (0, 100), "TroponinT": (0, 25), "Urine": (0, 2000), "WBC": (0, 150),
    "Weight": (20, 300), "pH": (6.5, 8),
}  # fmt: skip
"""Lowest and highest value of each number, in the challenge's units: what bodies survive and instruments report.

They are round and wide, so that no stay decides where they end. No value is changed or left out by them; a run with a
guarantee counts what lies beyond as the nearer end.
"""


def _number(name: str, *, whole: bool = False) -> Column:
    return numeric(name, whole=whole, range=RANGES[name])


SCHEMA = Schema(
    id="RecordID",
    unit="stay",
    time="minute",
    time_unit="minutes",
    static=(
        _number("Age", whole=True),
        categorical("Gender", ["0", "1"]),
        _number("Height"),
        categorical("ICUType", ["1", "2", "3", "4"]),
        _number(ADMISSION_WEIGHT),
        categorical(DEATH, ["0", "1"]),
    ),
    temporal=(*(_number(name, whole=name in WHOLE) for name in MEASURED), categorical("MechVent", ["1"])),
    outcome=DEATH,
)

_ROLES = Roles(id="RecordID", time="minute", code="Parameter", values=("Value",))


def physionet2012(path: Path | str, outcomes: Path | str, *, duplicates: Duplicates = "last") -> EHRDataset:
    """Read a set of the challenge; stays without any measurement are left out and counted.

    Refused: one file under two stays by any link, a stay twice among the outcomes, and a row without a name (null, NaN,
    empty or blank) or with one that is no valid UTF-8. Counted in `notes`: names that differ only in case, blanks,
    zeros or Unicode form, and names such as `NA` that often stand for a missing one. The rule is that of all readers,
    `sfumato.data.safeguards`.

    Args:
        path: the folder of a file a stay as downloaded (set-a/132539.txt), or one table with the columns RecordID,
            minute, Parameter and Value.
        outcomes: the file of outcomes, Outcomes-a.txt.
        duplicates: what becomes of several values of one stay, minute and parameter.

    Raises:
        InputError: a file is missing or damaged, a parameter is unknown, or a stay has no outcome.
    """
    events = Events()
    path = Path(path)
    if path.is_dir() and not is_parquet_folder(path):
        _read_folder(path, events)
    else:
        table = open_rows(path)
        for role, name in zip(("id", "time", "code", "value"), _ROLES.names, strict=True):
            refuse_absent(table.title, table.names, role, name)
        for block, of_block in table.located(_ROLES.names):
            events.add(block, _ROLES, of_block)
    gathered = events.all
    known = {*DESCRIPTORS, *(column.name for column in SCHEMA.temporal), *_RECORD_ID}
    if unknown := [name for name in events.codes.names if name not in known]:
        row = int((gathered.codes == events.codes.names.index(unknown[0])).argmax())
        raise InputError(f"{events.where(row)} has the unknown parameter {unknown[0]!r}; correct it")
    at_start = gathered.times == 0
    names = np.array(events.codes.names)[gathered.codes]
    descriptors = np.isin(names, DESCRIPTORS) & at_start
    weight = int(events.codes.add(pa.array([ADMISSION_WEIGHT]), str)[0])
    events.all = replace(
        gathered,
        codes=np.where(descriptors & (names == "Weight"), np.int32(weight), gathered.codes),
    ).taken(~np.isin(names, _RECORD_ID) & (gathered.numbers != _MISSING))
    static = {DEATH: _outcomes(open_rows(outcomes), events.ids.names)}
    return records_of_events(events, SCHEMA, static, duplicates=duplicates, without_visits="skip")


_MISSING = -1
"""The challenge's code for a value that is missing."""

_RECORD_ID = ("RecordID",)
"""The parameter that repeats the stay's own number in the files of the challenge."""


def _read_folder(folder: Path, events: Events) -> None:
    """Read the files of the stays."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise InputError(f"{folder} has no .txt files; give the folder of a file a stay, as set-a")
    refuse_undecodable([file.stem for file in files])
    refuse_shared_files(files)
    for path in files:
        table = Delimited(path).records()
        if table.names != ("Time", "Parameter", "Value"):
            raise InputError(f"{path} begins with {','.join(table.names)!r}, must be 'Time,Parameter,Value'")
        count = 0
        for block, where in table.located(table.names):
            count += len(block["Time"])
            minutes = [_minute(text or "", row, where) for row, text in enumerate(block["Time"].to_pylist())]
            owners = pa.array([path.stem] * len(minutes))
            events.add({"RecordID": owners, "minute": pa.array(minutes, pa.float64()), **block}, _ROLES, where)
        if not count:
            raise InputError(f"{path} has no events; download it again")


def _minute(text: str, row: int, where: Where) -> int:
    """Hours and minutes as minutes: 07:30 is 450."""
    hours, _, minutes = text.partition(":")
    if not (hours.isdigit() and minutes.isdigit() and int(minutes) < 60):
        raise InputError(f"the time at {where(row)} is {text!r}, must be hours and minutes as 07:30; correct it")
    return 60 * int(hours) + int(minutes)


def _outcomes(table: Records, stays: Sequence[str]) -> np.ndarray:
    """The outcome of each stay, int32 [stays]."""
    (column,) = (column for column in SCHEMA.static if column.name == DEATH)
    ids = Codes("patient", exact=True)
    found = read_static(table, ids, SCHEMA.id, [column]).values[DEATH]
    values = dict(zip(ids.names, found.tolist(), strict=True))
    if missing := [stay for stay in stays if values.get(stay, -1) < 0]:
        raise InputError(f"{table.title} has no {DEATH} of the stay {missing[0]!r}; give the outcomes of the same set")
    return np.array([values[stay] for stay in stays], np.int32)
