"""`sfumato report` and `sfumato close`: a page about runs, and the end of a run that was stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sfumato._check import InputError
from sfumato.cli.console import say, say_json
from sfumato.cli.parse import CommonOptions, parse

# `sfumato report`: one self-contained HTML page about one run or several.


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


# `sfumato close`: end a run that was stopped, and delete its key.


@dataclass(frozen=True, kw_only=True)
class CloseOptions(CommonOptions):
    """What to close.

    Attributes:
        run: folder of the run.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def close(argv: Sequence[str]) -> int:
    about = "End a run that was stopped: its key is deleted, all else is kept. It cannot go on after that."
    options = parse(CloseOptions, argv, command="close", about=about)
    from sfumato.runs.run import close_run  # late: --help needs no torch

    closed = close_run(options.run)
    if options.json:
        facts = {"complete": closed.complete, "already": closed.already, "stated": closed.stated, "round": closed.round}
        say_json({"run": options.run, **facts})
        return 0
    if closed.already:
        say(f"{options.run} is closed already; nothing was left to do")
        return 0
    if closed.complete:
        say(f"{options.run} had run to its end; its key is deleted")
        return 0
    after = "" if closed.round is None else f" after round {closed.round}"
    key = (
        "Its key is deleted, so nobody can repeat its noise." if closed.key else "It held no key that could be deleted."
    )
    say(f"closed: {options.run}{after}. {key}")
    say("It cannot go on any more: rounds that were left can only be a new run, whose cost adds up with this one.")
    if closed.answered:
        say(
            "Plan, ledger and model are as they were; of the statement, the answer about its key now says that it was "
            "closed."
        )
    elif closed.stated:
        say("Plan, ledger, statement and model are as they were.")
    else:
        say("It was killed before it wrote a statement and a model, and now it never will; its ledger is as it was.")
    return 0
