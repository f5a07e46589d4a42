"""From text to token ids by a rule that looks at no other record, so that it costs no privacy.

A text is lower-cased and divided into words, numbers and signs. A token's id is either the BLAKE2b hash of the token,
without a key, reduced to the number of ids; or its line in a vocabulary that is public. Id 0 is padding behind the end
of the text. Counting the private texts to choose the vocabulary would be a query about them, and is not offered.

References:
    Weinberger, Dasgupta, Langford, Smola, Attenberg: Feature Hashing for Large Scale Multitask Learning (2009),
    arXiv 0902.2206.

>>> Tokenizer(vocabulary=1000, length=6).ids(["It rains, it pours."]).tolist()
[[935, 304, 369, 935, 676, 354]]
>>> hashed_id("rains", 1000) == hashed_id("RAINS".lower(), 1000)
True
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, whole

PADDING = 0
UNKNOWN = 1  # the id of words that are not in a vocabulary file
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_REMEMBERED = 1 << 20  # tokens whose ids are kept; bounds the memory


def hashed_id(value: str, size: int) -> int:
    """An id in 1 … size − 1 for any string: BLAKE2b-64 of its UTF-8 bytes, the same everywhere and for ever."""
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "little") % (size - 1)


def tokens_of(text: str) -> list[str]:
    """Lower-case words (with inner apostrophes), numbers, and signs one by one.

    >>> tokens_of("Don't stop: 3.5%")
    ["don't", 'stop', ':', '3', '.', '5', '%']
    """
    return _TOKEN.findall(text.lower())


class Tokenizer:
    """Texts to ids.

    Args:
        vocabulary: number of ids with padding, ≥ 2, for hashing; or a file with one token a line, which is public and
            gets the ids 2, 3, … (1 is for every other token).
        length: ids a text, ≥ 1; a longer text is cut, a shorter one padded with 0.

    Raises:
        InputError: a number is out of range, or the file is missing, empty, not text, or names a token twice.
    """

    def __init__(self, vocabulary: int | Path | str, length: int) -> None:
        whole(length=length)
        self.length = int(length)
        self.assumptions: tuple[str, ...] = ()
        self._known: dict[str, int] = {}
        self._hashing = isinstance(vocabulary, int | np.integer)
        if isinstance(vocabulary, int | np.integer):
            whole(at_least=2, vocabulary=vocabulary)
            self.size = int(vocabulary)
        else:
            file = Path(vocabulary)
            self._known = {token: UNKNOWN + place for place, token in enumerate(listed_tokens(file), 1)}
            self.size = len(self._known) + 2
            self.assumptions = (
                f"The vocabulary file {file.name} ({len(self._known):,} tokens) is assumed to be public: "
                "chosen without looking at the records.",
            )

    def ids(self, texts: Sequence[str]) -> np.ndarray:
        """The ids of some texts, int64 [texts, length]."""
        rows = np.full((len(texts), self.length), PADDING, np.int64)
        for row, text in zip(rows, texts, strict=True):
            ids = [self._id(token) for token in tokens_of(text)[: self.length]]
            row[: len(ids)] = ids
        return rows

    def _id(self, token: str) -> int:
        found = self._known.get(token)
        if found is not None:
            return found
        if not self._hashing:
            return UNKNOWN
        found = hashed_id(token, self.size)
        if len(self._known) < _REMEMBERED:
            self._known[token] = found
        return found


def listed_tokens(file: Path) -> list[str]:
    """The tokens of a vocabulary file, one a line, lower-cased; empty lines do not count.

    Raises:
        InputError: the file is missing, empty, not text, or names a token twice.
    """
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"there is no vocabulary file {file}; give one with a token a line") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as UTF-8 text: {' '.join(str(error).split())}") from None
    return checked_tokens(lines, f"the vocabulary {file}")


def checked_tokens(given: Iterable[str], told: str) -> list[str]:
    """The tokens of a vocabulary, lower-cased, without empty ones.

    Args:
        given: in the order of their ids.
        told: what to call the vocabulary.

    Raises:
        InputError: there is none, or one is there twice.
    """
    tokens = [lower for token in given if (lower := token.strip().lower())]
    seen: set[str] = set()
    for token in tokens:
        if token in seen:
            raise InputError(f"{told} has {token!r} twice (tokens are lower-cased); remove one")
        seen.add(token)
    if not tokens:
        raise InputError(f"{told} is empty; write one token a line")
    return tokens
