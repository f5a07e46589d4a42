"""--vocabulary private: one command counts the words, trains on them, and states one cost."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from sfumato import accounting as acc
from sfumato import models

WORDS = {"the", "sea", "is", "calm"}
BRIEF = ("--rounds", 3, "--cohort.size", 10, "--client.learning-rate", 1, "--client.momentum", 0, "--delta", 1e-4)
TINY = ("--model", "lstm", "--model-options", "hidden=6", "layers=1", "embedding_dim=4", "--length", 6)


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    rows = [{"user": f"u{i:03d}", "text": f"the sea is calm own{i:03d}"} for i in range(150) for _ in range(2)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "posts.jsonl"


def given(posts: Path, *more: object) -> tuple[object, ...]:
    counted = ("--text", "words", "--vocabulary", "private", "--words-per-user", 16)
    return ("--data", posts, *counted, *TINY, *BRIEF, *more)


def statement(out: Path) -> dict:
    return json.loads((out / "statement.json").read_text())


@pytest.mark.page
def test_one_command_goes_from_texts_to_a_model_and_one_statement(sfumato, posts: Path, tmp_path: Path):
    out = tmp_path / "run"
    shown = sfumato("fedavg", *given(posts, "--epsilon", 8, "--seed", 1, "--out", out))
    assert (shown.code, shown.err) == (0, "")
    assert "150 users, 300 sequences of 6 tokens, whose vocabulary is counted under noise" in shown.out
    assert f"vocabulary: 4 words, counted under noise, in {out / 'vocabulary.txt'}" in shown.out
    assert set((out / "vocabulary.txt").read_text().split()) == WORDS
    assert models.read_metadata(out / "model.safetensors")["vocabulary_size"] == 8
    about = json.loads((out / "plan.json").read_text())["about"]
    count = acc.Gaussian(about["vocabulary_noise"]) + acc.ApproximateDP(0.0, 1e-5, "add_remove")
    assert 0.799 < acc.guarantee(count).epsilon(1e-4) <= 0.8  # a tenth of the budget
    assert 7.99 < statement(out)["epsilon"] <= 8
    assert not any(b"own0" in file.read_bytes() for file in out.iterdir() if file.is_file())
    ledger = sfumato("ledger", "show", out).out
    assert re.findall(r"^(vocabulary|rounds) ", ledger, re.MULTILINE) == ["vocabulary", "vocabulary", "rounds"]
    assert sfumato("ledger", "verify", out).code == 0
    assert "votes for at most 16 words of each user" in (out / "report.html").read_text()
    again = sfumato("fedavg", "--resume", out)
    assert (again.code, again.err) == (0, "")
    assert "the run is finished" in again.out


def test_a_dry_run_promises_what_the_run_will_state(sfumato, posts: Path, tmp_path: Path):
    out = tmp_path / "run"
    both = given(posts, "--epsilon", 8, "--vocabulary-noise", 3, "--vocabulary-words", 3, "--json", "--out", out)
    told = json.loads(sfumato("fedavg", *both, "--dry-run").out)
    assert not out.exists()
    assert told["opening"]["noise_multiplier"] == 3
    assert sfumato("fedavg", *both).code == 0
    assert {**statement(out), "ledger": None, "disclosure": None} == {
        **told["statement"], "ledger": None, "disclosure": None
    }  # fmt: skip
    assert len((out / "vocabulary.txt").read_text().split()) == 3
    without = (
        "--epsilon",
        8,
        "--text",
        "words",
        "--vocabulary",
        "private",
        "--population",
        1000,
        "--client.loss",
        "next_token",
    )
    shown = sfumato("fedavg", *without, "--model", "lstm", *BRIEF, "--dry-run")
    assert shown.code == 0
    assert "votes for at most 64 words" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 2])
def test_killed_and_resumed_a_run_leaves_the_same_bytes(process, posts: Path, tmp_path: Path, after: int):
    def start(out: Path, *more: object):
        noise = ("--noise", 1, "--vocabulary-noise", 3)
        words = given(posts, *noise, "--seed", 2, "--checkpoint-every", 1, "--out", out, "--rounds", 40)
        return process("fedavg", *(more or words))

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole).wait() == 0
    child = start(killed)
    waited, lines = (killed / "metrics.jsonl", after) if after else (killed / "vocabulary.txt", 0)
    deadline = time.monotonic() + 60
    while not waited.exists() or len(waited.read_text().splitlines()) < lines:
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len((killed / "ledger.jsonl").read_text().splitlines()) < 40
    assert start(killed, "--resume", killed).wait() == 0
    for name in ("model.safetensors", "ledger.jsonl", "statement.json", "plan.json", "vocabulary.txt"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


def test_a_run_goes_on_with_the_same_vocabulary_only(sfumato, posts: Path, tmp_path: Path):
    out = tmp_path / "run"
    assert sfumato("fedavg", *given(posts, "--epsilon", 8, "--seed", 1, "--out", out)).code == 0
    before = statement(out)
    assert "--vocabulary-noise" in sfumato("fedavg", "--resume", out, "--vocabulary-noise", 5).line
    with posts.open("a") as more:
        more.write('\n{"user": "u000", "text": "more"}')
    assert "from another plan, model or data set" in sfumato("fedavg", "--resume", out).line
    assert statement(out) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--noise", 1), "needs a --vocabulary-noise"),
        (("--epsilon", 8, "--vocabulary-noise", 0.4), "costs epsilon"),
        (("--epsilon", 8, "--vocabulary-noise", -1), "--vocabulary-noise must be > 0, got -1"),
        (("--epsilon", 8, "--vocabulary-words", 0), "--vocabulary-words must be a whole number >= 1, got 0"),
        (("--epsilon", 8, "--text", "characters"), "--vocabulary private counts words"),
        (("--epsilon", 8, "--model", "networks:mine"), "fixes the number of words"),
        (("--epsilon", 8, "--weights", "model.safetensors"), "--weights are of a model with another vocabulary"),
        (("--epsilon", 8, "--cohort", "fixed_size"), "choose another sampling"),
        (("--epsilon", 8, "--vocabulary", "words.txt", "--words-per-user", 3), "is for --vocabulary private"),
    ],
)
def test_a_mistake_is_one_line(sfumato, posts: Path, tmp_path: Path, words: tuple, told: str):
    assert told in sfumato("fedavg", *given(posts, *words, "--out", tmp_path / "run")).line
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_it_is_for_private_runs_on_words(sfumato, posts: Path, people: Path):
    words = ("--text", "words", "--vocabulary", "private", "--model", "lstm")
    assert "centralized has no guarantee" in sfumato("centralized", "--data", posts, *words).line
    pictures = ("--data", people, "--vocabulary", "private", "--epsilon", 8)
    assert "--vocabulary private counts words" in sfumato("fedavg", *pictures).line


def test_a_file_of_that_name_is_read_by_its_path(sfumato, posts: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "private").write_text("sea\ncalm\n")
    monkeypatch.chdir(tmp_path)
    words = ("--data", posts, "--text", "words", "--vocabulary", "./private", *TINY, *BRIEF, "--noise", 1)
    assert sfumato("fedavg", *words, "--out", tmp_path / "run").code == 0
    assert models.read_metadata(tmp_path / "run" / "model.safetensors")["vocabulary_size"] == 6


def test_tests_from_a_file_of_their_own_are_read_by_the_counted_words(sfumato, posts: Path, tmp_path: Path):
    (tmp_path / "test.jsonl").write_text('{"user": "x", "text": "the sea sings"}')
    shown = sfumato(
        "fedavg", *given(posts, "--epsilon", 8, "--test", tmp_path / "test.jsonl", "--out", tmp_path / "run")
    )
    assert (shown.code, shown.err) == (0, "")
    assert "on 4 tokens in 1 test sequences" in shown.out


def test_a_vocabulary_that_nobody_can_fill_is_told_before_it_is_paid_for(sfumato, posts: Path, tmp_path: Path):
    words = given(posts, "--epsilon", 8, "--vocabulary-noise", 500)
    dry = sfumato("fedavg", *words, "--dry-run")
    assert (dry.code, "hardly any word can be released" in dry.err) == (0, True)
    run = sfumato("fedavg", *words, "--out", tmp_path / "run")
    warned, refused = run.err.strip().splitlines()
    assert run.code == 2
    assert "hardly any word can be released" in warned
    assert "no word passed the threshold" in refused
