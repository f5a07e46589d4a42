"""`sfumato labeldp`: tables with randomised labels, and models of noisy reports."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from sfumato import data
from sfumato.central import LabelDPPro
from sfumato.cli.main import main
from sfumato.cli.sources import ExampleDataOptions, read_example_parts
from sfumato.cli.training import RECORD_KINDS
from sfumato.labels import LPMST
from sfumato.models import classifier
from sfumato.statement import Statement
from slow import one_in, slow_but

# `sfumato labeldp randomize`: every format, one line for a mistake, and what a stop leaves.


COMMAND = ("labeldp", "randomize")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    order = np.random.default_rng(0).permutation(400).tolist()
    rows = [f"{place},{'yes' if place % 3 else 'no'},{place % 10 / 2},{place % 2}" for place in order]
    path.write_text("\n".join(["id,y,rating,g", *rows]) + "\n")
    return path


def test_it_writes_the_table_and_reports_the_cost(sfumato, table: Path, tmp_path: Path):
    out = tmp_path / "noisy.csv"
    done = sfumato(*COMMAND, table, "--label", "y", "--epsilon", 1, "--domain.names", "no", "yes", "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "400 labels" in done.out
    assert "epsilon 1 for each label, delta 0" in done.out
    before, after = (path.read_text().splitlines() for path in (table, out))
    assert [line.split(",")[::2] for line in before] == [line.split(",")[::2] for line in after]
    assert {line.split(",")[1] for line in after[1:]} == {"no", "yes"}
    assert sfumato("ledger", "verify", f"{out}.run").code == 0
    assert sfumato("report", f"{out}.run", "--out", tmp_path / "r.html").code == 0


def test_json_holds_the_statement_and_a_settings_file_serves(sfumato, table: Path, tmp_path: Path):
    out, config = tmp_path / "noisy.csv", tmp_path / "s.yaml"
    config.write_text(
        "label: rating\nepsilon: 2\ndomain: {kind: grid, low: 0, high: 4.5, values: 10}\nprior: 0.1\nseed: 3\n"
    )
    done = sfumato(*COMMAND, table, "--config", config, "--out", out, "--json")
    told = json.loads(done.out)
    assert told["rows"] == 400
    assert told["statement"] == json.loads((tmp_path / "noisy.csv.run" / "statement.json").read_text())
    assert told["statement"]["epsilon"] == 2.0
    assert told["statement"]["noise_source"]["id"] == "randomness_seeded"
    ratings = {float(line.split(",")[2]) for line in out.read_text().splitlines()[1:]}
    assert all(0 <= rating <= 4.5 for rating in ratings)


def test_a_seeded_run_says_so(sfumato, table: Path, tmp_path: Path):
    words = (table, "--label", "y", "--epsilon", 1, "--domain.public", "--out", tmp_path / "o.csv", "--seed", 1)
    assert "for simulation only" in sfumato(*COMMAND, *words).out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--label", "y", "--epsilon", 0, "--domain.public"), "epsilon must be > 0, got 0"),
        (("--label", "y", "--epsilon", "inf", "--domain.public"), "epsilon must be > 0 and finite, got inf"),
        (("--label", "y", "--epsilon", 1), "which classes are there? give --domain.names, or --domain.public"),
        (("--label", "y", "--epsilon", 1, "--domain.names", "yes"), "with one class there is nothing to hide"),
        (
            ("--label", "y", "--epsilon", 1, "--domain.names", "yes", "maybe"),
            "is none of the classes yes",
        ),
        (("--label", "z", "--epsilon", 1, "--domain.public"), "has no column 'z'"),
        (("--epsilon", 1, "--domain.public"), "missing: --label"),
        (
            ("--label", "y", "--epsilon", 1, "--domain", "grid", "--domain.low", 0, "--domain.high", 1),
            "must be numbers for --domain grid",
        ),
        (("--label", "y", "--epsilon", 1, "--domain", "grid"), "missing: --domain.low, --domain.high"),
        (("--label", "y", "--epsilon", 1, "--low", 0), "--low is now --domain.low"),
        (("--label", "y", "--epsilon", 1, "--public-classes"), "--public-classes is now --domain.public"),
        (("--label", "y", "--epsilon", 1, "--domain.public", "--prior-epsilon", 1), "--prior-epsilon is now --prior"),
        (("--label", "y", "--epsilon", 1, "--domain.public", "--resume"), "there is no run for"),
        (("--label", "y", "--epsilon", 1, "--domain.public", "--prior", "none.csv"), "there is nothing at none.csv"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(sfumato, table: Path, tmp_path: Path, words, told):
    assert told in sfumato(*COMMAND, table, *words, "--out", tmp_path / "o.csv").line
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_an_output_that_cannot_be_is_refused(sfumato, table: Path, tmp_path: Path):
    words = (table, "--label", "y", "--epsilon", 1, "--domain.public", "--out")
    assert "must be of the table's format" in sfumato(*COMMAND, *words, tmp_path / "o.parquet").line
    assert "there is no folder" in sfumato(*COMMAND, *words, tmp_path / "a" / "o.csv").line
    assert "exists" in sfumato(*COMMAND, *words, table).line
    assert sfumato(*COMMAND, *words, tmp_path / "o.csv").code == 0
    assert "average the noise away" in sfumato(*COMMAND, *words, tmp_path / "o.csv").line


def test_a_prior_is_read_and_a_bad_one_refused(sfumato, table: Path, tmp_path: Path):
    prior, words = tmp_path / "p.csv", (table, "--label", "y", "--epsilon", 1, "--domain.names", "no", "yes")
    prior.write_text("class,probability\nno,0\nyes,1\n")
    refused = sfumato(*COMMAND, *words, "--prior", prior, "--out", tmp_path / "o.csv")
    assert "is 0 for the class 'no'" in refused.line
    done = sfumato(*COMMAND, *words, "--prior", prior, "--prior.smoothing", 0.01, "--out", tmp_path / "o.csv")
    assert done.code == 0
    assert {line.split(",")[1] for line in (tmp_path / "o.csv").read_text().splitlines()[1:]} == {"yes"}


def test_ctrl_c_leaves_no_table_and_the_run_goes_on(
    sfumato, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from sfumato.labels import randomize as module

    out, drawn = tmp_path / "o.csv", module.reports_of
    words = (*COMMAND, table, "--label", "y", "--epsilon", 1, "--domain.public", "--out", out)
    monkeypatch.setattr("sfumato.labels.files._ROWS", 50)
    with monkeypatch.context() as context:

        def interrupted(*arguments, **named):
            os.kill(os.getpid(), signal.SIGINT)
            return drawn(*arguments, **named)

        context.setattr(module, "reports_of", interrupted)
        stopped = sfumato(*words)
    assert stopped.code == 130
    assert "was not written; go on by the same words and --resume" in stopped.err
    assert not out.exists()
    assert "go on with it (--resume)" in sfumato(*words).line
    assert sfumato(*words, "--resume").code == 0
    assert len(out.read_text().splitlines()) == 401
    assert "is complete" in sfumato(*words, "--resume").line


# `sfumato labeldp train`: what a run leaves and tells, how it is stopped and gone on with, and what it refuses.


CENTRES = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
FILES = ("plan.json", "statement.json", "ledger.jsonl", "evaluation.json", "report.html", "model.safetensors")
SMALL = (
    *("--model", "lenet300_100", "--public-classes", "--epsilon", 3, "--training.epochs", 3),
    *("--training.batch-size", 32, "--stages", 0.6, 0.4),
)
CLUSTERS = ("--clusters", 6, "--prior-epsilon", 0.1)


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.arange(count) % 3)
    return (CENTRES[kinds] + 0.4 * rng.normal(size=(count, 2))).astype(np.float32), kinds


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """points.npz with a test part, whole.npz without one; tests only read them."""
    folder = tmp_path_factory.mktemp("points")
    x, y = points(300, 0)
    x_test, y_test = points(60, 1)
    np.savez(folder / "points.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    np.savez(folder / "whole.npz", x=x, y=y)
    return folder


@pytest.fixture(scope="session")
def ended(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished, seeded run; tests only read it, or copy it."""
    out = tmp_path_factory.mktemp("runs") / "ended"
    words = ("labeldp", "train", "--data", files / "points.npz", *SMALL, "--seed", 3, "--out", out)
    assert main([str(word) for word in words]) == 0
    return out


