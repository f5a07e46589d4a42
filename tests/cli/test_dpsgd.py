"""`sfumato dpsgd` and `sfumato check-model`: what they leave, what they tell, and one line for each mistake."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

SMALL = ("--steps", 3, "--cohort", 20, "--server.learning-rate", 0.5)
EPSILON = ("--epsilon", 3, "--num-classes", 3)
NOISE = ("--noise", 1, "--public-classes")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """120 pictures of three classes, 16×16, as an npz with a test part."""
    rng = np.random.default_rng(0)
    centres = rng.integers(40, 216, (3, 16, 16))
    labels = rng.integers(0, 3, 150)
    pixels = (centres[labels] + rng.normal(0, 20, (150, 16, 16))).clip(0, 255).astype(np.uint8)
    path = tmp_path / "digits.npz"
    np.savez(path, x_train=pixels[:120], y_train=labels[:120], x_test=pixels[120:], y_test=labels[120:])
    return path


@pytest.mark.page
def test_a_run_leaves_every_file_and_tells_accuracy_and_statement(sfumato, digits: Path, tmp_path: Path):
    out = tmp_path / "run"
    shown = sfumato("dpsgd", "--data", digits, *SMALL, *EPSILON, "--delta", 1e-4, "--out", out)
    assert shown.code == 0, shown.err
    names = ("plan", "statement", "evaluation")
    plan, statement, evaluation = (json.loads((out / f"{name}.json").read_text()) for name in names)
    assert (plan["plan"], plan["steps"], plan["about"]["model"]) == ("dpsgd", 3, "lenet5")
    assert (statement["unit"], statement["adjacency"]) == ("example", "add_remove")
    assert 2.9 < statement["epsilon"] <= 3
    assert "found in the records" not in " ".join(line["text"] for line in statement["assumptions"])
    assert evaluation["examples"] == 30
    assert f"{evaluation['trained']['accuracy']:.4f}" in shown.out
    page = (out / "report.html").read_text()
    assert "DP-SGD" in page
    assert "log loss" in page
    assert load_file(out / "model.safetensors")


@pytest.mark.page
def test_test_examples_without_a_finite_output_are_told_of(sfumato, tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 4)).astype(np.float32)
    rows[70, 0] = np.nan
    labels = rng.integers(0, 2, 80)
    path = tmp_path / "rows.npz"
    np.savez(path, x_train=rows[:60], y_train=labels[:60], x_test=rows[60:], y_test=labels[60:])
    shown = sfumato("dpsgd", "--data", path, "--model", "lenet300_100", *SMALL, *NOISE, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert "1 of 20 test examples gave no finite output; log loss and AUC are left out\n" in shown.out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "1 of 20 test examples gave no finite output; log loss and AUC are left out." in page


def test_a_seeded_run_goes_on_to_the_same_bytes(sfumato, digits: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = ("--data", digits, *SMALL, *NOISE, "--seed", 1, "--checkpoint-every", 1)
    assert sfumato("dpsgd", *words, "--out", out).code == 0
    before = (out / "model.safetensors").read_bytes()
    assert sfumato("dpsgd", "--resume", out).code == 0
    assert (out / "model.safetensors").read_bytes() == before
    assert "steps 3 → 4" in sfumato("dpsgd", "--resume", out, "--steps", 4).line
    assert sfumato("dpsgd", "--config", out / "plan.json", "--out", tmp_path / "again").code == 0
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == before


def test_another_run_is_where_one_starts_from(sfumato, digits: Path, tmp_path: Path):
    assert sfumato("dpsgd", "--data", digits, *SMALL, *NOISE, "--out", tmp_path / "first").code == 0
    weights = tmp_path / "first" / "model.safetensors"
    words = ("--data", digits, *SMALL, *NOISE, "--pretrained", weights, "--trainable", "last")
    shown = sfumato("dpsgd", *words, "--num-classes", 5, "--out", tmp_path / "second")
    assert "but classifier.weight, classifier.bias" in shown.out
    first, second = load_file(weights), load_file(tmp_path / "second" / "model.safetensors")
    assert [name for name in first if not np.array_equal(first[name], second[name])] == [
        "classifier.bias",
        "classifier.weight",
    ]
    line = sfumato("dpsgd", *words, "--model", "lenet300_100", "--out", tmp_path / "third").line
    assert "only the last layer" in line


def test_a_dry_run_tells_the_steps_and_the_price_and_writes_nothing(sfumato, digits: Path, tmp_path: Path):
    words = (
        "--data",
        digits,
        "--epochs",
        2,
        "--cohort",
        20,
        "--epsilon",
        2,
        "--num-classes",
        3,
        "--json",
        "--dry-run",
    )
    told = json.loads(sfumato("dpsgd", *words, "--out", tmp_path / "run").out)
    assert told["plan"]["steps"] == 12
    assert told["statement"]["mechanism"].startswith("12 Gaussian sums")
    assert not (tmp_path / "run").exists()


def test_texts_are_read_too(sfumato, tmp_path: Path):
    path = tmp_path / "news.csv"
    rows = "".join(f"{i % 2},word{i % 2} is in text number {i}\n" for i in range(60))
    path.write_text("label,text\n" + rows)
    words = ("--data", path, "--vocabulary", 50, "--length", 8, "--model", "bilstm", "--model-options", "hidden=8")
    shown = sfumato("dpsgd", *words, *SMALL, *NOISE, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "choose how private the run is"),
        ((*NOISE, "--epsilon", 3), "not both"),
        ((*NOISE, "--cohort", 500), "cannot be drawn from 120; lower --cohort"),
        ((*NOISE, "--epochs", 2), "not both"),
        ((*NOISE, "--model", "bilstm"), "bilstm reads token ids"),
        ((*NOISE, "--model-options", "hidden"), "name=value"),
        ((*NOISE, "--model-options", "wings=2"), "lenet5 has no option wings"),
        ((*NOISE, "--num-classes", 2), "2"),
        ((*NOISE, "--examples.copies", 4), "choose an augmentation"),
        ((*NOISE, "--test-share", 1.5), "must be a share >= 0 and below 1, got 1.5"),
        ((*NOISE, "--trainable", "nothing"), "names no parameter"),
        (("--epsilon", 0), "epsilon must be > 0"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_leaves_nothing(sfumato, digits: Path, tmp_path: Path, words, named):
    base = ("--steps", 3) if "--epochs" in words else SMALL
    assert named in sfumato("dpsgd", "--data", digits, *base, *words, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_labels_out_of_range_are_one_line(sfumato, tmp_path: Path):
    np.savez(tmp_path / "bad.npz", x=np.zeros((30, 16, 16), np.uint8), y=np.arange(30) - 5)
    line = sfumato("dpsgd", "--data", tmp_path / "bad.npz", *SMALL, *NOISE, "--out", tmp_path / "run").line
    assert "-5" in line


def test_check_model_names_paths_and_cost(sfumato):
    told = json.loads(sfumato("check-model", "lenet5", "--json").out)
    assert [layer["name"] for layer in told["layers"]] == ["conv1", "conv2", "dense1", "dense2", "classifier"]
    assert told["parameters"] == 61706
    assert told["bytes_per_example"] > 4 * (6 * 28 * 28)
    assert told["micro_batch"] == max(1, min(4096, told["memory_budget"] // told["bytes_per_example"]))
    half = json.loads(sfumato("check-model", "lenet5", "--json", "--memory-budget", 10).out)
    assert half["micro_batch"] == (10 << 20) // half["bytes_per_example"]
    shown = sfumato("check-model", "bilstm", "--kind", "ids", "--shape", 20)
    assert "time steps" in shown.out


def test_correlated_noise_is_explained_with_and_without_sampling_that_limits(sfumato):
    words = ("--population", 600, "--epsilon", 8, "--steps", 4, "--cohort.size", 60, "--dry-run")
    said = sfumato("dpsgd", *words, "--noise", "auto").out
    assert "not tree, banded, blt, bisr: noise that is correlated over the rounds needs a cohort that limits" in said
    assert said.count("needs a cohort") == 1
    limited = " ".join(sfumato("dpsgd", *words, "--noise", "tree", "--cohort", "shuffled").out.split())
    assert "The statement covers what one example contributes" in limited
