"""A table with private labels → the same table with randomised ones, that anybody may train on.

Guarantees pure label differential privacy, with replaced labels as neighbours: a report has the epsilon of the
settings, in a ledger and a statement next to the table, in a folder `OUT.run`. Rows are read in blocks, four times at
most; of each row, memory holds its label and a digest, and all of it with `shuffle`.

- **Once.** An output that exists is refused, and so is a second run for it: two draws would average the noise away.
  Another output of the same labels is found by the record next to the table (`labels.past_releases`), whatever it is
  called. It is refused, unless `total_epsilon` allows what all of them cost in total, and then it states that sum.
- **Order.** Rows whose order follows from their labels are refused (`labels.row_order`). With `shuffle` rows are
  written in an order that is drawn from the run's key and follows from nothing: given any such order each report has
  the epsilon of the settings, so the guarantee and its figures stay. No test of the order is made, so none reveals
  anything. The rows no longer stand as in other files: what is read by the number of a row (priors of rows, features)
  is read in the order of the table before, and a file that is joined to the output needs a key column. A column that
  counts the rows would bring the order back and is refused.
- **Whole or absent.** The table appears under its name when it is complete. A run that was stopped or killed goes on
  with its own key, draws the same reports, and refuses a table, a prior or settings that are not those of the
  beginning.
- **Nothing else tells the label.** A report is written alike whatever the label was; but a column that follows from
  the label is public, like all others.
"""

import functools
import hashlib
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from sfumato._check import InputError
from sfumato._files import beside, write_atomic
from sfumato._random import RandomSource
from sfumato.accounting import Event, compose, guarantee
from sfumato.labels.files import Cells, open_label_file, refuse_other_format
from sfumato.labels.past_releases import FOLDER, PastRelease, PastReleases, TableIdentity, outputs_of
from sfumato.labels.reports import PHASE, label_facts, reports_of, words_of
from sfumato.labels.table import LabelSettings, TableWork
from sfumato.ledger import Budget
from sfumato.runs import Run, RunFolder
from sfumato.statement import Statement

_ROUND_OFF = 1e-9  # of a sum of costs, relative to it

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RandomizedTable:
    """What was written.

    Attributes:
        statement: what it promises.
        rows: how many there are.
        folder: of the run.
    """

    statement: Statement
    rows: int
    folder: Path


