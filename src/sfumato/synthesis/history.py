"""What follows a run that learned to generate records: which records were drawn, and what was measured on them.

The run's folder records both: samples.jsonl has a line for each draw, which is post-processing of the model and as
public as that; evaluation.json has the figures, which were computed from real records without noise and are not. The
statement's answers then state both. Its numbers stay as they are, and so do the digest of what was promised and the
ledger. A run with a guarantee gets no figure into its statement, which may be published: no noise covers them.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato._files import append, parse_json, sync_file
from sfumato.runs import RunFolder
from sfumato.statement import Statement
from sfumato.statement.statement import NOT_STATED

SAMPLES = "samples.jsonl"
"""The file of draws, in the folder of the run."""

_EVALUATED = "synthetic"  # in evaluation.json
_DRAWN = "Synthetic records:"
_MEASURED = "The synthetic records:"


def digest_of_folder(folder: Path | str) -> str:
    """SHA-256 over the names and contents of all files in a folder, in hexadecimal digits."""
    folder, found = Path(folder), hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        found.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return found.hexdigest()


def note_sample(
    run: Path | str, folder: Path | str, *, count: int, layout: str, conditions: Sequence[str], seeded: bool
) -> None:
    """Note that records were drawn.

    Args:
        run: the folder of the run that the model is of.
        folder: of the records; its name and the digest of its files are kept.
        count: of patients, >= 1.
        layout: how they lie in the folder.
        conditions: as they were asked for.
        seeded: whether a seed repeats them; which one, is not kept.

    Raises:
        InputError: another process writes to the run, or a file of it is damaged.
        OSError: the run's folder cannot be written.
    """
    row = {
        "count": count,
        "layout": layout,
        "given": list(conditions),  # old name
        "seeded": seeded,
        "name": Path(folder).resolve().name,
        "digest": digest_of_folder(folder),
        **_when(),
    }
    with _claimed(run) as kept:
        append(kept.path / SAMPLES, (json.dumps(row, sort_keys=True, allow_nan=False) + "\n").encode())
        sync_file(kept.path / SAMPLES)
        _restate(kept)


def samples_of(run: Path | str) -> list[dict[str, Any]]:
    """What was drawn from a run, a row for each draw.

    Raises:
        InputError: the file is damaged; names the line.
    """
    path = Path(run) / SAMPLES
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
        try:
            row = parse_json(line)
            rows.append({**row, "count": int(row["count"]), "digest": str(row["digest"])})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}, line {number} is damaged ({error!s:.500}); delete the line") from None
    return rows


def note_evaluation(run: Path | str, evaluation: Mapping[str, Any], *, folder: Path | str) -> bool:
    """Note what was measured; it takes the place of what was measured before.

    Args:
        run: the folder of the run that made the records.
        evaluation: what `audit.ehr.Evaluation.to_json` gives.
        folder: of the records that were measured.

    Returns:
        whether these are records that were drawn from the run, unchanged.

    Raises:
        InputError: another process writes to the run, or a file of it is damaged.
        OSError: the run's folder cannot be written.
    """
    digest = digest_of_folder(folder)
    drawn = any(row["digest"] == digest for row in samples_of(run))
    row = {**evaluation, "digest": digest, "drawn": drawn, **_when()}
    with _claimed(run) as kept:
        kept.add_evaluation(_EVALUATED, row, {})
        _restate(kept)
    return drawn


def restate(run: Path | str) -> None:
    """Put what is recorded into the answers of a statement that was written anew.

    Raises:
        InputError, OSError: as for `note_sample`.
    """
    with _claimed(run) as kept:
        _restate(kept)


def without_figures(statement: Statement) -> Statement:
    """The statement for a public page: that the records were measured, and not what was found.

    What attacks found was computed from real records without noise, whatever the statement promises.
    """
    answer = statement.disclosure["evaluation"]
    if _MEASURED not in answer:
        return statement
    return statement.answer(evaluation=_with_text(answer, _MEASURED, _MEASURED_ONLY))


def _restate(run: RunFolder) -> None:
    if not run.statement.exists():
        return
    statement, samples = Statement.load(run.statement), samples_of(run.path)
    evaluation = run.evaluation().get(_EVALUATED)
    promised = math.isfinite(statement.epsilon)
    answers = {}
    if samples:
        answers["released"] = _with_text(statement.disclosure["released"], _DRAWN, _of_samples(samples, promised))
    if evaluation is not None:
        text = _MEASURED_ONLY if promised else _of_attacks(evaluation)
        answers["evaluation"] = _with_text(statement.disclosure["evaluation"], _MEASURED, text)
    if answers:
        statement.answer(**answers).save(run.statement)


def _with_text(answer: str, mark: str, text: str) -> str:
    """The answer, with this text after the mark in place of the text that was there."""
    before = "" if answer == NOT_STATED else answer.partition(mark)[0].strip()
    return f"{before} {mark} {text}".strip()


_MEASURED_ONLY = (
    "they were measured against real ones that were held out. The figures have no noise and are not covered; they are "
    "in evaluation.json and not here."
)


def _of_samples(samples: list[dict[str, Any]], promised: bool) -> str:
    patients, draws = sum(row["count"] for row in samples), len(samples)
    drawn = f"{patients:,} patients were drawn from the model in {draws:,} draw{'' if draws == 1 else 's'}."
    if promised:
        return f"{drawn} They are post-processing of the model: however many are drawn, they cost nothing more."
    return f"{drawn} They are not covered either."


def _of_attacks(evaluation: Mapping[str, Any]) -> str:
    """The first measure of each attack and its ideal, in sentences."""
    texts = []
    for attack in evaluation["attacks"]:
        measure = attack["measures"][0]
        verdict = "above the ideal" if attack["above"] else "no more than the ideal"
        name = f"{attack['name']}, {measure['name']}"
        texts.append(f"{name}: {_within(measure['found'])}, ideal {_within(measure['ideal'])} ({verdict}).")
    origin = "as they were drawn" if evaluation["drawn"] else "which are not those that were drawn, or were changed"
    sizes = evaluation["sizes"]
    return (
        f"{sizes['synthetic']:,} of them, {origin}, were attacked with {sizes['holdout']:,} real patients who were "
        f"held out. {' '.join(texts)} The attacks are examples, not a bound, and these figures were computed from real "
        "patients without noise."
    )


def _within(interval: Mapping[str, float]) -> str:
    value, low, high = (f"{interval[name]:.3g}" for name in ("value", "low", "high"))
    return value if low == high else f"{value} ({low} to {high})"


def _when() -> dict[str, str]:
    return {"when": datetime.now(UTC).isoformat(timespec="seconds"), "version": version("sfumato")}


@contextmanager
def _claimed(run: Path | str) -> Iterator[RunFolder]:
    """The folder of a run, to which no other process writes."""
    folder = RunFolder(run)
    folder.read_plan()  # raises its own error where it is not a run
    folder.claim(resume=True)
    try:
        yield folder
    finally:
        folder.release()
