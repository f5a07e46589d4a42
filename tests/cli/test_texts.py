"""Texts from the command line: from a file to a released model, and every mistake in one line."""

import json
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from sfumato import data, models

PLAY = """MARCUS:
The sun is up, the sea is calm, we sail.
Who comes?

LYDIA:
A friend, if friends be few: the sea is calm.

MARCUS:
Then come aboard; the sun is up.

BOATSWAIN:
Cast off, cast off! We sail, we sail.

COOK:
The pot is on, the pot is hot.

LYDIA:
The sun is hot, the sea is calm, the cook is not.

WATCH:
A sail! A sail upon the sea!

MATE:
We see the sail, we see the sea.
"""
POSTS = [{"user": f"u{i % 6}", "text": f"the {thing} is {how}"} for i, thing in enumerate(["sun", "sea", "sail"] * 8) for how in ["hot", "calm"]]  # fmt: skip  # noqa: E501
TINY = ("--model", "lstm", "--model-options", "hidden=8", "layers=1", "--length", 20)
BRIEF = ("--rounds", 3, "--cohort", 3, "--client.learning-rate", 1, "--client.momentum", 0)


@pytest.fixture
def play(tmp_path: Path) -> Path:
    (tmp_path / "play.txt").write_text(PLAY)
    return tmp_path / "play.txt"


@pytest.fixture
def posts(tmp_path: Path) -> tuple[Path, Path]:
    """Posts and a vocabulary."""
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, POSTS)))
    (tmp_path / "words.txt").write_text("the\nis\nsun\nsea\nhot\ncalm\n")
    return tmp_path / "posts.jsonl", tmp_path / "words.txt"


