"""Tokens' ids, and texts as sequences of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import Encoding
from sfumato.data.text import encoding


@given(st.text(max_size=60), st.integers(1, 30))
@settings(deadline=None)
def test_every_token_of_a_text_is_told_once_and_from_all_before_it_in_its_row(text: str, length: int):
    rule = Encoding.characters()
    rows = rule.sequences(text, length)
    assert rows.shape[1] == length + 1
    told = rows[:, 1:][rows[:, 1:] != 0]
    if text:
        assert told.tolist() == [*rule.ids(text), rule.names.index("<eos>")]
        assert rows[0, 0] == rule.names.index("<bos>")
        assert (rows[1:, 0] == rows[:-1, -1]).all()
    else:
        assert len(rows) == 0


def test_padding_stands_behind_the_end_only():
    rows = Encoding.characters().sequences("abcdefg", 5)
    there = rows[:, 1:] != 0
    assert (np.diff(there.astype(int), axis=1) <= 0).all()


def test_characters_beyond_the_alphabet_share_one_id():
    rule = Encoding.characters()
    oov = rule.names.index("<oov>")
    assert rule.ids("é\t名") == [oov] * 3
    assert [rule.names[i] for i in rule.ids("A b~\n")] == list("A b~\n")


def test_words_are_lower_case_and_unknown_ones_share_one_id():
    rule = Encoding.words(["rain", "it", "."])
    assert rule.ids("It RAINS. It rain.") == [2, 4, 3, 2, 1, 3]
    assert rule.names == ("<pad>", "rain", "it", ".", "<oov>", "<bos>", "<eos>")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("rain\nsun\nRain", "has 'rain' twice"),
        ("rain\n<oov>", "has <oov>, which has an id of its own"),
    ],
)
def test_a_vocabulary_of_no_use_is_refused(tmp_path, content: str, told: str):
    (tmp_path / "words.txt").write_text(content)
    with pytest.raises(InputError, match=told):
        Encoding.words(tmp_path / "words.txt")
    with pytest.raises(InputError, match=told):
        Encoding.words(content.split("\n"))


def test_words_without_a_vocabulary_and_characters_with_one_are_refused(tmp_path):
    with pytest.raises(InputError, match="words need a public vocabulary"):
        encoding("words", None)
    with pytest.raises(InputError, match="leave the vocabulary out"):
        encoding("characters", tmp_path / "words.txt")
