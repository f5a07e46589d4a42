"""Mistakes on the command line are one line each, which names the value and a remedy, and leave nothing behind."""

import contextlib
import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from sfumato.cli import main as cli
from slow import one_in

# Bad input: each kind is one clear line with exit code 2, and what was there before is as it was.


NOISE = ("--noise", 1)


@pytest.fixture
def train(sfumato, small, tmp_path: Path):
    """`train(data, *more)`: a small FedEmb run into tmp_path / "run"."""

    def run(folder: Path, *more: object):
        return sfumato("fedemb", "--data", folder, *small, *NOISE, "--out", tmp_path / "run", *more)

    return run


def test_a_process_says_it_in_one_line_too(tmp_path: Path):
    """As a user starts it: nothing was loaded before."""
    words = [sys.executable, "-m", "sfumato", "fedemb", "--data", tmp_path / "none", *NOISE]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sfumato: there is nothing at")
    assert done.stderr.count("\n") == 1


def test_no_users(train, tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert str(empty) in train(empty).line
    (empty / "p00").mkdir()
    assert "no users" in train(empty).line


def test_one_user(train, photos, tmp_path: Path):
    assert "1 user; a private sum needs at least 2" in train(photos(1, 4)).line
    line = train(photos(2, 4), "--test-share", 0.3).line  # one of them, by the hash of p00
    assert "2 users, and 1 user left to train on" in line
    assert "--test-share 0" in line
    assert not (tmp_path / "run").exists()


def test_users_with_one_image_can_form_no_pair(train, photos, tmp_path: Path):
    people = photos(12, 1)
    line = train(people).line
    assert "no two of the 4 examples to measure on are of one class" in line
    assert "--test-share 0" in line
    assert not (tmp_path / "run").exists()
    shown = train(people, "--test-share", 0)
    assert shown.code == 0
    assert "12 of 12 users have a single example" in shown.out
    assert "no test data, so nothing was measured" in shown.out


def test_a_file_that_is_no_picture_is_named_or_skipped_and_counted(train, photos):
    people = photos(12, 4)
    (people / "p03" / "1.png").write_bytes((people / "p03" / "0.png").read_bytes()[:60])
    (people / "p05" / "notes.txt").write_text("shy")
    assert "is not a picture" in train(people).line
    (people / "p05" / "notes.txt").unlink()
    assert "p03/1.png is broken" in train(people).line
    shown = train(people, "--on-error", "skip")
    assert shown.code == 0
    assert "skipped 1 file" in shown.out


def test_weights_that_are_not_there_are_named_before_any_picture_is_read(train, photos):
    people = photos(12, 4)
    (people / "p03" / "1.png").write_text("shy")  # reading would stop here
    assert train(people, "--weights", "none.safetensors").line == "none.safetensors: no such file of weights"


def test_mixed_sizes_and_channels_need_a_word(train, photos):
    people = photos(12, 4)
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(people / "p01" / "0.png")
    assert "20×20" in train(people).line
    Image.fromarray(np.zeros((12, 12, 3), np.uint8)).save(people / "p01" / "0.png")
    assert "RGB" in train(people).line
    assert train(people, "--size", 12, "--channels", 1).code == 0


def test_labels_that_users_share_are_reported(train, photos, tmp_path: Path):
    flat, people = photos(12, 4), tmp_path / "shared"
    for user in flat.iterdir():
        for image in user.iterdir():
            kind = people / user.name / image.stem
            kind.mkdir(parents=True)
            shutil.copy(image, kind / "a.png")
            shutil.copy(image, kind / "b.png")
    shared = train(people)
    assert shared.code == 0
    assert shared.err.startswith("sfumato: warning: 4 of 4 classes are in train and in validation or test")
    assert shared.err.count("\n") == 1
    shutil.rmtree(tmp_path / "run")
    own = train(people, "--labels", "per_user")
    assert (own.code, own.err) == (0, "")
    shutil.rmtree(tmp_path / "run")
    assert train(people, "--split-by", "label", "--test-share", 0.5).err == ""


def test_a_cohort_larger_than_the_population(train, people: Path, tmp_path: Path):
    line = train(people, "--cohort", 10, "--cohort.users-per-client", 2).line
    assert "10 clients × 2 users = 20 users a round, but there are 11" in line
    assert not (tmp_path / "run").exists()


def test_a_budget_out_of_reach(sfumato, people: Path, small, tmp_path: Path):
    words = ("fedemb", "--data", people, *small, "--out", tmp_path / "run", "--delta", 1e-9)
    line = sfumato(*words, "--epsilon", 1e-6).line
    assert "out of reach" in line
    assert "the smallest" in line


def test_a_run_whose_privacy_no_one_chose(sfumato, people: Path):
    line = sfumato("fedemb", "--data", people).line
    assert all(choice in line for choice in ("--epsilon", "--noise 1", "--noise 0"))
    assert "not both" in sfumato("fedemb", "--data", people, "--epsilon", 3, *NOISE).line


def test_a_delta_that_is_not_small_is_reported(train, people: Path):
    shown = train(people, "--delta", 0.2)
    assert shown.code == 0
    assert shown.err.startswith("sfumato: warning: delta 0.2 is not well below 1/11; leave it out for ")
    assert "delta" in shown.out


def test_a_client_whose_delta_is_not_finite_counts_as_zero_and_is_counted(train, people: Path, tmp_path: Path):
    assert train(people, "--client.learning-rate", 1e30, "--client.epochs", 3, "--seed", 1).code == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any(row["not_private"]["non_finite"] for row in rows)


def test_a_model_that_is_not_finite_stops_the_run(train, people: Path, tmp_path: Path):
    ended = train(people, "--server.learning-rate", 1e38, "--server.momentum", 0.99, "--rounds", 40)
    *warnings, line = ended.err.splitlines()  # whether there is a warning before it is a matter of the draw
    assert ended.code == 2
    assert line.startswith("sfumato: the model became NaN or infinite")
    assert all(each.startswith("sfumato: warning: ") for each in warnings)
    assert (tmp_path / "run" / "plan.json").exists()


@pytest.mark.parametrize("occupied", ["run", "thesis", "file"])
def test_an_output_that_is_taken(sfumato, people: Path, finished: Path, small, contents, tmp_path: Path, occupied):
    out = tmp_path / "taken"
    if occupied == "run":
        shutil.copytree(finished, out)
    elif occupied == "thesis":
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")
    else:
        out.write_text("years of work")
    before = contents(tmp_path)
    words = ("fedemb", "--data", people, *small, *NOISE, "--out", out)
    expected = {"run": "--resume", "thesis": "not empty", "file": "not a folder"}[occupied]
    assert expected in sfumato(*words).line
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--client.learning-rate", 0.1), "--client.learning-rate 0.005 → 0.1"),
        (("--rounds", 9), "rounds 3 → 9"),
        (("--embedding-dim", 9), "another plan, model or data set"),
        (("--test-share", 0.5), "another plan, model or data set"),
        (("--noise", 0), "--noise.noise-multiplier 1 → 0"),
        (("--epsilon", 2), "was started with a noise multiplier (--noise)"),
    ],
)
def test_a_checkpoint_of_another_plan(sfumato, finished: Path, contents, tmp_path: Path, words, named):
    shutil.copytree(finished, tmp_path / "run")
    before = contents(tmp_path)
    assert named in sfumato("fedemb", "--resume", tmp_path / "run", *words).line
    assert contents(tmp_path) == before


