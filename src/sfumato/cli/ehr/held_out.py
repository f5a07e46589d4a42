"""The records of a run again: who was learned from and who was held out, read and divided as it did.

No record is kept in the run. Its plan.json says where they were and how they were divided; digests beside it, readable
by their owner only, tell whether they are still the same.
"""

from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato._files import read_json, write_json
from sfumato.cli.ehr.patients import PATHS, PatientOptions
from sfumato.cli.parse import as_flags, fields, read_flags
from sfumato.data import EHRDataset
from sfumato.runs import RunFolder

_FILE = "records.json"
_BEGAN = "read_from"  # the folder in which the command ran, that relative paths of plan.json begin in


def keep_digests(run: Path, learned: EHRDataset, held_out: EHRDataset | None) -> None:
    """Keep in the run's folder by what its records are known again; for its owner's eyes only."""
    write_json(run / _FILE, {**_digests(learned, held_out), _BEGAN: str(Path.cwd())}, private=True)


def records_of_run(run: Path) -> tuple[EHRDataset, EHRDataset]:
    """Who was learned from, and who was held out.

    Raises:
        InputError: it is no run of `sfumato ehr fit`, nobody was held out, or the records are gone or are others.
    """
    about: dict[str, Any] = RunFolder(run).read_plan().get("about") or {}
    known = fields(PatientOptions)
    settings = {name: value for name, value in about.items() if name in known}
    if not settings:
        raise InputError(f"{run} does not say what it learned from; give --real and --holdout")
    if not settings.get("holdout_share"):
        raise InputError(f"{run} held out nobody to measure by; give --holdout, and --real")
    kept = _kept(run / _FILE)
    settings |= _found_again(settings, kept.pop(_BEGAN, None))
    words = as_flags(settings, PatientOptions, source=run / "plan.json")
    options = read_flags(PatientOptions, words, command="ehr evaluate", about="")
    try:
        learned, held_out = options.parts()
    except InputError as error:
        told = f"the records of {run} are not read as they were ({error}); or give --real and --holdout"
        raise InputError(told) from None
    assert held_out is not None
    if kept != _digests(learned, held_out):
        raise InputError(f"the records of {run} were changed since it learned from them; give --real and --holdout")
    return learned, held_out


def _kept(file: Path) -> dict[str, Any]:
    """What the run keeps of its records.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        kept = read_json(file)
    except FileNotFoundError:
        raise InputError(f"{file} is missing, so nothing tells its records again; give --real and --holdout") from None
    except ValueError as error:
        raise InputError(f"{file} is damaged ({error!s:.200}); give --real and --holdout") from None
    if not isinstance(kept, dict):
        raise InputError(f"{file} is damaged (it holds no object); give --real and --holdout")
    return kept


def _found_again(settings: dict[str, Any], began: object) -> dict[str, str]:
    """The relative paths among settings, from the folder in which they were given; those that are not there stay."""
    if not isinstance(began, str):  # a run of an earlier version, or a damaged file, which the digests will tell
        return {}
    given = {name: str(settings[name]) for name in PATHS if settings.get(name)}
    return {name: str(Path(began, path)) for name, path in given.items() if Path(began, path).exists()}


def _digests(learned: EHRDataset, held_out: EHRDataset | None) -> dict[str, str | None]:
    return {"learned": learned.fingerprint(), "held_out": None if held_out is None else held_out.fingerprint()}