def test_a_run_leaves_every_file_and_reports_accuracy_and_statement(sfumato, files, tmp_path):
    out = tmp_path / "run"
    shown = sfumato("labeldp", "train", "--data", files / "points.npz", *SMALL, *CLUSTERS, "--out", out)
    assert (shown.code, shown.err) == (0, "")
    assert all((out / name).is_file() for name in FILES)
    statement = Statement.load(out / "statement.json")
    assert (statement.unit, statement.adjacency, statement.delta) == ("label", "replace", 0.0)
    assert 2.999 < statement.epsilon <= 3.0
    assert "was found in the records and declared public" in statement.assumptions[-1]
    evaluation = json.loads((out / "evaluation.json").read_text())
    assert (evaluation["examples"], evaluation["classes"]) == (60, 3)
    for name in ("untrained", "stage 1", "trained"):
        assert f"{evaluation[name]['accuracy']:.4f}" in shown.out
    assert evaluation["trained"] == evaluation["stage 2"]
    assert f"go on after a stop with: sfumato labeldp train --resume {out}" in shown.out
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(row["round"], row["labels"]) for row in rows] == [(1, 180), (2, 120)]


def test_nothing_that_only_the_labels_report_is_reported(sfumato, files, tmp_path):
    """The share of true reports is for whoever has the labels."""
    out = tmp_path / "run"
    shown = sfumato("labeldp", "train", "--data", files / "points.npz", *SMALL, "--seed", 3, "--out", out)
    result = _library(files)
    right = float((result.reports == points(300, 0)[1]).mean())
    told = shown.out + "".join((out / name).read_text() for name in FILES[:-1]) + (out / "metrics.jsonl").read_text()
    assert not any(f"{share}" in told for share in (right, f"{right:.4f}", f"{right:.1%}"))


