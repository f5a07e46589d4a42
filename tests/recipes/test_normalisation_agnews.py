"""The AG News recipe trains and tables every row, and never tests on what it was trained or tuned on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "normalisation_agnews" / "run.py"


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_runs_and_states_its_budget(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 10
    for row in rows:
        if "not private" in row["method"]:
            assert row["epsilon"] is None
        else:  # two steps with the noise of the whole run cost less than the budget
            budget = float(row["method"].rsplit(" ", 1)[1])
            assert 0 < row["epsilon"] < budget
            assert row["delta"] == 1e-5
            assert row["unit"] == "example"
        assert 0 <= row["mean"] <= 1


@pytest.mark.shared
def test_the_parts_are_disjoint_and_a_held_out_part_is_taken_from_training(shared, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from ag_news import TEST, TRAIN, ag_news

    whole = ag_news(1 << 20, 64)
    assert (len(whole.train), len(whole.validation), len(whole.test)) == (TRAIN, 0, TEST)
    tuned = ag_news(1 << 20, 64, 800)
    texts = {part: _rows(getattr(tuned, part)) for part in ("train", "validation", "test")}
    assert np.array_equal(texts["test"], _rows(whole.test))
    assert sorted(map(bytes, np.concatenate([texts["train"], texts["validation"]]))) == sorted(
        map(bytes, _rows(whole.train))
    )
    assert len(texts["validation"]) == 800


def _rows(part) -> np.ndarray:
    return part.examples(np.arange(len(part)))[0][0]
