"""`sfumato dpsgd --task`: numbers and counts from a table or arrays, to the terminal, the files and the page."""

import json
from pathlib import Path

import numpy as np
import pytest

SMALL = ("--steps", 40, "--cohort", 100, "--server.learning-rate", 0.3, "--model", "lenet300_100")
NOISE = ("--noise", 0.5, "--seed", 1)


@pytest.fixture
def flats(tmp_path: Path) -> Path:
    """400 flats: size and floor, and the rent and the number of visitors that follow from them."""
    rng = np.random.default_rng(0)
    size, floor = rng.uniform(20, 120, 400), rng.integers(0, 8, 400)
    rent = size / 50 + 0.1 * floor + rng.normal(0, 0.05, 400)
    visitors = rng.poisson(np.exp(2 - size / 60))
    lines = [f"{a:.1f},{b},{c:.3f},{d}" for a, b, c, d in zip(size, floor, rent, visitors)]
    path = tmp_path / "flats.csv"
    path.write_text("\n".join(["size,floor,rent,visitors", *lines]) + "\n")
    for name, rented, visited in (("rent", "{kind: target}", "drop"), ("visitors", "drop", "{kind: count}")):
        (tmp_path / f"{name}.yaml").write_text(
            "size: {kind: numeric, low: 0, high: 150}\nfloor: {kind: numeric, low: 0, high: 10}\n"
            f"rent: {rented}\nvisitors: {visited}\n"
        )
    return path


def files(out: Path, *names: str) -> list[dict]:
    return [json.loads((out / f"{name}.json").read_text()) for name in names]


@pytest.mark.page
def test_a_table_of_numbers_goes_from_end_to_end(sfumato, flats: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = ("--task", "regression", "--data", flats, "--schema", tmp_path / "rent.yaml", *SMALL, *NOISE)
    shown = sfumato("dpsgd", *words, "--validation-share", 0.1, "--out", out)
    assert shown.code == 0, shown.err
    plan, statement, evaluation = files(out, "plan", "statement", "evaluation")
    assert (plan["task"], plan["about"]["classes"], plan["about"]["outputs"]) == ("regression", None, 1)
    assert "classes_public" not in [line.get("id") for line in statement["assumptions"]]
    assert "targets_unbounded" in [line.get("id") for line in statement["assumptions"]]
    before, after = evaluation["untrained"], evaluation["trained"]
    assert after["rmse"] < before["rmse"]
    page = (out / "report.html").read_text()
    for name, key in (("RMSE", "rmse"), ("MAE", "mae"), ("R²", "r2")):
        assert name in shown.out
        assert f"{after[key]:.4f}" in shown.out
        assert f'<th scope="row">{name}</th>' in page
    assert "RMSE against rounds" in page
    assert "All examples of the test data" in page
    assert "Recall at FAR" not in page
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert any("rmse" in row for row in rows if "evaluation" in row)


@pytest.mark.page
def test_a_run_on_numbers_goes_on_to_the_same_bytes(sfumato, flats: Path, tmp_path: Path):
    out = tmp_path / "run"
    words = ("--task", "counts", "--data", flats, "--schema", tmp_path / "visitors.yaml", *SMALL, *NOISE)
    shown = sfumato("dpsgd", *words, "--out", out)
    assert shown.code == 0, shown.err
    (evaluation,) = files(out, "evaluation")
    assert evaluation["trained"]["deviance_explained"] > 0 > evaluation["untrained"]["deviance_explained"]
    assert "Poisson log loss" in (out / "report.html").read_text()
    before = (out / "model.safetensors").read_bytes()
    assert sfumato("dpsgd", "--resume", out).code == 0
    assert (out / "model.safetensors").read_bytes() == before


def test_whole_numbers_in_arrays_are_counts_where_the_task_is(sfumato, tmp_path: Path):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=inputs, y=rng.poisson(3, 200))
    out = tmp_path / "run"
    shown = sfumato("dpsgd", "--task", "counts", "--data", tmp_path / "a.npz", *SMALL, *NOISE, "--out", out)
    assert shown.code == 0, shown.err
    assert "a whole number each" in shown.out
    assert not any("number of classes" in line["text"] for line in files(out, "statement")[0]["assumptions"])
    np.savez(tmp_path / "b.npz", x=inputs, y=rng.normal(size=(200, 3)))
    out = tmp_path / "several"
    assert (
        sfumato("dpsgd", "--task", "regression", "--data", tmp_path / "b.npz", *SMALL, *NOISE, "--out", out).code == 0
    )
    assert files(out, "plan")[0]["about"]["outputs"] == 3


@pytest.mark.parametrize(
    ("task", "schema", "message"),
    [
        ("classes", "rent", "--task classes needs class numbers as targets, got float32"),
        ("own", "rent", "--task own needs a loss"),
        ("ranks", "rent", "task"),
    ],
)
def test_what_does_not_go_together_is_one_line(sfumato, flats: Path, tmp_path: Path, task, schema, message):
    words = ("--task", task, "--data", flats, "--schema", tmp_path / f"{schema}.yaml", *SMALL, *NOISE)
    shown = sfumato("dpsgd", *words, "--out", tmp_path / "run")
    assert shown.code == 2
    assert message in shown.line
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_dry_run_says_what_is_assumed_of_the_targets(sfumato, flats: Path, tmp_path: Path):
    words = ("--task", "regression", "--data", flats, "--schema", tmp_path / "rent.yaml", *SMALL, *NOISE)
    shown = sfumato("dpsgd", *words, "--dry-run")
    assert shown.code == 0, shown.err
    assert "range of the targets is not assumed" in " ".join(shown.out.split())
