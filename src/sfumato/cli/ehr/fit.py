"""`sfumato ehr fit`: health records → a model that makes new ones, and the patients that were held out."""

import dataclasses
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfumato._check import InputError, guess, non_negative
from sfumato.accounting import Statement
from sfumato.algorithms import ALGORITHMS, SYNTHETIC
from sfumato.cli.console import notify, plain, say, say_json, staged_bar, table
from sfumato.cli.ehr.folder import refuse_taken, write_folder
from sfumato.cli.ehr.held_out import keep_digests
from sfumato.cli.ehr.options import SynthesisRun, SynthesisTraining, refuse_baseline
from sfumato.cli.ehr.patients import PATHS, PatientOptions
from sfumato.cli.options.threads import use_threads
from sfumato.cli.options.training import training_options
from sfumato.cli.parse import find, read_settings
from sfumato.cli.train import free_folder
from sfumato.data import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.data.ehr.unlearnable import refuse_unlearnable
from sfumato.runs import RunFolder
from sfumato.synthesis.history import restate

_COMMAND = "ehr fit"


def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    return SynthesisTraining[ALGORITHMS[name].load()]  # type: ignore[valid-type]


def train(name: str, argv: Sequence[str]) -> int:
    """Run the command; the words may choose another plan than this one."""
    name = _chosen(argv, name)
    algorithm = ALGORITHMS[name]
    options, _ = training_options(algorithm.load(), options_of(name), argv, about=algorithm.about)
    run: SynthesisRun = options.run
    options.data.check()
    if run.resume is not None:
        _refuse_elsewhere(options.data, run.resume)
    non_negative(checkpoint_minutes=run.checkpoint_minutes)
    use_threads(run.threads)
    out = free_folder("ehr-fit", run)
    already = run.resume is not None and RunFolder(out).has_ended()  # refuses one that was closed
    beside: Path | None = options.data.holdout_to
    if beside is not None and not (run.resume is not None and beside.is_dir()):
        refuse_taken(beside)
    plan = options.plan
    if options.data.write_schema is not None:
        return _write_schema(options.data, options.data.write_schema, as_json=run.json)
    learned, held_out = options.data.parts()
    if plan.epsilon is None:
        refuse_unlearnable(learned)
    if run.dry_run:
        return _dry_run(plan, learned, held_out, as_json=run.json)
    how = "the run is finished: nothing is learned again" if already else f"go on after a stop with: {_resume(out)}"
    begins = None if run.json else f"{_told(learned, held_out)}\nrun: {out} ({how})"
    with staged_bar(begins) as progress:
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
            return 130
    if held_out is not None and beside is not None and not beside.exists():
        write_folder(held_out, beside, "parquet", synthetic=False, private=True)
    if not result.finished:
        notify(f"stopped; go on with: {_resume(out)}; or end it for good with: sfumato close {out}")
        return 130
    keep_digests(out, learned, held_out)
    restate(out)
    _conclude(result.statement, out, learned, held_out, beside, as_json=run.json, already=already)
    return 0


def _write_schema(data: PatientOptions, file: Path, *, as_json: bool) -> int:
    """Write down the columns that the records have, for a person to review."""
    schema = data.read().schema
    try:
        schema.save(file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}; name another file") from None
    if as_json:
        say_json({"schema": file, "columns": len(schema.columns)})
        return 0
    say(
        f"{len(schema.columns)} columns: {file}; review it (no names, no rare categories, a range for each number), "
        f"then give --schema {file}"
    )
    return 0


def _chosen(argv: Sequence[str], default: str) -> str:
    """The plan that the words, the run to go on with or the settings file choose.

    Raises:
        InputError: there is none of that name.
    """
    name = find(argv, "model")
    resume, config = find(argv, "resume"), find(argv, "config")
    if name is None and resume is not None:
        name = RunFolder(resume).read_plan().get("plan")
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
    """That what is made could not be measured, said before anything is learned."""
    from sfumato.audit.ehr.evaluate import FEWEST  # late: --help needs no scikit-learn

    if held_out is None or len(held_out) >= FEWEST:
        return []
    return [f"too few are held out for sfumato ehr evaluate, which needs {FEWEST}; give a larger --holdout-share"]


def _resume(out: Path) -> str:
    return f"sfumato {_COMMAND} --resume {out}"


def _told(learned: EHRDataset, held_out: EHRDataset | None) -> str:
    """Who is learned from, and who is held out."""
    visits, columns = len(learned.times), len(learned.schema.columns)
    told = f"learning from {learned.describe()} with {visits:,} visits and {columns} columns"
    told += "" if held_out is None else f"; {held_out.describe()} are held out"
    return "\n".join([told, *_few(held_out), *learned.notes])


def _about(options: Any) -> dict[str, Any]:
    """What plan.json says beside the plan: enough to read and divide the records again."""
    run: SynthesisRun = options.run
    told = {
        **dataclasses.asdict(options.data),
        "model": run.model,
        "checkpoint_minutes": run.checkpoint_minutes,
        "threads": run.threads,
        "version": version("sfumato"),
    }
    return plain(told)


def _dry_run(plan: Any, learned: EHRDataset, held_out: EHRDataset | None, *, as_json: bool) -> int:
    statement = plan.try_out(learned)
    if as_json:
        say_json({"plan": plan.to_json(), "statement": statement.to_json(), "patients": _counts(learned, held_out)})
        return 0
    say(_told(learned, held_out) + "\n")
    table(["column", "a value for each", "kind"], [*map(list, _columns(learned.schema))])
    say("")
    table(["setting", "value"], [[name, str(value)] for name, value in plan.to_json().items() if value is not None])
    say(
        f"\nat its end the run would state:\n\n{statement.text()}\n\ndry run: the records were read; nothing was "
        "learned or written"
    )
    return 0


def _columns(schema: Schema) -> Iterator[tuple[str, str, str]]:
    """Each column: its name, whether a patient or a visit has a value of it, and what that is."""
    for whose, columns in (("patient", schema.static), ("visit", schema.temporal)):
        for column in columns:
            kind = f"{len(column.categories):,} categories" if column.kind == "categorical" else "number"
            yield column.name, whose, f"whole {kind}" if column.whole else kind


def _counts(learned: EHRDataset, held_out: EHRDataset | None) -> dict[str, int]:
    return {"learned": len(learned), "held_out": 0 if held_out is None else len(held_out)}


def _conclude(
    statement: Statement,
    out: Path,
    learned: EHRDataset,
    held_out: EHRDataset | None,
    beside: Path | None,
    *,
    as_json: bool,
    already: bool,
) -> None:
    """What the run brought: its statement, where all is, and what comes next."""
    from sfumato.report import summary, write_report  # late: plots take a while to load

    page = write_report([out])
    if as_json:
        told = {"run": out, "report": page, "statement": statement.to_json(), "already": already}
        say_json({**told, "patients": _counts(learned, held_out), "held_out": beside})
        return
    lines = [*summary(out, page), "", f"run: {out}"]
    lines += [] if beside is None else [f"held out: {beside}"]
    lines += [f"next: sfumato ehr sample --model {out} --count {len(learned)} --to made"]
    say("\n" + "\n".join(lines))