def test_a_run_of_another_command_or_none(sfumato, finished: Path, people: Path, tmp_path: Path):
    assert "use sfumato fedemb" in sfumato("fedavg", "--resume", finished).line
    assert "holds no plan.json" in sfumato("fedemb", "--resume", people).line
    assert "--resume RUN or --out DIR" in sfumato("fedemb", "--resume", finished, "--out", tmp_path / "x").line


@pytest.mark.parametrize("damage", ["truncated", "changed", "ledger cut", "ledger changed", "plan cut", "gone"])
def test_a_damaged_run_is_not_gone_on_with(sfumato, finished: Path, contents, tmp_path: Path, damage):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    checkpoint = next((run / "checkpoint").glob("state*"))
    if damage == "truncated":
        checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    elif damage == "changed":
        content = bytearray(checkpoint.read_bytes())
        content[-1] ^= 1
        checkpoint.write_bytes(content)
    elif damage == "ledger cut":
        lines = (run / "ledger.jsonl").read_text().splitlines(keepends=True)
        (run / "ledger.jsonl").write_text("".join(lines[:-2]))  # the seal alone would be written again
    elif damage == "ledger changed":
        text = (run / "ledger.jsonl").read_text()
        (run / "ledger.jsonl").write_text(text.replace('"clip_norm":1.0', '"clip_norm":9.0', 1))
    elif damage == "plan cut":
        (run / "plan.json").write_text('{"plan": "fed')
    else:
        checkpoint.unlink()
    before = contents(run)
    assert str(run) in sfumato("fedemb", "--resume", run).line or damage == "ledger cut"
    assert contents(run) == before


