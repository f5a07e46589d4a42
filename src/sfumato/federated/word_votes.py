"""Which words a user votes for: a few of the distinct ones, by the user's own name and words alone."""

import hashlib
from collections.abc import Iterable, Mapping

from sfumato._random import RandomSource
from sfumato.data.examples.tokens import tokens_of


def words_by_user(texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The distinct words of each user, from records of a user and a text; memory grows with them."""
    found: dict[str, set[str]] = {}
    for user, text in texts:
        held = tokens_of(text)
        if held:
            found.setdefault(user, set()).update(held)
    return found


def votes_of(user: str, held: set[str], most: int, source: RandomSource) -> list[str]:
    """At most so many of a user's words; nobody else changes which."""
    words = sorted(filter(_is_text, held))
    if len(words) <= most:
        return words
    return [words[place] for place in source.stream("votes", user).permutation(len(words))[:most].tolist()]


def digest(words: Mapping[str, set[str]]) -> str:
    """Of everybody's words, in whatever order they were read."""
    found = hashlib.sha256()
    for user in sorted(words):
        found.update(repr((user, sorted(words[user]))).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _is_text(word: str) -> bool:
    """Whether a file of words can hold it: half of a pair of surrogates, as JSON may have it, is no text."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