def _library(files: Path, **fields):
    parts = data.open_examples(files / "points.npz"), data.open_examples(files / "points.npz", "test")
    generator = _first_weights()
    model = classifier("lenet300_100", 3, ((2,),), generator=generator)
    plan = LPMST(epsilon=3.0, training={"epochs": 3, "batch_size": 32}, stages=(0.6, 0.4), seed=3, **fields)
    return plan.fit(model, parts[0], test=parts[1])


def _first_weights():
    import torch

    from sfumato._random import RandomSource

    return torch.Generator().manual_seed(RandomSource.from_seed(0).seed64("initial model"))


def test_the_command_line_trains_as_the_library_does(files, ended):
    result = _library(files)
    found = load_file(ended / "model.safetensors")
    assert all(np.array_equal(found[name], value.numpy()) for name, value in result.model.state_dict().items())
    reports = [load_file(ended / "checkpoint" / f"release-labels of stage {stage}.safetensors") for stage in (1, 2)]
    assert sum(len(each["labels"]) for each in reports) == len(result.reports)


def test_a_dry_run_promises_what_the_run_would_and_writes_nothing(sfumato, files, ended, tmp_path):
    words = ("labeldp", "train", "--data", files / "points.npz", *SMALL, "--seed", 3, "--dry-run")
    told = json.loads(sfumato(*words, "--json", "--out", tmp_path / "run").out)
    stated = json.loads((ended / "statement.json").read_text())
    assert told["statement"] == {**stated, "ledger": None}
    assert not (tmp_path / "run").exists()
    assert "no label was drawn" in sfumato(*words).out


def test_json_is_one_object_on_stdout(sfumato, files, tmp_path):
    words = ("labeldp", "train", "--data", files / "points.npz", *SMALL, "--json", "--out", tmp_path / "run")
    told = json.loads(sfumato(*words).out)
    assert told["statement"]["unit"] == "label"
    assert told["evaluation"]["trained"]["accuracy"] > 0.7
    assert told["already"] is False


