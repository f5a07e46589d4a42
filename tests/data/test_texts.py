"""Texts: of users, with a class each, as ids by a public rule, and before their vocabulary is known."""

import gzip
import hashlib
import json
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato import data
from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    Encoding,
    Tokenizer,
    UserDataset,
    from_arrays,
    open_examples,
    open_users,
    split_labels,
    split_users,
    write_store,
)
from sfumato.data.readers.text_users import records, text_users, uncounted_texts
from sfumato.data.text import encoding, hashed_id, tokens_of

# Tokens' ids, and texts as sequences of them.


@given(st.text(max_size=60), st.integers(1, 30))
@settings(deadline=None)
def test_every_token_of_a_text_is_reported_once_and_from_all_before_it_in_its_row(text: str, length: int):
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


# Readers of texts and whose they are.


def read(path: Path, user: str | None = None, text: str | None = None) -> list[tuple[str, str]]:
    return list(records(path, user=user, text=text))


def test_a_speech_belongs_to_the_role_above_it(tmp_path: Path):
    play = tmp_path / "play.txt"
    play.write_text("A LORD:\nGood morrow.\nTo thee: well met.\n\n\nAll:\nHail!\n\nA LORD:\nAgain,\n\nand on.\n")
    assert read(play) == [
        ("A LORD", "Good morrow.\nTo thee: well met."),
        ("All", "Hail!"),
        ("A LORD", "Again,\nand on."),
    ]


def test_a_role_that_says_nothing_is_no_record(tmp_path: Path):
    play = tmp_path / "play.txt"
    play.write_text("Ghost of GREY:\n\nGhost of RIVERS:\n\nAll:\nAwake!")
    assert read(play) == [("All", "Awake!")]


def test_a_line_that_ends_with_a_colon_within_a_speech_is_no_role(tmp_path: Path):
    play = tmp_path / "play.txt"
    play.write_text("MARCIUS:\nHang ye! Trust Ye?\nAnd say:\nnobody.\n")
    assert read(play) == [("MARCIUS", "Hang ye! Trust Ye?\nAnd say:\nnobody.")]


@pytest.mark.parametrize("name", ["posts.jsonl", "posts.ndjson", "posts.jsonl.gz"])
def test_json_lines_are_read_packed_or_not(tmp_path: Path, name: str):
    lines = [{"user": "bo", "text": "one"}, {"user": 7, "text": "two", "title": None}]
    content = "\n\n".join(map(json.dumps, lines)).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read(tmp_path / name) == [("bo", "one"), ("7", "two")]


