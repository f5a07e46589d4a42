"""Closing a run that was stopped: its key is deleted, so that nobody can repeat its noise, and it cannot go on.

Guarantees that what was released stays as it is, ledger and model, and that the statement says so of the key only when
the key is gone.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from sfumato._check import InputError
from sfumato.accounting import Statement
from sfumato.runs import checkpoint as checkpoints
from sfumato.runs.folder import RunFolder
from sfumato.runs.statement import KEY_DELETED


@dataclass(frozen=True)
class Closed:
    """What became of a run.

    Attributes:
        complete: it had run to its end, and nothing was left to do.
        already: it was closed before, and nothing was changed now.
        stated: whether it has a statement; a run that was killed has none.
        round: rounds that its checkpoint holds, or None if it had no loop.
    """

    complete: bool
    already: bool
    stated: bool
    round: int | None


def close_run(path: Path | str) -> Closed:
    """Close a run.

    Args:
        path: its folder.

    Raises:
        InputError: it is not the folder of a run, it is damaged, or another process writes to it.
    """
    folder = RunFolder(path)
    if not (folder.checkpoint / checkpoints.STATE).exists():
        raise InputError(f"{folder.path} holds no checkpoint: it is not the folder of a run that can be closed")
    folder.claim(resume=True)
    try:
        saved = checkpoints.load(folder.checkpoint)
        already = saved.closed and not (folder.checkpoint / checkpoints.KEY).exists()
        if not (saved.complete or saved.closed):
            checkpoints.save(folder.checkpoint, replace(saved, closed=True))
        checkpoints.delete_key(folder.checkpoint)
        if folder.statement.exists():
            statement = Statement.load(folder.statement)
            if not statement.seeded and statement.disclosure["cryptographic_noise"] != KEY_DELETED:
                statement.answer(cryptographic_noise=KEY_DELETED).save(folder.statement)
    except OSError as error:
        raise folder.unwritable(error) from None
    finally:
        folder.release()
    rounds = saved.state.get("round")
    return Closed(saved.complete, already, folder.statement.exists(), rounds if isinstance(rounds, int) else None)