@pytest.mark.slow
def test_the_settings_of_a_run_start_another(sfumato, ended, tmp_path):
    assert sfumato("labeldp", "train", "--config", ended / "plan.json", "--out", tmp_path / "again").code == 0
    for name in ("model.safetensors", "ledger.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (ended / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(sfumato, process, files, tmp_path, stop):
    words = (
        "labeldp",
        "train",
        "--data",
        files / "points.npz",
        *SMALL,
        *CLUSTERS,
        "--training.epochs",
        60,
        "--seed",
        5,
    )
    out = tmp_path / "stopped"
    child = process(*words, "--out", out)
    _wait_for(out / "checkpoint" / "release-labels of stage 2.safetensors", child)
    child.send_signal(stop)
    code = child.wait()
    if stop == signal.SIGINT:
        assert code == 130
        assert child.errors.endswith(f"go on with: sfumato labeldp train --resume {out}\n")
    assert not (out / "statement.json").exists()
    before = _released(out)
    assert len(before) == 3
    assert sfumato("labeldp", "train", "--resume", out).code == 0
    assert _released(out) == before
    assert sfumato(*words, "--out", tmp_path / "undisturbed").code == 0
    for name in ("ledger.jsonl", "statement.json", "model.safetensors", "evaluation.json", "metrics.jsonl"):
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name


def _released(run: Path) -> dict[str, list]:
    """What each phase has released; the files' own headers have no order."""
    found = {path.name: load_file(path) for path in (run / "checkpoint").glob("release-*")}
    return {name: [value.tolist() for value in tensors.values()] for name, tensors in found.items()}


def _wait_for(file: Path, child) -> None:
    for _ in range(2400):
        if file.exists():
            return
        assert child.poll() is None, child.errors
        time.sleep(0.01)
    raise AssertionError(f"{file} did not appear")


def test_a_run_that_has_ended_is_reported_again_and_nothing_is_drawn(sfumato, ended, tmp_path, contents):
    run = shutil.copytree(ended, tmp_path / "run")
    before = contents(run)
    shown = sfumato("labeldp", "train", "--resume", run)
    assert (shown.code, "go on after a stop" in shown.out) == (0, False)
    assert "nothing is drawn, trained or measured again" in shown.out
    after = contents(run)
    assert {name for name in after if after[name] != before.get(name)} <= {"report.html"}


def test_a_second_draw_for_one_output_is_refused(sfumato, files, ended):
    words = ("labeldp", "train", "--data", files / "points.npz", *SMALL, "--out", ended)
    assert "holds a run already; resume it" in sfumato(*words).line


def test_a_run_goes_on_by_its_own_settings_only(sfumato, ended, tmp_path):
    run = shutil.copytree(ended, tmp_path / "run")
    assert "epsilon 3 → 2" in sfumato("labeldp", "train", "--resume", run, "--epsilon", 2).line
    assert "is the plan of a lp_mst run; use sfumato labeldp train" in sfumato("dpsgd", "--resume", run).line


@pytest.mark.slow
def test_features_of_a_file_belong_to_the_rows_that_are_trained_on(sfumato, files, tmp_path):
    """Rows that are kept for the test take their features with them: clusters by the class have one class each."""
    _, y = points(300, 0)
    features = np.zeros((300, 3), np.float32)
    features[np.arange(300), y] = 1
    np.save(tmp_path / "features.npy", features)
    words = ("labeldp", "train", "--data", files / "whole.npz", *SMALL, "--clusters", 3, "--prior-epsilon", 1)
    shown = sfumato(*words, "--features", tmp_path / "features.npy", "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    counts = load_file(tmp_path / "run" / "checkpoint" / "release-prior.safetensors")["counts"]
    assert (np.sort(counts, axis=1)[:, :2] < 15).all()
    assert (counts.max(axis=1) > 50).all()


@pytest.mark.parametrize("features", slow_but(["pixels", "hog"], "pixels"))
def test_pictures_in_folders_and_their_features(sfumato, tmp_path, features):
    rng = np.random.default_rng(0)
    for row in range(60):
        folder = tmp_path / "pictures" / ("ant", "bee")[row % 2]
        folder.mkdir(parents=True, exist_ok=True)
        tone = rng.integers(100 * (row % 2), 100 * (row % 2) + 80, (16, 16), np.uint8)
        Image.fromarray(tone).save(folder / f"{row}.png")
    words = ("labeldp", "train", "--data", tmp_path / "pictures", *SMALL, "--clusters", 2, "--features", features)
    shown = sfumato(*words, "--out", tmp_path / "run", "--test-share", 0.3)
    assert shown.code == 0, shown.err
    assert "hog" not in shown.out or features == "hog"
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
def test_texts_and_numbers_of_a_table_are_read_too(sfumato, tmp_path):
    order = np.random.default_rng(0).permutation(60).tolist()
    rows = "".join(f"{i % 2},word{i % 2} is in text number {i}\n" for i in order)
    (tmp_path / "news.csv").write_text("label,text\n" + rows)
    words = ("--epsilon", 3, "--training.epochs", 1, "--test-share", 0, "--public-classes")
    texts = ("--vocabulary", 50, "--length", 8, "--model", "bilstm", "--model-options", "hidden=8")
    shown = sfumato("labeldp", "train", "--data", tmp_path / "news.csv", *texts, *words, "--out", tmp_path / "a")
    assert shown.code == 0, shown.err
    rows = [{"place": place, "kind": "abc"[kind]} for place, kind in zip(*map(np.ndarray.tolist, points(60, 0)))]
    (tmp_path / "points.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--data", tmp_path / "points.jsonl", "--input", "place", "--label", "kind")
    shown = sfumato("labeldp", "train", *given, *words, "--out", tmp_path / "b")
    assert shown.code == 0, shown.err


@pytest.mark.page
def test_the_page_counts_stages_and_speaks_of_labels(sfumato, ended, tmp_path):
    page = (ended / "report.html").read_text()
    assert "2 stages." in page
    assert "hides which of two values a label has" in page or "hide which of two values a label has" in page
    assert "Accuracy against stages" in page
    assert "sfumato labeldp train --config" in page
    assert "took part" not in page.split("Not covered")[0]
    other = shutil.copytree(ended, tmp_path / "other")
    assert sfumato("compare", ended, other).code == 0
    assert sfumato("report", ended, other, "--out", tmp_path / "both.html").code == 0
    assert "in the labels" in (tmp_path / "both.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epsilon", 0), "epsilon must be > 0, got 0"),
        (("--epsilon", "inf"), "epsilon must be > 0 and finite, got inf"),
        (("--num-classes", 2), "targets must be in 0 … 1 (--num-classes 2), got 2"),
        (("--stages", 0.5, 0.6), "stages must be shares > 0 that add up to 1"),
        (("--stages", "nan"), "stages must be shares > 0 that add up to 1"),
        (("--stages", 0.999, 0.001), "has none of 300 rows"),
        (("--temperature", 0), "temperature must be > 0"),
        ((*CLUSTERS, "--prior-epsilon", 3), "the prior's epsilon must be below epsilon, 3"),
        ((*CLUSTERS, "--prior-epsilon", 0), "epsilon must be > 0, got 0"),
        (("--clusters", 301), "clusters must be at most the number of rows, 300, got 301"),
        (("--features", "pixels"), "features are for clusters"),
        (("--features", "missing.npy", *CLUSTERS), "missing.npy does not exist"),
        (("--features", "squeezenet", *CLUSTERS), "needs public weights: give --feature-weights FILE"),
        (("--features", "hogg", *CLUSTERS), "did you mean hog?"),
        (("--feature-weights", "w.safetensors"), "--feature-weights is for --features squeezenet"),
        (("--model", "bilstm"), "bilstm needs vocabulary_size"),
        (("--model", "lenet5"), "lenet5 reads"),
        (("--threads", 0), "threads must be a whole number >= 1"),
        (("--epochs", 3), "--epochs is now --training.epochs"),
        (("--training.mixup", -1), "training.mixup must be >= 0"),
        (("--test", "nowhere"), "there is nothing at nowhere"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dry", [False, True], ids=["run", "dry"])
def test_a_mistake_in_training_is_one_line_and_leaves_nothing(sfumato, files, tmp_path, words, told, dry):
    given = ("labeldp", "train", "--data", files / "points.npz", *SMALL, *words, "--out", tmp_path / "run")
    assert told in sfumato(*given, *(["--dry-run"] if dry else [])).line
    assert not (tmp_path / "run").exists()


def test_no_epsilon_is_refused(sfumato, files):
    assert "--epsilon" in sfumato("labeldp", "train", "--data", files / "points.npz").line


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"y": np.zeros(300, np.int64)}, "with one class there is nothing to hide"),
        ({"y": np.arange(300) - 1}, "-1"),
        ({"y": np.linspace(0, 1, 300)}, "labels must be classes"),
        ({"x": np.full((300, 2), np.nan, np.float32)}, "inputs must be finite in single precision, got nan"),
        ({"x": np.zeros((200, 2), np.float32)}, "300"),
    ],
    ids=["one class", "below zero", "numbers", "not finite", "too few"],
)
def test_data_that_cannot_be_are_refused_and_leave_nothing(sfumato, files, tmp_path, arrays, told):
    with np.load(files / "whole.npz") as kept:
        np.savez(tmp_path / "odd.npz", **{**kept, **arrays})
    given = ("labeldp", "train", "--data", tmp_path / "odd.npz", *SMALL, "--test-share", 0, "--out", tmp_path / "run")
    assert told in sfumato(*given).line
    assert not (tmp_path / "run").exists()


