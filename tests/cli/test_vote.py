"""The votes' commands: what a vote leaves, what it tells, how it is stopped and gone on with, and what it refuses."""

import csv
import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from sfumato import data
from sfumato.cli.main import main
from sfumato.ledger import Ledger
from sfumato.report.run_record import read_run
from sfumato.statement import Statement
from sfumato.voting import KNNDPFL

pytestmark = pytest.mark.fresh

KINDS = ("bee", "cat", "eel")
CENTRES = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
FILES = ("answers.csv", "plan.json", "statement.json", "ledger.jsonl", "evaluation.json", "report.html")
KNN = ("--queries", 20, "--neighbours", 3, "--noise-std", 1, "--student.epochs", 10)
AE = ("--queries", 10, "--noise-std", 1, "--training.epochs", 2, "--student.epochs", 5)


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 3
    return (CENTRES[kinds] + 0.5 * rng.normal(size=(count, 2))).astype(np.float32), np.array(KINDS)[kinds]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """agents.npz (8 agents of 9 records), pool.npz and test.npz; tests only read them."""
    folder = tmp_path_factory.mktemp("votes")
    rows, kinds = points(72, 0)
    np.savez(folder / "agents.npz", inputs=rows, labels=kinds, users=[f"agent {row // 9}" for row in range(72)])
    for name, count, seed in (("pool", 40, 1), ("test", 30, 2)):
        rows, kinds = points(count, seed)
        np.savez(folder / f"{name}.npz", x=rows, y=kinds)
    return folder


