"""`sfumato report`: one self-contained HTML page about one run or several."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sfumato._check import InputError
from sfumato.cli.console import say, say_json
from sfumato.cli.parse import CommonOptions, parse


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommonOptions):
    """What to report.

    Attributes:
        runs: folders of runs; several are shown side by side.
        out: the HTML file; without it, report.html in the folder of the run, or comparison.html in that of the first
            of several.
        public: leave out everything that was computed from private records without noise, so that the page may be
            published with the model.
        public_evaluation: the validation and test data are public, so a public page may show what was measured on
            them.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    out: Path | None = None
    public: bool = False
    public_evaluation: bool = False


def report(argv: Sequence[str]) -> int:
    about = "One HTML page that needs nothing else: what was promised, what was reached, what is not covered."
    options = parse(ReportOptions, argv, command="report", about=about)
    if not options.runs:
        raise InputError("which run? give its folder: sfumato report RUN")
    from sfumato.report import summary, write_report  # late: --help needs no plots

    page = write_report(options.runs, options.out, public=options.public, public_evaluation=options.public_evaluation)
    if options.json:
        say_json({"report": page, "runs": options.runs})
    elif len(options.runs) == 1:
        say("\n".join(summary(options.runs[0], page)))
    else:
        say(f"report: {page}")
    return 0
