"""Texts of users cut into rows of ids, and whose each row is: one pass over the records, in any order.

What is kept are the rows, in memory or in a file beside a store, and a number for each row that says whose it is.
"""

import tempfile
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from sfumato._check import InputError, whole

LENGTHS = {"characters": 80, "words": 20}
"""Inputs a sequence where nobody chose."""

_WAITING = 1 << 14  # rows that are written in one go
_TOLD = 10_000  # records between calls of progress


@dataclass(frozen=True)
class Gathered:
    """Rows in the order of the records, and where each user's are.

    Attributes:
        rows: int32 [n, length + 1].
        order: int64 [n], places of rows, one user's side by side.
        offsets: int64 [users + 1]: user u owns the rows order[offsets[u]] … order[offsets[u + 1] - 1].
        names: of the users, sorted.
    """

    rows: np.ndarray
    order: np.ndarray
    offsets: np.ndarray
    names: list[str]


def length_of(text: str, length: int | None) -> int:
    """Inputs a sequence: as given, or what tokens of this kind have by themselves."""
    steps = LENGTHS[text] if length is None else length
    whole(length=steps)
    return steps


def gather(
    held: "Rows",
    records: Iterable[tuple[str, str]],
    sequences: Callable[[str], np.ndarray],
    source: Path,
    progress: Callable[[int, int], None] | None,
) -> Gathered:
    """Cut every text and remember whose it is; who has no token is left out.

    Args:
        held: where the rows go.
        records: users and texts, see `data.text.records`.
        sequences: cuts a text into rows int32 [n, length + 1].
        source: where the records are from, for messages.
        progress: called with (records read, 0): how many there are is not known before the end.

    Raises:
        InputError: there is no text of any user.
    """
    numbers: dict[str, int] = {}
    owners = array("q")
    for count, (name, said) in enumerate(records, 1):
        found = sequences(said)
        if len(found):
            owners.extend([numbers.setdefault(name, len(numbers))] * len(found))
            held.add(found)
        if progress is not None and count % _TOLD == 0:
            progress(count, 0)
    if not numbers:
        raise InputError(f"{source} has no text of any user")
    names = sorted(numbers)
    rank = np.empty(len(names), np.int64)
    rank[[numbers[name] for name in names]] = np.arange(len(names))
    owner = rank[np.frombuffer(owners, np.int64)]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(names)))])
    return Gathered(held.finish(), np.argsort(owner, kind="stable"), offsets, names)


class Rows:
    """Rows as they come, int32 [n, width]: in memory, or in a file without a name beside a store."""

    def __init__(self, width: int, store: Path | str | None = None) -> None:
        self._width = width
        self._file: IO[bytes] | None = None
        self._waiting: list[np.ndarray] = []
        self._count = self._total = 0
        if store is not None:
            folder = Path(store).absolute().parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            except OSError as error:
                raise InputError(f"{folder} cannot be written: {error.strerror}; choose another folder") from None

    def __enter__(self) -> "Rows":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: np.ndarray) -> None:
        self._waiting.append(rows)
        self._count += len(rows)
        self._total += len(rows)
        if self._file is not None and self._count >= _WAITING:
            self._write(self._file)

    def finish(self) -> np.ndarray:
        """All rows, in their order."""
        if self._file is None:
            return np.concatenate(self._waiting)
        self._write(self._file)
        self._file.flush()
        return np.memmap(self._file, np.int32, "r", shape=(self._total, self._width))

    def _write(self, file: IO[bytes]) -> None:
        try:
            file.writelines(np.ascontiguousarray(rows).data for rows in self._waiting)
        except OSError as error:
            raise InputError(f"the texts cannot be written beside the store: {error.strerror}; make room") from None
        self._waiting, self._count = [], 0
