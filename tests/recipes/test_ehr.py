"""The recipes of health records, and the comparison with other libraries."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# The recipes of health records: every cell runs and is kept, and the rows are means of the cells.

ROOT = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def recipe(monkeypatch):
    """What the recipes share, as a module."""
    monkeypatch.syspath_prepend(str(ROOT))
    import ehr_recipe  # pyright: ignore[reportMissingImports]

    return ehr_recipe


@pytest.mark.slow
@pytest.mark.shared
def test_every_cell_runs_is_kept_and_is_not_run_again(shared, tmp_path):
    command = [sys.executable, str(ROOT / "ehr_pbcseq" / "run.py"), "--quick", "--out", str(tmp_path)]
    command += ["--only", "EHR-Safe, no masks", "RC-GAN", "copies of patients"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for lines in (3, 0):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == lines
    assert len(list((tmp_path / "quick" / "cells").glob("*.json"))) == 3
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    found = {(row["method"], row["metric"], row["measure"]): row for row in rows}
    copies = found["copies of patients", "attack finds", "membership inference: accuracy"]
    assert copies["mean"] > 0.9
    assert found["real patients, held out", "attack finds", "membership inference: accuracy"]["mean"] == 0.5
    assert found["copies of patients", "attack finds more than its ideal", "membership inference: accuracy"]["low"] > 0
    assert found["trained on real patients", "AUC on held-out patients", "GRU"]["seeds"] == 1
    assert all(row["epsilon"] is None for row in rows)


def test_rows_are_means_of_the_cells_that_there_are(recipe, tmp_path):
    def told(value: float, low: float) -> dict:
        excess = {"value": value - 0.5, "low": low, "high": 1.0}
        return {
            "fidelity": {"detector's AUC": {"found": value, "ideal": 0.5 + value / 100}},
            "utility": {"GRU": {"found": None if value > 0.8 else value, "ideal": 0.9}},
            "attacks": {"membership": {"found": value, "ideal": 0.5, "excess": excess}},
        }

    made = recipe.Recipe(
        folder=tmp_path, dataset="toy", parts=lambda: None, methods={"A b": None, "C": None, "D": None}
    )
    for method, seed, value in (("A b", 0, 0.6), ("A b", 1, 0.8), ("C", 0, 0.9)):
        path = recipe.place(tmp_path, method, seed)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"method": method, "seed": seed, **told(value, value - 0.6)}))
    rows = {(row["method"], row["metric"]): row for row in recipe.rows(made, tmp_path)}
    assert rows["A b", "fidelity"]["mean"] == pytest.approx(0.7)
    assert rows["A b", "fidelity"]["std"] == pytest.approx(np.std([0.6, 0.8], ddof=1), abs=1e-4)
    assert rows["A b", "fidelity"]["seeds"] == 2
    assert rows["real patients, held out", "fidelity"]["mean"] == pytest.approx(0.507)  # a cell for each seed
    assert ("C", "AUC on held-out patients") not in rows
    assert rows["A b", "attack finds more than its ideal"]["low"] == pytest.approx(0.1)
    assert not any(method == "D" for method, _ in rows)


@pytest.mark.parametrize("name", ["ehr_pbcseq", "ehr_physionet2012"])
def test_results_are_the_rows_of_the_kept_cells(recipe, script, name: str):
    made = script(name).RECIPE
    assert json.loads((ROOT / name / "results.json").read_text()) == recipe.rows(made, ROOT / name)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["ehr_pbcseq", "ehr_physionet2012"])
def test_nobody_who_is_held_out_is_learned_from(script, shared, name: str):
    train, holdout = script(name).parts()
    assert not set(train.ids) & set(holdout.ids)
    assert train.schema == holdout.schema
    for side in (train, holdout):
        assert 0 < side.outcome().sum() < len(side)


def test_the_private_rows_are_those_of_the_kept_cells_and_within_the_budget(script):
    private = script("ehr_private")
    cells = [json.loads(file.read_text()) for file in sorted((ROOT / "ehr_private" / "cells").glob("*.json"))]
    assert len(cells) == 3
    found = private.rows(cells)
    assert found == json.loads((ROOT / "ehr_private" / "results.json").read_text())
    assert all(0.999 * private.EPSILON < row["epsilon"] <= private.EPSILON for row in found)
    assert {row["unit"] for row in found} == {"stay"}


# The benchmark beside another generator of health records: its table is that of its results.

BENCH = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("ehr_peers", BENCH / "ehr_peers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_readme_is_that_of_the_results(benchmark):
    page = (BENCH / "README.md").read_text()
    assert benchmark.with_table(page, json.loads(benchmark.RESULTS.read_text())) == page


def test_rows_have_both_sides_their_ratio_and_the_ideal(benchmark):
    def side(value: float) -> dict:
        return {
            "told": {"fit_seconds": 10 * value, "sample_seconds": value, "peak_bytes": 1e8, "patients": 7},
            "fidelity": {"detector's AUC": {"found": value, "ideal": 0.5}},
            "utility": {"GRU": {"found": None, "ideal": 0.9}},
            "attacks": {"membership": {"found": value, "ideal": 0.5, "excess": {"value": 0, "low": -1, "high": value}}},
        }

    rows = {row["name"]: row for row in benchmark.rows_of("ehr_pbcseq", "PBC", {"ours": side(0.5), "other": side(1.0)})}
    assert rows["PBC: fit"]["ratio"] == 0.5
    assert (rows["PBC: peak memory"]["ours"], rows["PBC: peak memory"]["unit"]) == (100.0, "MB")
    assert rows["PBC: detector's AUC"]["ideal"] == 0.5
    assert rows["PBC: AUC, GRU"]["ours"] is rows["PBC: AUC, GRU"]["ratio"] is None
    assert rows["PBC: membership"]["excess"] == {"ours": [-1, 0.5], "other": [-1, 1.0]}


def test_times_of_the_peer_ascend_and_its_cells_are_of_their_kinds():
    pd = pytest.importorskip("pandas")
    code = (BENCH / "peers" / "peer_mostlyai.py").read_text().replace("from mostlyai.engine import TabularARGN", "")
    worker: dict = {"__name__": "worker"}
    exec(compile(code, "peer_mostlyai.py", "exec"), worker)
    rows = pd.DataFrame({"id": ["a", "a", "a", "b", "b"], worker["GAP"]: [9.0, 2.0, -1.0, 0.0, None]})
    made = pd.DataFrame({"id": ["a", "b"], worker["START"]: [0.0, 5.0]})
    np.testing.assert_array_equal(worker["times"](rows, made, "id"), [0.0, 2.0, 4.0, 5.0, 7.0])
    kinds = {"categories": ["x", "y"], "whole": False}
    found = worker["cells"](pd.Series(["x", "_RARE_", None]), kinds)
    assert (found[0], found.isna().tolist()) == ("x", [False, True, True])
    numbers = worker["cells"](pd.Series([1.6, None]), {"categories": [], "whole": True})
    np.testing.assert_array_equal(numbers, [2.0, np.nan])
