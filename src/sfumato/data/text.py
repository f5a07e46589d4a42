"""From text to token ids by a rule that looks at no other record, so that it costs no privacy.

A text is lower-cased and divided into words, numbers and signs. A token's id is either the BLAKE2b hash of the token,
without a key, reduced to the number of ids; or its line in a vocabulary that is public. Id 0 is padding behind the end
of the text. Counting the private texts to choose the vocabulary would be a query about them, and is not offered.

>>> Tokenizer(vocabulary=1000, length=6).ids(["It rains, it pours."]).tolist()
[[935, 304, 369, 935, 676, 354]]
>>> hashed_id("rains", 1000) == hashed_id("RAINS".lower(), 1000)
True

**Encoding:** which tokens have an id, and a text as sequences of ids in which each token is predicted from those before
it. Ids are laid out as in the StackOverflow and Shakespeare tasks of TensorFlow Federated: 0 is padding, then come the
tokens of the vocabulary, then one id for every other token, one for the beginning of a text and one for its end. The
vocabulary is public: fixed before any record is read, or released under noise (`data.text.uncounted`).

A model that has vectors of its own for words outside of the vocabulary can distinguish them as inputs: with
`oov_buckets` each gets one of so many ids behind all others, by a hash of the word that is the same for everybody. As a
target it is the one id of all other tokens still.

>>> words = Encoding.words(["the", "cat", "sat"])
>>> words.size, words.names
(7, ('<pad>', 'the', 'cat', 'sat', '<oov>', '<bos>', '<eos>'))
>>> words.ids("The cat purred")
[1, 2, 4]
>>> words.sequences("The cat purred", length=3).tolist()    # rows overlap by one token: all but the first are targets
[[5, 1, 2, 4], [4, 6, 0, 0]]
>>> buckets = Encoding.words(["the", "cat", "sat"], oov_buckets=100)
>>> rows = buckets.sequences("The cat purred", length=3)
>>> buckets.size, rows.tolist(), buckets.targets(rows[:, 1:]).tolist()
(7, [[5, 1, 2, 91], [91, 6, 0, 0]], [[1, 2, 4], [6, 0, 0]])

References:
    Weinberger, Dasgupta, Langford, Smola, Attenberg: Feature Hashing for Large Scale Multitask Learning (2009),
    arXiv 0902.2206.
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization. ICLR 2021,
    appendix C.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, whole
from sfumato._types import Assumption, Stated

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
        self.assumptions: tuple[Assumption, ...] = ()
        self._known: dict[str, int] = {}
        self._hashing = isinstance(vocabulary, int | np.integer)
        if isinstance(vocabulary, int | np.integer):
            whole(at_least=2, vocabulary=vocabulary)
            self.size = int(vocabulary)
        else:
            file = Path(vocabulary)
            self._known = {token: UNKNOWN + place for place, token in enumerate(listed_tokens(file), 1)}
            self.size = len(self._known) + 2
            self.assumptions = (Assumption("vocabulary_file", {"file": file.name, "tokens": len(self._known)}),)

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


def checked_tokens(listed: Iterable[str], title: str) -> list[str]:
    """The tokens of a vocabulary, lower-cased, without empty ones.

    Args:
        listed: in the order of their ids.
        title: what to call the vocabulary.

    Raises:
        InputError: there is none, or one is there twice.
    """
    tokens = [lower for token in listed if (lower := token.strip().lower())]
    seen: set[str] = set()
    for token in tokens:
        if token in seen:
            raise InputError(f"{title} has {token!r} twice (tokens are lower-cased); remove one")
        seen.add(token)
    if not tokens:
        raise InputError(f"{title} is empty; write one token a line")
    return tokens


PAD_NAME, OOV_NAME, BOS_NAME, EOS_NAME = "<pad>", "<oov>", "<bos>", "<eos>"
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
"""The characters that have an id: the end of a line and printable ASCII."""


class Encoding:
    """Texts to ids; made by `characters` or `words`.

    Args:
        tokens: those that have an id of their own.
        divide: a text into tokens.
        assumptions: sentences that a guarantee for users of such texts rests on.
        oov_buckets: ids of other tokens as inputs, >= 0; 0 gives them the one that they have as targets.

    Attributes:
        names: of all ids that targets have, as labels of a data set.
        oov, bos, eos: the ids of every other token, of the beginning of a text and of its end.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        divide: Callable[[str], Sequence[str]],
        assumptions: Sequence[Stated] = (),
        oov_buckets: int = 0,
    ) -> None:
        whole(at_least=0, oov_buckets=oov_buckets)
        self.names = (PAD_NAME, *tokens, OOV_NAME, BOS_NAME, EOS_NAME)
        self.assumptions = tuple(assumptions)
        self._known = {token: place for place, token in enumerate(tokens, 1)}
        self._divide = divide
        self._buckets = int(oov_buckets)
        self.oov, self.bos, self.eos = (len(tokens) + place for place in (1, 2, 3))

    @classmethod
    def characters(cls) -> "Encoding":
        """Each character of a text is a token; the alphabet is the same for all data.

        >>> Encoding.characters().size
        100
        """
        return cls(ALPHABET, lambda text: text)

    @classmethod
    def words(cls, vocabulary: Path | str | Sequence[str], *, oov_buckets: int = 0) -> "Encoding":
        """Lower-case words, numbers and signs.

        Args:
            vocabulary: a public file with one token a line, or the tokens.
            oov_buckets: ids of other words as inputs, >= 0; the bucket is a hash of the word.

        Raises:
            InputError: the file is missing, empty, not text, names a token twice or one that is ours, as <oov>; or
                oov_buckets is no whole number >= 0.
        """
        listed = not isinstance(vocabulary, Path | str)
        tokens = checked_tokens(vocabulary, "the vocabulary") if listed else listed_tokens(Path(vocabulary))
        taken = {PAD_NAME, OOV_NAME, BOS_NAME, EOS_NAME}.intersection(tokens)
        if taken:
            raise InputError(f"the vocabulary has {min(taken)}, which has an id of its own; remove it")
        name = "" if listed else f" file {Path(vocabulary).name}"
        public = Assumption("vocabulary_public", {"file": name, "tokens": len(tokens)})
        return cls(tokens, tokens_of, [public], oov_buckets)

    @property
    def size(self) -> int:
        """How many ids targets have; those of buckets come behind them."""
        return len(self.names)

    def id(self, token: str) -> int:
        """The id of one token, as an input."""
        return self._known.get(token) or (self._bucket(token) if self._buckets else self.oov)

    def ids(self, text: str) -> list[int]:
        """The ids of a text's tokens."""
        return [self.id(token) for token in self._divide(text)]

    def targets(self, rows: np.ndarray) -> np.ndarray:
        """Ids as targets have them: all other tokens are one."""
        return np.where(rows < self.size, rows, rows.dtype.type(self.oov)) if self._buckets else rows

    def _bucket(self, token: str) -> int:
        return self.size + hashed_id(token, self._buckets + 1) - 1

    def sequences(self, text: str, length: int) -> np.ndarray:
        """A text's rows, int32 [n, length + 1]; none for a text of no token.

        A row's inputs are all but its last token, its targets (`targets`) all but its first.
        """
        return cut(self.ids(text), length, begin=self.bos, end=self.eos)


