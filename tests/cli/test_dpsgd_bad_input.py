"""`sfumato dpsgd`: what is given wrongly is one line that names it, and leaves nothing behind."""

import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from slow import one_in

RUN = ("--steps", 3, "--cohort", 10, "--noise", 1, "--public-classes", "--threads", 1)
TEXTS = ("--model", "bilstm", "--vocabulary", 50, "--length", 6, "--model-options", "hidden=4")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """90 pictures of three classes, 16×16, in one part."""
    rng = np.random.default_rng(0)
    path = tmp_path / "digits.npz"
    np.savez(path, x=rng.integers(0, 256, (90, 16, 16), np.uint8), y=rng.integers(0, 3, 90))
    return path


def write_texts(path: Path, labels: str, header: str = "label,text\n") -> Path:
    rows = "".join(f"{labels[i % len(labels)]},this is text number {i}\n" for i in range(60))
    path.write_text(header + rows)
    return path


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--server.learning-rate", "1e308"), "--server.learning-rate must be in [0, 3e+38]"),
        (("--clipping", "automatic", "--clipping.gamma", "nan"), "--clipping.gamma must be a number, got nan"),
        (("--clipping", "adaptive", "--clipping.learning-rate", "nan"), "--clipping.learning-rate must be a number"),
        (("--clipping.quantile", 0.5), "--clipping.quantile is for --clipping adaptive, and --clipping is flat"),
        (("--clipping.gamma", 0.01), "--clipping.gamma is for --clipping automatic, and --clipping is flat"),
        (("--clipping.shares", 1, 2), "--clipping.shares is for --clipping per_layer"),
        (("--checkpoint-minutes", "nan"), "--checkpoint-minutes must be a number, got nan"),
        (("--checkpoint-minutes", -1), "--checkpoint-minutes must be >= 0"),
        (("--test-share", "inf"), "--test-share must be a share >= 0 and below 1, got inf"),
        (("--validation-share", "nan"), "--validation-share must be a share >= 0 and below 1, got nan"),
        (("--split-seed", -1), "--split-seed must be a whole number >= 0"),
        (("--threads", 99999999999), "threads must be in [1, 1024]"),
        (("--steps", 2.5), "--steps must be a whole number, got 2.5"),
        (("--server.warm-up", "nan"), "--server.warm-up must be a whole number, got nan"),
        (("--server.learning-rate", "fast"), "--server.learning-rate must be a number, got fast"),
        (("--device", "meta"), "device must be cpu, cuda or cuda:<number>, got meta"),
        (("--normalisation", "public_batch"), "give --public-inputs PATH"),
        (("--num-classes", 99999999999), "memory ran out"),
        (("--clipping", "-1"), "--clipping.norm must be > 0, got -1"),
        (("--delta", "nan"), "delta must be a number, got nan"),
        (("--server.momentum", "nan"), "momentum must be a number, got nan"),
        (("--server.ema-decay", "nan"), "--server.ema-decay must be a number, got nan"),
        (("--examples.memory-budget", 0), "--examples.memory-budget must be a whole number >= 1"),
    ],
    ids=str,
)
def test_a_number_that_makes_no_sense(sfumato, digits: Path, tmp_path: Path, words, named: str):
    assert named in sfumato("dpsgd", "--data", digits, *RUN, *words, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--epsilon", -1), "epsilon must be > 0, got -1.0"),
        (("--epsilon", "nan"), "epsilon must be a number, got nan"),
        (("--epsilon", 8, "--clipping", None), "a private run needs clipping"),
        (
            ("--epsilon", 8, "--cohort", 60, "--population", 50),
            "60 units a round cannot be drawn from 50; lower --cohort.size",
        ),
        (("--noise", 1, "--cohort", 60, "--population", 50), "cannot be drawn from 50"),
        (("--noise", 1, "--cohort", 60, "--cohort", "shuffled"), "or one of the two"),
        (("--noise", 1, "--cohort=shuffled", "--cohort", 60), "give --cohort shuffled --cohort.size 10"),
        (("--noise", 1, "--clipping", "adaptive", "--clipping", 1), "--clipping is given as adaptive and as 1"),
        (("--noise", 1, "--cohort", 0), "--cohort.size must be a whole number >= 1, got 0"),
        (("--noise", 1, "--validation-share", 2), "--validation-share must be a share"),
        (("--noise", 1, "--test-share", -1), "--test-share must be a share"),
        (("--noise", 1, "--evaluate-every", 5), "--evaluate-every needs validation data"),
    ],
    ids=str,
)
def test_what_needs_no_data_to_be_refused_is_refused_before_they_are_read(sfumato, monkeypatch, words, named: str):
    def read(*words: object, **settings: object) -> None:
        raise AssertionError("the data were read")

    monkeypatch.setattr("sfumato.cli.training.read_example_parts", read)
    run = ("--steps", 3, "--cohort", 10, "--threads", 1)
    assert named in sfumato("dpsgd", "--data", "digits.npz", *run, *words).line


