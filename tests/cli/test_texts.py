"""Training on texts: characters and words, and a vocabulary that the run counts under noise."""

import json
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from sfumato import accounting as acc
from sfumato import data, models

pytestmark = pytest.mark.fresh

# Texts from the command line: from a file to a released model, and every mistake in one line.


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


@pytest.mark.slow
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
        (PLAY, "a.txt", ("--user", "who"), "user='who' names a column of a table"),
        ("who,said\na,b\nb,c", "a.csv", ("--input", "said"), "no column 'user'; it has who, said"),
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


@pytest.mark.slow
def test_a_model_of_another_vocabulary_is_refused(sfumato, play: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "networks.py").write_text(
        "from sfumato import models\n\n\ndef small():\n    return models.lstm(vocabulary_size=120, hidden=4)\n"
    )
    monkeypatch.chdir(tmp_path)
    given = ("--data", play, "--text", "characters", "--length", 20, "--noise", 1, "--cohort", 2)
    told = sfumato("fedavg", *given, "--model", "networks:small").line
    assert "got shape [1, 20, 120]; build it with vocabulary_size=100" in told


# --vocabulary private: one command counts the words, trains on them, and states one cost.


WORDS = {"the", "sea", "is", "calm"}
BRIEF_WORDS = ("--rounds", 3, "--cohort.size", 10, "--client.learning-rate", 1, "--client.momentum", 0, "--delta", 1e-4)
TINY_WORDS = ("--model", "lstm", "--model-options", "hidden=6", "layers=1", "embedding_dim=4", "--length", 6)


@pytest.fixture
def word_posts(tmp_path: Path) -> Path:
    rows = [{"user": f"u{i:03d}", "text": f"the sea is calm own{i:03d}"} for i in range(150) for _ in range(2)]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "posts.jsonl"


def given(word_posts: Path, *more: object) -> tuple[object, ...]:
    counted = ("--text", "words", "--vocabulary", "private", "--words-per-user", 16)
    return ("--data", word_posts, *counted, *TINY_WORDS, *BRIEF_WORDS, *more)


def statement(out: Path) -> dict:
    return json.loads((out / "statement.json").read_text())


@pytest.mark.page
def test_one_command_goes_from_texts_to_a_model_and_one_statement(sfumato, word_posts: Path, tmp_path: Path):
    out = tmp_path / "run"
    shown = sfumato("fedavg", *given(word_posts, "--epsilon", 8, "--seed", 1, "--out", out))
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


def test_a_dry_run_promises_what_the_run_will_state(sfumato, word_posts: Path, tmp_path: Path):
    out = tmp_path / "run"
    both = given(word_posts, "--epsilon", 8, "--vocabulary-noise", 3, "--vocabulary-words", 3, "--json", "--out", out)
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
    shown = sfumato("fedavg", *without, "--model", "lstm", *BRIEF_WORDS, "--dry-run")
    assert shown.code == 0
    assert "votes for at most 64 words" in shown.out


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 2])
def test_killed_and_resumed_a_run_that_counts_words_leaves_the_same_bytes(
    process, word_posts: Path, tmp_path: Path, after: int
):
    def start(out: Path, *more: object):
        noise = ("--noise", 1, "--vocabulary-noise", 3)
        words = given(word_posts, *noise, "--seed", 2, "--checkpoint-every", 1, "--out", out, "--rounds", 40)
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


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_vocabulary_only(sfumato, word_posts: Path, tmp_path: Path):
    out = tmp_path / "run"
    assert sfumato("fedavg", *given(word_posts, "--epsilon", 8, "--seed", 1, "--out", out)).code == 0
    before = statement(out)
    assert "--vocabulary-noise" in sfumato("fedavg", "--resume", out, "--vocabulary-noise", 5).line
    with word_posts.open("a") as more:
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
def test_a_mistake_about_a_vocabulary_is_one_line(sfumato, word_posts: Path, tmp_path: Path, words: tuple, told: str):
    assert told in sfumato("fedavg", *given(word_posts, *words, "--out", tmp_path / "run")).line
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_it_is_for_private_runs_on_words(sfumato, word_posts: Path, people: Path):
    words = ("--text", "words", "--vocabulary", "private", "--model", "lstm")
    assert "centralized has no guarantee" in sfumato("centralized", "--data", word_posts, *words).line
    pictures = ("--data", people, "--vocabulary", "private", "--epsilon", 8)
    assert "--vocabulary private counts words" in sfumato("fedavg", *pictures).line


@pytest.mark.slow
def test_a_file_of_that_name_is_read_by_its_path(sfumato, word_posts: Path, tmp_path: Path, monkeypatch):
    (tmp_path / "private").write_text("sea\ncalm\n")
    monkeypatch.chdir(tmp_path)
    words = (
        "--data",
        word_posts,
        "--text",
        "words",
        "--vocabulary",
        "./private",
        *TINY_WORDS,
        *BRIEF_WORDS,
        "--noise",
        1,
    )
    assert sfumato("fedavg", *words, "--out", tmp_path / "run").code == 0
    assert models.read_metadata(tmp_path / "run" / "model.safetensors")["vocabulary_size"] == 6


@pytest.mark.slow
def test_tests_from_a_file_of_their_own_are_read_by_the_counted_words(sfumato, word_posts: Path, tmp_path: Path):
    (tmp_path / "test.jsonl").write_text('{"user": "x", "text": "the sea sings"}')
    shown = sfumato(
        "fedavg", *given(word_posts, "--epsilon", 8, "--test", tmp_path / "test.jsonl", "--out", tmp_path / "run")
    )
    assert (shown.code, shown.err) == (0, "")
    assert "on 4 tokens in 1 test sequences" in shown.out


def test_a_vocabulary_that_no_one_can_fill_is_reported_before_it_is_paid_for(sfumato, word_posts: Path, tmp_path: Path):
    words = given(word_posts, "--epsilon", 8, "--vocabulary-noise", 500)
    dry = sfumato("fedavg", *words, "--dry-run")
    assert (dry.code, "hardly any word can be released" in dry.err) == (0, True)
    run = sfumato("fedavg", *words, "--out", tmp_path / "run")
    warned, refused = run.err.strip().splitlines()
    assert run.code == 2
    assert "hardly any word can be released" in warned
    assert "no word passed the threshold" in refused
