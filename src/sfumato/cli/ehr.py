"""`sfumato ehr`: health records → a model that makes new ones, new records, and how good they are.

Conditions on new records as a command takes them: sex=f, age=60..80.

>>> from sfumato.data.ehr.schema import Schema, categorical, numeric
>>> schema = Schema(
...     id="patient", time="day", time_unit="days", static=(categorical("sex", ["f", "m"]), numeric("age")),
...     temporal=(numeric("bili"),))
>>> conditions(["sex=f", "age=60..80"], schema)
{'sex': 'f', 'age': (60.0, 80.0)}
>>> conditions(["age=60.."], schema)
{'age': (60.0, inf)}
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sfumato import runs
from sfumato._check import InputError, between, guess, non_negative, whole
from sfumato._files import read_json, write_json
from sfumato.algorithms import ALGORITHMS, SYNTHETIC
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import STOPPED, Answer, Table, bar, notify, staged_bar
from sfumato.cli.parse import CommonOptions, as_flags, find, gathered, parse, read_flags, read_settings
from sfumato.cli.parse import fields as options_by_name
from sfumato.cli.results import dry_run, outcome
from sfumato.cli.run_options import (
    FolderOptions,
    about_run,
    free_folder,
    grouped,
    start_line,
    training_options,
    use_threads,
)

if TYPE_CHECKING:
    from sfumato.data.ehr.dataset import EHRDataset
    from sfumato.data.ehr.schema import Schema


def conditions(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """What `Synthesizer.sample` takes as conditions.

    Args:
        words: NAME=CATEGORY, or for a numeric column NAME=LOWEST..HIGHEST, either end of which may be left out, or
            NAME=NUMBER.
        schema: of the records. Names and categories that it does not have are refused by `sample`.

    Raises:
        InputError: a word is no condition, a range is none, or a column has two.
    """
    numeric = {column.name for column in schema.static_numeric}
    found: dict[str, Any] = {}
    for word in words:
        name, value = _parted(word, [column.name for column in schema.columns])
        if name in found:
            raise InputError(f"--conditions {name} is there twice; a column has one condition")
        found[name] = _range(name, value) if name in numeric else value
    return found


def _parted(word: str, names: Sequence[str]) -> tuple[str, str]:
    """Name and value; the name of a column may have the sign between them in it."""
    known = max((name for name in names if word.startswith(f"{name}=")), key=len, default=None)
    name, sign, value = (known, "=", word[len(known) + 1 :]) if known is not None else word.partition("=")
    if not (name and sign and value):
        raise InputError(f"--conditions must be NAME=CATEGORY or NAME=LOWEST..HIGHEST, got {word!r}; such as sex=f")
    return name, value


def _range(name: str, value: str) -> tuple[float, float]:
    low, dots, high = value.partition("..")
    try:
        ends = (
            float(low) if low or not dots else -math.inf,
            float(high) if high else math.inf if dots else float(low),
        )
    except ValueError:
        ends = (math.nan, math.nan)
    if not ends[0] <= ends[1]:
        raise InputError(
            f"--conditions {name} must be a number or LOWEST..HIGHEST, the lowest first, got {value!r}; such as 60..80"
        )
    return ends


# Options that choose which health records are read, and which patients are held out.


_SOURCES = ("data", "events", "physionet2012", "mimic_iv")
PATHS = (*_SOURCES, "static", "outcomes", "schema")
"""The options that are paths of what is read."""


_HELD_OUT = ("holdout_share", "holdout_seed", "holdout_to", "write_schema")
_ARGUMENT = re.compile(
    r"(?<![\w-])(schema|id|time|time_unit|outcome|unit|subject|categorical|drop|code|value|codes|items|duplicates|unsorted|"
    r"without_visits|split)="
    r"(?:(['\"])(.*?)\2)?"
)
COLUMN = tyro.conf.arg(metavar="COLUMN")


@dataclass(frozen=True, kw_only=True)
class PatientOptions:
    """The records, and who is held out of them.

    Attributes:
        data: a folder with visits.parquet (or .csv), static.parquet (or .csv) and schema.yaml; or of MEDS; or a table
            with a row a visit, together with --static.
        events: a table with a row an event, in place of --data.
        physionet2012: folder or table of the PhysioNet Challenge 2012, in place of --data; needs --outcomes.
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
        code: of events: the column that says what; code by default.
        value: of events: the column of values; value by default.
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
            holds out none.
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
        between(0.0, 1.0, ends="[)", remedy="0 holds out none", holdout_share=self.holdout_share)
        if self.holdout_to is not None and not self.holdout_share:
            raise InputError("--holdout-to writes those who are held out, and --holdout-share 0 holds out none")
        if self.physionet2012 is not None and self.outcomes is None:
            raise InputError("--physionet2012 needs the file of outcomes: give --outcomes Outcomes-a.txt")
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
        from sfumato.data.ehr.folders import READERS, kind_of

        source = next(name for name in _SOURCES if getattr(self, name) is not None)
        path: Path = getattr(self, source)
        kind = kind_of(path) if source == "data" else source
        reader = READERS[kind]
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in given.items() if value not in (None, ())}
        given = {name: value for name, value in given.items() if name not in (*_SOURCES, *_HELD_OUT)}
        for name in (name for name in given if name not in reader.options):
            fits = " and ".join(_named(each) for each, other in READERS.items() if name in other.options)
            raise InputError(f"{_flag(name)} is for {fits}, not for {_named(kind)}; leave it out")
        if "most" in given:
            given[reader.most] = given.pop("most")
        return reader.read(path, **given)

    def parts(self) -> tuple[EHRDataset, EHRDataset | None]:
        """Who is learned from, and who is held out; None where none are.

        Raises:
            InputError: as for `read`, or one of the two would be empty.
        """
        records = self.read()
        if not self.holdout_share:
            return records, None
        return records.split(self.holdout_share, seed=self.holdout_seed)


