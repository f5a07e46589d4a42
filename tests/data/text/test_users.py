"""Users' texts as a data set."""

import json
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import UserDataset, from_arrays, open_users, split_labels, split_users, write_store


def posts(folder: Path, records: list[tuple[str, str]]) -> Path:
    file = folder / "posts.jsonl"
    file.write_text("\n".join(json.dumps({"user": user, "text": text}) for user, text in records))
    return file


def texts_of(users: UserDataset, user: str) -> str:
    """What a user wrote, from the ids."""
    _, labels = users.examples(list(users.user_ids).index(user))
    names = list(users.label_names or ())
    return "".join(names[i] for i in labels.reshape(-1) if i).replace("<eos>", "|")


MANY = [(f"user{i % 7}", f"text {i} of {'x' * (i % 50)}") for i in range(200)]


def test_records_of_one_user_are_gathered_from_all_over_the_file(tmp_path: Path):
    mixed = MANY.copy()
    random.Random(0).shuffle(mixed)
    users = open_users(posts(tmp_path, mixed), text="characters", length=16)
    assert list(users.user_ids) == [f"user{i}" for i in range(7)]
    for name in users.user_ids:
        assert texts_of(users, name) == "".join(f"{text}|" for user, text in mixed if user == name)


def test_a_store_holds_what_memory_would(tmp_path: Path):
    file = posts(tmp_path, MANY)
    inside = open_users(file, text="characters", length=16)
    stored = open_users(file, text="characters", length=16, store=tmp_path / "posts.store")
    again = open_users(tmp_path / "posts.store", verify=True)
    rows = sum(-(-(len(text) + 1) // 16) for _, text in MANY)  # the end of a text is a token
    for users in (stored, again, write_store(again, tmp_path / "copy.store")):
        assert repr(users) == repr(inside) == f"UserDataset(7 users, {rows} sequences of 16 tokens, vocabulary of 100)"
        assert list(users.label_names or ()) == list(inside.label_names or ())
        for user in range(7):
            for one, other in zip(users.examples(user), inside.examples(user), strict=True):
                assert np.array_equal(one, other)
        whole = users.examples_of(np.array([5, 2]))
        assert whole[1].shape == whole[0].shape == (int(whole[2].sum()), 16)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_memory_does_not_grow_with_the_texts_where_a_store_is_written(tmp_path: Path):
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps({"user": i % 500, "text": "x" * 4000}) + "\n" for i in range(2000)))
    tracemalloc.start()
    stored = open_users(file, text="characters", length=80, store=tmp_path / "many.store")
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stored.num_examples * 81 * 4 > 30e6
    assert found < 20e6


def test_users_without_a_token_are_left_out(tmp_path: Path):
    users = open_users(posts(tmp_path, [("a", "x"), ("b", ""), ("c", "y")]), text="characters")
    assert list(users.user_ids) == ["a", "c"]
    with pytest.raises(InputError, match="has no text of any user"):
        open_users(posts(tmp_path, [("b", "")]), text="characters")


def test_a_length_is_a_whole_number(tmp_path: Path):
    with pytest.raises(InputError, match="length must be a whole number >= 1, got 0"):
        open_users(posts(tmp_path, MANY), text="characters", length=0)


def test_parts_share_the_vocabulary(tmp_path: Path, recwarn):
    users = open_users(posts(tmp_path, MANY), text="characters", length=16)
    split = split_users(users, test=["user3"])
    assert [part.num_classes for part in split] == [100, 100, 100]
    assert (len(split.train), list(split.test.user_ids)) == (6, ["user3"])
    assert not recwarn
    with pytest.raises(InputError, match="use split_users"):
        split_labels(users)
    with pytest.raises(InputError, match="no class can be left out"):
        users.select_classes([1])


def test_another_text_shows_in_the_fingerprint(tmp_path: Path):
    one = open_users(posts(tmp_path, MANY), text="characters", length=16).fingerprint()
    assert one == open_users(posts(tmp_path, MANY), text="characters", length=16).fingerprint()
    other = [*MANY[:-1], (MANY[-1][0], MANY[-1][1] + "!")]
    assert one != open_users(posts(tmp_path, other), text="characters", length=16).fingerprint()


def test_arrays_of_tokens_need_names_for_the_whole_vocabulary():
    tokens = np.array([[3, 1, 2], [1, 2, 0]])
    users = from_arrays(tokens, np.array([[1, 2, 0], [2, 0, 0]]), ["a", "b"], label_names=["", "x", "y", "z"])
    assert users.of_sequences
    assert users.num_classes == 4
    for names, inputs in ((None, tokens), (["", "x", "y"], tokens), (["", "x", "y", "z"], tokens / 2)):
        with pytest.raises(InputError, match="labels of every token need inputs that are ids and label_names"):
            from_arrays(inputs, tokens * 0 + 1, ["a", "b"], label_names=names)


def test_unknown_words_are_told_apart_as_inputs_and_are_one_as_targets(tmp_path: Path):
    rng = random.Random(0)
    said = [
        (f"u{i % 3}", " ".join(rng.choice(["the", "cat", "sat", "purred", "miaowed", "zzz"]) for _ in range(9)))
        for i in range(30)
    ]
    file, words = posts(tmp_path, said), ["the", "cat", "sat"]
    plain = open_users(file, text="words", vocabulary=words, length=4)
    buckets = open_users(file, text="words", vocabulary=words, length=4, oov_buckets=1000)
    stored = open_users(file, text="words", vocabulary=words, length=4, oov_buckets=1000, store=tmp_path / "s")
    assert buckets.num_classes == plain.num_classes == 7
    found = set()
    for user in range(3):
        (before, targets), (inputs, same) = plain.examples(user), buckets.examples(user)
        assert np.array_equal(targets, same)
        assert np.array_equal(np.where(inputs >= 7, 4, inputs), before)
        found |= set(inputs[inputs >= 7].tolist())
        for one, other in zip(stored.examples(user), (inputs, same), strict=True):
            assert np.array_equal(one, other)
    assert len(found) == 3
    assert max(found) < 1007


def test_buckets_are_for_words(tmp_path: Path):
    file = posts(tmp_path, MANY)
    with pytest.raises(InputError, match="oov_buckets is for words"):
        open_users(file, text="characters", oov_buckets=3)
    with pytest.raises(InputError, match="oov_buckets must be a whole number >= 0"):
        open_users(file, text="words", vocabulary=["a"], oov_buckets=-1)
