"""Recipes of private embeddings: who chooses settings, who tests them, and what stays the same over a table."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from sfumato.accounting import guarantee
from sfumato.cli.parse import read_settings
from sfumato.data import glyphs

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
OMNIGLOT = ROOT.parent / "shared" / "data" / "omniglot_background.npz"


def test_the_demo_is_the_recipes_private_run(script):
    run = script("fedemb_glyphs", "run")
    demo = read_settings(RECIPES / "fedemb_glyphs" / "demo.yaml")
    assert (demo.pop("data"), demo.pop("epsilon")) == ("glyphs", run.EPSILON)
    assert ROOT / demo.pop("test_names") == run.FOLDER / "test.txt"
    assert demo == {name: getattr(run.FEDEMB, name) for name in demo}
    assert dataclasses.replace(run.FEDEMB, **{name: getattr(run.FedEmb(), name) for name in demo}) == run.FedEmb(
        noise_multiplier=0
    )


def test_private_rows_of_glyphs_cost_the_same(script):
    run = script("fedemb_glyphs", "run")
    delta = run.POPULATION**-1.1
    costs = [
        guarantee(run.PLANS[name].private_sum(run.POPULATION).event(8), "add_remove").epsilon(delta)
        for name in ("DP-FedEmb", "DP-FedAvg", "DP-FedEmb, m = 1, negatives")
    ]
    assert costs == pytest.approx([run.EPSILON] * 3, rel=1e-4)


@pytest.mark.shared
@pytest.mark.skipif(not OMNIGLOT.exists(), reason="the data in ../shared is missing")
def test_the_table_of_omniglot_has_the_costs_of_its_plans(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["costs.py", "fedemb_omniglot", "--check"])
    assert script("", "costs").main() == 0, capsys.readouterr().out


def test_nobody_who_chooses_settings_is_trained_on_or_tested(script):
    choose = script("fedemb_glyphs", "choose")
    train, validation = choose.data()
    trained, test = sys.modules["run"].data(None)
    parts = [set(part.user_ids) for part in (train, validation, test)]
    assert [len(part) for part in parts] == [1380, 460, 460]
    assert len(set.union(*parts)) == 2300
    assert set.union(*parts) == set(glyphs().user_ids)
    assert set(trained.user_ids) == parts[0] | parts[1]


def test_hands_of_training_validation_and_test_are_others(script):
    run = script("fedemb_writers", "run")
    assert len({run.TRAIN, run.VALIDATION, run.TEST}) == 3
    train, test = run.data(60, 30)
    _, validation = run.data(60, 30, run.VALIDATION)
    assert (train.num_classes, test.num_classes) == (36, 26)
    assert not set(train.label_names) & set(test.label_names)
    pictures = [{part.examples(user)[0].tobytes() for user in range(len(part))} for part in (test, validation)]
    assert not pictures[0] & pictures[1]


def test_cells_differ_in_method_and_noise_only_and_state_their_epsilon(script):
    run = script("fedemb_writers", "run")
    assert len(run.METHODS) == 24
    for name, base in (("FedEmb", run.FEDEMB), ("FedAvg", run.FEDAVG)):
        for population in run.POPULATIONS:
            method = run.Method(name, population, 8.0)
            plan = method.plan(quick=False)
            own = {"noise_multiplier": plan.noise_multiplier, "delta": population**-1.1, "population": population}
            assert plan == dataclasses.replace(base, **own)
            cost = guarantee(plan.private_sum(population).event(plan.rounds), "add_remove")
            assert 7.99 < cost.epsilon(plan.delta) <= 8
    same = ("rounds", "clients_per_round", "batch_size", "trainable", "clip_norm", "local_epochs")
    assert all(getattr(run.FEDEMB, name) == getattr(run.FEDAVG, name) for name in same)


def test_the_table_of_twenty_counts_what_doubled(script):
    twenty = script("fedemb_glyphs", "twenty")
    rows = [
        {"run": i, "untrained": 0.02, "trained": 0.02 * times, "times": times} for i, times in enumerate((1.99, 2.0, 3))
    ]
    assert "at least doubled in 2 of 3 runs" in twenty.told(rows)
    assert "| 1 | 0.0200 | 0.0400 | 2.00 |" in twenty.told(rows)


def test_the_table_of_noises_is_what_the_plans_give(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["noises.py", "--check"])
    assert script("fedemb_writers", "noises").main() == 0, capsys.readouterr().out


@pytest.mark.slow
def test_cells_of_writers_run_and_the_figure_is_drawn(script, monkeypatch, tmp_path):
    """Those of one population; the others differ from them in noise alone."""
    run = script("fedemb_writers")
    methods = {title: method for title, method in run.METHODS.items() if method.population == run.POPULATIONS[0]}
    for name, few in (("METHODS", methods), ("POPULATIONS", run.POPULATIONS[:1]), ("COLOURS", run.COLOURS[:1])):
        monkeypatch.setattr(run, name, few)
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--out", str(tmp_path)])
    run.cells.main(run.FOLDER, list(methods), run.cell, run.table, lone=run.LONE)
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 9
    for row in rows:
        if row["epsilon_wanted"] is not None:
            assert 0.99 * row["epsilon_wanted"] < row["epsilon"] <= row["epsilon_wanted"]
            assert row["unit"] == "user"
    assert (tmp_path / "quick" / "recall.svg").read_text().count("<svg") == 1


def test_a_candidate_runs_once_and_all_that_ran_are_told(script, monkeypatch, tmp_path, capsys):
    choosing = script("", "choosing")
    ran = []

    def run(choice, name, seed, train, validation):
        ran.append(name)
        return {"candidate": name, "seed": seed, "untrained": 0.02, "trained": 0.03 + len(ran) / 100}

    monkeypatch.setattr(choosing, "run", run)
    choice = choosing.Choice(
        folder=tmp_path, data=lambda: (None, None), model=lambda: None, candidates={"a": None, "b": None, "ab": None}
    )
    for words in (["--only", "b"], ["--only", "a"], []):
        monkeypatch.setattr(sys, "argv", ["choose.py", *words])
        choosing.main(choice)
    assert ran == ["b", "a", "ab"]
    assert [row["candidate"] for row in json.loads((tmp_path / "choice.json").read_text())] == ran
    told = capsys.readouterr().out.split("best first:\n")[-1].splitlines()
    assert [line.split(",")[0] for line in told] == ["ab", "a", "b"]


def test_rows_whose_runs_are_elsewhere_stay_as_they_were(script, tmp_path):
    recipe_module, cells = script("", "embedding_recipe"), script("", "cells")
    names = ["FedEmb", "DP-FedEmb"]
    few = recipe_module.Recipe(folder=tmp_path, dataset="ours", data=None, model=None, plans=dict.fromkeys(names))
    before = [{"dataset": "ours", "method": name, "mean": 0.5} for name in ("untrained", *names)]
    (tmp_path / "results.json").write_text(json.dumps(before))

    def place(method, seed):
        return cells.place_in(tmp_path / "full", method, seed)

    assert recipe_module.table(few, place, 1, False) == before
    run = place(names[1], 0)
    run.mkdir(parents=True)
    recall = {"recall_at_far": {"0.001": 0.25}}
    (run / "evaluation.json").write_text(json.dumps({"trained": recall, "untrained": recall}))
    (run / "statement.json").write_text(json.dumps({"epsilon": "inf", "alternatives": []}))
    rows = recipe_module.table(few, place, 1, False)
    assert rows[:2] == before[:2]
    assert (rows[2]["method"], rows[2]["mean"], rows[2]["seeds"]) == (names[1], 0.25, 1)