def test_fields_of_other_names_are_read(tmp_path: Path):
    (tmp_path / "posts.jsonl").write_text('{"who": "bo", "said": "one"}')
    assert read(tmp_path / "posts.jsonl", user="who", text="said") == [("bo", "one")]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", "\n\nTo be, or not to be", r"line 3 has no speaker.*'Role:'"),
        ("a.jsonl", '{"user": "a", "text": "b"}\n[1]', "line 2 is a list, not an object with user and text"),
        ("a.jsonl", '{"user": "a", "text": "b"}\n\n{"user"', "line 3 is not JSON"),
        ("a.jsonl", '{"user": "a", "body": "b"}', r"line 1 has no field 'text'; it has user, body; .*--input"),
        ("a.jsonl", '{"text": "b"}', r"line 1 has no field 'user'; it has text; .*--user"),
        ("a.jsonl", '{"user": null, "text": "b"}', "line 1: user must be a text or a whole number, got None"),
        ("a.jsonl", '{"user": "a", "text": 3}', "line 1: text must be a text, got 3"),
        (
            "a.jsonl",
            '{"user": "a\\ud800", "text": "b"}',
            r"line 1: the name of the user 'a\\ud800' is no valid UTF-8",
        ),
        # two halves that are the bytes of another name: both would be read back as "é"
        ("a.jsonl", '{"user": "\\udcc3\\udca9", "text": "b"}', r"the user '\\udcc3\\udca9' is no valid UTF-8"),
        ("a.csv", "user,text\n,b", r"the user 'user' is missing .* at .*a.csv line 2"),
        ("a.csv", "user,body\na,b", r"no column 'text'; it has user, body; .*--input"),
        ("a.csv", "who,text\na,b", r"no column 'user'; it has who, text; .*--user"),
        ("a.docx", "user,text", "cannot be read as texts of users; give a table"),
    ],
)
def test_what_is_not_as_it_should_be_is_named_with_its_line(tmp_path: Path, name: str, content: str, told: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        read(tmp_path / name)


POSTS_TABLE = {"who": ["007", "7", "bo", "7"], "said": ["The sea, again", "two", None, "three"]}


@pytest.mark.parametrize("name", ["posts.csv", "posts.tsv", "posts.csv.gz", "posts.parquet"])
def test_texts_in_tables_are_those_of_json_lines(tmp_path: Path, name: str):
    rows = [{"user": who, "text": said or ""} for who, said in zip(*POSTS_TABLE.values(), strict=True)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    frame = pd.DataFrame(POSTS_TABLE)
    if name == "posts.parquet":
        frame.to_parquet(tmp_path / name)
    else:
        frame.to_csv(tmp_path / name, index=False, sep="\t" if ".tsv" in name else ",")
    assert read(tmp_path / name, user="who", text="said") == read(tmp_path / "posts.jsonl")
    users = text_users(tmp_path / name, text="characters", user="who", input="said")
    assert users.fingerprint() == text_users(tmp_path / "posts.jsonl", text="characters").fingerprint()
    counted = uncounted_texts(tmp_path / name, user="who", input="said")
    assert counted.fingerprint() == uncounted_texts(tmp_path / "posts.jsonl").fingerprint()


def test_a_column_of_texts_must_hold_texts(tmp_path: Path):
    pd.DataFrame({"user": ["a"], "text": [3]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="the column 'text' must be texts, got int64"):
        read(tmp_path / "a.parquet")


def test_columns_are_for_tables_only(tmp_path: Path):
    (tmp_path / "a.txt").write_text("All:\nHail!")
    with pytest.raises(InputError, match="user='who' names a column of a table"):
        read(tmp_path / "a.txt", user="who")


def test_a_file_that_is_cut_off_is_refused_in_one_line(tmp_path: Path):
    whole = gzip.compress(b'{"user": "a", "text": "b"}\n' * 5000)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be read behind line"):
        read(tmp_path / "a.jsonl.gz")
    (tmp_path / "b.txt").write_bytes(b"All:\n\xff\xfe")
    with pytest.raises(InputError, match=r"is not UTF-8 behind line 0 .*convert it"):
        read(tmp_path / "b.txt")
    (tmp_path / "c.jsonl.gz").write_text('{"user": "a", "text": "b"}')
    with pytest.raises(InputError, match=r"not compressed by gzip.*leave \.gz out"):
        read(tmp_path / "c.jsonl.gz")


# Users' texts as a data set.


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


def test_unknown_words_are_distinguished_as_inputs_and_are_one_as_targets(tmp_path: Path):
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


# Texts before their vocabulary is known: what is told of them, and that they become what text_users reads.

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


def test_without_a_vocabulary_nothing_reports_one_word_from_another(tmp_path: Path):
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


# Token ids depend on the token alone, or on a vocabulary that is said to be public.


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


# Texts with a class each: every header and label, in memory or in a store, and bad rows in one line.


@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n", "title,text,label\n"])
def test_texts_are_found_with_or_without_a_header(tmp_path: Path, header: str) -> None:
    rows = [("3", "Fears, for pension", "after talks"), ("1", 'The "race"', "is on and on")]
    order = (1, 2, 0) if header.startswith("title") else (0, 1, 2)
    lines = [",".join('"' + row[i].replace('"', '""') + '"' for i in order) for row in rows]
    (tmp_path / "t.csv").write_text(header + "\n".join(lines) + "\n")
    data = open_examples(tmp_path / "t.csv", length=8, vocabulary=1000)
    assert data.targets.tolist() == [1, 0]
    assert list(data.label_names or ()) == ["1", "3"]
    assert data.vocabulary_sizes == (1000,)
    words = ["fears", ",", "for", "pension", "after", "talks"]
    assert data.examples([0])[0][0].tolist() == [[*(hashed_id(word, 1000) for word in words), 0, 0]]


def test_labels_found_in_order_of_their_numbers_and_declared_ones_in_theirs(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("".join(f"{label}\ta few words here\n" for label in (10, 2, 10, 1)))
    assert list(open_examples(tmp_path / "t.tsv").label_names or ()) == ["1", "2", "10"]
    data = open_examples(tmp_path / "t.tsv", label_names=[10, 2, 1, 0])
    assert data.targets.tolist() == [0, 1, 0, 2]
    assert data.num_classes == 4
    assert data.assumptions == ()
    with pytest.raises(InputError, match=r"t\.tsv line 2: the label '2' is none of 10, 1; add it"):
        open_examples(tmp_path / "t.tsv", label_names=[10, 1])


def test_texts_written_to_a_store_are_those_in_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.writelines(f'{"bca"[i % 3]},"word{i} and word{i % 7}"\n' for i in range(9000))
    memory = open_examples(tmp_path / "t.csv.gz", length=6)
    stored = open_examples(tmp_path / "t.csv.gz", length=6, store=tmp_path / "store")
    assert stored.fingerprint() == memory.fingerprint() == open_examples(tmp_path / "store").fingerprint()
    assert open_examples(tmp_path / "store").vocabulary_sizes == (1 << 15,)
    assert memory.targets[:4].tolist() == [1, 2, 0, 1]
    assert not (tmp_path / "store.writing").exists()


def test_memory_does_not_grow_with_the_texts_of_a_store(tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 40_000):
        file = tmp_path / f"{count}.csv"
        with open(file, "w") as out:
            out.writelines(f"{i % 2},some words of text number {i % 100}\n" for i in range(count))
        tracemalloc.start()
        open_examples(file, length=64, store=tmp_path / f"store{count}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    ids = 35_000 * 64 * 8
    assert peaks[1] - peaks[0] < 0.15 * ids  # the labels alone stay in memory


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {"length": 9}, "is empty"),
        ("label,text\n", {"length": 9}, "no examples"),
        ("1,some words\n2\n", {}, "line 2 has 1 columns, the first row has 2"),
        ("1,some words\n,other words\n", {"length": 9}, "line 2: the label is missing"),
        ("1\n2\n", {"length": 9}, "at least one other for text, got 1"),
        ("1,words\n", {"label": "topic", "text": [1]}, "has no header, so there is no column 'topic'"),
        ("label,text\n1,words\n", {"label": "topic", "text": [1]}, "no column 'topic'; it has label, text"),
        ("1,words\n", {"label": 2}, r"has the columns 0 … 1, got 2"),
        ("1,words\n", {"length": 0}, "length must be a whole number >= 1, got 0"),
        ("1,words\n", {"label_names": [], "length": 9}, "list the classes"),
        ("1,words\n", {"label_names": [1, "1"], "length": 9}, "declared twice"),
        ("1,words\n", {"delimiter": ";;"}, "delimiter must be one character"),
        ("1,w\xe4rds\n".encode("latin-1"), {}, "is not UTF-8 at line 1"),
        (("1,words\n" * 6 + "1,w\xe4rds\n").encode("latin-1"), {}, "is not UTF-8 at line 7"),
    ],
)
def test_bad_texts_are_refused_in_one_line(tmp_path: Path, content, options, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        open_examples(tmp_path / "t.csv", **options)
    assert "\n" not in str(caught.value)


def test_a_failed_reading_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,some words\n2\n")
    with pytest.raises(InputError, match="line 2"):
        open_examples(tmp_path / "t.csv", store=tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_fields_longer_than_the_csv_module_allows_are_read_and_blank_lines_passed_over(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1," + "a " * 100_000 + "\n" + "\n" * 5000 + "2,b\n")
    assert open_examples(tmp_path / "t.csv", length=3).targets.tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.shared
def test_ag_news_is_read_as_published(shared: Path) -> None:
    data = open_examples(shared / "ag_news_test.csv", length=32)
    assert len(data) == 7600
    assert data.class_counts().tolist() == [1900] * 4
    (ids,), _ = data.examples([0])
    words = ["fears", "for", "t", "n", "pension", "after", "talks", "unions"]
    assert ids[0, :8].tolist() == [hashed_id(word, 1 << 15) for word in words]
