"""The recipe of PrivacyFace on faces: clients share no one, an attacker's pictures are in no centre, rows are whole."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.slow

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
        features=embeddings,
        gallery=gallery,
    )
    assert client.known.tolist() == [0, 2]
    np.testing.assert_allclose(client.centres[0], embeddings[3] / np.linalg.norm(embeddings[3]), atol=1e-5)


def test_features_are_kept_under_what_decides_them(script, tmp_path, monkeypatch):
    clients = script("privacyface_faces", "clients")
    for file in (clients._NETWORK, *clients._FILES.values()):
        (tmp_path / file).write_bytes(file.encode())
    rows = [np.arange(4), np.arange(2), np.arange(3)]
    monkeypatch.setattr(clients, "_tables", lambda folder, quick: [(each,) for each in rows])
    keys = [clients._key(tmp_path, False)]
    assert clients._key(tmp_path, False) == keys[0]
    for file in (clients._NETWORK, *clients._FILES.values()):
        (tmp_path / file).write_bytes(b"other")
        keys.append(clients._key(tmp_path, False))
    rows[0] = np.array([0, 1, 3, 2])
    keys.append(clients._key(tmp_path, False))
    rows[0], rows[1] = np.arange(3), np.arange(3)
    keys.append(clients._key(tmp_path, False))
    monkeypatch.setattr(clients, "_BOX", (0, 0, 112, 112))
    keys.append(clients._key(tmp_path, False))
    assert len(set(keys)) == len(keys)


def test_clients_draw_noise_of_their_own(script, monkeypatch):
    clients, figures = script("privacyface_faces", "clients"), script("privacyface_faces", "figures")
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(200, 8)).astype(np.float32)
    candidates, back = np.eye(8)[:2], np.eye(8)[:, :4]
    monkeypatch.setattr(figures, "public_parts", lambda folder, quick: (candidates, back))
    plan = figures.replace(figures.PLAN, threshold=10)
    directions = []
    for name, seed in (("a", 0), ("a", 0), ("b", 0), ("a", 1)):
        client = clients.Client(
            name=name,
            identities=np.arange(200).astype(str),
            owners=np.arange(200),
            rows=np.arange(200),
            embeddings=embeddings,
            features=embeddings,
            gallery=np.zeros(200, bool),
        )
        directions.append(figures.release(client, plan, seed, None, False).result.clusters[0].direction.tolist())
    assert directions[0] == directions[1]
    assert directions[0] != directions[2] != directions[3] != directions[0]


def test_a_rate_without_anyone_to_find_is_none_and_not_a_number_that_is_none(script):
    figures = script("privacyface_faces", "figures")
    gallery, owners = np.eye(4), np.arange(4)
    assert figures._rate(np.eye(4)[:1], [np.array([], np.int64)], gallery, owners) is None
    assert figures._rate(np.eye(4)[:1], [np.array([0])], gallery, owners) == 1
    assert figures._mean([None, 1.0, 0.0]) == 0.5
    assert figures._mean([None]) is None


def test_the_figure_of_caps_has_the_known_shares(script):
    run = script("privacyface_faces")
    known = dict(run.occupancy()[512])
    assert known[1.5] == pytest.approx(0.055, abs=5e-4)
    assert known[1.4] == pytest.approx(5e-5, rel=0.1)
    assert known[1.3] == pytest.approx(4e-10, rel=0.1)


@pytest.mark.shared
def test_groups_of_alphabets_share_no_character_and_networks_begin_with_public_ones(script, shared):
    run = script("privacyface_omniglot")
    parts = run.people(shared, False)
    everyone = [*parts.silos.values(), *parts.unseen.values(), parts.public]
    names = [set(users.user_ids) for users in everyone]
    assert sum(map(len, names)) == len(set().union(*names)) == 964
    assert min(len(users) for users in parts.silos.values()) > 90
    assert len(run.RECIPE.rows) == len({row.method for row in run.RECIPE.rows.values() if row.start == "strong"}) + len(
        {(row.method, row.swept) for row in run.RECIPE.rows.values() if row.start == "weak"}
    )
    few = run.people(shared, True).public
    turned = run.turned(few)
    assert len(turned) == 4 * len(few)
    first, other = few.examples(0)[0][0], turned.examples(1)[0][0]
    np.testing.assert_array_equal(np.rot90(first, 1), other)


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
    for epsilon in ("0.1", "1", "10"):
        assert {f"p, caps chosen at ε = {epsilon}", f"p̂, ε = {epsilon}"} <= {method for method, _ in found}
    assert found["w", "CFP + CelebA"] > 0.8 > found["p, caps chosen at ε = 10", "CFP + CelebA"]
    assert (tmp_path / "quick" / "cosine.svg").read_text().count("<svg") == 1
    assert (tmp_path / "quick" / "occupancy.svg").read_text().count("<svg") == 1
    assert (tmp_path / "quick" / "inversion-0" / "inverted.png").exists()


def test_what_is_trained_is_measured_on_unseen_people_and_fails_without_clusters(script, monkeypatch, tmp_path):
    clients, trained = script("privacyface_faces", "clients"), script("privacyface_faces", "trained")
    rng = np.random.default_rng(0)

    def client(name: str) -> object:
        owners = np.repeat(np.arange(70), 4)
        features = (rng.normal(size=(70, 512))[owners] + rng.normal(size=(280, 512))).astype(np.float32)
        return clients.Client(
            name=name,
            identities=np.array([f"{name} {each:02}" for each in range(70)]),
            owners=owners,
            rows=np.arange(280),
            embeddings=features[:, :128],
            features=features,
            gallery=np.zeros(280, bool),
        )

    everyone = {name: client(name) for name in (*clients.CLIENTS, clients.PUBLIC)}
    monkeypatch.setattr(clients, "clients", lambda folder, quick: everyone)
    monkeypatch.setattr(clients, "network", lambda folder: SimpleNamespace(embedding=torch.nn.Linear(512, 128)))
    starts = ("strong: start", "strong: FedAvg", "strong: + p̂, ε = 2", "weak: FedAvg", "weak: + p̂, ε = 2")
    swept = ("weak: + p̂ at ε = 8", "weak: + p̂ at ρ = 1.5")
    private = "weak: private backbone and p̂, ε = 8 for both"
    shared = script("privacyface_faces", "privacyface_recipe")
    recipe = replace(trained.RECIPE, rows={key: trained.ROWS[key] for key in (*starts, *swept, private)})

    parts = trained.faces(None, True)
    for name in clients.CLIENTS:
        assert len(parts.silos[name]) + len(parts.unseen[name]) == 70
        assert not set(parts.silos[name].user_ids) & set(parts.unseen[name].user_ids)
        assert len(parts.unseen[name]) > 10

    def place(key: str, seed: int) -> Path:
        return cells.place_in(tmp_path, key, seed)

    cells = script("privacyface_faces", "cells")
    for key in recipe.rows:
        shared.cell(recipe, key, 0, place(key, 0), True, None)
    rows = shared.table(recipe, place, 1, True)
    found = {(row["dataset"].split(", ")[1], row["method"], row["metric"], row["measure"]): row for row in rows}
    recall = found["strong start", "+ p̂, ε = 2", "recall@FAR=0.001", "all"]
    gain = found["strong start", "+ p̂, ε = 2", "points of recall above FedAvg with the same seed", "all"]
    control = found["strong start", "FedAvg", "recall@FAR=0.001", "all"]
    assert gain["mean"] == pytest.approx(100 * (recall["mean"] - control["mean"]), abs=0.02)
    assert recall["epsilon"] is None  # its backbone is not covered
    assert {row["epsilon"] for row in rows if row["method"].startswith("private")} == {8.0}
    statement = json.loads((place(private, 0) / "fit" / "statement.json").read_text())
    assert math.isfinite(statement["epsilon"])
    measures = {metric: [] for metric in ("by round", "over ε", "over ρ")}
    for start, method, metric, measure in found:
        if start == "weak start" and method.startswith("+ p̂") and (name := metric.partition("0.001 ")[2]):
            measures[name].append(measure)
    assert measures == {
        "by round": ["round 1", "round 2"],
        "over ε": ["ε = 2", "ε = 8"],
        "over ρ": ["ρ = 1.4", "ρ = 1.5"],
    }
    last = found["weak start", "+ p̂, ε = 2", "recall@FAR=0.001 by round", "round 2"]
    assert last["mean"] == pytest.approx(found["weak start", "+ p̂, ε = 2", "recall@FAR=0.001", "all"]["mean"], abs=2e-4)
    assert (tmp_path / "accuracy.svg").read_text().count("<svg") == 1
    for key in recipe.rows:
        measured = json.loads((place(key, 0) / "measured.json").read_text())
        (place(key, 0) / "measured.json").write_text(json.dumps({**measured, "clusters": 0}))
    with pytest.raises(SystemExit, match="no private cluster was released"):
        shared.table(recipe, place, 1, True)