@pytest.fixture(scope="session")
def voted(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished, seeded vote by neighbours; tests only read it, or copy it."""
    out = tmp_path_factory.mktemp("runs") / "voted"
    assert main([str(word) for word in ("vote", "knn", *_data(files), *KNN, "--seed", 3, "--out", out)]) == 0
    return out


def _data(files: Path, **others: object) -> tuple[object, ...]:
    given = {"agents": files / "agents.npz", "pool": files / "pool.npz", "test": files / "test.npz", **others}
    return tuple(word for name, path in given.items() for word in (f"--{name}", path))


@pytest.mark.parametrize(("way", "words", "unit"), [("knn", KNN, "example"), ("ae", AE, "agent")])
def test_a_vote_leaves_every_file_and_reports_answers_and_statement(sfumato, files, tmp_path, way, words, unit):
    out = tmp_path / "run"
    shown = sfumato("vote", way, *_data(files), *words, "--out", out)
    assert (shown.code, shown.err) == (0, "")
    assert all((out / name).is_file() for name in (*FILES, "model.safetensors"))
    statement = Statement.load(out / "statement.json")
    assert statement.unit == unit
    assert f"epsilon {statement.epsilon:.3g}"[:10] in shown.out
    assert f"answers: {words[words.index('--queries') + 1]} of" in shown.out
    assert f"go on after a stop with: sfumato vote {way} --resume {out}" in shown.out


def test_a_student_that_nothing_measures_is_reported_as_such(sfumato, files, tmp_path):
    words = ("--agents", files / "agents.npz", "--pool", files / "pool.npz")
    line = "no test data, so the student was not measured; give some (--test)"
    assert line in sfumato("vote", "knn", *words, *KNN, "--out", tmp_path / "run").out
    measured = sfumato("vote", "knn", *_data(files), *KNN, "--out", tmp_path / "other")
    assert (measured.code, line in measured.out) == (0, False)


def test_the_command_line_votes_as_the_library_does(files: Path, voted: Path):
    agents, pool = data.open_users(files / "agents.npz"), data.open_examples(files / "pool.npz")
    plan = KNNDPFL(queries=20, neighbours=3, noise_std=1.0, student={"epochs": 10}, seed=3)
    result = plan.fit(agents, pool, "pixels")
    rows = list(csv.DictReader((voted / "answers.csv").open()))
    assert [int(row["query"]) for row in rows] == result.queries.tolist()
    assert [row["answer"] for row in rows] == [KINDS[label] for label in result.answers.labels]


def test_a_dry_run_promises_what_the_vote_would_and_writes_nothing(sfumato, files, voted, tmp_path):
    words = ("vote", "knn", *_data(files), *KNN, "--seed", 3, "--dry-run")
    told = json.loads(sfumato(*words, "--json", "--out", tmp_path / "run").out)
    stated = json.loads((voted / "statement.json").read_text())
    assert told["statement"] == {**stated, "ledger": None}
    assert not (tmp_path / "run").exists()
    assert "no votes were cast and nothing was written" in sfumato(*words).out


def test_a_dry_run_refuses_what_the_vote_would(sfumato, files):
    words = ("vote", "knn", *_data(files), *KNN, "--dry-run")
    assert "50 queries were asked for" in sfumato(*words, "--queries", 50).line
    assert "fewer than --neighbours 10" in sfumato(*words, "--neighbours", 10).line


def test_a_vote_asks_about_no_more_examples_than_the_pool_has(sfumato, files):
    words = [word for at, word in enumerate(KNN) if "--queries" not in KNN[max(0, at - 1) : at + 1]]
    told = json.loads(sfumato("vote", "knn", *_data(files), *words, "--dry-run", "--json").out)
    assert told["plan"]["queries"] == len(data.open_examples(files / "pool.npz"))


def test_json_is_one_object_on_stdout(sfumato, files, tmp_path):
    told = json.loads(sfumato("vote", "knn", *_data(files), *KNN, "--json", "--out", tmp_path / "run").out)
    assert told["evaluation"]["answers"]["answered"] == 20
    assert told["evaluation"]["trained"]["accuracy"] > 0.7
    assert told["statement"]["unit"] == "example"


@pytest.mark.slow
def test_the_settings_of_a_vote_start_another(sfumato, voted, tmp_path):
    assert sfumato("vote", "knn", "--config", voted / "plan.json", "--out", tmp_path / "again").code == 0
    assert (tmp_path / "again" / "answers.csv").read_bytes() == (voted / "answers.csv").read_bytes()


def test_a_number_is_short_for_a_threshold_and_for_the_release_of_the_cost(sfumato, files):
    def told(*words):
        return json.loads(sfumato("vote", "knn", *_data(files), *KNN, "--dry-run", "--json", *words).out)["plan"]

    threshold = told("--threshold", 3, "--threshold.answers", 9)["threshold"]
    assert threshold == {"votes": 3.0, "noise_std": None, "answers": 9}
    assert told("--publish-cost", 2)["publish_cost"] == {"noise_std": 2.0, "order": 20.0}
    assert told("--threshold", "none")["threshold"]["votes"] is None


def test_a_finished_vote_of_an_earlier_version_is_read_and_does_not_go_on(sfumato, files, monkeypatch, tmp_path):
    """Its plan.json was flat."""
    flat = {"plan": "knn_dpfl", "queries": 20, "threshold": None, "max_answers": None, "student_epochs": 10}
    with monkeypatch.context() as patch:
        patch.setattr(KNNDPFL, "to_json", lambda self: flat)
        assert sfumato("vote", "knn", *_data(files), *KNN, "--out", tmp_path / "old").code == 0
    assert sfumato("report", tmp_path / "old").code == 0
    assert read_run(tmp_path / "old").plan["student_epochs"] == 10
    assert "whose runs cannot go on here" in sfumato("vote", "knn", "--resume", tmp_path / "old").line


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_vote_that_was_stopped_goes_on_to_the_same_answers(sfumato, process, files, tmp_path, stop):
    words = ("vote", "ae", *_data(files), *AE, "--training.epochs", 150, "--threads", 1, "--seed", 5)
    out = tmp_path / "stopped"
    child = process(*words, "--out", out)
    _wait_for(out / "checkpoint" / "state.safetensors", child)
    child.send_signal(stop)
    code = child.wait()
    if stop == signal.SIGINT:
        assert code == 130
        assert child.errors.splitlines() == [
            "sfumato: stopping as soon as the run can go on from there; a second Ctrl-C stops it at once",
            f"sfumato: stopped while agents voted; go on with: sfumato vote ae --resume {out}",
        ]
    assert not (out / "answers.csv").exists()
    assert sfumato("vote", "ae", "--resume", out).code == 0
    assert sfumato(*words, "--out", tmp_path / "undisturbed").code == 0
    for name in ("answers.csv", "ledger.jsonl", "statement.json", "model.safetensors", "evaluation.json"):
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name


def test_the_student_of_a_vote_by_neighbours_is_named_as_the_models_of_agents_are(sfumato, files, tmp_path):
    words = ("vote", "knn", *_data(files), *KNN, "--seed", 3)
    short, long = tmp_path / "short", tmp_path / "long"
    assert sfumato(*words, "--model", "lenet300_100", "--out", short).code == 0
    explicit = ("--student-inputs", "inputs", "--student-model", "lenet300_100")
    assert sfumato(*words, *explicit, "--out", long).code == 0
    assert (short / "answers.csv").read_bytes() == (long / "answers.csv").read_bytes()
    tensors = [load_file(run / "model.safetensors") for run in (short, long)]
    assert all((tensors[0][name] == tensors[1][name]).all() for name in tensors[1])
    assert sfumato("vote", "knn", "--resume", short).code == 0
    both = ("--model", "lenet300_100", "--student-model", "lenet5")
    assert "both name the student; give one of them" in sfumato(*words, *both).line


def _wait_for(file: Path, child) -> None:
    for _ in range(1200):
        if file.exists():
            return
        assert child.poll() is None, child.errors
        time.sleep(0.02)
    raise AssertionError(f"{file} did not appear")


def test_a_vote_that_has_ended_is_reported_again_and_no_one_votes(sfumato, voted, tmp_path, contents):
    run = shutil.copytree(voted, tmp_path / "run")
    before = contents(run)
    shown = sfumato("vote", "knn", "--resume", run)
    assert (shown.code, "go on after a stop" in shown.out) == (0, False)
    after = contents(run)
    assert {name for name in after if after[name] != before.get(name)} <= {"report.html", "metrics.jsonl"}
    assert after["metrics.jsonl"] == b""


@pytest.mark.slow
def test_pictures_in_folders_vote(sfumato, tmp_path):
    """FOLDER/<agent>/<class>/<picture> and POOL/<class>/<picture>, grey and in colour, of two sizes."""
    rng = np.random.default_rng(0)
    for row in range(72):
        kind, side = row % 3, 8 if row % 5 else 11
        tone = rng.integers(60 * kind, 60 * kind + 50, (side, side), np.uint8)
        picture = Image.fromarray(tone) if row % 4 else Image.fromarray(tone).convert("RGB")
        folder = tmp_path / ("pool" if row >= 48 else f"agents/agent {row // 8}") / KINDS[kind]
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{row}.png")
    given = ("--agents", tmp_path / "agents", "--pool", tmp_path / "pool", "--out", tmp_path / "run")
    shown = sfumato("vote", "knn", *given, *KNN, "--size", 8, "--channels", 1, "--json", "--noise-std", 0.1)
    assert shown.code == 0
    assert json.loads(shown.out)["evaluation"]["answers"]["accuracy"] > 0.9


def _replaced(files: Path, target: Path, **arrays: object) -> Path:
    """agents.npz with other arrays."""
    with np.load(files / "agents.npz") as kept:
        np.savez(target, **{**kept, **arrays})
    return target


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"users": ["one"] * 72}, "there is 1 agent"),
        ({"users": [f"agent {row % 2}" for row in range(72)]}, "3 classes cannot be distinguished by 2 votes"),
        ({"inputs": np.full((72, 2), np.nan, np.float32)}, "'agent 0' has records with NaN or infinity, 9 of 9"),
        (
            {"labels": ["ant", "bee", "cat"] * 24},
            "the class 'ant', which is none of the 3 that are declared",
        ),
        ({"inputs": np.zeros((72, 3), np.float32)}, "the pool has inputs (2,) float32, the agents (3,) float32"),
    ],
)
@pytest.mark.parametrize("way", [("knn", *KNN), ("ae", *AE)], ids=["knn", "ae"])
def test_agents_that_cannot_vote_are_refused_and_leave_nothing(sfumato, files, tmp_path, way, arrays, told):
    agents = _replaced(files, tmp_path / "agents.npz", **arrays)
    assert told in sfumato("vote", *way, *_data(files, agents=agents), "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_an_agent_that_knows_one_class_is_reported(sfumato, files, tmp_path):
    kinds = np.where(np.arange(72) < 9, "bee", np.array(KINDS)[np.arange(72) % 3])
    agents = _replaced(files, tmp_path / "agents.npz", labels=kinds)
    shown = sfumato("vote", "ae", *_data(files, agents=agents), *AE, "--out", tmp_path / "run")
    assert shown.code == 0
    assert shown.err == (
        "sfumato: warning: 1 of 8 agents have records of one class only, agent 'agent 0' for one, and will vote for it "
        "whatever is asked\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--queries", 41), "the public pool has 40 examples, and 41 queries were asked for"),
        (("--neighbours", 10), "has 9 records, fewer than --neighbours 10 (and 7 more agents have too few)"),
        (("--neighbours", 0), "neighbours must be a whole number >= 1, got 0"),
        (("--epsilon", 3), "or --noise-std, not both"),
        (("--talliers", 2), "talliers must be an odd number of at least 3, got 2"),
        (("--talliers", "a:1", "b:2"), "talliers must be an odd number of at least 3, got 2"),
        (("--talliers", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2"), "the same address, 127.0.0.1:2"),
        (("--features", "squeezenet"), "needs public weights: give --pretrained FILE"),
        (("--student-model", "lenet5"), "add --student-inputs inputs"),
        (("--student-epochs", 3), "--student-epochs is now --student.epochs"),
        (("--max-answers", 3), "--max-answers is now --threshold.answers"),
        (("--threshold.answers", 3), "threshold.answers is for a threshold; give its votes, or leave it out"),
        (("--threshold", 3, "--threshold.answers", 30), "threshold.answers must be <= queries (20), got 30"),
        (("--threshold", "many"), "threshold must be a number or none, got many"),
        (
            ("--threshold", 3, "--publish-cost", 2),
            "leave out --opens counts, threshold and attributes, or --publish-cost",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_and_leave_nothing(sfumato, files, tmp_path, words, told):
    assert told in sfumato("vote", "knn", *_data(files), *KNN, *words, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_copies_in_the_pool_are_not_asked_twice(sfumato, files, tmp_path):
    rows, kinds = points(40, 1)
    np.savez(tmp_path / "pool.npz", x=np.concatenate([rows[:12]] * 3), y=np.concatenate([kinds[:12]] * 3))
    words = ("vote", "knn", *_data(files, pool=tmp_path / "pool.npz"), *KNN, "--out", tmp_path / "run")
    assert "12 different examples (24 are copies), and 20 queries were asked for" in sfumato(*words).line
    assert sfumato(*words, "--queries", 12).code == 0


def test_a_tallier_that_is_not_there_loses_no_vote(sfumato, files, tmp_path):
    out = tmp_path / "run"
    nobody = [f"127.0.0.1:{port}" for port in (1, 2, 3)]
    line = sfumato("vote", "knn", *_data(files), *KNN, "--out", out, "--talliers", *nobody).line
    assert "no tallier answers at 127.0.0.1:1" in line
    assert Ledger.read(out / "ledger.jsonl").releases <= 1
    assert (out / "checkpoint").exists()