@pytest.mark.parametrize(
    ("kind", "shape"), one_in(3, [np.float32, np.float64, np.int64], [(16, 16), (1, 16, 16), (16, 16, 1)]), ids=str
)
def test_pictures_that_are_no_bytes(sfumato, tmp_path: Path, kind: type, shape: tuple[int, ...]):
    np.savez(tmp_path / "x.npz", x=np.zeros((90, *shape), kind), y=np.arange(90) % 3)
    line = sfumato("dpsgd", "--data", tmp_path / "x.npz", *RUN, "--out", tmp_path / "run").line
    assert f"lenet5 reads pictures, uint8 [height, width, channels], got {np.dtype(kind)}" in line
    other = ("--model", "lenet300_100", "--out", tmp_path / "other")
    shown = sfumato("dpsgd", "--data", tmp_path / "x.npz", *RUN, *other)
    if kind is np.int64:
        assert "store numbers as float32" in shown.line
    else:
        assert shown.code == 0, shown.err


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "is empty; needed is a row an example: class, text"),
        ("label,text\n", "the data has no examples"),
        ("some words without any class\n" * 9, "at least one other for text, got 1"),
        ("label,text\n0,some words of text\n1\n", "line 3 has 1 columns"),
        ("label,text\n0,some words of text\n,and some more words\n", "line 3: the label is missing"),
    ],
)
def test_texts_that_are_not_there(sfumato, tmp_path: Path, content: str, named: str):
    (tmp_path / "x.csv").write_text(content)
    assert named in sfumato("dpsgd", "--data", tmp_path / "x.csv", *TEXTS, *RUN, "--out", tmp_path / "run").line


