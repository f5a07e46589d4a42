"""The recipe of PrivacyFace on faces: clients share no one, an attacker's pictures are in no centre, rows are whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "privacyface_faces" / "run.py"


@pytest.mark.shared
def test_no_one_is_in_two_clients_or_public_and_in_one(script, shared):
    clients = script("privacyface_faces", "clients")
    who, source, numbers = clients._listed(shared, False)
    group = clients._groups(shared, who, source, False)
    present = [set(who[group == name].tolist()) for name in (*clients.CLIENTS, clients.PUBLIC)]
    assert sum(map(len, present)) == len(set().union(*present))
    assert len(present[-1]) == 500
    for name, most in clients._MOST.items():
        assert numbers[source == name].max() == most - 1
    names = {name[4:].replace("_", " ") for part in present[:3] for name in part}
    assert not names & {name[4:] for name in present[3] if name.startswith("cfp:")}


def test_pictures_of_the_attacker_are_in_no_centre(script):
    clients = script("privacyface_faces", "clients")
    rng = np.random.default_rng(0)
    owners, embeddings = np.repeat([0, 1, 2], [4, 2, 5]), rng.normal(size=(11, 8)).astype(np.float32)
    gallery = np.array([1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0], bool)
    client = clients.Client(
        name="c",
        identities=np.array(list("abc")),
        owners=owners,
        rows=np.arange(11),
        embeddings=embeddings,
        gallery=gallery,
    )
    assert client.known.tolist() == [0, 2]
    np.testing.assert_allclose(client.centres[0], embeddings[3] / np.linalg.norm(embeddings[3]), atol=1e-5)


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_of_faces_runs_and_clusters_are_released(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path), "--data", str(shared)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert {row["measure"] for row in rows} == {"LFW men A", "LFW men B", "LFW women", "CFP + CelebA"}
    assert any(row["mean"] > 0 for row in rows if row["metric"] == "clusters that reach the threshold")
    assert all(-1 <= row["mean"] <= 1 for row in rows)
    found = {(row["method"], row["measure"]): row["mean"] for row in rows if row["metric"] == "identities found"}
    assert found["w", "CFP + CelebA"] > 0.8 > found["p", "CFP + CelebA"]
    assert (tmp_path / "quick" / "cosine.svg").read_text().count("<svg") == 1
    assert (tmp_path / "quick" / "inversion-0" / "inverted.png").exists()
