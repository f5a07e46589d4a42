"""`sfumato labeldp randomize`: a table → the same table with randomised labels, which anybody may train on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sfumato.cli.console import bar, notify, say, say_json
from sfumato.cli.parse import CommonOptions, parse
from sfumato.labels import LabelSettings, randomize_table
from sfumato.labels.randomize import run_folder


@dataclass(frozen=True, kw_only=True)
class RandomizeOptions(LabelSettings, CommonOptions):
    """What to randomise. The columns but the label, and how many rows there are, are public.

    Attributes:
        table: .parquet, .csv, .tsv (also .gz) or .jsonl.
        out: the table to write, in the same format, which must not exist yet. Ledger, statement and plan are in the
            folder OUT.run beside it.
        total_epsilon: release labels that were released before once more, if all of it costs at most this in total; the
            statement is that of the sum.
        record: the folder that remembers releases; `label-releases` next to the table unless given. Name one folder for
            tables that may be copies of each other.
        seed: repeatable randomness, for simulation only.
        resume: go on with a run for OUT that was stopped; with the same words otherwise.
    """

    table: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")]
    out: Path
    total_epsilon: float | None = None
    record: Path | None = None
    seed: int | None = None
    resume: bool = False


def randomize(argv: Sequence[str]) -> int:
    about = "Randomise the labels of a table: each under label differential privacy, all other columns as they are."
    options = parse(RandomizeOptions, argv, command="labeldp randomize", about=about)
    with bar("randomising") as progress:
        try:
            done = randomize_table(
                options.table,
                options.out,
                options,
                total_epsilon=options.total_epsilon,
                record=options.record,
                seed=options.seed,
                resume=options.resume,
                progress=progress,
            )
        except KeyboardInterrupt:
            if run_folder(options.out).exists():
                notify(f"{options.out} was not written; go on by the same words and --resume")
            raise
    if options.json:
        say_json({"out": options.out, "rows": done.rows, "run": done.folder, "statement": done.statement.to_json()})
        return 0
    say(f"{done.rows:,} labels: {options.out}")
    say(f"{done.statement.mechanism}")
    say(f"epsilon {done.statement.epsilon:g} for each label, delta 0; statement and ledger: {done.folder}")
    if done.statement.seeded:
        say("Seeded: for simulation only. Whoever knows the seed can take the noise away.")
    return 0
