"""Users' texts as a data set: one user's sequences side by side, wherever the records stood in the file.

The file is read once, record by record; what is kept of it are rows of ids, in memory or, with a store, in a file
beside it, and a number for each row that says whose it is.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     play = Path(folder) / "play.txt"
...     _ = play.write_text("ROMEO:\\nIs the day so young?\\n\\nBENVOLIO:\\nBut new struck nine.")
...     text_users(play, text="characters", length=8)
UserDataset(2 users, 6 sequences of 8 tokens, vocabulary of 100)
"""

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Literal

import numpy as np

from sfumato._check import InputError, whole
from sfumato.data.store.save import write_users
from sfumato.data.store.writer import refuse_full
from sfumato.data.strings import Strings
from sfumato.data.tables.look_alikes import look_alikes
from sfumato.data.text.encoding import Encoding, encoding
from sfumato.data.text.records import records
from sfumato.data.users.dataset import UserDataset

Text = Literal["characters", "words"]
_LENGTHS = {"characters": 80, "words": 20}
_WAITING = 1 << 14  # rows that are written in one go
_TOLD = 10_000  # records between calls of progress


def text_users(
    path: Path | str,
    *,
    text: Text,
    vocabulary: Path | str | Sequence[str] | None = None,
    length: int | None = None,
    user: str | None = None,
    input: str | None = None,
    oov_buckets: int = 0,
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """Read texts of users, for models that tell the next token.

    Each record is divided into tokens, gets a beginning and an end, and is cut into sequences of `length` inputs; its
    targets are the tokens behind each of them, so the last of one sequence is the first of the next. What is missing to
    the length is padding, id 0.

    Args:
        path: JSON lines of objects with a user and a text (.jsonl, .ndjson, also .gz), records in any order; or a play
            as plain text, blocks of "Role:" and the lines spoken, whose users are the roles.
        text: tokens are "characters" of a fixed public alphabet (the end of a line and printable ASCII), or lower-case
            "words", numbers and signs of a public vocabulary. Every other token gets one id together.
        vocabulary: of words: a public file with one word a line, or the words; it must not be chosen by looking at the
            records.
        length: inputs a sequence, >= 1; None for 80 characters or 20 words.
        user, input: for JSON lines: the fields of the user and of the text, "user" and "text" by default.
        oov_buckets: of words: tokens outside of the vocabulary get, as inputs, one of so many ids behind all others by
            a public hash, for a model that tells them apart (`models.lstm`); 0 gives them one id together.
        store: a new folder to write the data to, so that memory does not grow with the texts; None keeps them in
            memory. While it is written, the disk holds them twice.
        progress: called with (records read, 0): how many there are is not known before the end.

    Returns:
        inputs and labels int [sequences, length]; classes are the ids, named by their tokens, and inputs may be those
        of buckets behind them. Users in sorted order, each one's sequences in that of the file; who has no token is
        left out.

    Raises:
        InputError: the file is missing, of another kind, not UTF-8 or without text, a line is not as it should be, or
            the vocabulary is missing, empty or has a word twice.
    """
    rule = encoding(text, vocabulary, oov_buckets)
    steps = _LENGTHS[text] if length is None else length
    whole(length=steps)
    if store is not None:
        refuse_full(Path(store))
    source = Path(path)
    numbers: dict[str, int] = {}
    owners = array("q")
    with _Rows(steps + 1, store) as rows:
        for count, (name, said) in enumerate(records(source, user=user, text=input), 1):
            found = rule.sequences(said, steps)
            if len(found):
                owners.extend([numbers.setdefault(name, len(numbers))] * len(found))
                rows.add(found)
            if progress is not None and count % _TOLD == 0:
                progress(count, 0)
        if not numbers:
            raise InputError(f"{source} has no text of any user")
        held = rows.finish()
        names = sorted(numbers)
        rank = np.empty(len(names), np.int64)
        rank[[numbers[name] for name in names]] = np.arange(len(names))
        owner = rank[np.frombuffer(owners, np.int64)]
        order = np.argsort(owner, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(names)))])
        notes = look_alikes(names)
        if store is not None:
            return write_users(
                _users(held, order, offsets, names, rule),
                store,
                (steps,),
                held.dtype,
                target_shape=(steps,),
                label_names=rule.names,
                assumptions=rule.assumptions,
                notes=notes,
            )
        held = held[order]
    return UserDataset(
        inputs=held[:, :-1],
        labels=rule.targets(held[:, 1:]),
        offsets=offsets,
        names=Strings.from_list(names),
        num_classes=rule.size,
        label_names=Strings.from_list(rule.names),
        assumptions=rule.assumptions,
        notes=tuple(notes),
    )


def _users(
    held: np.ndarray, order: np.ndarray, offsets: np.ndarray, names: Sequence[str], rule: Encoding
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each user's name, inputs and targets."""
    for name, start, stop in zip(names, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        rows = held[order[start:stop]]
        yield name, rows[:, :-1], rule.targets(rows[:, 1:])


class _Rows:
    """Rows as they come, int32 [n, width]: in memory, or in a file without a name beside a store."""

    def __init__(self, width: int, store: Path | str | None) -> None:
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

    def __enter__(self) -> "_Rows":
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
