"""`sfumato report` and `sfumato close`: a page about runs, and the end of a run that was stopped."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from sfumato._check import InputError
from sfumato.cli.console import Answer
from sfumato.cli.parse import CommonOptions

if TYPE_CHECKING:
    from sfumato.runs.run import Closed


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommonOptions):
    """One HTML page that needs nothing else: what was promised, what was reached, what is not covered.

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


def report(options: ReportOptions) -> Answer:
    """Write the page."""
    if not options.runs:
        raise InputError("which run? give its folder: sfumato report RUN")
    from sfumato.report import summary, write_report  # late: --help needs no plots

    page = write_report(options.runs, options.out, public=options.public, public_evaluation=options.public_evaluation)
    lines = summary(options.runs[0], page) if len(options.runs) == 1 else [f"report: {page}"]
    return Answer({"report": page, "runs": options.runs}, lines)


@dataclass(frozen=True, kw_only=True)
class CloseOptions(CommonOptions):
    """End a run that was stopped: its key is deleted, all else is kept. It cannot go on after that.

    Attributes:
        run: folder of the run.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def close(options: CloseOptions) -> Answer:
    """Delete the key."""
    from sfumato.runs.run import close_run  # late: --help needs no torch

    closed = close_run(options.run)
    facts = {"complete": closed.complete, "already": closed.already, "stated": closed.stated, "round": closed.round}
    return Answer({"run": options.run, **facts}, _closed(options.run, closed))


def _closed(run: Path, closed: "Closed") -> Iterator[str]:
    if closed.already:
        yield f"{run} is closed already; nothing was left to do"
        return
    if closed.complete:
        yield f"{run} had run to its end; its key is deleted"
        return
    after = "" if closed.round is None else f" after round {closed.round}"
    key = (
        "Its key is deleted, so its noise cannot be repeated."
        if closed.key
        else "It held no key that could be deleted."
    )
    yield f"closed: {run}{after}. {key}"
    yield "It cannot go on any more: rounds that were left can only be a new run, whose cost adds up with this one."
    if closed.answered:
        yield (
            "Plan, ledger and model are as they were; of the statement, the answer about its key now says that it was "
            "closed."
        )
    elif closed.stated:
        yield "Plan, ledger, statement and model are as they were."
    else:
        yield "It was killed before it wrote a statement and a model, and now it never will; its ledger is as it was."