def test_a_disk_that_fills_up_leaves_the_checkpoint_before(process, sfumato, finished: Path, people, small, tmp_path):
    run = tmp_path / "run"
    words = ("fedemb", "--data", people, *small, *NOISE, "--seed", 3, "--checkpoint-every", 1, "--out", run)

    # Room for the first checkpoint (parameters only), not for the next (parameters and momentum).
    size = int((finished / "model.safetensors").stat().st_size * 1.5)
    child = process(size, *words, script=Path(__file__).with_name("no_room.py"))
    assert child.wait() == 2, child.errors
    assert child.errors.count("\n") == 1
    assert "the checkpoint before it is intact" in child.errors
    assert sfumato("fedemb", "--resume", run).code == 0
    entries = [(folder / "ledger.jsonl").read_bytes().splitlines() for folder in (run, finished)]
    assert entries[0][:-1] == entries[1][:-1]  # the last names the plan, which tells how often to save
    ours, theirs = load_file(run / "model.safetensors"), load_file(finished / "model.safetensors")
    assert all((ours[name] == theirs[name]).all() for name in theirs)


# `sfumato dpsgd`: what is given wrongly is one line that names it, and leaves nothing behind.


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


def test_a_broken_test_part_is_reported_and_not_replaced_by_training_data(sfumato, tmp_path: Path):
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


def test_a_warning_is_reported_once(sfumato, digits: Path, tmp_path: Path):
    shown = sfumato("dpsgd", "--data", digits, *RUN, "--population", 50, "--out", tmp_path / "run")
    assert shown.code == 0
    assert shown.err.count("more examples are present than the declared population 50") == 1


@pytest.mark.slow
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
def test_ctrl_c_saves_and_reports_how_to_go_on(process, sfumato, digits: Path, tmp_path: Path):
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


def test_a_stop_that_an_import_swallowed_still_stops_before_the_run(
    sfumato, digits: Path, tmp_path: Path, monkeypatch, sigint
):
    def swallowed(options: object, data: object) -> object:
        with contextlib.suppress(KeyboardInterrupt):  # as imports of other packages do
            signal.raise_signal(signal.SIGINT)
        return options

    monkeypatch.setattr("sfumato.cli.training.with_usual_model", swallowed)
    shown = sfumato("dpsgd", "--data", digits, *RUN, "--out", tmp_path / "run")
    assert shown.code == 130
    assert "stopped before the run began, so no folder was made" in shown.err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_made_is_reported_before_anything_is_trained(sfumato, digits: Path, tmp_path: Path):
    (tmp_path / "file").write_text("years of work")
    line = sfumato("dpsgd", "--data", digits, *RUN, "--out", tmp_path / "file" / "run").line
    assert "is not a folder" in line
    assert (tmp_path / "file").read_text() == "years of work"


