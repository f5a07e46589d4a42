"""What a tallier keeps in its folder: its key, and what it was asked.

`tallier.key` is the key of its noise. `questions/NAME.json` has the question that was asked under a token, from before
its noise is drawn: with it the key's name of every tallier and the digest of the shares, so that nobody can have other
ballots or other noise under the same token; and, once they are opened, the answers. All is readable by the owner only.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato._files import read_json, write_atomic, write_json
from sfumato._random import RandomSource


class Memory:
    """A tallier's folder, of which no other process is the tallier now.

    Args:
        folder: is made if it is missing.
        seed: for simulation: the key is derived from it, and kept nowhere.
        place: of this tallier, from 1; talliers of one seed have different keys.
    """

    def __init__(self, folder: Path, *, seed: int | None, place: int) -> None:
        self._made = not folder.exists()
        (folder / "questions").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{folder} is the folder of a tallier that runs; give each tallier its own") from None
        self.source = self._key() if seed is None else RandomSource.from_seed(seed).within(f"tallier {place}")

    @property
    def name(self) -> str:
        """Of the key; tells nothing of it. A tallier that lost its folder has another one."""
        return hashlib.sha256(b"sfumato tallier" + self.source.key).hexdigest()

    def discard(self) -> None:
        """Take the folder away again, if it was made here: nobody was told the name of its key."""
        if self._made:
            shutil.rmtree(self._folder)

    def recall(self, token: str) -> dict[str, Any] | None:
        """What is known of a token: `question`, `names`, `digest`, and `answers` if they were opened."""
        path = self._path(token)
        try:
            return read_json(path) if path.exists() else None
        except ValueError as error:
            raise InputError(f"{path} cannot be read ({error}); ask under a new token") from None

    def keep(self, token: str, known: dict[str, Any]) -> None:
        """Remember it, also after a power cut."""
        write_json(self._path(token), known, private=True)

    def _key(self) -> RandomSource:
        path = self._folder / "tallier.key"
        if not path.exists():
            write_atomic(path, secrets.token_bytes(32), private=True)
        key = path.read_bytes()
        if len(key) != 32:
            raise InputError(f"{path} is no key of 32 bytes; give a new folder, under which no old question is known")
        return RandomSource(key, "os")

    def _path(self, token: str) -> Path:
        return self._folder / "questions" / f"{hashlib.sha256(token.encode()).hexdigest()}.json"
