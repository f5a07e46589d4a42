"""The recipe of PrivacyFace on generated identities: who is where, what is predicted, and that it fails without."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato._random import RandomSource
from sfumato.federated import DPLC


def test_no_character_is_in_two_parts_and_fewer_private_ones_are_some_of_more(script):
    clients = script("privacyface_glyphs", "clients")
    assert len(clients.CLIENTS) == 4
    assert clients.FULL.private * len(clients.STYLES) == 7000
    parts = clients.characters(clients.FULL)
    assert len(set().union(*map(set, parts.values()))) == sum(map(len, parts.values()))
    fewer = clients.characters(replace(clients.FULL, private=150))
    assert fewer["public"] == parts["public"]
    assert set(fewer["private"]) < set(parts["private"])


def test_an_identity_is_a_character_in_a_style_whose_pictures_no_other_changes(script, monkeypatch, tmp_path):
    clients = script("privacyface_glyphs", "clients")
    monkeypatch.setattr(clients.public_features, "CACHE", tmp_path)
    size = clients.Size(public=2, unseen=1, private=3, pictures=2)
    client, public = clients.users("turned", size), clients.users(clients.PUBLIC, size)
    assert (len(client), len(public), client.num_examples) == (12, 32, 24)
    assert not set(client.user_ids) & set(clients.users("upright", size).user_ids)
    code = clients.characters(size)["private"][0]
    alone, among = clients._one(code, ["turned"], 2), clients._one(code, ["upright", "turned"], 2)
    np.testing.assert_array_equal(alone, among[8:])


@pytest.mark.parametrize("wide", [4, 16])
def test_releases_are_as_near_as_predicted_also_where_noise_hides_much(script, wide):
    run = script("privacyface_glyphs")
    rng = np.random.default_rng(0)
    public, centres = (rng.normal(size=(count, 16)) + 0.8 * np.eye(16)[0] for count in (300, 1500))
    back, candidates = np.eye(16)[:, :wide], np.eye(16)[:1]
    plan = DPLC(epsilon=0.05, delta=1e-4, radius=1.3, threshold=1)
    found = run.released(plan, centres, public, candidates, back, RandomSource.from_seed(0))
    assert found["released"] > 0.9
    assert found["predicted"] < 0.99
    assert found["cosine"] == pytest.approx(found["predicted"], abs=0.03)
    assert found["foreseen"] == pytest.approx(found["predicted"], abs=0.05)


def test_the_script_fails_without_clusters_or_where_they_are_not_as_near_as_predicted(script):
    run = script("privacyface_glyphs")
    near = {"a": [{"s": {"cosine": 0.95, "predicted": 0.97}}], "b": [{"s": {"cosine": None, "predicted": None}}]}
    run.check(near, ["s"])
    near["a"][0]["s"]["cosine"] = 0.93
    with pytest.raises(SystemExit, match=r"a, s: a mean cosine of 0\.930 over 20 releases, and 0\.970 is predicted"):
        run.check(near, ["s"])
    with pytest.raises(SystemExit, match="no private cluster was released"):
        run.check({"b": near["b"]}, ["s"])


def test_rows_are_whole(script, tmp_path, monkeypatch):
    run, cells = script("privacyface_glyphs"), script("privacyface_glyphs", "cells")
    monkeypatch.setattr(run.clients.public_features, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(run, "QUICK", run.clients.Size(public=8, unseen=2, private=10, pictures=2, epochs=1))
    monkeypatch.setattr(run, "RUNS", 2)
    monkeypatch.setattr(run, "GROUPS", 4)

    def place(name, seed):
        return cells.place_in(tmp_path, name, seed)

    run.cell(run.RELEASES, 0, place(run.RELEASES, 0), True, None)
    rows = run.table(place, 1, True)
    assert {row["measure"] for row in rows} == set(run.CLIENTS)
    assert {row["metric"] for row in rows} == set(run.MEASURED.values())
    assert {row["delta"] for row in rows} == {float(f"{40**-1.1:.3g}")}
    measured = json.loads((place(run.RELEASES, 0) / "measured.json").read_text())
    assert all(math.isfinite(measured["turned"][title]["cosine"]) for title in run.settings(True))


def test_what_is_trained_on_glyphs_is_compared_with_the_same_scheme(script, tmp_path, monkeypatch):
    trained, shared = script("privacyface_glyphs", "trained"), script("privacyface_glyphs", "privacyface_recipe")
    cells = script("privacyface_glyphs", "cells")
    monkeypatch.setattr(trained.clients.public_features, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(trained, "QUICK", trained.clients.Size(public=20, unseen=6, private=8, pictures=2, epochs=1))
    names = ("FedAvg", "+ p", "joint steps: FedSGD", "joint steps: + p̂, ε = 2")
    kept = {key: row for key, row in trained.ROWS.items() if row.method in names}
    quick = {"rounds": 1, "steps": 2, "sharing.threshold": 2}
    recipe = replace(trained.RECIPE, rows=kept, quick=quick)

    def place(key, seed):
        return cells.place_in(tmp_path, key, seed)

    for key in kept:
        shared.cell(recipe, key, 0, place(key, 0), True, None)
    rows = shared.table(recipe, place, 1, True)
    compared = {row["method"]: row["metric"] for row in rows if row["metric"].startswith("points")}
    assert compared == {
        "+ p": "points of recall above FedAvg with the same seed",
        "joint steps: + p̂, ε = 2": "points of recall above joint steps: FedSGD with the same seed",
    }
    (place("public: + p", 0) / "measured.json").unlink()
    left = {row["method"] for row in shared.table(recipe, place, 1, True)}
    assert left == {row["method"] for row in rows} - {"+ p"}  # what has not run is left out
