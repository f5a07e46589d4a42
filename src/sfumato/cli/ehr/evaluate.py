"""`sfumato ehr evaluate`: how faithful and how useful synthetic records are, and what attacks find, on one page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfumato._check import InputError, whole
from sfumato.cli.console import bar, notify, say, say_json, table
from sfumato.cli.parse import CommonOptions, parse

_PAGE = "records.html"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CommonOptions):
    """What to measure.

    Attributes:
        model: folder of the run of sfumato ehr fit that made the records: its records are read again and divided as it
            did, and its statement then tells what the attacks found.
        real: folder of the records that the synthetic ones were learned from: visits.parquet or .csv, static.parquet or
            .csv and schema.yaml, or a data set of MEDS. With --model it may be left out.
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


def ehr_evaluate(argv: Sequence[str]) -> int:
    about = "Measure synthetic health records beside real patients who were held out. No guarantee follows from it."
    options = parse(EvaluateOptions, argv, command="ehr evaluate", about=about)
    whole(at_least=0, seed=options.seed)
    out = _page(options)
    from sfumato.audit.ehr import evaluate  # late: --help needs neither scikit-learn nor torch
    from sfumato.cli.ehr.folder import read_folder
    from sfumato.report.ehr_page import summary_rows, write_ehr_page
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
    told = evaluation.to_json()
    if options.model is not None:
        _note(options.model, told, options.synthetic)
    if options.json:
        say_json({**told, "report": page})
        return 0
    table(["measure", "synthetic", "ideal"], summary_rows(evaluation))
    for warning in evaluation.utility.warnings if evaluation.utility else ():
        say(warning)
    say("no differential privacy guarantee follows: the attacks are examples, not a bound")
    say(f"report: {page}")
    return 0


def _page(options: EvaluateOptions) -> Path:
    """Where the page goes; says what is missing where there is no run to take it from."""
    if options.model is not None:
        from sfumato.runs import RunFolder  # late: --help needs no torch
        from sfumato.synthesis.history import samples_of

        RunFolder(options.model).read_plan()  # says in its own words that it is no run
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
    from sfumato.cli.ehr.folder import read_folder  # late: --help needs no pyarrow
    from sfumato.cli.ehr.held_out import records_of_run

    if options.model is not None and options.real is None:
        return records_of_run(options.model)
    assert options.real is not None
    assert options.holdout is not None
    real = read_folder(options.real, options.schema)
    return real, read_folder(options.holdout, real.schema)


def _note(run: Path, evaluation: dict[str, Any], synthetic: Path) -> None:
    """Note it in the run; where that cannot be written, the page is there all the same."""
    from sfumato.report import write_report  # late: --help needs no torch
    from sfumato.synthesis.history import digest_of_folder, note_evaluation, samples_of

    try:
        if not note_evaluation(run, evaluation, folder=synthetic):
            notify(f"{synthetic} is not what sfumato ehr sample drew from {run}, or was changed; the statement says so")
        drawn = [row for row in samples_of(run) if row["digest"] == digest_of_folder(synthetic)]
        if drawn and (given := drawn[-1].get("given")):
            told = f"{synthetic} was drawn with --given {' '.join(given)}"
            notify(f"{told}, and is measured beside patients of all kinds")
        write_report([run])
    except OSError as error:
        notify(f"the page is whole, but {run} does not know of it: {error.strerror or error}")