# Words and files that nobody should give: each is one line that is true, names it and tells what to do.


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("account", "--steps", "it's"), "--steps must be a whole number, got it's;"),
        (("account", "--steps", "0x10"), "--steps must be a whole number, got 0x10;"),
        (("account", "--steps", ""), "--steps must be a whole number, got '';"),
        (("account", "--steps", HUGE), "--steps must be a whole number, got 99999"),
        (("account", "--steps=1e-3"), "--steps must be a whole number, got 1e-3;"),
        (("account", "--steps", "1e400"), "--steps must be a whole number, got 1e400;"),
        (("account", "--steps", "1.5e0"), "--steps must be a whole number, got 1.5e0;"),
        (("account", "--noise-multiplier", "१.५.१"), "--noise-multiplier must be a number, got १.५.१;"),
        (("account", "--noise-multiplier", "1e400"), "--noise-multiplier must be >= 0 and finite, got inf"),
        (("account", "--noise-multiplier", "nan"), "--noise-multiplier must be a number, got nan"),
        (("extrapolate", "--populations", "3e6", "many"), "--populations must be a number, got many;"),
        (("account", "--event", "a\0b"), "must be text in UTF-8"),
        (("ledger", "show", "a\0b"), "must be text in UTF-8"),
        (("data", "glyphs", "caf\udce9"), "word 3 of the command, 'caf\\udce9', must be text in UTF-8"),
        (("account", "@file"), "@file"),
        (("account", "--=3"), "there is no option --;"),
        (("dpsgd", "--data", ".", "--epsilon", 3), "has no classes"),
        (("fedemb", "--data", ".", "--epsilon", 3), "is none of: a packed store"),
        (("embed", ".", "x", "--out", "."), "."),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_a_wild_word_is_named(sfumato, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words, named: str):
    monkeypatch.chdir(tmp_path)
    assert named in sfumato(*words).line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("account", "x" * 200_000), ("x" * 200_000,), ("account", "--event", "x" * 200_000)])
def test_a_very_long_word_is_reported_by_its_ends(sfumato, words):
    assert len(sfumato(*words).line) < 700


def test_of_an_option_that_is_given_twice_the_last_counts(sfumato):
    words = ("account", "--noise-multiplier", 1, "--noise-multiplier", 2, "--json")
    assert '"noise_multiplier": 2.0' in sfumato(*words).out


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.yaml", b"[" * 1000, "nested too deep"),
        ("a.yaml", b"{a: " * 5000, "nested too deep"),
        ("a.json", b'{"a":' * 100_000, "nested too deep"),
        ("a.yaml", b"steps:\t3\n\tdelta: 1\n", "cannot be read as yaml"),
        ("a.yaml", b"plot: caf\xe9.svg\n", "is no text in UTF-8; save it so"),
        ("a.json", b'{"plot": "caf\xe9.svg"}', "is no text in UTF-8; save it so"),
        ("a.json", b'{"steps": ' + HUGE.encode() + b"}", "cannot be read as json"),
        ("a.yaml", b'"": 3\n', "there is no option ''"),
        ("a.yaml", b"stepps: 3\n", "there is no option stepps (did you mean steps?)"),
        ("a.yaml", b'plot: "a\\0b"\n', "plot"),
    ],
)
def test_a_settings_file_that_is_none(sfumato, tmp_path: Path, name: str, content: bytes, named: str):
    (tmp_path / name).write_bytes(content)
    line = sfumato("account", "--noise-multiplier", 1, "--config", tmp_path / name).line
    assert line.startswith(str(tmp_path / name))
    assert named in line


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOENT, "No such file", "a/b"), "a/b: No such file; give a path that exists"),
        (OSError(errno.EACCES, "Permission denied", "a"), "a: Permission denied; give a path that you may use"),
        (OSError(errno.ENOSPC, "No space left", "a"), "a: No space left; make room on the disk and run it again"),
        (OSError("something else"), "something else"),
        (MemoryError("Unable to allocate 3.5 GiB for an array"), "memory ran out (3.5 GiB were asked for); lower"),
        (MemoryError(), "memory ran out; lower the sizes and counts that were given, or make room"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "(9 bytes were"),
    ],
)
def test_what_ran_out_is_reported_and_nothing_else(sfumato, monkeypatch: pytest.MonkeyPatch, error, expected: str):
    def fails(words: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", fails)
    line = sfumato("account").line
    assert expected in line
    assert ("memory" in line) == ("memory" in expected or "bytes" in expected)
    assert ("disk" in line) == ("disk" in expected)


def test_an_error_of_ours_is_not_dressed_up_as_memory(sfumato, monkeypatch: pytest.MonkeyPatch):
    def fails(words: object) -> int:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(cli, "_dispatch", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        sfumato("account")


# Messages on the command line name options, propose what helps, and know what a user may have meant.


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--cohort", 10, "--cohort.users-per-client", 2, *NOISE),
            "lower --cohort.size or --cohort.users-per-client",
        ),
        (
            ("--cohort.users-per-client", 1, "--cohort", 2, *NOISE),
            "--cohort.users-per-client > 1, or --client.head.classes global",
        ),
        (("--clipping", "None", *NOISE), "or use --noise 0 for a run without privacy"),
        (
            ("--trainable", "all", "--cohort", 2, "--cohort.users-per-client", 2, "--prefix-cache", "c", *NOISE),
            "or leave out --prefix-cache",
        ),
    ],
)
def test_fields_are_reported_as_options(sfumato, people: Path, tmp_path: Path, monkeypatch, words, told: str):
    monkeypatch.chdir(tmp_path)
    line = sfumato("fedemb", "--data", people, *words).line
    assert told in line
    assert "(--prefix-cache)" not in line


