"""A run in at most eight lines, for the end of a command: the verdict of its page, and where the whole text is."""

from pathlib import Path

from sfumato.accounting.statement.brief import brief
from sfumato.report.learned import trouble
from sfumato.report.record import read_run


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
    return brief(record.statement, record.ledger.event, trouble=trouble(record), where=where)
