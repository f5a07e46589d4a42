"""Users' texts as sequences of tokens, before and after their vocabulary is released.

**Before,** it is not known which words may be released: for a vocabulary that the run itself counts. The texts are cut
as `text_users` cuts them and coded by the list of their own words, which is private. So they are no data set: nothing
here can be trained on by accident. What can is either `blank`, in which every word is <oov> and whose vocabulary is the
four ids that every vocabulary has, or `encoded`, by words that were released.

Memory: the ids of all tokens, a quarter of that for `blank`, and as much again once they are encoded.

>>> import json, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     posts = Path(folder) / "posts.jsonl"
...     _ = posts.write_text("\\n".join(json.dumps({"user": u, "text": "the sea"}) for u in "ab"))
...     texts = uncounted_texts(posts, length=4)
>>> texts.blank
UserDataset(2 users, 2 sequences of 4 tokens, vocabulary of 4)
>>> texts.words_of(["a"]) == {"a": {"sea", "the"}}
True
>>> texts.encoded(["sea"], texts.blank).examples(0)[0].tolist()    # <bos>, <oov>, sea, <eos>
[[3, 2, 1, 4]]

**As a data set:** one user's sequences side by side, wherever the records stood in the file. The file is read once,
record by record; what is kept of it are rows of ids, in memory or, with a store, in a file next to it, and a number for
each row that says whose it is.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     play = Path(folder) / "play.txt"
...     _ = play.write_text("ROMEO:\\nIs the day so young?\\n\\nBENVOLIO:\\nBut new struck nine.")
...     text_users(play, text="characters", length=8)
UserDataset(2 users, 6 sequences of 8 tokens, vocabulary of 100)
"""

import gzip
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

import numpy as np

from sfumato._check import InputError, whole
from sfumato._files import parse_json
from sfumato.data.digest import digest_of
from sfumato.data.mapped import Strings
from sfumato.data.readers.tables import is_table_file, open_rows
from sfumato.data.records import Records, is_text
from sfumato.data.safeguards import name_notes, names_in, refuse_blank, refuse_undecodable_name
from sfumato.data.store.build import write_users
from sfumato.data.store.writer import refuse_full
from sfumato.data.text import PADDING, Encoding, cut, encoding, tokens_of
from sfumato.data.users import UserDataset

# Texts and whose they are, one record after the other: a table, JSON lines, or a play by its roles.
#
# Nothing is kept: a file of any size is read some rows at a time.


LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
PLAYS = (".txt", ".txt.gz", "")
UNDERSTOOD = (
    "a table with a user and a text in each row (.csv, .tsv, .parquet or a folder of them, .jsonl, .ndjson), or a play "
    "as plain text (.txt) with 'Role:' above what each role speaks"
)
_TABLE_ROWS = 4096  # read in one go


def records(path: Path, *, user: str | None, text: str | None) -> Iterator[tuple[str, str]]:
    """Each record's user and text, in the file's order.

    Args:
        path: a table, JSON lines or a play, by its name.
        user, text: the columns of a table, or fields of JSON lines; None takes "user" and "text".

    Raises:
        InputError: there is no such file, it is of another kind, or what it holds is not as it should be; names the
            line.
    """
    name = path.name.lower()
    if not name.endswith(LINES) and path.exists() and is_table_file(path):
        return table_rows(open_rows(path), user or "user", text or "text")
    if not path.is_file():
        raise InputError(f"there is no file {path}; give {UNDERSTOOD}")
    if name.endswith(LINES):
        return json_lines(path, user or "user", text or "text")
    suffix = "".join(path.suffixes[-2:]).lower() if name.endswith(".gz") else path.suffix.lower()
    if suffix not in PLAYS:
        raise InputError(f"{path} cannot be read as texts of users; give {UNDERSTOOD}")
    for field, given in (("user", user), ("input", text)):
        if given is not None:
            raise InputError(f"{field}={given!r} names a column of a table, {path} is a play; leave it out")
    return play(path)


def table_rows(table: Records, user: str, text: str) -> Iterator[tuple[str, str]]:
    """Records of a table with a row each; a missing text is an empty one. Arguments and errors as for `records`."""
    for role, column in (("user", user), ("input", text)):
        if column not in table.names:
            raise InputError(
                f"{table.title} has no column {column!r}; it has {table.has}; name it with {role}= (--{role})"
            )
        table.refuse_absent(role, column)
    if not is_text(table.kind(text)):
        raise InputError(f"{table.title}: the column {text!r} must be texts, got {table.kind(text)}; name another")
    start, as_written = 0, replace(table, read=table.texts or table.read)  # names are texts: 7 and 007 are two
    for block in as_written.blocks([user, text], _TABLE_ROWS):

        def where(row: int, first: int = start) -> str:
            return table.where(first + row)

        found, rows = names_in(block[user], f"the user {user!r}", where)
        names = list(map(str, found))
        for place, name in enumerate(names):
            refuse_undecodable_name(name, "user", where(int((rows == place).argmax())))
        for row, said in zip(rows.tolist(), block[text].to_pylist(), strict=True):
            yield names[row], said or ""  # a missing text has no token
        start += len(rows)