def test_a_table_with_missing_labels_is_refused(sfumato, tmp_path):
    rows = ['{"place": [1.0, 2.0], "kind": "a"}\n', '{"place": [2.0, 1.0], "kind": "b"}\n', '{"place": [0.0, 0.0]}\n']
    (tmp_path / "odd.jsonl").write_text("".join(rows * 20))
    given = ("--data", tmp_path / "odd.jsonl", "--input", "place", "--label", "kind", *SMALL)
    assert "kind" in sfumato("labeldp", "train", *given, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (np.zeros((299, 2), np.float32), "a row for each of the 300 rows of --data"),
        (np.zeros(300, np.float32), "numbers [rows, features]"),
        (np.full((300, 2), np.inf, np.float32), "must be finite in single precision"),
        (np.array([["a"]] * 300), "numbers [rows, features]"),
    ],
    ids=["too few", "flat", "infinite", "words"],
)
def test_features_that_cannot_be_are_refused(sfumato, files, tmp_path, rows, told):
    np.save(tmp_path / "odd.npy", rows)
    words = ("labeldp", "train", "--data", files / "whole.npz", *SMALL, *CLUSTERS, "--features", tmp_path / "odd.npy")
    assert told in sfumato(*words, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_clusters_that_stay_empty_are_no_mistake(sfumato, tmp_path):
    """Rows that are all alike fill one cluster; the others have an even prior, which nobody asks for."""
    np.savez(tmp_path / "alike.npz", x=np.ones((100, 2), np.float32), y=np.random.default_rng(0).permutation(100) % 2)
    words = ("labeldp", "train", "--data", tmp_path / "alike.npz", *SMALL, *CLUSTERS, "--test-share", 0)
    shown = sfumato(*words, "--out", tmp_path / "run")
    assert (shown.code, shown.err) == (0, "")


def test_a_model_that_diverges_is_reported_and_the_labels_are_not_lost(sfumato, files, tmp_path):
    words = ("labeldp", "train", "--data", files / "points.npz", *SMALL, "--training.learning-rate", 1e30)
    shown = sfumato(*words, "--out", tmp_path / "run")
    assert shown.code == 0
    assert "the model gives no finite outputs for 120 of 120 rows" in shown.err
    assert Statement.load(tmp_path / "run" / "statement.json").epsilon == 3.0


@pytest.mark.slow
def test_a_table_of_numbers_and_categories_trains_a_model_of_both(sfumato, tmp_path):
    rng = np.random.default_rng(0)
    advert = rng.integers(0, 3, 600)
    bought = rng.random(600) < np.array([0.05, 0.5, 0.95])[advert]
    rows = zip(np.array(list("abc"))[advert], rng.integers(0, 24, 600), np.where(bought, "yes", "no"), strict=True)
    (tmp_path / "clicks.csv").write_text("advert,hour,bought\n" + "".join(f"{a},{h},{b}\n" for a, h, b in rows))
    (tmp_path / "clicks.yaml").write_text(
        "advert: {kind: category, values: [a, b, c]}\nhour: {kind: numeric, low: 0, high: 23}\n"
        'bought: {kind: label, values: ["no", "yes"]}\n'
    )
    given = ("--data", tmp_path / "clicks.csv", "--schema", tmp_path / "clicks.yaml", "--epsilon", 3)  # ctr
    words = ("labeldp", "train", *given, "--out", tmp_path / "run")
    told = json.loads(sfumato(*words, "--training.epochs", 10, "--training.batch-size", 32, "--json").out)
    assert told["evaluation"]["trained"]["auc"] > 0.8
    assert "clusters need one input of numbers" in sfumato(*words[:-1], tmp_path / "b", "--clusters", 3).line


@pytest.mark.parametrize(("divided", "command"), one_in(2, [False, True], ["train", "pro"]))
def test_the_folder_of_a_picture_decides_neither_its_place_nor_whether_it_is_tested_on(tmp_path, command, divided):
    """Whoever knows the pictures would else find the label of each: reports stand in the order of the rows."""
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 255, (8, 8), np.uint8)) for _ in range(40)]
    found = []
    for labels in (rng.integers(0, 2, 40), rng.integers(0, 2, 40)):
        root = tmp_path / f"labels{len(found)}"
        for number, (label, picture) in enumerate(zip(labels, pictures, strict=True)):
            folder = (root / "train" if divided else root) / "ab"[label]
            folder.mkdir(parents=True, exist_ok=True)
            picture.save(folder / f"{number}.png")
        given = ExampleDataOptions(data=str(root), test_share=0.3)
        if command == "train":
            parts = read_example_parts(given, labels_alone=True, quiet=True)
        else:
            options = SimpleNamespace(data=given, plan=LabelDPPro(), run=SimpleNamespace(dry_run=False))
            parts = RECORD_KINDS["examples"].read(options, quiet=True)
        found.append([part.examples(np.arange(len(part)))[0][0] for part in (parts.train, parts.test)])
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])
    assert len(found[0][0]) + len(found[0][1]) == 40


