"""Bad input: each kind is one clear line with exit code 2, and what was there before is as it was."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

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


def test_labels_that_users_share_are_told(train, photos, tmp_path: Path):
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


def test_a_run_whose_privacy_nobody_chose(sfumato, people: Path):
    line = sfumato("fedemb", "--data", people).line
    assert all(choice in line for choice in ("--epsilon", "--noise 1", "--noise 0"))
    assert "not both" in sfumato("fedemb", "--data", people, "--epsilon", 3, *NOISE).line


def test_a_delta_that_is_not_small_is_told(train, people: Path):
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