def json_lines(path: Path, user: str, text: str) -> Iterator[tuple[str, str]]:
    """Records of a file with a JSON object a line; arguments and errors as for `records`."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = parse_json(line.encode())
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{path} line {number} is not JSON: {reason}; needed is an object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{path} line {number} is a {type(record).__name__}, not an object with {user} and {text}")
        for role, field in (("user", user), ("input", text)):
            if field not in record:
                raise InputError(
                    f"{path} line {number} has no field {field!r}; it has {', '.join(record) or 'none'}; name the "
                    f"right one with {role}= (--{role})"
                )
        whose, said = record[user], record[text]
        if not isinstance(whose, str | int) or isinstance(whose, bool):
            raise InputError(f"{path} line {number}: {user} must be a text or a whole number, got {_shown(whose)}")
        if not isinstance(said, str):
            raise InputError(f"{path} line {number}: {text} must be a text, got {_shown(said)}")
        name = str(whose)
        refuse_undecodable_name(name, "user", f"{path} line {number}")
        refuse_blank(name, f"the user {user!r}", f"{path} line {number}")
        yield name, said


def play(path: Path) -> Iterator[tuple[str, str]]:
    """The speeches of a play; a block that names no role goes on with the speech before it."""
    role: str | None = None
    speech: list[str] = []
    at_start = True
    for number, line in _lines(path):
        line = line.rstrip()
        if not line:
            at_start = True
            continue
        if at_start and line.endswith(":") and len(line) > 1:
            if role is not None and speech:
                yield role, "\n".join(speech)
            role, speech = line[:-1].strip(), []
            refuse_blank(role, "the role", f"{path} line {number}")
        elif role is None:
            raise InputError(
                f"{path} line {number} has no speaker: a play begins with a role, 'Role:' on a line of its own "
                f"above what it speaks; got {_shown(line)}"
            )
        else:
            speech.append(line)
        at_start = False
    if role is not None and speech:
        yield role, "\n".join(speech)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and their numbers, from 1."""
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig") as content:
            for number, line in enumerate(content, 1):
                yield number, line
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 behind line {number} ({error.reason}); convert it to UTF-8") from None
    except gzip.BadGzipFile:
        raise InputError(f"{path} is not compressed by gzip, as .gz says; compress it, or leave .gz out") from None
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read behind line {number}: {' '.join(str(error).split())[:200]}") from None


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"


# Texts of users cut into rows of ids, and whose each row is: one pass over the records, in any order.
#
# What is kept are the rows, in memory or in a file next to a store, and a number for each row that says whose it is.


LENGTHS = {"characters": 80, "words": 20}
"""Inputs a sequence by default."""


_WAITING = 1 << 14  # rows that are written in one go
_PROGRESS_EVERY = 10_000  # records between calls of progress


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
        if progress is not None and count % _PROGRESS_EVERY == 0:
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
    """Rows as they come, int32 [n, width]: in memory, or in a file without a name next to a store."""

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
            raise InputError(f"the texts cannot be written next to the store: {error.strerror}; make room") from None
        self._waiting, self._count = [], 0


_BLANK = Encoding([], tokens_of)
_FIRST = _BLANK.size
"""The id of the first private word, behind those that every vocabulary has."""


