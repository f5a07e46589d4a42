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

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from sfumato.data.safeguards import name_notes
from sfumato.data.store.save import write_users
from sfumato.data.store.writer import refuse_full
from sfumato.data.strings import Strings
from sfumato.data.text.encoding import Encoding, encoding
from sfumato.data.text.records import records
from sfumato.data.text.rows import Gathered, Rows, gather, length_of
from sfumato.data.users.dataset import UserDataset

Text = Literal["characters", "words"]


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

    Refused: a record without a name (empty or blank) or with one that is no valid UTF-8, and a key twice in an object.
    Counted in `notes`: names that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often
    stand for a missing one. The rule is that of all readers, `sfumato.data.safeguards`.

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
    steps = length_of(text, length)
    if store is not None:
        refuse_full(Path(store))
    source = Path(path)
    with Rows(steps + 1, store) as rows:
        texts = records(source, user=user, text=input)
        found = gather(rows, texts, lambda said: rule.sequences(said, steps), source, progress)
        notes = name_notes(found.names)
        if store is not None:
            return write_users(
                _users(found, rule),
                store,
                (steps,),
                found.rows.dtype,
                target_shape=(steps,),
                label_names=rule.names,
                assumptions=rule.assumptions,
                notes=notes,
            )
        held = found.rows[found.order]
    return UserDataset(
        inputs=held[:, :-1],
        labels=rule.targets(held[:, 1:]),
        offsets=found.offsets,
        names=Strings.from_list(found.names),
        num_classes=rule.size,
        label_names=Strings.from_list(rule.names),
        assumptions=rule.assumptions,
        notes=tuple(notes),
    )


def _users(found: Gathered, rule: Encoding) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each user's name, inputs and targets."""
    for name, start, stop in zip(found.names, found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True):
        rows = found.rows[found.order[start:stop]]
        yield name, rows[:, :-1], rule.targets(rows[:, 1:])