def test_texts_need_no_header(sfumato, tmp_path: Path):
    data = write_texts(tmp_path / "x.csv", "01", header="")
    shown = sfumato("dpsgd", "--data", data, *TEXTS, *RUN, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert "60 examples" in shown.out


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more"])
def test_an_npz_that_is_none(sfumato, tmp_path: Path, content: bytes):
    (tmp_path / "x.npz").write_bytes(content)
    line = sfumato("dpsgd", "--data", tmp_path / "x.npz", *RUN, "--out", tmp_path / "run").line
    assert "x.npz cannot be read as npz" in line
    assert "pickle" not in line


def test_a_folder_with_a_broken_picture_or_none(sfumato, people: Path, tmp_path: Path):
    photos = tmp_path / "photos"
    shutil.copytree(people, photos)
    broken = photos / "p03" / "1.png"
    broken.write_bytes(broken.read_bytes()[:60])
    words = ("dpsgd", *RUN, "--model", "lenet300_100")
    line = sfumato(*words, "--data", photos, "--out", tmp_path / "run").line
    assert "p03/1.png is broken" in line
    assert "--on-error skip" in line
    assert sfumato(*words, "--data", photos, "--on-error", "skip", "--out", tmp_path / "run").code == 0
    (tmp_path / "empty").mkdir()
    assert "has no classes" in sfumato(*words, "--data", tmp_path / "empty", "--out", tmp_path / "other").line


def test_a_broken_test_part_is_told_and_not_replaced_by_training_data(sfumato, tmp_path: Path):
    pixels, labels = np.zeros((40, 16, 16), np.uint8), np.arange(40) % 3
    np.savez(tmp_path / "x.npz", x_train=pixels, y_train=labels, x_test=pixels[:9], y_test=labels[:8])
    line = sfumato("dpsgd", "--data", tmp_path / "x.npz", *RUN, "--out", tmp_path / "run").line
    assert "9 rows of inputs and 8 targets" in line


def test_the_embedded_data_are_never_tested_on_what_was_trained(sfumato):
    shown = sfumato("dpsgd", "--data", "glyphs", *RUN, "--dry-run")
    counts = [int(part.split()[0].replace(",", "")) for part in shown.out.splitlines()[1][6:].split("; ")]
    whole = int(shown.out.splitlines()[0].split()[1].replace(",", ""))
    assert sum(counts) == whole
    assert min(counts) > 0


def test_a_class_has_one_number_in_training_and_test_data(sfumato, tmp_path: Path):
    train, test = write_texts(tmp_path / "train.csv", "abc"), write_texts(tmp_path / "test.csv", "cb")
    words = ("dpsgd", "--data", train, *TEXTS, *RUN)
    shown = sfumato(*words, "--test", test, "--out", tmp_path / "run")
    assert "on 60 test examples of 3 classes" in shown.out
    strange = write_texts(tmp_path / "strange.csv", "ad")
    assert "the label 'd' is none of a, b, c" in sfumato(*words, "--test", strange, "--out", tmp_path / "two").line
    pixels = np.zeros((40, 16, 16), np.uint8)
    for name, names in (("train", ["cat", "dog"]), ("other", ["dog", "eel"]), ("more", ["cat", "dog", "eel"])):
        np.savez(tmp_path / f"{name}.npz", x=pixels, y=np.array(names)[np.arange(40) % len(names)])
    words = ("dpsgd", "--data", tmp_path / "train.npz", *RUN, "--out", tmp_path / "three")
    assert "other classes (cat, eel)" in sfumato(*words, "--test", tmp_path / "other.npz").line
    assert "other classes (eel)" in sfumato(*words, "--test", tmp_path / "more.npz").line
    np.savez(tmp_path / "two.npz", x=pixels, y=np.arange(40) % 2)
    np.savez(tmp_path / "five.npz", x=pixels, y=np.arange(40) % 5)
    words = ("dpsgd", "--data", tmp_path / "two.npz", *RUN, "--out", tmp_path / "four")
    assert "the test data have 5 classes, the training data 2" in sfumato(*words, "--test", tmp_path / "five.npz").line


def test_a_run_on_a_store_goes_on_from_the_store(sfumato, tmp_path: Path):
    data, test = write_texts(tmp_path / "x.csv", "01"), write_texts(tmp_path / "test.csv", "01")
    words = ("--data", data, "--test", test, "--store", tmp_path / "store", *TEXTS, *RUN, "--seed", 1)
    assert sfumato("dpsgd", *words, "--out", tmp_path / "run").code == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    again = sfumato("dpsgd", "--resume", tmp_path / "run")
    assert again.code == 0, again.err
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_warning_is_told_once(sfumato, digits: Path, tmp_path: Path):
    shown = sfumato("dpsgd", "--data", digits, *RUN, "--population", 50, "--out", tmp_path / "run")
    assert shown.code == 0
    assert shown.err.count("more examples are present than the declared population 50") == 1


def test_a_run_goes_on_under_its_own_epsilon_and_the_line_names_both(sfumato, digits: Path, contents, tmp_path: Path):
    words = (
        "dpsgd",
        "--data",
        digits,
        "--steps",
        3,
        "--cohort",
        10,
        "--public-classes",
        "--threads",
        1,
        "--seed",
        1,
    )
    for name, budget, told in (
        ("budget", ("--epsilon", 8), "--epsilon 8"),
        ("noise", ("--noise", 1), "a noise multiplier (--noise)"),
    ):
        run = tmp_path / name
        assert sfumato(*words, *budget, "--out", run).code == 0
        before = contents(run)
        line = sfumato("dpsgd", "--resume", run, "--epsilon", 4).line
        assert f"was started with {told}, and goes on under that only, got --epsilon 4" in line
        assert contents(run) == before
    assert sfumato("dpsgd", "--resume", tmp_path / "budget", "--epsilon", 8).code == 0


def test_a_checkpoint_of_another_plan_is_left_as_it_is(sfumato, digits: Path, contents, tmp_path: Path):
    run = tmp_path / "run"
    assert sfumato("dpsgd", "--data", digits, *RUN, "--seed", 1, "--out", run).code == 0
    before = contents(run)
    for words, named in (
        (("--cohort", 30), "--cohort.size 10 → 30"),
        (("--model", "lenet300_100"), "another plan, model or data set"),
        (("--test-share", 0.5), "another plan, model or data set"),
        (("--clipping", "automatic"), "clipping flat → automatic"),
    ):
        assert named in sfumato("dpsgd", "--resume", run, *words).line
    assert "use sfumato dpsgd" in sfumato("fedemb", "--resume", run).line
    assert contents(run) == before


@pytest.mark.slow
def test_ctrl_c_saves_and_tells_how_to_go_on(process, sfumato, digits: Path, tmp_path: Path):
    run, whole = tmp_path / "run", tmp_path / "whole"
    words = ("dpsgd", "--data", digits, "--steps", 100, "--cohort", 10, "--noise", 1, "--seed", 1)
    words += ("--public-classes",)
    child = process(*words, "--checkpoint-every", 2, "--threads", 1, "--out", run)
    deadline = time.monotonic() + 100
    while not (run / "checkpoint" / "state.safetensors").exists():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert child.wait() == 130, child.errors
    assert f"go on with: sfumato dpsgd --resume {run}" in child.errors
    assert sfumato("dpsgd", "--resume", run).code == 0
    assert sfumato(*words, "--threads", 1, "--out", whole).code == 0
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_trained(sfumato, digits: Path, tmp_path: Path):
    (tmp_path / "file").write_text("years of work")
    line = sfumato("dpsgd", "--data", digits, *RUN, "--out", tmp_path / "file" / "run").line
    assert "is not a folder" in line
    assert (tmp_path / "file").read_text() == "years of work"