def at_the_command(message: str) -> str:
    """A reader's words, with the options of the command where they name its arguments.

    >>> at_the_command("name it in drop=, or read with unsorted='sort'")
    'name it in --drop, or read with --unsorted sort'
    >>> at_the_command("no column 'cod' for code='cod' (did you mean code?)")
    "no column 'cod' for --code cod (did you mean code?)"
    """
    return _ARGUMENT.sub(lambda found: f"{_flag(found[1])}{' ' if found[3] else ''}{found[3] or ''}", message)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _named(kind: str) -> str:
    """A source that --data names, or the option of another one."""
    return _flag(kind) if kind in _SOURCES else kind


# Options of plans that learn from health records.


DEFAULT = next(iter(SYNTHETIC))
"""The plan where none is chosen."""


_BASELINES = ("timegan", "rcgan", "crnngan")  # plans of earlier versions, whose runs are still there


def refuse_baseline(plan: object, run: Path) -> None:
    """Refuse the run of a plan that is in a recipe now.

    Raises:
        InputError: it is one; names the recipe.
    """
    if plan in _BASELINES:
        raise InputError(f"{run} is a run of {plan}, which only recipes/ehr_baselines reads and goes on with; use that")


@dataclass(frozen=True, kw_only=True)
class SynthesisRun(FolderOptions):
    """The run.

    Attributes:
        model: what learns, by its plan's name; --help-all behind it shows its own options.
        dry_run: read the records, print the plan and its statement, and learn nothing.
        checkpoint_minutes: save at the latest after so many minutes.
    """

    model: str = DEFAULT
    checkpoint_minutes: float = 1.0


# The records of a run again: who was learned from and who was held out, read and divided as it did.
#
# No record is kept in the run. Its plan.json states where they were and how they were divided; digests next to it,
# readable by their owner only, show whether they are still the same.


_FILE = "records.json"
_BEGAN = "read_from"  # the folder in which the command ran, that relative paths of plan.json begin in


def keep_digests(run: Path, learned: EHRDataset, held_out: EHRDataset | None) -> None:
    """Keep in the run's folder by what its records are known again; for its owner's eyes only."""
    write_json(run / _FILE, {**_digests(learned, held_out), _BEGAN: str(Path.cwd())}, private=True)


def records_of_run(run: Path) -> tuple[EHRDataset, EHRDataset]:
    """Who was learned from, and who was held out.

    Raises:
        InputError: it is no run of `sfumato ehr fit`, none were held out, or the records are gone or are others.
    """
    written = runs.RunFolder(run).read_plan()
    if written.get("plan") not in SYNTHETIC:
        raise InputError(f"{run} did not learn from health records; give the folder of a run of sfumato ehr fit")
    about: dict[str, Any] = written.get("about") or {}
    known = options_by_name(PatientOptions)
    settings = {name: value for name, value in about.items() if name in known}
    if not settings:
        raise InputError(f"{run} does not say what it learned from; give --real and --holdout")
    if not settings.get("holdout_share"):
        raise InputError(f"{run} held out no patients to measure by; give --holdout, and --real")
    kept = _stored_digests(run / _FILE)
    settings |= _found_again(settings, kept.pop(_BEGAN, None))
    words = as_flags(settings, PatientOptions, source=run / "plan.json")
    options = read_flags(PatientOptions, words, command="ehr evaluate", about="")
    try:
        learned, held_out = options.parts()
    except InputError as error:
        message = f"the records of {run} are not read as they were ({error}); or give --real and --holdout"
        raise InputError(message) from None
    assert held_out is not None
    if kept != _digests(learned, held_out):
        raise InputError(f"the records of {run} were changed since it learned from them; give --real and --holdout")
    return learned, held_out


