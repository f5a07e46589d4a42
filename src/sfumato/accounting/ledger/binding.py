"""What binds a statement to its ledger: each names the other, so that neither can be exchanged, cut or changed alone.

The statement holds the number of entries that it was made of and the hash of the last one. The entry behind them, the
seal, holds the statement's digest, and those of the files that were released with it. Guarantees that a difference
between the two is found and told. It cannot show that somebody has written both anew: keep the head elsewhere for that.
Answers that the author of a run gave (`Statement.answer`) are no part of the digest.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from sfumato._check import InputError
from sfumato.accounting.ledger.totals import Totals
from sfumato.accounting.statement.statement import Statement


def digests(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by name, for the seal; those that are not there are left out."""
    found = {}
    for path in files:
        if path.is_file():
            with open(path, "rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def compare(totals: Totals, statement: Statement, folder: Path) -> bool:
    """Hold a statement against the ledger beside it, both ways, and the files that were released with them.

    Args:
        totals: what the ledger adds up to.
        statement: the statement in the same folder.
        folder: where they are; files that a bundle leaves out are not missed.

    Returns:
        whether the two name each other; False where neither names anything, as when they were written by hand.

    Raises:
        InputError: they do not belong together, or a file was exchanged; says which.
    """
    named = statement.ledger
    if named is None and not totals.seals:
        return False
    where = f"statement.json and ledger.jsonl in {folder} do not belong together: "
    remedy = "; take a whole copy of the folder"
    if named is None:
        raise InputError(f"{where}the ledger names a statement, and this one names no ledger{remedy}")
    if totals.entries < named["entries"]:
        raise InputError(
            f"{where}the ledger has {totals.entries} entries, and the statement was made of {named['entries']}; lines "
            f"were cut off{remedy}"
        )
    seal = next((seal for seal in totals.seals if seal.entries == named["entries"]), None)
    if seal is None:
        raise InputError(f"{where}the ledger's entry {named['entries'] + 1} should name the statement{remedy}")
    if seal.head != named["head"]:
        raise InputError(f"{where}the ledger is another one, or was written anew{remedy}")
    if seal.statement != statement.digest:
        raise InputError(f"{where}the statement is another one, or was changed{remedy}")
    for name, digest in digests(folder / name for name in seal.files if "/" not in name).items():
        if digest != seal.files[name]:
            raise InputError(f"{folder / name} is not the file that its statement was made for: it was changed{remedy}")
    return True