# `sfumato labeldp regress`, and ratings in it and in `train`: numbers and classes of an item and a user.


RANGE = ("--low", 0.5, "--high", 5, "--values", 10)
MODEL = ("--model", "matrix_factorization", "--model-options", "biases=true", "offset=3", "factors=4")
STEPS = ("--training.epochs", 2, "--training.batch-size", 64, "--epsilon", 2)
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


def test_a_run_leaves_a_model_and_a_statement_and_reports_errors(sfumato, films, tmp_path):
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


@pytest.mark.slow
def test_columns_by_name_are_the_same_ratings(sfumato, films, tmp_path):
    for path, words, out in ((films, (), "a"), (named(films), COLUMNS, "b")):
        assert sfumato(*REGRESS, "--data", path, *words, "--seed", 1, "--out", tmp_path / out).code == 0
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.slow
def test_stars_are_classes_of_a_model_in_stages(sfumato, films, tmp_path):
    out = tmp_path / "run"
    words = ("--model", "matrix_factorization", "--model-options", "biases=true", *STEPS, *STARS)
    done = sfumato("labeldp", "train", "--data", films, *words, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "accuracy" in done.out
    assert load_file(out / "model.safetensors")["output.weight"].shape[0] == 5
    plan = json.loads((out / "plan.json").read_text())
    assert plan["about"]["rating_classes"] == [1, 2, 3, 4, 5]


@pytest.mark.slow
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
