"""`sfumato close`: end a run that was stopped, and delete its key."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sfumato.cli.console import say, say_json
from sfumato.cli.parse import CommonOptions, parse


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
    from sfumato.runs.close import close_run  # late: --help needs no torch

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
