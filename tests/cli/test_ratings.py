"""Ratings and words outside of the vocabulary from the command line."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from sfumato._check import InputError
from sfumato.cli.sources import DataOptions

ROWS = "who,film,stars,day\nbo,17,3.5,2\nal,4,5,1\nbo,4,1,1\nbo,17,4,3\n"
NAMED = {"user": "who", "item": "film", "value": "stars", "time": "day"}


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "table.csv").write_text(ROWS)
    (tmp_path / "items.txt").write_text("4\n17\n99\n")
    return str(tmp_path / "table.csv")


def test_a_table_with_named_columns_is_read_as_ratings(table: str, tmp_path: Path) -> None:
    options = DataOptions(**NAMED, items=tmp_path / "items.txt", value_range=(0.5, 5), duplicates="mean")
    users = options.load(table, None, None)
    assert repr(users) == "UserDataset(2 users, 3 values of 3 items)"
    assert users.examples(1)[1].tolist() == [1.0, 3.75]
    with pytest.raises(InputError, match="two ratings of the item '17'"):
        DataOptions(**NAMED).load(table, None, None)
    with pytest.raises(InputError, match="outside of"):
        DataOptions(**NAMED, value_range=(2, 5)).load(table, None, None)
    with pytest.raises(InputError, match="size=8 is for pictures"):
        DataOptions(**NAMED).load(table, 8, None)


@pytest.mark.parametrize("name", ["ratings.csv", "other.csv"])
def test_movielens_is_known_by_its_columns(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("userId,movieId,rating,timestamp\n1,2,3.5,4\n2,2,1.0,4\n")
    assert repr(DataOptions().load(str(tmp_path / name), None, None)) == "UserDataset(2 users, 2 values of 1 items)"
    pictures = DataOptions(user="userId", input="movieId", label="timestamp")
    assert not pictures.load(str(tmp_path / name), None, None).of_values  # named as another table, it is one


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "glyphs", "--duplicates", "last"), "duplicates='last' is for ratings"),
        (("--data", "{table}", "--user", "who", "--time", "day"), "time='day' is for ratings"),
        (("--data", "{table}", "--item", "film"), "which column is the user? say --user COLUMN"),
        (("--data", "{table}", "--text", "words", "--item", "film"), "text='words' is for texts of users"),
        (("--data", "glyphs", "--oov-buckets", 3), "--oov-buckets 3 is for texts"),
        (("--data", "{table}", "--text", "characters", "--oov-buckets", 3), "--oov-buckets is for words"),
    ],
)
def test_options_of_other_records_are_refused_in_one_line(sfumato, words: tuple, told: str, table: str) -> None:
    words = tuple(str(word).format(table=table) for word in words)
    shown = sfumato("fedavg", *words, "--noise", 0)
    assert shown.code == 2
    assert told in shown.err
    assert shown.err.count("\n") == 1


def test_an_lstm_gets_vectors_for_the_buckets_of_its_data(sfumato, tmp_path: Path) -> None:
    posts = [{"user": f"u{i % 6}", "text": f"the word{i} is hot"} for i in range(24)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, posts)))
    (tmp_path / "words.txt").write_text("the\nis\nhot\n")
    words = ("--text", "words", "--vocabulary", tmp_path / "words.txt", "--oov-buckets", 20, "--length", 5)
    model = ("--model", "lstm", "--model-options", "hidden=8", "--embedding-dim", 4)
    run = ("--rounds", 2, "--cohort", 3, "--noise", 1, "--test-share", 0, "--seed", 1)
    shown = sfumato("fedavg", "--data", tmp_path / "posts.jsonl", *words, *model, *run, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert weights["oov_embedding.weight"].shape == (20, 4)
    assert weights["embedding.weight"].shape == (7, 4)