def test_a_settings_file_is_reported_by_its_own_names(sfumato, people: Path, tmp_path: Path):
    file = tmp_path / "plan.yaml"
    file.write_text("roundz: 2\n")
    line = sfumato("fedemb", "--data", people, "--config", file).line
    assert "there is no option roundz (did you mean rounds?)" in line


@pytest.mark.parametrize("name", ["--dash", "-dash"])
def test_a_user_whose_name_begins_with_a_dash_is_found(sfumato, photos, finished: Path, tmp_path: Path, name: str):
    people, out = photos(2, 2), tmp_path / "e.parquet"
    (people / "p00").rename(people / name)
    assert sfumato("embed", finished, people, "--out", out).code == 0
    assert f"for a value of --user, write --user={name}" in sfumato("search", out, "--user", name).line
    told = sfumato("search", out, f"--user={name}", "--neighbours", 1)
    assert told.code == 0, told.err
    assert name in told.out
    assert "write" not in sfumato("search", out, "--itself", name).line


def test_pictures_of_two_sizes_are_reported_a_size_that_they_have(sfumato, photos):
    people = photos(3, 2, side=112)
    Image.fromarray(np.zeros((100, 112), np.uint8)).save(people / "p01" / "0.png")
    assert "--size 112," in sfumato("fedemb", "--data", people, *NOISE).line
    Image.fromarray(np.zeros((100, 112), np.uint8)).save(people / "p00" / "0.png")
    line = sfumato("fedemb", "--data", people, *NOISE).line
    assert "--size 100 112," in line
    words = ("--size", 100, 112, "--rounds", 1, "--cohort", 1, "--cohort.users-per-client", 1)
    assert "brought" in sfumato("fedemb", "--data", people, *NOISE, *words, "--test-share", 0).out


@pytest.mark.parametrize("more", [(), ("--input", "picture")])
def test_a_table_of_addresses_is_reported_what_is_read(sfumato, tmp_path: Path, more):
    file = tmp_path / "faces.csv"
    file.write_text("who,picture\nbo,https://x.org/1.jpg\nal,https://x.org/2.jpg\n")
    line = sfumato("fedemb", "--data", file, "--user", "who", *more, *NOISE).line
    assert "'picture' holds addresses, and pictures are read from files; download them" in line
