"""Texts of users in words, before it is known which words may be told: for a vocabulary that the run itself counts.

The texts are cut as `text_users` cuts them and coded by the list of their own words, which is private. So they are no
data set: nothing here can be trained on by accident. What can is either `blank`, in which every word is <oov> and whose
vocabulary is the four ids that every vocabulary has, or `encoded`, by words that were released.

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
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.digest import digest_of
from sfumato.data.examples.tokens import tokens_of
from sfumato.data.safeguards import name_notes
from sfumato.data.strings import Strings
from sfumato.data.text.encoding import PADDING, Encoding, cut
from sfumato.data.text.records import records
from sfumato.data.text.rows import Gathered, Rows, gather, length_of
from sfumato.data.users.dataset import UserDataset

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
        user, input: for JSON lines: the fields of the user and of the text.
        progress: called with (records read, 0).

    Raises:
        InputError: the file is missing, of another kind, not UTF-8 or without text, or a line is not as it should be.
    """
    steps = length_of("words", length)
    known: dict[str, int] = {}

    def sequences(said: str) -> np.ndarray:
        ids = [known.setdefault(token, _FIRST + len(known)) for token in tokens_of(said)]
        return cut(ids, steps, begin=_BLANK.bos, end=_BLANK.eos)

    with Rows(steps + 1) as rows:
        found = gather(rows, records(Path(path), user=user, text=input), sequences, Path(path), progress)
    return UncountedTexts(list(known), found)
