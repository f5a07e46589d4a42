"""Token ids depend on the token alone, or on a vocabulary that is said to be public."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    Tokenizer,
)
from sfumato.data.text import hashed_id, tokens_of


def test_token_ids_are_blake2_of_the_token_and_nothing_else() -> None:
    tokenizer = Tokenizer(vocabulary=500, length=4)
    digest = hashlib.blake2b(b"rain", digest_size=8).digest()
    assert hashed_id("rain", 500) == 1 + int.from_bytes(digest, "little") % 499
    alone = tokenizer.ids(["RAIN rain"])
    assert alone[0].tolist() == [hashed_id("rain", 500)] * 2 + [0, 0]
    np.testing.assert_array_equal(Tokenizer(500, 4).ids(["a b c d e f", "RAIN rain"])[1], alone[0])
    ids = Tokenizer(2, 3).ids(["one two"])
    assert ids.tolist() == [[1, 1, 0]]


def test_hashed_ids_are_spread_evenly() -> None:
    counts = np.bincount([hashed_id(f"word{i}", 101) for i in range(20_000)], minlength=101)
    assert counts[0] == 0  # padding
    chi2 = ((counts[1:] - 200) ** 2 / 200).sum()
    assert 50 < chi2 < 170  # 99 degrees of freedom: 6 in 10^5 beyond either end


def test_a_vocabulary_file_is_public_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("the\nFear\n\nnaïve\n")
    tokenizer = Tokenizer(file, 5)
    assert tokenizer.size == 5
    assert tokenizer.ids(["The naïve fear nothing"]).tolist() == [[2, 4, 3, 1, 0]]
    assert tokenizer.assumptions[0] == Assumption("vocabulary_file", {"file": "words.txt", "tokens": 3})
    file.write_text("a\nA\n")
    with pytest.raises(InputError, match="'a' twice"):
        Tokenizer(file, 5)
    file.write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        Tokenizer(file, 5)
    with pytest.raises(InputError, match="no vocabulary file"):
        Tokenizer(tmp_path / "none", 5)
    with pytest.raises(InputError, match="vocabulary must be a whole number >= 2, got 1"):
        Tokenizer(1, 5)


def test_tokens_are_words_numbers_and_signs() -> None:
    assert tokens_of("It's 3 O'Clock…NOW!") == ["it's", "3", "o'clock", "…", "now", "!"]
