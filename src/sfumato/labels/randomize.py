"""A table with private labels → the same table with randomised ones, that anybody may train on.

Guarantees pure label differential privacy, with replaced labels as neighbours: a report has the epsilon of the
settings, in a ledger and a statement next to the table, in a folder `OUT.run`. Rows are read in blocks, four times at
most; of each row, memory holds its label and a digest, and all of it with `shuffle`.

- **Once.** An output that exists is refused, and so is a second run for it: two draws would average the noise away.
  Another output of the same labels is found by the record next to the table (`PastReleases`), whatever it is
  called. It is refused, unless `total_epsilon` allows what all of them cost in total, and then it states that sum.
- **Order.** Rows whose order follows from their labels are refused (`labels.table`). With `shuffle` rows are
  written in an order that is drawn from the run's key and follows from nothing: given any such order each report has
  the epsilon of the settings, so the guarantee and its figures stay. No test of the order is made, so none reveals
  anything. The rows no longer stand as in other files: what is read by the number of a row (priors of rows, features)
  is read in the order of the table before, and a file that is joined to the output needs a key column. A column that
  counts the rows would bring the order back and is refused.
- **Whole or absent.** The table appears under its name when it is complete. A run that was stopped or killed goes on
  with its own key, draws the same reports, and refuses a table, a prior or settings that are not those of the
  beginning.
- **Nothing else reveals the label.** A report is written in the same way for any label; but a column that follows from
  the label is public, like all others.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import math
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from sfumato._check import InputError
from sfumato._files import read_json, sibling, whole_folder, write_atomic, write_json
from sfumato._random import RandomSource
from sfumato._types import PLAN_FORMAT
from sfumato.accounting import Event, compose, event_from_json, guarantee
from sfumato.labels.files import Cells, LabelFile, open_label_file, refuse_other_format
from sfumato.labels.response import PHASE, label_facts, reports_of, words_of
from sfumato.labels.table import LabelSettings, TableWork
from sfumato.ledger import Budget
from sfumato.runs import Run, RunFolder
from sfumato.statement import Statement

FOLDER = "label-releases"

_BITS = 64  # of orders that labels must have to be known by theirs
_MOST = 1 << 20  # rows that are remembered of a table
_KNOWN = 0.01  # share of common rows above which tables share labels
_ABSENT = np.uint64(0x9E3779B97F4A7C15)
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
    table: Path | str,
    out: Path | str,
    settings: LabelSettings,
    *,
    total_epsilon: float | None = None,
    record: Path | str | None = None,
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
        progress: receives how many rows are done, and of how many.

    Raises:
        InputError: a setting, the table, the prior or the output is of no use.
        KeyboardInterrupt: a signal stopped it; nothing was written under the name of the output.
    """
    table, out = Path(table), Path(out)
    file = open_label_file(table)
    refuse_other_format(file, out)
    folder = run_folder(out)
    _refuse_taken(out, folder, resume=resume)
    before = RunFolder(folder).recorded(resume=resume)
    if resume and before.get("format") != PLAN_FORMAT:
        raise InputError(f"{folder} is of an earlier version, whose runs cannot go on here; release to another file")
    work = TableWork.of(file, settings)
    settings.response(len(work.names), work.prior_of_all(None))  # refuses what has no response, before any file is made
    identity = TableIdentity.of(file, settings.label)
    if settings.shuffle and identity.counting:
        raise InputError(
            f"{table}: the column {identity.counting!r} goes up or down with the rows, so it reveals their "
            "order; leave it out, or renumber rows at random"
        )
    plan = settings.plan(work.names)
    fingerprint = hashlib.sha256(f"{json.dumps(plan, sort_keys=True)} {work.digest}".encode()).hexdigest()
    plan["about"] = {"table": table.name, "out": out.name, "rows": work.rows}
    past = PastReleases(Path(record) if record else table.parent / FOLDER)
    budget = (
        None
        if total_epsilon is None
        else Budget(epsilon=total_epsilon * (1 + _ROUND_OFF), delta=0.0, adjacency="replace")
    )
    with Run.open(folder, plan=plan, seed=seed, resume=resume, budget=budget) as run:
        if resume:
            run.saved(fingerprint)
        release = PastRelease(run.source.stream("label release").bytes(8).hex(), out.name, settings.event(), identity)
        earlier: list[PastRelease] = []
        with past.alone():
            if seed is None:
                earlier = past.shared(release, names=(before.get("about") or {}).get("earlier"))
            plan["about"]["earlier"] = [each.name for each in earlier]
            cost = functools.reduce(operator.add, [each.event for each in earlier], compose({}))
            if (
                earlier
                and not resume
                and (total_epsilon is None or _epsilon(cost + release.event) > total_epsilon * (1 + _ROUND_OFF))
            ):
                raise _released(table, earlier, cost, release.event)
            if not resume:
                run.refuse_unaffordable("the labels", cost, release.event)
            if seed is None:
                past.prepare()
            run.start(fingerprint)
            if seed is None:
                past.add(release)
        if earlier:
            run.release("earlier releases", cost, lambda _: {"releases": torch.tensor(len(earlier))})
        counted = settings.prior.release(run, work.counts)
        response = settings.response(len(work.names), work.prior_of_all(counted))

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            words, seen, written, done = words_of(source), work.new_digest(), hashlib.sha256(), 0
            order = source.stream("row order").permutation(work.rows) if settings.shuffle else None
            priors = work.prior.rows()

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
            mechanism=settings.in_words(len(work.names)),
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
    return sibling(out, after=".run")


