"""Texts before their vocabulary is known: what is told of them, and that they become what text_users reads."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfumato import data
from sfumato._check import InputError

POSTS = [("bo", "The sea is calm"), ("al", "a SUN, a sail"), ("bo", "sun; sun"), ("cy", " "), ("al", "don't")]


def written(path: Path, posts: list[tuple[str, str]] = POSTS) -> Path:
    path.write_text("\n".join(json.dumps({"user": user, "text": text}) for user, text in posts))
    return path


@pytest.mark.parametrize("words", [["sea", "sun"], ["elsewhere"], ["don't", ",", "a", "is", "the", "calm", "sail"]])
def test_encoded_by_released_words_they_are_what_is_read_with_that_vocabulary(tmp_path: Path, words: list[str]):
    file = written(tmp_path / "posts.jsonl")
    texts = data.uncounted_texts(file, length=3)
    ours, theirs = texts.encoded(words, texts.blank), data.open_users(file, text="words", vocabulary=words, length=3)
    assert list(ours.user_ids) == list(theirs.user_ids) == ["al", "bo"]
    assert list(ours.label_names) == list(theirs.label_names)
    assert ours.num_classes == theirs.num_classes == len(words) + 4
    for user in range(2):
        for one, other in zip(ours.examples(user), theirs.examples(user), strict=True):
            assert np.array_equal(one, other)
    assert ours.fingerprint() == theirs.fingerprint()
    assert theirs.assumptions
    assert not ours.assumptions  # nobody has to take a counted vocabulary for public


def test_without_a_vocabulary_nothing_tells_one_word_from_another(tmp_path: Path):
    one, other = (
        data.uncounted_texts(written(tmp_path / f"{name}.jsonl", posts), length=3)
        for name, posts in (("a", POSTS), ("b", [(user, text.replace("sun", "moon")) for user, text in POSTS]))
    )
    assert one.blank.fingerprint() == other.blank.fingerprint()
    assert one.fingerprint() != other.fingerprint()
    inputs, labels, _ = one.blank.examples_of(np.arange(2))
    assert set(np.unique(inputs)) == {0, 1, 2, 3}
    assert set(np.unique(labels)) == {0, 1, 3}


def test_views_keep_their_users_and_what_divided_them(tmp_path: Path):
    texts = data.uncounted_texts(written(tmp_path / "posts.jsonl"), length=3)
    part = data.split_users(texts.blank, test=["al"])
    told = replace(part.train, assumptions=("somebody chose the parts",))
    train, test = (texts.encoded(["sun"], view) for view in (told, part.test))
    assert (list(train.user_ids), list(test.user_ids)) == (["bo"], ["al"])
    assert train.assumptions == ("somebody chose the parts",)
    assert (train.examples(0)[0] == 1).sum() == 2
    assert np.shares_memory(train.labels, test.labels)  # encoded once


def test_words_are_those_of_the_users_who_were_named(tmp_path: Path):
    texts = data.uncounted_texts(written(tmp_path / "posts.jsonl"), length=3)
    assert texts.words_of(["bo"]) == {"bo": {"the", "sea", "is", "calm", "sun", ";"}}
    with pytest.raises(InputError, match="no user 'cy'"):
        texts.words_of(["cy"])


def test_users_of_other_texts_are_refused(tmp_path: Path):
    file = written(tmp_path / "posts.jsonl")
    one, other = (data.uncounted_texts(file) for _ in range(2))
    with pytest.raises(InputError, match="not those of these texts"):
        one.encoded(["sun"], other.blank)