def _stored_digests(file: Path) -> dict[str, Any]:
    """What the run keeps of its records.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        kept = read_json(file)
    except FileNotFoundError:
        raise InputError(f"{file} is missing, so its records cannot be checked; give --real and --holdout") from None
    except ValueError as error:
        raise InputError(f"{file} is damaged ({error!s:.200}); give --real and --holdout") from None
    if not isinstance(kept, dict):
        raise InputError(f"{file} is damaged (it holds no object); give --real and --holdout")
    return kept


def _found_again(settings: dict[str, Any], began: object) -> dict[str, str]:
    """The relative paths among settings, from the folder in which they were given; those that are not there stay."""
    if not isinstance(began, str):  # a run of an earlier version, or a damaged file, which the digests show
        return {}
    given = {name: str(settings[name]) for name in PATHS if settings.get(name)}
    return {name: str(Path(began, path)) for name, path in given.items() if Path(began, path).exists()}


def _digests(learned: EHRDataset, held_out: EHRDataset | None) -> dict[str, str | None]:
    return {"learned": learned.fingerprint(), "held_out": None if held_out is None else held_out.fingerprint()}


# `sfumato ehr fit`: health records → a model that makes new ones, and the patients that were held out.


_COMMAND = "ehr fit"


@functools.cache
def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    return grouped(
        run=(SynthesisRun, "Where the run goes, and how it is watched and saved."),
        data=(PatientOptions, "The records, and which patients are held out to measure by."),
        plan=(ALGORITHMS[name].load(), "What learns, and how."),
    )


def train_options(name: str, argv: Sequence[str]) -> Any:
    """The options; the words may choose another plan than this one."""
    return training_options(_chosen(argv, name), argv)


def train(options: Any) -> Answer:
    """Learn from the records."""
    from sfumato.data.ehr.folders import refuse_taken, write_folder
    from sfumato.data.ehr.values import refuse_unlearnable
    from sfumato.synthesis.history import restate

    run: SynthesisRun = options.run
    options.data.check()
    if run.resume is not None:
        _refuse_elsewhere(options.data, run.resume)
    non_negative(checkpoint_minutes=run.checkpoint_minutes)
    use_threads(run.threads)
    out = free_folder("ehr-fit", run)
    already = run.resume is not None and runs.RunFolder(out).has_ended()  # refuses one that was closed
    holdout_to: Path | None = options.data.holdout_to
    if holdout_to is not None and not (run.resume is not None and holdout_to.is_dir()):
        refuse_taken(holdout_to)
    plan = options.plan
    if options.data.write_schema is not None:
        return _write_schema(options.data, options.data.write_schema)
    with bar("reading"):
        learned, held_out = options.data.parts()
    if plan.epsilon is None:
        refuse_unlearnable(learned)
    if run.dry_run:
        return _dry_run(plan, learned, held_out)
    line = start_line(out, _COMMAND, ended="learned" if already else None)
    with staged_bar(None if run.json else f"{_summary(learned, held_out)}\n{line}") as progress:
        try:
            result = plan.fit(
                learned,
                out=out,
                resume=run.resume is not None,
                about=_about(options),
                progress=progress,
                save_every=60.0 * run.checkpoint_minutes,
            )
        except KeyboardInterrupt:
            if not (out / "plan.json").exists():
                raise
            notify(f"stopped at once; go on from the last checkpoint with: {_resume(out)}")
            return STOPPED
    if held_out is not None and holdout_to is not None and not holdout_to.exists():
        write_folder(held_out, holdout_to, "parquet", synthetic=False, private=True)
    if not result.finished:
        notify(f"stopped; go on with: {_resume(out)}; or end it for good with: sfumato close {out}")
        return STOPPED
    keep_digests(out, learned, held_out)
    restate(out)
    below = [] if holdout_to is None else [f"held out: {holdout_to}"]
    below.append(f"next: sfumato ehr sample --model {out} --count {len(learned)} --to made")
    counts = _counts(learned, held_out)
    return outcome(out, result.statement, already=already, below=below, patients=counts, held_out=holdout_to)


def _write_schema(data: PatientOptions, file: Path) -> Answer:
    """Write down the columns that the records have, for a person to review."""
    schema = data.read().schema
    try:
        schema.save(file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}; name another file") from None
    line = (
        f"{len(schema.columns)} columns: {file}; review it (no names, no rare categories, a range for each number), "
        f"then give --schema {file}"
    )
    return Answer({"schema": file, "columns": len(schema.columns)}, [line])


def _chosen(argv: Sequence[str], default: str) -> str:
    """The plan that the words, the run to go on with or the settings file choose.

    Raises:
        InputError: there is none of that name.
    """
    name = find(argv, "model")
    resume, config = find(argv, "resume"), find(argv, "config")
    if name is None and resume is not None:
        name = runs.RunFolder(resume).read_plan().get("plan")
        refuse_baseline(name, Path(resume))
    if name is None and config is not None:
        settings = read_settings(Path(config))
        name = settings.get("model", settings.get("plan"))
    if name is None:
        return default
    if name not in SYNTHETIC:
        raise InputError(f"--model must be one of {', '.join(SYNTHETIC)}, got {name}{guess(name, SYNTHETIC)}")
    return name


def _refuse_elsewhere(data: PatientOptions, run: Path) -> None:
    """Refuse to go on where relative paths lead nowhere; they begin in the folder in which the run began."""
    for name in PATHS:
        path: Path | None = getattr(data, name)
        if path is not None and not path.is_absolute() and not path.exists():
            raise InputError(f"{path}, which {run} learns from, is not here; go on in the folder in which it began")


def _few(held_out: EHRDataset | None) -> list[str]:
    """That what is made could not be measured, reported before anything is learned."""
    from sfumato.audit.ehr.evaluate import FEWEST  # late: --help needs no scikit-learn

    if held_out is None or len(held_out) >= FEWEST:
        return []
    return [f"too few are held out for sfumato ehr evaluate, which needs {FEWEST}; give a larger --holdout-share"]


def _resume(out: Path) -> str:
    return f"sfumato {_COMMAND} --resume {out}"


def _summary(learned: EHRDataset, held_out: EHRDataset | None) -> str:
    """Who is learned from, and who is held out."""
    visits, columns = len(learned.times), len(learned.schema.columns)
    summary = f"learning from {learned.describe()} with {visits:,} visits and {columns} columns"
    summary += "" if held_out is None else f"; {held_out.describe()} are held out"
    return "\n".join([summary, *_few(held_out), *learned.notes])


def _about(options: Any) -> dict[str, Any]:
    """What plan.json states with the plan: enough to read and divide the records again."""
    run: SynthesisRun = options.run
    return about_run(options.data, model=run.model, checkpoint_minutes=run.checkpoint_minutes, threads=run.threads)


def _dry_run(plan: Any, learned: EHRDataset, held_out: EHRDataset | None) -> Answer:
    from sfumato.synthesis.settings import EHRSafeSettings

    columns = Table(["column", "a value for each", "kind"], [*map(list, _columns(learned.schema))])
    statement = plan.try_out(learned)
    return dry_run(
        plan.sized(len(learned)) if isinstance(plan, EHRSafeSettings) else plan,
        statement,
        "the records were read; nothing was learned or written",
        above=[_summary(learned, held_out) + "\n", columns, ""],
        patients=_counts(learned, held_out),
    )


def _columns(schema: Schema) -> Iterator[tuple[str, str, str]]:
    """Each column: its name, whether a patient or a visit has a value of it, and what that is."""
    for whose, columns in (("patient", schema.static), ("visit", schema.temporal)):
        for column in columns:
            kind = f"{len(column.categories):,} categories" if column.kind == "categorical" else "number"
            yield column.name, whose, f"whole {kind}" if column.whole else kind


def _counts(learned: EHRDataset, held_out: EHRDataset | None) -> dict[str, int]:
    return {"learned": len(learned), "held_out": 0 if held_out is None else len(held_out)}


# `sfumato ehr sample`: new health records from a run, streamed into a folder that appears when it is whole.


@dataclass(frozen=True, kw_only=True)
class SampleOptions(CommonOptions):
    """Draw new patients from a model of health records. They are post-processing of the model: they are as private as
    that, however many are drawn.

    Attributes:
        model: folder of the run that learned (`sfumato ehr fit`), or the model.safetensors of one.
        count: how many patients.
        to: a new folder, which appears when it is whole.
        format: "parquet" and "csv" write visits, static and schema.yaml. "meds" writes a data set of MEDS 0.4, which
            marks its events as synthetic. "events" writes events.parquet and schema.yaml.
        conditions: on static columns, several if need be: NAME=CATEGORY, NAME=LOWEST..HIGHEST of a number.
        seed: the same records again; without it they cannot be drawn again.
        threads: CPU threads; None leaves it to torch.
    """

    renamed: ClassVar[Mapping[str, str]] = {"given": "conditions"}

    model: Path
    count: int
    to: Path
    format: Literal["parquet", "csv", "meds", "events"] = "parquet"
    conditions: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE [NAME=VALUE ...]")] = ()
    seed: int | None = None
    threads: int | None = None


def read_sample(argv: Sequence[str]) -> SampleOptions:
    """The options; conditions may be given one by one."""
    command = COMMANDS["ehr sample"]
    return parse(SampleOptions, gathered(argv, "conditions"), command="ehr sample", about=command.about())


def ehr_sample(options: SampleOptions) -> Answer:
    """Write the folder."""
    from sfumato.data.ehr.folders import refuse_taken, write_folder  # late: --help needs no pyarrow

    whole(count=options.count)
    if options.seed is not None:
        whole(at_least=0, seed=options.seed)
    refuse_taken(options.to)
    use_threads(options.threads)
    made = load_synthesizer(options.model)
    given = conditions(options.conditions, made.schema)
    if given and "conditions" not in inspect.signature(made.sample).parameters:
        raise InputError(
            f"--conditions is not for {type(made).__name__}, whose records follow no conditions; leave it out"
        )
    with bar("patients") as progress:
        records = made.sample(
            options.count, seed=options.seed, progress=progress, **({"conditions": given} if given else {})
        )
        write_folder(records, options.to, options.format, synthetic=True)
    _note(options)
    data = {"folder": options.to, "patients": options.count, "format": options.format, "given": options.conditions}
    return Answer(data, [f"{options.count:,} synthetic patients: {options.to}"])


def load_synthesizer(model: Path) -> Any:
    """The synthesizer of a run, by the name of its plan.

    Raises:
        InputError: it is no run that learned from health records, or has not ended.
    """
    from sfumato.models.weights import read_metadata  # late: --help needs no torch

    if not model.exists():
        raise InputError(f"there is no {model}; give the folder of a run of sfumato ehr fit")
    file = model / "model.safetensors" if model.is_dir() else model
    if model.is_dir():
        name = runs.RunFolder(model).read_plan().get("plan")
        if name in SYNTHETIC and not (file.exists() and read_metadata(file)):
            raise InputError(
                f"{model} holds no model: the run has not ended; go on with: sfumato ehr fit --resume {model}"
            )
    else:
        settings = read_metadata(file).get("settings")
        name = settings.get("plan") if isinstance(settings, dict) else None
    refuse_baseline(name, model)
    if name not in SYNTHETIC:
        raise InputError(f"{model} did not learn from health records; give the folder of a run of sfumato ehr fit")
    return SYNTHETIC[name].read(model)


def _note(options: SampleOptions) -> None:
    """Note it in the run; where that cannot be written, the records are there all the same."""
    from sfumato.synthesis.history import note_sample  # late: --help needs no torch

    if not options.model.is_dir():
        return
    try:
        note_sample(
            options.model,
            options.to,
            count=options.count,
            layout=options.format,
            conditions=options.conditions,
            seeded=options.seed is not None,
        )
    except (OSError, InputError) as error:
        reason = f"{error.strerror}" if isinstance(error, OSError) else str(error)
        notify(f"{options.to} is whole, but {options.model} does not know of it: {reason}")


# `sfumato ehr evaluate`: how faithful and how useful synthetic records are, and what attacks find, on one page.


_PAGE = "records.html"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CommonOptions):
    """Measure synthetic health records against real patients who were held out. No guarantee follows from it.

    Attributes:
        model: folder of the run of sfumato ehr fit that made the records. Its records are read again and divided as it
            did. Its statement then reports what the attacks found.
        real: folder of the records that the synthetic ones were learned from. It has visits and static (.parquet or
            .csv) with schema.yaml, or is a data set of MEDS. With --model it may be left out.
        holdout: folder of real patients that were held out; the ideals come from them. With --model it may be left out.
        synthetic: folder of the synthetic records.
        out: the HTML page. With --model it may be left out: then it is in the folder of the run.
        schema: a file with the columns of all three; without it, the schema of the real records.
        sensitive: static columns that an attacker may want to know; without it, all categorical ones.
        most: patients of each folder that are asked about, at most; the nearest ones are searched among all.
        seed: repeats all that is drawn.
    """

    model: Path | None = None
    real: Path | None = None
    holdout: Path | None = None
    synthetic: Path
    out: Path | None = None
    schema: Path | None = None
    sensitive: tuple[str, ...] = ()
    most: int = 5000
    seed: int = 0


def ehr_evaluate(options: EvaluateOptions) -> Answer:
    """Write the page."""
    whole(at_least=0, seed=options.seed)
    out = _page(options)
    from sfumato.audit.ehr import evaluate  # late: --help needs neither scikit-learn nor torch
    from sfumato.data.ehr.folders import read_folder
    from sfumato.report.ehr_page import summary_rows, verdicts, write_ehr_page
    from sfumato.report.page import refuse_folder

    refuse_folder(out, _PAGE)
    if not out.absolute().parent.is_dir():
        raise InputError(f"there is no folder {out.parent} for the page; make it first")
    real, holdout = _real_ones(options)
    synthetic = read_folder(options.synthetic, replace(real.schema, subject=None))  # no patient is behind those
    with bar("measuring") as progress:
        evaluation = evaluate(
            real,
            holdout,
            synthetic,
            seed=options.seed,
            sensitive=options.sensitive or None,
            most=options.most,
            progress=progress,
        )
    page = write_ehr_page(evaluation, out)
    measured = evaluation.to_json()
    if options.model is not None:
        _note_evaluation(options.model, measured, options.synthetic)
    lines = [
        Table(["measure", "synthetic", "ideal", "independent columns"], summary_rows(evaluation)),
        *(evaluation.utility.warnings if evaluation.utility else ()),
        *(f"{each.about}: {each.word}. {each.sentence}" for each in verdicts(evaluation)),
        "no differential privacy guarantee follows: the attacks are examples, not a bound",
        f"report: {page}",
    ]
    return Answer({**measured, "report": page}, lines)


def _page(options: EvaluateOptions) -> Path:
    """Where the page goes; reports what is missing where there is no run to take it from."""
    if options.model is not None:
        from sfumato.synthesis.history import samples_of

        runs.RunFolder(options.model).read_plan()  # raises that it is no run
        samples_of(options.model)
        if options.schema is not None and options.real is None:
            raise InputError("--model has the schema of its records; leave --schema out, or give --real and --holdout")
        if (options.real is None) != (options.holdout is None):
            raise InputError("give both --real and --holdout, or leave both to --model")
        return options.model / _PAGE if options.out is None else options.out
    missing = [name for name in ("real", "holdout", "out") if getattr(options, name) is None]
    if missing:
        raise InputError(
            f"missing: {', '.join(f'--{name}' for name in missing)}; or give --model, the run that made the records"
        )
    assert options.out is not None
    return options.out


def _real_ones(options: EvaluateOptions) -> tuple[Any, Any]:
    """Who was learned from, and who was held out."""
    from sfumato.data.ehr.folders import read_folder  # late: --help needs no pyarrow

    if options.model is not None and options.real is None:
        return records_of_run(options.model)
    assert options.real is not None
    assert options.holdout is not None
    real = read_folder(options.real, options.schema)
    return real, read_folder(options.holdout, real.schema)


def _note_evaluation(run: Path, evaluation: dict[str, Any], synthetic: Path) -> None:
    """Note it in the run; where that cannot be written, the page is there all the same."""
    from sfumato.report import write_report  # late: --help needs no torch
    from sfumato.synthesis.history import digest_of_folder, note_evaluation, samples_of

    try:
        if not note_evaluation(run, evaluation, folder=synthetic):
            notify(f"{synthetic} is not what sfumato ehr sample drew from {run}, or was changed; the statement says so")
        drawn = [row for row in samples_of(run) if row["digest"] == digest_of_folder(synthetic)]
        if drawn and (given := drawn[-1].get("given")):
            drawn_with = f"{synthetic} was drawn with --conditions {' '.join(given)}"
            notify(f"{drawn_with}, and is measured against patients of all kinds")
        write_report([run])
    except OSError as error:
        notify(f"the page is whole, but {run} does not know of it: {error.strerror or error}")
