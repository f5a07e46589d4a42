"""The check of recipes: its tolerance, its cells, what it runs again, and what it finds."""

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def check(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RECIPES))
    return importlib.import_module("check")


@pytest.mark.parametrize("new", [1, 3])
def test_figures_of_the_same_law_are_outside_once_in_twenty_times(check, new):
    draws = np.random.default_rng(0).normal(0.5, 0.1, (20_000, 3 + new))
    old, today = draws[:, :3], draws[:, 3:].mean(axis=1)
    wide = check.tolerance({"std": 1.0, "seeds": 3}, new) * old.std(axis=1, ddof=1)
    outside = float((abs(today - old.mean(axis=1)) > wide).mean())
    # a share of 20,000 has a standard deviation of 0.0015: the bound fails once in 10^6 seeds
    assert outside == pytest.approx(0.05, abs=0.008)


def test_a_figure_that_is_one_of_the_committed_is_within_whatever_the_spread(check):
    farthest = (0.0, 0.0, 1.0)
    row = {"std": float(np.std(farthest, ddof=1)), "seeds": 3}
    assert abs(1.0 - np.mean(farthest)) < check.tolerance(row, 1)


def test_of_a_row_of_one_seed_only_the_same_figure_is_within(check):
    assert check.tolerance({"std": 0.0, "seeds": 1}, 3) == 5e-5


def test_every_recipe_with_results_has_a_cell_and_every_cell_has_one_row(check):
    assert set(check.CELLS) == {file.parent.name for file in RECIPES.glob("*/results.json")}
    for recipe, cell in check.CELLS.items():
        assert math.isfinite(check.row_of(recipe, cell)["mean"])


def test_the_verdicts_in_the_record_follow_from_its_figures(check):
    for recipe, line in json.loads((RECIPES / "check.json").read_text()).items():
        assert recipe in check.CELLS
        assert line["verdict"] != "failed"
        wide = check.tolerance({"std": line["std"], "seeds": line["committed_seeds"]}, line["seeds"])
        assert line["tolerance"] == pytest.approx(wide, abs=1e-5)
        assert (line["verdict"] == "within") == (abs(line["today"] - line["committed"]) <= wide)


RUN = """
import json

EPSILONS = (1.0, 2.0)

def cell(method, seed, folder, quick, data):
    folder.mkdir(parents=True)
    found = [{"wanted": epsilon, "accuracy": 0.5 + seed / 100 + epsilon / 1000} for epsilon in EPSILONS]
    (folder / "measured.json").write_text(json.dumps(found))
"""


@pytest.fixture
def recipes(check, tmp_path, monkeypatch) -> Path:
    """A recipe whose cell gives 0.501 with seed 0 at ε 1, in a table of 0.5 ± 0.001."""
    folder = tmp_path / "recipes" / "toy"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text(RUN)
    (folder / "results.json").write_text(json.dumps([{"method": "ours", "mean": 0.5, "std": 0.001, "seeds": 3}]))
    measured = check.measured("ours", {"wanted": 1.0}, "accuracy", minutes=1, EPSILONS=(1.0,))
    monkeypatch.setattr(check, "RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(check, "CELLS", {"toy": measured})
    monkeypatch.setattr(check, "code_of", lambda recipe: "abc1234")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "recipes"


def checked(check, monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["check.py", *words])
    return check.main()


def test_a_cell_is_compared_with_its_row_and_runs_once_for_the_same_code_and_row(check, recipes, monkeypatch, capsys):
    assert checked(check, monkeypatch) == 0
    line = json.loads((recipes / "check.json").read_text())["toy"]
    assert (line["today"], line["verdict"], line["code"]) == (0.501, "within", "abc1234")
    assert "toy: ours: committed 0.5000 ± 0.0010 over 3, today 0.5010 over 1, within" in capsys.readouterr().out
    (recipes / "toy" / "run.py").write_text("raise RuntimeError('run again')")
    assert checked(check, monkeypatch) == 0  # not run again
    rows = json.loads((recipes / "toy" / "results.json").read_text())
    (recipes / "toy" / "results.json").write_text(json.dumps([{**rows[0], "mean": 0.6}]))
    assert checked(check, monkeypatch) == 1  # another row: run, and it fails
    assert "failed: RuntimeError: run again" in capsys.readouterr().out


def test_what_was_stopped_is_no_line_and_ends_the_check(check, recipes, monkeypatch):
    (recipes / "toy" / "run.py").write_text(RUN.replace("folder.mkdir", "import cells; cells.refuse_stopped(False)"))
    with pytest.raises(SystemExit, match="start again to go on"):
        checked(check, monkeypatch)
    assert not (recipes / "check.json").exists()


def test_a_figure_beyond_the_tolerance_is_outside_and_more_seeds_are_averaged(check, recipes, monkeypatch):
    assert checked(check, monkeypatch, "--seeds", "3") == 1
    line = json.loads((recipes / "check.json").read_text())["toy"]
    assert (line["today"], line["verdict"]) == (0.511, "outside")


def test_a_cell_that_takes_long_is_listed_and_runs_where_it_is_asked_for(check, recipes, monkeypatch, capsys):
    monkeypatch.setattr(check, "MOST_MINUTES", 0.5)
    assert checked(check, monkeypatch) == 0
    assert "toy: ours: not run, as it takes about 1 minutes" in capsys.readouterr().out
    assert not (recipes / "check.json").exists()
    assert checked(check, monkeypatch, "--all") == 0
    assert (recipes / "check.json").exists()


def test_modules_of_a_recipe_are_forgotten_so_that_the_next_imports_its_own(check, recipes):
    with check.loaded(recipes / "toy") as module:
        assert module.EPSILONS == (1.0, 2.0)
    assert "run" not in sys.modules
    assert str(recipes / "toy") not in sys.path
