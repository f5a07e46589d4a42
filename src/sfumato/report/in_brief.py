"""A run in at most eight lines, nine if it was stopped: the verdict of its page, and where the whole text is."""

from pathlib import Path

from sfumato.accounting.statement.brief import brief
from sfumato.report.learned import trouble
from sfumato.report.record import RunRecord, read_run
from sfumato.runs.checkpoint import KEY


def in_brief(run: Path | str, page: Path | str | None = None) -> list[str]:
    """The lines.

    Args:
        run: the folder of a run.
        page: its page, if there is one, to be named beside statement.json.

    Raises:
        InputError: it is not the folder of a run, the run has not ended, or a file is damaged; names the file.
    """
    record = read_run(run)
    where = ", ".join(str(path) for path in (record.path / "statement.json", page) if path)
    return brief(record.statement, record.ledger.event, stopped=_stopped(record), trouble=trouble(record), where=where)


def _stopped(record: RunRecord) -> str:
    """How far a run came that was stopped, and what became of its key; "" for one that is finished."""
    if record.finished:
        return ""
    said = f"Stopped after {record.ledger.rounds:,} of {record.rounds_planned:,} {record.counted}"
    if record.makes_records:
        said = "Stopped before it could make records"
    if (record.path / "checkpoint" / KEY).exists():
        return f"{said}; its key is still in checkpoint/, and sfumato close deletes it."
    return f"{said}."