@pytest.mark.page
def test_a_play_becomes_a_private_model_of_characters(sfumato, play: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = ("--data", play, "--text", "characters", *TINY, *BRIEF, "--epsilon", 8, "--test-share", 0.3, "--seed", 1)
    shown = sfumato("fedavg", *words, "--out", out)
    assert (shown.code, shown.err) == (0, "")
    speeches = re.sub(r"^[A-Z]+:\n", "", PLAY, flags=re.MULTILINE).strip().split("\n\n")
    rows = sum(-(-(len(speech) + 1) // 20) for speech in speeches)
    assert f"6 users, {rows} sequences of 20 tokens, vocabulary of 100" in shown.out
    assert re.search(r"trained +\d\.\d+ +\d\.\d+ +\d\.\d+ +\d+\.\d+", shown.out)
    assert re.search(r"on \d+ tokens in \d+ test sequences of \d users", shown.out)
    statement = json.loads((out / "statement.json").read_text())
    assert statement["unit"] == "user"
    assert 7.9 < statement["epsilon"] <= 8
    assert "vocabulary_released" in [line.get("id") for line in statement["assumptions"]]
    assert not any("heads have a row" in line["text"] for line in statement["assumptions"])
    told = models.read_metadata(out / "model.safetensors")
    options = dict(each.split("=") for each in told["model_options"])
    model = models.language_model(
        told["model"], told["vocabulary_size"], told["input_shape"][0], **{k: int(v) for k, v in options.items()}
    )
    models.load_weights(model, out / "model.safetensors")
    assert model(torch.tensor([[98, 5, 6]])).shape == (1, 3, 100)
    assert str(play) not in json.dumps(told)
    evaluation = json.loads((out / "evaluation.json").read_text())
    page = (out / "report.html").read_text()
    assert f"{evaluation['trained']['perplexity']:.4g}"[:4] in page
    assert "accuracy without oov and eos" in page
    assert "no embeddings" in sfumato("embed", out, "glyphs", "--out", tmp_path / "e.parquet").line


@pytest.mark.parametrize(
    ("command", "more"),
    [("fedsgd", ("--cohort", 3, "--noise", 1)), ("centralized", ())],
)
def test_the_other_plans_train_on_words(sfumato, posts: tuple[Path, Path], tmp_path: Path, command: str, more):
    file, vocabulary = posts
    words = ("--data", file, "--text", "words", "--vocabulary", vocabulary, "--model", "transformer", "--rounds", 2)
    shown = sfumato(command, *words, "--model-options", "width=8", *more, "--out", tmp_path / "run", "--json")
    told = json.loads(shown.out)
    measured = {"accuracy", "accuracy_no_oov_no_eos", "log_loss", "perplexity", "tokens"}
    assert told["evaluation"]["trained"].keys() - {"likely_cause"} == {*measured, "baselines"}
    private = "is assumed to be public" in " ".join(line["text"] for line in told["statement"]["assumptions"])
    assert private == (command == "fedsgd")


def test_a_packed_store_trains_the_same_model_as_its_file(sfumato, posts: tuple[Path, Path], tmp_path: Path):
    file, vocabulary = posts
    store = tmp_path / "posts.store"
    packed = sfumato("data", "pack", file, store, "--text", "words", "--vocabulary", vocabulary, "--length", 5)
    assert packed.code == 0
    assert "6 users, 48 sequences of 5 tokens, vocabulary of 10" in packed.out
    common = ("--model", "lstm", "--model-options", "hidden=8", *BRIEF, "--noise", 1, "--seed", 3)
    read = ("--data", file, "--text", "words", "--vocabulary", vocabulary, "--length", 5)
    assert sfumato("fedavg", *read, *common, "--out", tmp_path / "a").code == 0
    assert sfumato("fedavg", "--data", store, "--client.loss", "next_token", *common, "--out", tmp_path / "b").code == 0
    one, other = (tmp_path / name / "ledger.jsonl" for name in "ab")
    assert len(one.read_text().splitlines()) == len(other.read_text().splitlines())
    load = data.open_users(store)
    assert load.assumptions
    weights = [dict(models.read_metadata(tmp_path / name / "model.safetensors")) for name in "ab"]
    assert [each["vocabulary_size"] for each in weights] == [10, 10]
    from safetensors.numpy import load_file

    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.slow
def test_killed_and_resumed_a_run_leaves_the_same_bytes(process, play: Path, tmp_path: Path):
    def start(out: Path, *more: object):
        words = ("--data", play, "--text", "characters", *TINY, "--rounds", 40, "--cohort", 3)
        words = (*words, "--noise", 1, "--seed", 2, "--checkpoint-every", 1, "--out", out)
        return process("fedavg", *(more or words))

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole).wait() == 0
    child = start(killed)
    deadline = time.monotonic() + 60
    metrics = killed / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 4:
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len((killed / "ledger.jsonl").read_text().splitlines()) < 40
    assert start(killed, "--resume", killed).wait() == 0
    for name in ("model.safetensors", "ledger.jsonl", "statement.json", "plan.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


def test_a_dry_run_tries_the_texts_and_writes_nothing(sfumato, play: Path, tmp_path: Path):
    words = (
        "--data",
        play,
        "--text",
        "characters",
        *TINY,
        *BRIEF,
        "--epsilon",
        8,
        "--dry-run",
        "--out",
        tmp_path / "r",
    )
    shown = sfumato("fedavg", *words)
    assert shown.code == 0
    assert "next_token" in shown.out
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("content", "name", "words", "told"),
    [
        ("All the world's a stage", "a.txt", (), "line 1 has no speaker"),
        ('{"user": "a", "text": "b"}\n7', "a.jsonl", (), "line 2 is a int, not an object"),
        ('{"user": "a", "txt": "b"}', "a.jsonl", (), "line 1 has no field 'text'"),
        ('{"user": "a", "text": "b"}', "a.jsonl", ("--text", "words"), "words need a public vocabulary"),
        ('{"user": "a", "text": "b"}', "a.jsonl", (), "has 1 user"),
        (PLAY, "a.txt", ("--model", "lenet"), "model must be one of lstm, transformer, got lenet"),
        (PLAY, "a.txt", ("--model-options", "depth=2"), "lstm has no option depth"),
        (PLAY, "a.txt", ("--client.loss", "cosine"), "--client.loss cosine compares embeddings"),
        (PLAY, "a.txt", ("--channels", 1), "--channels 1 is for pictures"),
        (PLAY, "a.txt", ("--split-by", "label"), "use split_users (--split-by user)"),
        (PLAY, "a.txt", ("--length", 0), "length must be a whole number >= 1, got 0"),
        (PLAY, "a.txt", ("--user", "who"), "user='who' is a field of JSON lines"),
    ],
)
def test_a_mistake_is_one_line(sfumato, tmp_path: Path, content: str, name: str, words: tuple, told: str):
    (tmp_path / name).write_text(content)
    given = ("--data", tmp_path / name, "--text", "characters", "--model", "lstm", "--noise", 1, *words)
    assert told in sfumato("fedavg", *given, "--cohort", 2, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("content", "told"), [("\n", "is empty"), ("sun\nSun", "has 'sun' twice")])
def test_a_vocabulary_of_no_use_is_one_line(sfumato, posts: tuple[Path, Path], content: str, told: str):
    file, vocabulary = posts
    vocabulary.write_text(content)
    words = ("--data", file, "--text", "words", "--vocabulary", vocabulary, "--model", "lstm")
    assert told in sfumato("fedavg", *words, "--noise", 1).line


def test_texts_are_refused_where_they_have_no_place(sfumato, play: Path, people: Path):
    given = ("--data", play, "--text", "characters", "--model", "lstm", "--noise", 1)
    assert "for texts use fedavg or fedsgd" in sfumato("fedemb", *given).line
    assert "--length 5 is for texts" in sfumato("fedavg", "--data", people, "--length", 5, "--noise", 1).line
    pictures = ("--data", people, "--model-options", "hidden=8", "--noise", 1)
    assert "--model-options is for models of texts" in sfumato("fedavg", *pictures).line
    loss = ("--data", people, "--client.loss", "next_token", "--noise", 1, "--cohort", 2)
    assert "needs a label for every token" in sfumato("fedavg", *loss).line


def test_a_model_of_another_vocabulary_is_refused(sfumato, play: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "networks.py").write_text(
        "from sfumato import models\n\n\ndef small():\n    return models.lstm(vocabulary_size=120, hidden=4)\n"
    )
    monkeypatch.chdir(tmp_path)
    given = ("--data", play, "--text", "characters", "--length", 20, "--noise", 1, "--cohort", 2)
    told = sfumato("fedavg", *given, "--model", "networks:small").line
    assert "got shape [1, 20, 120]; build it with vocabulary_size=100" in told
