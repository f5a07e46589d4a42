"""The benchmark beside another generator of health records: its table is that of its results."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def benchmark():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("ehr_peers", ROOT / "ehr_peers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_in_the_readme_is_that_of_the_results(benchmark):
    page = (ROOT / "README.md").read_text()
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
    code = (ROOT / "peers" / "peer_mostlyai.py").read_text().replace("from mostlyai.engine import TabularARGN", "")
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