def _epsilon(cost: Event) -> float:
    """At delta 0."""
    return guarantee(cost, "replace").epsilon(0.0)


def _released(table: Path, earlier: list[PastRelease], cost: Event, more: Event) -> InputError:
    spent, total = _epsilon(cost), _epsilon(cost + more)
    return InputError(
        f"labels of {table} were released before, at epsilon {spent:g} in all ({outputs_of(earlier)}); "
        f"use that output, or allow the sum: total_epsilon (--total-epsilon) of {_enough(total)} or more"
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
            f"{folder} holds a run for {out} already; go on with it (--resume), as drawing labels again would "
            "average the noise away"
        )
    if out.exists():
        raise InputError(
            f"{out} exists; if these are randomised labels, use them: another draw would average the noise away. Else "
            "choose another file"
        )


# What was released before.


@dataclass(frozen=True, eq=False)
class TableIdentity:
    """What a table is recognised by.

    - Its labels in their order, where so many orders of them are possible that two tables do not share one by chance;
      whatever the file, the column and the format are called, and whatever the other columns are.
    - Its rows, from the columns but the label, where the label's column has the same name: in another order, as a
      subset, with new rows, or with some labels changed. A row counts if it is the only one of its kind in its table,
      and tables where fewer than half of the rows are have no rows to be known by. More than one common row in a
      hundred of the smaller table is a match.

    Attributes:
        label: the name of the label's column.
        labels: digest of the labels in their order, in hexadecimal; "" where they have too few orders.
        rows: digests of single rows below `limit`, uint64 [n], in order; none where few rows are the only ones of their
            kind.
        limit: of the digests, so that `rows` are not too many.
        counting: a column whose values go up or down with the rows, which brings back their order; "" for none.
    """

    label: str
    labels: str
    rows: np.ndarray
    limit: int
    counting: str = ""

    @classmethod
    def of(cls, file: LabelFile, label: str) -> TableIdentity:
        """Read a table once."""
        labels, counts = hashlib.sha256(), Counter[int]()
        rows: list[np.ndarray] = []
        counting: dict[str, _Counting] = {}
        for cells in file.flat():
            values = _digests(cells[label])
            labels.update(values.tobytes())
            counts.update(dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True)))
            found = np.zeros(len(values), np.uint64)
            for name, column in cells.items():
                if name != label:
                    found += _mixed(_digests(column) ^ _digest(name))
                    counting.setdefault(name, _Counting()).add(column)
            rows.append(found)
        count = counts.total()
        orders = math.lgamma(count + 1) - sum(math.lgamma(each + 1) for each in counts.values())
        single, limit = _single(np.concatenate([np.zeros(0, np.uint64), *rows]))
        return cls(
            label=label,
            labels=labels.hexdigest() if orders >= _BITS * math.log(2) else "",
            rows=single,
            limit=limit,
            counting=next((name for name, each in counting.items() if each.restores(count)), ""),
        )

    def matches(self, other: TableIdentity) -> bool:
        """Whether the two tables share labels."""
        if self.labels and self.labels == other.labels:
            return True
        limit = np.uint64(min(self.limit, other.limit))
        these, those = (rows[rows <= limit] for rows in (self.rows, other.rows))
        fewer = min(len(these), len(those))
        return self.label == other.label and fewer > 0 and len(np.intersect1d(these, those)) > _KNOWN * fewer


@dataclass(frozen=True)
class PastRelease:
    """One release.

    Attributes:
        name: of its folder in the record.
        out: the name of the file that was written.
        event: what it cost each label.
        identity: of the table.
    """

    name: str
    out: str
    event: Event
    identity: TableIdentity