def cut(ids: Sequence[int], length: int, *, begin: int, end: int) -> np.ndarray:
    """The ids of a text as rows, int32 [n, length + 1], between its beginning and its end; none for no id."""
    if not ids:
        return np.zeros((0, length + 1), np.int32)
    whole = np.array([begin, *ids, end], np.int32)
    targets = len(whole) - 1
    count = -(-targets // length)
    padded = np.full(count * length + 1, PADDING, np.int32)
    padded[: len(whole)] = whole
    return np.lib.stride_tricks.sliding_window_view(padded, length + 1)[::length]


def encoding(text: str, vocabulary: Path | str | Sequence[str] | None, oov_buckets: int = 0) -> Encoding:
    """The encoding by its name.

    Args:
        text: "characters" or "words".
        vocabulary: of words; None for characters.
        oov_buckets: of words; 0 for characters.

    Raises:
        InputError: as `Encoding.words`, or a vocabulary is missing, or given for characters, or buckets are.
    """
    if text == "words":
        if vocabulary is None:
            raise InputError("words need a public vocabulary: give a file with one word a line (--vocabulary FILE)")
        return Encoding.words(vocabulary, oov_buckets=oov_buckets)
    if text != "characters":
        raise InputError(f"text must be characters or words, got {text!r}")
    if vocabulary is not None:
        raise InputError("characters have a fixed alphabet; leave the vocabulary out, or take words (--text words)")
    if oov_buckets:
        raise InputError(f"oov_buckets is for words, got {oov_buckets} for characters; leave it out")
    return Encoding.characters()
