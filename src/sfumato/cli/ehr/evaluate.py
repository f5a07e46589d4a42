"""`sfumato ehr evaluate`: how faithful and how useful synthetic records are, and what attacks find, on one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato._check import InputError, whole
from sfumato.cli.console import bar, say, say_json, table
from sfumato.cli.parse import CommonOptions, parse


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CommonOptions):
    """What to measure.

    Attributes:
        real: folder of the records that the synthetic ones were learned from: visits.parquet or .csv, static.parquet or
            .csv and schema.yaml, or a data set of MEDS.
        holdout: folder of real patients that were held out; the ideals come from them.
        synthetic: folder of the synthetic records.
        out: the HTML page.
        schema: a file with the columns of all three; without it, the schema of the real records.
        sensitive: static columns that an attacker may want to know; without it, all categorical ones.
        most: patients of each folder that are looked at, at most.
        seed: repeats all that is drawn.
    """

    real: Path
    holdout: Path
    synthetic: Path
    out: Path
    schema: Path | None = None
    sensitive: tuple[str, ...] = ()
    most: int = 5000
    seed: int = 0


def ehr_evaluate(argv: Sequence[str]) -> int:
    about = "Measure synthetic health records beside real patients who were held out. No guarantee follows from it."
    options = parse(EvaluateOptions, argv, command="ehr evaluate", about=about)
    whole(at_least=0, seed=options.seed)
    from sfumato.audit.ehr import evaluate  # late: --help needs neither scikit-learn nor torch
    from sfumato.cli.ehr.folder import read_folder
    from sfumato.report.ehr import summary_rows, write_ehr_page
    from sfumato.report.template import refuse_folder

    refuse_folder(options.out, "records.html")
    if not options.out.absolute().parent.is_dir():
        raise InputError(f"there is no folder {options.out.parent} for the page; make it first")
    real = read_folder(options.real, options.schema)
    holdout, synthetic = (read_folder(folder, real.schema) for folder in (options.holdout, options.synthetic))
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
    page = write_ehr_page(evaluation, options.out)
    if options.json:
        say_json({**evaluation.to_json(), "report": page})
        return 0
    table(["measure", "synthetic", "ideal"], summary_rows(evaluation))
    for warning in evaluation.utility.warnings if evaluation.utility else ():
        say(warning)
    say("no differential privacy guarantee: the attacks are examples, not a bound")
    say(f"report: {page}")
    return 0
