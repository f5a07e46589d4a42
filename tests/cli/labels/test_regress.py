"""`sfumato labeldp regress`, and ratings in it and in `train`: numbers and classes of an item and a user."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from sfumato.statement import Statement

RANGE = ("--low", 0.5, "--high", 5, "--values", 10)
MODEL = ("--model", "matrix_factorization", "--model-options", "biases=true", "offset=3", "factors=4")
STEPS = ("--epochs", 2, "--batch-size", 64, "--epsilon", 2)
REGRESS = ("labeldp", "regress", *RANGE, *MODEL, *STEPS)
STARS = ("--rating-classes", 1, 2, 3, 4, 5)


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Sixty people, of whom each even one likes the even films, as MovieLens writes it."""
    rng = np.random.default_rng(0)
    rows = ["userId,movieId,rating,timestamp"]
    for user in range(60):
        for film in rng.choice(20, 12, replace=False).tolist():
            rows.append(f"{user + 1},{film + 1},{4.5 if (user + film) % 2 == 0 else 1.5},0")
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def named(films: Path) -> Path:
    """The same with names of its own."""
    path = films.with_name("other.csv")
    path.write_text(films.read_text().replace("userId,movieId,rating,timestamp", "who,film,stars,day"))
    return path


COLUMNS = ("--user", "who", "--item", "film", "--value", "stars")


def test_a_run_leaves_a_model_and_a_statement_and_tells_errors(sfumato, films, tmp_path):
    out = tmp_path / "run"
    done = sfumato(*REGRESS, "--data", films, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "RMSE" in done.out
    statement = Statement.load(out / "statement.json")
    assert (statement.unit, statement.delta) == ("label", 0.0)
    assert 1.999 < statement.epsilon <= 2.0
    assert any("Who rated which item is public" in sentence for sentence in statement.assumptions)
    assert load_file(out / "model.safetensors")["item_factors.weight"].shape == (20, 4)
    assert sfumato("ledger", "verify", out).code == 0
    assert "in bins that are best for the squared loss" in statement.mechanism


def test_columns_by_name_are_the_same_ratings(sfumato, films, tmp_path):
    for path, words, out in ((films, (), "a"), (named(films), COLUMNS, "b")):
        assert sfumato(*REGRESS, "--data", path, *words, "--seed", 1, "--out", tmp_path / out).code == 0
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(np.array_equal(one[key], other[key]) for key in one)


def test_stars_are_classes_of_a_model_in_stages(sfumato, films, tmp_path):
    out = tmp_path / "run"
    words = ("--model", "matrix_factorization", "--model-options", "biases=true", *STEPS, *STARS)
    done = sfumato("labeldp", "train", "--data", films, *words, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "accuracy" in done.out
    assert load_file(out / "model.safetensors")["output.weight"].shape[0] == 5
    plan = json.loads((out / "plan.json").read_text())
    assert plan["about"]["rating_classes"] == [1, 2, 3, 4, 5]


def test_numbers_of_a_table_are_learned_without_ratings(sfumato, tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype(np.float32)
    np.savez(tmp_path / "line.npz", x=x, y=x[:, 0] * 2)
    words = ("--low", -2, "--high", 2, "--model", "lenet300_100", *STEPS, "--epsilon", 8)
    done = sfumato("labeldp", "regress", "--data", tmp_path / "line.npz", *words, "--out", tmp_path / "run")
    assert (done.code, done.err) == (0, "")
    rows = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert rows["trained"]["rmse"] < rows["untrained"]["rmse"]


def test_a_dry_run_states_and_writes_nothing(sfumato, films, tmp_path):
    done = sfumato(*REGRESS, "--data", films, "--out", tmp_path / "run", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "no label was drawn" in " ".join(done.out.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epsilon", 0), "epsilon must be > 0, got 0"),
        (("--low", 5), "low must be below high"),
        (("--rating-classes", 1, 2, "--model-options", "biases=true"), "classes are for sfumato labeldp train"),
        (("--rating-classes", 2, 1), "ascending"),
        (("--user", "who"), "'who'"),
        (("--model", "lenet5"), "lenet5"),
        (("--model-options", "offset=3", "classes=5"), "offset=3 is for values"),
        (("--normalisation", "layer"), "--normalisation is for other models"),
        (("--unbiased", "--loss", "absolute"), "unbiased numbers are for --loss squared"),
        (("--data", "nowhere.csv"), "there is no file nowhere.csv"),
        (("--label", "rating", "--input", "movieId"), "reads ratings, the numbers of an item and a user"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_run(sfumato, films, tmp_path, words, told):
    done = sfumato(*REGRESS, "--data", films, *words, "--out", tmp_path / "run")
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words", [("--rating-classes", 1, 2), ("--value-range", 0, 5), ("--user", "who"), ("--duplicates", "last")]
)
def test_what_is_said_of_ratings_is_refused_where_there_are_none(sfumato, tmp_path, words):
    np.savez(tmp_path / "line.npz", x=np.ones((40, 2), np.float32), y=np.ones(40))
    given = ("--low", 0, "--high", 2, "--model", "lenet300_100", *STEPS, *words)
    done = sfumato("labeldp", "regress", "--data", tmp_path / "line.npz", *given, "--out", tmp_path / "run")
    assert done.code == 2
    assert re.search(rf"{words[0][2:].replace('-', '.')}[ =].* is for (ratings|tables)", done.err)


def test_ratings_without_classes_are_no_classes(sfumato, films, tmp_path):
    words = ("--model", "matrix_factorization", *STEPS, "--out", tmp_path / "run")
    done = sfumato("labeldp", "train", "--data", films, *words)
    assert done.code == 2
    assert "labels must be classes" in done.err
    assert "numbers are for sfumato labeldp regress" in done.err
