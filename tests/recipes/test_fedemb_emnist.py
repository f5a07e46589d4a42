"""The EMNIST recipe runs on a small file in the format of the real one, with the authors' settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "fedemb_emnist" / "run.py"


@pytest.fixture
def small_emnist(tmp_path) -> Path:
    """Six writers with a train and a test part each, in TensorFlow Federated's layout."""
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    folder = tmp_path / "emnist"
    folder.mkdir()
    for part, count in (("train", 12), ("test", 4)):
        with h5py.File(folder / f"fed_emnist_{part}.h5", "w") as file:
            for writer in range(6):
                group = file.create_group(f"examples/f{writer:04d}_00")
                group["pixels"] = rng.random((count, 28, 28), dtype=np.float32)
                group["label"] = rng.permutation(np.r_[np.arange(0, 36, 6), np.arange(36, 62, 5)])[:count].astype(
                    np.int32
                )
    return folder


@pytest.mark.slow
def test_every_method_runs_on_a_small_file_in_the_real_format(small_emnist, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--data", str(small_emnist), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out" / "quick" / "results.json").read_text())
    methods = [row["method"] for row in rows]
    assert methods == ["untrained", "centralized", "FedAvg", "FedEmb", "DP-FedAvg", "DP-FedEmb"]
    assert all(0 <= row["mean"] <= 1 for row in rows)
    assert not (SCRIPT.parent / "results.json").exists()  # no result is claimed for this data


def test_the_settings_are_the_authors(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parents[1]))
    namespace: dict = {"__name__": "recipe", "__file__": str(SCRIPT)}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), namespace)
    plan = namespace["PLANS"]["DP-FedEmb"]
    assert (plan.rounds, plan.clients_per_round, plan.users_per_client) == (200, 32, 8)
    assert (plan.local_epochs, plan.batch_size, plan.max_examples) == (8, 32, 2048)
    assert (plan.learning_rate, plan.head_lr_scale, plan.momentum) == (5e-3, 100, 0.9)
    assert (plan.server_learning_rate, plan.server_momentum) == (0.02, 0.9)
    assert (plan.clip_norm, plan.noise_multiplier) == (1.0, 0.62)
    shared = namespace["PLANS"]["DP-FedAvg"]
    assert (shared.name, shared.noise_multiplier) == ("fedavg", 0.62)
