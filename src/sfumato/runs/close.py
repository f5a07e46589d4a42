"""Closing a run that was stopped: its key is deleted, so that nobody can repeat its noise, and it cannot go on.

Guarantees that what was released stays as it is, ledger and model, and that the statement says so of the key only when
the key is gone: of the statement, that one answer changes, and no number.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from sfumato._check import InputError
from sfumato.accounting import Statement
from sfumato.runs import checkpoint as checkpoints
from sfumato.runs.folder import RunFolder
from sfumato.runs.statement import KEY_CLOSED, KEY_DELETED


@dataclass(frozen=True)
class Closed:
    """What became of a run.

    Attributes:
        complete: it had run to its end, and nothing was left to do.
        already: it was closed before, and nothing was changed now.
        key: whether a key was there, and was deleted; a seeded run has none.
        stated: whether it has a statement; a run that was killed has none.
        answered: whether the statement's answer about the key was changed.
        round: rounds that its checkpoint holds, or None if it had no loop.
    """

    complete: bool
    already: bool
    key: bool
    stated: bool
    answered: bool
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
        key = (folder.checkpoint / checkpoints.KEY).exists()
        already, answered = saved.closed and not key, False
        if not (saved.complete or saved.closed):
            checkpoints.save(folder.checkpoint, replace(saved, closed=True))
        checkpoints.delete_key(folder.checkpoint)
        if folder.statement.exists():
            statement = Statement.load(folder.statement)
            answer = KEY_DELETED if saved.complete else KEY_CLOSED
            if not statement.seeded and statement.disclosure["cryptographic_noise"] != answer:
                statement.answer(cryptographic_noise=answer).save(folder.statement)
                answered = True
    except OSError as error:
        raise folder.unwritable(error) from None
    finally:
        folder.release()
    rounds = saved.state.get("round")
    return Closed(
        complete=saved.complete,
        already=already,
        key=key,
        stated=folder.statement.exists(),
        answered=answered,
        round=rounds if isinstance(rounds, int) else None,
    )