class UncountedTexts:
    """Texts whose vocabulary is not decided; made by `uncounted_texts`.

    Args:
        tokens: the texts' own words; word i has the id 4 + i.
        found: rows of these ids.

    Attributes:
        blank: the same users and sequences without their words: what is split, tried out and checked before the
            vocabulary is released.
    """

    def __init__(self, tokens: Sequence[str], found: Gathered) -> None:
        self._tokens = list(tokens)
        self._coded = found.rows[found.order]
        self._latest: tuple[list[str], Encoding, np.ndarray] | None = None
        blank = np.where(self._coded < _FIRST, self._coded, _BLANK.oov).astype(np.int8)
        self.blank = UserDataset(
            inputs=blank[:, :-1],
            labels=blank[:, 1:],
            offsets=found.offsets,
            names=Strings.from_list(found.names),
            num_classes=_BLANK.size,
            label_names=_BLANK.names,
            notes=tuple(name_notes(found.names)),
        )

    def words_of(self, names: Iterable[str]) -> dict[str, set[str]]:
        """The distinct words of these users, by name.

        Raises:
            InputError: there is no such user.
        """
        place = {name: number for number, name in enumerate(self.blank.names)}
        offsets, found = self.blank.offsets, dict[str, set[str]]()
        for name in names:
            if name not in place:
                raise InputError(f"there is no user {name!r} in these texts; give a view of `blank`")
            ids = np.unique(self._coded[offsets[place[name]] : offsets[place[name] + 1]])
            found[name] = {self._tokens[each - _FIRST] for each in ids[ids >= _FIRST].tolist()}
        return found

    def holds(self, view: UserDataset) -> bool:
        """Whether these are users of `blank`."""
        return isinstance(view, UserDataset) and view.labels is self.blank.labels

    def encoded(self, words: Sequence[str], like: UserDataset) -> UserDataset:
        """Users with their words, as `text_users` reads them with this vocabulary.

        Args:
            words: that have been released.
            like: which users: `blank` or a view of it.

        Raises:
            InputError: `like` is of other texts, or the words are none.
        """
        if not self.holds(like):
            raise InputError("the users to encode are not those of these texts; give `blank` or a part of it")
        if self._latest is None or self._latest[0] != list(words):
            self._latest = list(words), *self._all(words)
        _, rule, rows = self._latest
        return replace(
            like,
            inputs=rows[:, :-1],
            labels=rows[:, 1:],
            num_classes=rule.size,
            label_names=Strings.from_list(rule.names),
        )

    def fingerprint(self) -> str:
        """SHA-256 of all users and their texts."""
        names = Strings.from_list(self.blank.names).arrays
        tokens = Strings.from_list(token.encode("utf-8", "surrogatepass").hex() for token in self._tokens).arrays
        return digest_of("uncounted texts", self._coded, self.blank.offsets, *names, *tokens)

    def summary(self) -> list[str]:
        """Lines for people."""
        size, *rest = self.blank.summary()
        return [size.partition(", vocabulary")[0] + ", whose vocabulary is counted under noise", *rest]

    def _all(self, words: Sequence[str]) -> tuple[Encoding, np.ndarray]:
        """The encoding of these words, and all rows by it."""
        rule = Encoding.words(words)
        special = [PADDING, rule.oov, rule.bos, rule.eos]
        return rule, np.array([*special, *map(rule.id, self._tokens)], np.int32)[self._coded]


def uncounted_texts(
    path: Path | str,
    *,
    length: int | None = None,
    user: str | None = None,
    input: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UncountedTexts:
    """Read texts of users in words, for a run that counts their vocabulary under noise before it trains on them.

    Refused: a record without a name (empty or blank) or with one that is no valid UTF-8, and a key twice in an object.
    Counted in the notes of `blank`: names that differ only in case, blanks, zeros or Unicode form, and names such as
    `NA` that often stand for a missing one. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        path: as for `text_users`, like the others.
        length: inputs a sequence, >= 1; None for 20.
        user, input: the columns, or fields of JSON lines, of the user and of the text.
        progress: called with (records read, 0).

    Raises:
        InputError: the file is missing, of another kind, not UTF-8 or without text, or a line is not as it should be.
    """
    steps = length_of("words", length)
    known: dict[str, int] = {}

    def sequences(text: str) -> np.ndarray:
        ids = [known.setdefault(token, _FIRST + len(known)) for token in tokens_of(text)]
        return cut(ids, steps, begin=_BLANK.bos, end=_BLANK.eos)

    with Rows(steps + 1) as rows:
        found = gather(rows, records(Path(path), user=user, text=input), sequences, Path(path), progress)
    return UncountedTexts(list(known), found)


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
    """Read texts of users, for models that predict the next token.

    Each record is divided into tokens, gets a beginning and an end, and is cut into sequences of `length` inputs; its
    targets are the tokens behind each of them, so the last of one sequence is the first of the next. What is missing to
    the length is padding, id 0.

    Args:
        path: a table, JSON lines or a play, as in `open_users`, records in any order.
        text: tokens are "characters" of a fixed public alphabet (the end of a line and printable ASCII), or lower-case
            "words", numbers and signs of a public vocabulary. Every other token gets one id together.
        vocabulary, length, oov_buckets, progress: as in `open_users`.
        user, input: the columns, or fields of JSON lines, of the user and of the text; "user" and "text" by default.
        store: a new folder to write the data to; while it is written, the disk holds them twice.

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