class PastReleases:
    """The record of what was released of the tables in a folder, which each new release is compared with.

    Several draws of one label average its noise away, whatever the outputs are called: 15 outputs at epsilon 1 give
    97 % of binary labels. So each release is recorded before its first label is drawn, and is found again by what the
    table holds (`TableIdentity`). A release that matches is refused, or its cost is added to that of the earlier ones:
    the run's ledger begins with them, and its statement is that of their sum.

    Drawing the same reports again at no cost would need a key that is kept as long as the table, and says nothing where
    epsilon, classes or prior differ: two responses from the same coins may reveal more than both events add up to. The
    earlier output is that same draw; the refusal names it.

    Comparing reads labels, too. A refusal reveals that the same labels were released before, to the person who has
    them; a release that goes on reveals no more than that no labels in the record are the same in all rows.

    The record is private, as the table is: its digests of labels could be compared with a guess. It is readable by its
    owner only, and stays with the table. Not recognised are a table in another folder (unless `record` names one folder
    for both), and one of which labels, rows and columns were all changed. Seeded runs are simulations: they are neither
    recorded nor refused.

    Args:
        folder: of the record; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process compare or record until the end.

        Raises:
            InputError: there is no folder for the record.
        """
        with self._writing():
            handle = os.open(self.folder.parent, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def prepare(self) -> None:
        """Make the folder, so that it can be written when a release has begun.

        Raises:
            InputError: it cannot be.
        """
        with self._writing():
            self.folder.mkdir(mode=0o700, exist_ok=True)
            with whole_folder(self.folder / "trial", private=True):
                pass
            (self.folder / "trial").rmdir()

    def shared(self, release: PastRelease, *, names: Sequence[str] | None = None) -> list[PastRelease]:
        """Other releases that share labels with this one.

        Args:
            release: to compare with.
            names: of those that were found when it began; None to look for them.

        Raises:
            InputError: one cannot be read.
        """
        places = [place for place in sorted(self.folder.glob("*/release.json")) if place.parent.name != release.name]
        others = [self._read(place) for place in places if not place.parent.name.endswith(".partial")]
        if names is not None:
            return [other for other in others if other.name in names]
        return [other for other in others if release.identity.matches(other.identity)]

    def add(self, release: PastRelease) -> None:
        """Record a release before it happens; one that is recorded already stays as it is.

        Raises:
            InputError: the folder cannot be written.
        """
        target = self.folder / release.name
        if target.exists():
            return
        content = {
            "out": release.out,
            "label": release.identity.label,
            "labels": release.identity.labels,
            "limit": str(release.identity.limit),
            "event": release.event.to_json(),
        }
        with self._writing(), whole_folder(target, private=True) as partial:
            np.save(partial / "rows.npy", release.identity.rows)
            write_json(partial / "release.json", content, private=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{self.folder} cannot be written ({error.strerror}), and what is released of labels is recorded "
                "there; name another folder (record, --record)"
            ) from None

    def _read(self, place: Path) -> PastRelease:
        try:
            content = read_json(place)
            rows = np.load(place.parent / "rows.npy", allow_pickle=False)
            identity = TableIdentity(content["label"], content["labels"], rows, int(content["limit"]))
            return PastRelease(place.parent.name, content["out"], event_from_json(content["event"]), identity)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{place.parent} is damaged ({str(error)[:200]}): what it cost is not known; take a whole copy of it"
            ) from None


def outputs_of(releases: Sequence[PastRelease]) -> str:
    """The files of releases, for a message."""
    names = [release.out for release in releases]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class _Counting:
    """Whether a column goes up or down with the rows."""

    def __init__(self) -> None:
        self._last: np.ndarray = np.zeros(0)
        self._changes = 0
        self._up = self._down = True

    def add(self, column: pa.Array) -> None:
        """Take in the next rows."""
        if not (self._up or self._down):
            return
        values = _comparable(column)
        if len(self._last) and values.dtype.kind != self._last.dtype.kind:
            self._up = self._down = False
            return
        values = np.concatenate([self._last, values])
        before, after = values[:-1], values[1:]
        self._up, self._down = self._up and bool((before <= after).all()), self._down and bool((before >= after).all())
        self._changes += int((before != after).sum())
        self._last = values[-1:]

    def restores(self, rows: int) -> bool:
        """Whether sorting by it brings back the order of half of the rows or more."""
        return (self._up or self._down) and rows > 1 and 2 * self._changes >= rows


def _comparable(column: pa.Array) -> np.ndarray:
    """Numbers as float64 [n], where all are, else texts, str [n]; numbers that are missing are NaN, texts empty."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    try:
        texts = column.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no text
        texts = pa.array([str(value) for value in column.to_pylist()], pa.large_string())
    try:
        return texts.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return np.array([(text or "").strip().casefold() for text in texts.to_pylist()], np.str_)


def _digests(column: pa.Array) -> np.ndarray:
    """A digest of each value, uint64 [n]; a number has the same one in every format."""
    values = _comparable(column)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), _ABSENT, _mixed((values + 0.0).view(np.uint64)))
    known, places = np.unique(values, return_inverse=True)
    return np.array([_digest(text) if text else int(_ABSENT) for text in known.tolist()], np.uint64)[places]


def _digest(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def _mixed(words: np.ndarray) -> np.ndarray:
    """The last steps of splitmix64: every bit depends on all; uint64 [n]."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _single(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Digests that only one row has, uint64 [n], ascending, and the limit that they are below."""
    found, counts = np.unique(rows, return_counts=True)
    found = found[counts == 1]
    if 2 * len(found) < len(rows) or len(found) < 2:
        return found[:0], (1 << 64) - 1
    limit = (1 << 64) - 1
    while len(found) > _MOST:
        limit //= 2
        found = found[found <= np.uint64(limit)]
    return found, limit