def randomize_table(
    table: Path,
    out: Path,
    settings: LabelSettings,
    *,
    total_epsilon: float | None = None,
    record: Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> RandomizedTable:
    """Randomise the labels of a table.

    Args:
        table: .parquet, .csv, .tsv (also .gz) or .jsonl.
        out: the file to write, of the same format, which must not exist yet.
        settings: how.
        total_epsilon: what all releases of these labels may cost in total, this one included; None for one release.
        record: the folder of earlier releases, which need not exist; None for `label-releases` next to the table.
        seed: repeatable randomness, for simulation only; None draws a key from the operating system.
        resume: go on with a run for `out` that was stopped.
        progress: is told how many rows are done, and of how many.

    Raises:
        InputError: a setting, the table, the prior or the output is of no use.
        KeyboardInterrupt: a signal stopped it; nothing was written under the name of the output.
    """
    settings.require_valid()
    file = open_label_file(table)
    refuse_other_format(file, out)
    folder = run_folder(out)
    _refuse_taken(out, folder, resume=resume)
    work = TableWork.of(file, settings)
    settings.response(
        work.class_count, work.prior_of_all(None)
    )  # refuses what has no response, before any file is made
    identity = TableIdentity.of(file, settings.label)
    if settings.shuffle and identity.counting:
        raise InputError(
            f"{table}: the column {identity.counting!r} goes up or down with the rows, so it brings their order back "
            "after a shuffle; leave it out, or number the rows anew in a random order"
        )
    plan = settings.plan(work.classes)
    fingerprint = hashlib.sha256(f"{json.dumps(plan, sort_keys=True)} {work.digest}".encode()).hexdigest()
    plan["about"] = {"table": table.name, "out": out.name, "rows": work.rows}
    past = PastReleases(record or table.parent / FOLDER)
    before = RunFolder(folder).recorded(resume=resume).get("about") or {}
    budget = (
        None
        if total_epsilon is None
        else Budget(epsilon=total_epsilon * (1 + _ROUND_OFF), delta=0.0, adjacency="replace")
    )
    with Run.open(folder, plan=plan, seed=seed, resume=resume, budget=budget) as run:
        if resume:
            run.saved(fingerprint)
        own = PastRelease(run.source.stream("label release").bytes(8).hex(), out.name, settings.event(), identity)
        earlier: list[PastRelease] = []
        with past.alone():
            if seed is None:
                earlier = past.shared(own, names=before.get("earlier"))
            plan["about"]["earlier"] = [each.name for each in earlier]
            cost = functools.reduce(operator.add, [each.event for each in earlier], compose({}))
            if (
                earlier
                and not resume
                and (total_epsilon is None or _epsilon(cost + own.event) > total_epsilon * (1 + _ROUND_OFF))
            ):
                raise _released(table, earlier, cost, own.event)
            if not resume:
                run.refuse_unaffordable("the labels", cost, own.event)
            if seed is None:
                past.prepare()
            run.start(fingerprint)
            if seed is None:
                past.add(own)
        if earlier:
            run.release("earlier releases", cost, lambda _: {"releases": torch.tensor(len(earlier))})
        counted = None if settings.histogram is None else settings.histogram.release(run, work.counts)
        response = settings.response(work.class_count, work.prior_of_all(counted))

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            words, seen, written, done = words_of(source), work.new_digest(), hashlib.sha256(), 0
            order = source.stream("row order").permutation(work.rows) if settings.shuffle else None
            priors = work.row_priors()

            def exchange(cells: Cells) -> pa.Array:
                nonlocal done
                if run.asked_to_stop:
                    raise KeyboardInterrupt
                labels, groups = work.take(cells, done)
                prior = work.prior_of(counted, groups, priors, len(labels))
                seen.add(labels, groups, prior if priors is not None else None)
                reports = reports_of(response, labels, words, prior, threads=torch.get_num_threads())
                written.update(reports.tobytes())
                done += len(labels)
                if progress is not None:
                    progress(done, work.rows)
                return work.coding.column(reports)

            def write(path: Path) -> None:
                file.copy(path, work.columns, settings.label, exchange, order=order)
                if seen.found != work.digest:
                    raise InputError(f"{table} or its prior was changed while it was read; take the one before")

            write_atomic(out, write)
            return {"sha256": torch.tensor(list(written.digest()), dtype=torch.uint8)}

        run.release(PHASE, response.event(), draw, rows=work.rows)
        if not out.exists():
            raise InputError(f"{out} was written and is gone: its labels are not drawn again; take a copy of it")
        facts = label_facts(
            population=work.rows,
            mechanism=settings.in_words(work.class_count),
            shuffled=settings.shuffle,
            recorded=seed is None,
            earlier=len(earlier),
        )
        digest = hashlib.sha256()
        with open(out, "rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
        statement = run.finish({}, facts, metadata={"table": out.name, "sha256": digest.hexdigest()})
    return RandomizedTable(statement, work.rows, folder)


def run_folder(out: Path) -> Path:
    """Where ledger, statement and plan of a table are."""
    return beside(out, after=".run")


def _epsilon(cost: Event) -> float:
    """At delta 0."""
    return guarantee(cost, "replace").epsilon(0.0)


def _released(table: Path, earlier: list[PastRelease], cost: Event, more: Event) -> InputError:
    spent, total = _epsilon(cost), _epsilon(cost + more)
    return InputError(
        f"labels of {table} were released before, at epsilon {spent:g} in all ({outputs_of(earlier)}): use that "
        "output; several draws would average the noise away. To release them once more, and to state the sum, give "
        f"total_epsilon (--total-epsilon) of {_enough(total)} or more"
    )


def _enough(total: float) -> str:
    """A number of six digits that is no less than a sum, up to round-off."""
    short = f"{total:g}"
    return short if float(short) >= total * (1 - _ROUND_OFF) else f"{total * (1 + 1e-5):g}"


def _refuse_taken(out: Path, folder: Path, *, resume: bool) -> None:
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent} for {out.name}; make it first")
    if resume:
        if not folder.is_dir():
            raise InputError(f"there is no run for {out} to go on with ({folder}); leave resume out")
        if RunFolder(folder).has_ended():
            raise InputError(f"{out} is complete; there is nothing to go on with")
        return
    if folder.exists():
        raise InputError(
            f"{folder} holds a run for {out} already; go on with it (--resume) if it was stopped. Labels that were "
            "drawn are not drawn again: several draws would average the noise away"
        )
    if out.exists():
        raise InputError(
            f"{out} exists; if these are randomised labels, use them: another draw would average the noise away. Else "
            "choose another file"
        )
