"""The recipes of FedEmb and of DP-FTRL."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sfumato import accounting as acc
from sfumato import data
from sfumato._check import InputError
from sfumato._parts import flat
from sfumato.accounting import guarantee
from sfumato.cli.parse import read_settings
from sfumato.data import Split, glyphs, open_users, split_users
from sfumato.data.readers.ratings import with_user_column
from sfumato.federated import FedAvg, FedRecon
from sfumato.federated.tasks import Values
from sfumato.models import Recommender, recommender

# The recipes of FedEmb.

# Recipes of private embeddings: who chooses settings, who tests them, and what stays the same over a table.
ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
OMNIGLOT = ROOT.parent / "shared" / "data" / "omniglot_background.npz"


def test_the_demo_is_the_recipes_private_run(script):
    run = script("fedemb_glyphs", "run")
    demo = read_settings(RECIPES / "fedemb_glyphs" / "demo.yaml")
    assert (demo.pop("data"), demo.pop("epsilon")) == ("glyphs", run.EPSILON)
    assert ROOT / demo.pop("test_names") == run.FOLDER / "test.txt"
    assert run.FedEmb(**demo, noise=0) == run.FEDEMB


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


@pytest.mark.slow
def test_no_one_who_chooses_settings_is_trained_on_or_tested(script):
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
            own = {"noise": plan.noise.noise_multiplier, "delta": population**-1.1, "population": population}
            assert plan.to_json() == base.replace(**own).to_json()
            cost = guarantee(plan.private_sum(population).event(plan.rounds), "add_remove")
            assert 7.99 < cost.epsilon(plan.delta) <= 8
    same = attrgetter("rounds", "cohort.size", "client.batch_size", "trainable", "clipping.norm", "client.epochs")
    assert same(run.FEDEMB) == same(run.FEDAVG)


def test_the_table_of_twenty_counts_what_doubled(script):
    twenty = script("fedemb_glyphs", "twenty")
    rows = [
        {"run": i, "untrained": 0.02, "trained": 0.02 * times, "times": times} for i, times in enumerate((1.99, 2.0, 3))
    ]
    assert "at least doubled in 2 of 3 runs" in twenty.reported(rows)
    assert "| 1 | 0.0200 | 0.0400 | 2.00 |" in twenty.reported(rows)


@pytest.mark.slow
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


def test_a_candidate_runs_once_and_all_that_ran_are_reported(script, monkeypatch, tmp_path, capsys):
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


# The EMNIST recipe runs on a small file in the format of the real one, with the authors' settings.
EMNIST = ROOT / "recipes" / "fedemb_emnist" / "run.py"


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
    command = [sys.executable, str(EMNIST), "--quick", "--data", str(small_emnist), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out" / "quick" / "results.json").read_text())
    methods = [row["method"] for row in rows]
    assert methods == ["untrained", "centralized", "FedAvg", "FedEmb", "DP-FedAvg", "DP-FedEmb"]
    assert all(0 <= row["mean"] <= 1 for row in rows)
    assert not (EMNIST.parent / "results.json").exists()  # no result is claimed for this data


def test_the_settings_are_the_authors(monkeypatch):
    monkeypatch.syspath_prepend(str(EMNIST.parents[1]))
    namespace: dict = {"__name__": "recipe", "__file__": str(EMNIST)}
    exec(compile(EMNIST.read_text(), str(EMNIST), "exec"), namespace)
    plan = namespace["PLANS"]["DP-FedEmb"]
    assert (plan.rounds, plan.cohort.size, plan.cohort.users_per_client) == (200, 32, 8)
    assert (plan.client.epochs, plan.client.batch_size, plan.client.max_examples) == (8, 32, 2048)
    assert (plan.client.learning_rate, plan.client.head_lr_scale, plan.client.momentum) == (5e-3, 100, 0.9)
    assert (plan.server.learning_rate, plan.server.momentum) == (0.02, 0.9)
    assert (plan.clipping.norm, plan.noise.noise_multiplier) == (1.0, 0.62)
    shared = namespace["PLANS"]["DP-FedAvg"]
    assert (shared.name, shared.noise.noise_multiplier) == ("fedavg", 0.62)


# The recipe of faces: nobody is in two parts, a model begins as the public backbone, and rows meet their budgets.
LFW = Path(__file__).resolve().parents[2] / "recipes" / "fedemb_lfw" / "run.py"


@pytest.fixture
def lfw(script):
    """The script as a module."""
    return script("fedemb_lfw")


def named(count: int) -> data.UserDataset:
    names = np.array([f"person {number}" for number in range(count)])
    return data.from_arrays(np.zeros((count, 1), np.float32), names, names)


def parts_of(recipe, people: data.UserDataset) -> list[set[str]]:
    return [set(part.user_ids) for part in sys.modules["faces"].split(people)]


def test_everybody_is_in_one_part_and_stays_there_when_others_come(lfw) -> None:
    """2,000 people: shares of 0.72, 0.08, 0.08 and 0.12 with stds of 0.0100 and below; 5 stds allowed."""
    parts, more = parts_of(lfw, named(2000)), parts_of(lfw, named(2500))
    assert sum(map(len, parts)) == len(set().union(*parts)) == 2000
    for part, share in zip(parts, (0.72, 0.08, 0.08, 0.12), strict=True):
        assert abs(len(part) / 2000 - share) < 0.05
    assert all(few <= many for few, many in zip(parts, more, strict=True))


def test_a_model_begins_as_what_it_is_given(lfw) -> None:
    rows = torch.randn(3, 128)
    assert torch.equal(lfw.Residual()(rows), rows)


def test_a_view_of_a_picture_follows_from_that_picture_alone(lfw) -> None:
    """Not from others, nor from where it stands: what a neighbour moves is not one person's contribution."""
    faces = sys.modules["faces"]
    pictures = np.random.default_rng(0).integers(0, 256, (5, 112, 112, 3), dtype=np.uint8)
    views = {view: faces.seen(pictures, view) for view in faces.VIEWS}
    for view, rows in views.items():
        assert rows.shape == (5, 3, 112, 112)
        assert torch.equal(faces.seen(pictures[[3]], view)[0], rows[3])
    assert torch.equal(views[faces.MIRRORED].flip(3), views[faces.AS_IT_IS])
    assert len({rows[0].sum().item() for rows in views.values()}) == 3  # mirrored has the sum of what it mirrors


def test_private_rows_cost_one_person_what_their_names_say(lfw) -> None:
    for name, row in lfw.rows().items():
        if row.epsilon is None:
            continue
        plan = lfw.prepared(row, 4124, quick=False)
        told = plan.private_sum(4124)
        assert told.relative_sensitivity == (2 if plan.cohort.users_per_client > 1 else 1), name
        epsilon = acc.guarantee(told.event(plan.rounds)).epsilon(lfw.DELTA)
        assert 0.99 * row.epsilon < epsilon <= row.epsilon * (1 + 1e-9), name
        assert lfw.DELTA < 1 / 4124 / 10


def test_private_rows_of_what_is_trained_cost_the_same(script) -> None:
    """And they clip and noise as the main table's row of that ε, whatever moves."""
    script("fedemb_lfw")
    trained = script("fedemb_lfw", "trained")
    private = {name: row for name, row in trained.ROWS.items() if row.epsilon is not None}
    assert len(private) == len(trained.TRAINED) - 1
    for name, row in private.items():
        plan = trained.plan_of(row, 4124, quick=False)
        assert plan.private_sum(4124).relative_sensitivity == 1, name
        epsilon = acc.guarantee(plan.private_sum(4124).event(plan.rounds)).epsilon(trained.DELTA)
        assert 0.99 * row.epsilon < epsilon <= row.epsilon * (1 + 1e-9), name
        assert plan.trainable == trained.TRAINED[row.trained][0]


def test_more_people_with_the_same_noise_pay_less(lfw) -> None:
    plan = lfw.prepared(lfw.rows()["DP-FedEmb, m = 1, ε = 8"], 4124, quick=False)
    found = lfw.among_more(plan)
    assert 0 < found["epsilon_1000000"] < found["epsilon_100000"] < 8


def test_recall_over_people_gives_each_the_same_say(script, lfw, monkeypatch) -> None:
    """Three people with 4, 2 and 2 pictures: the first's 6 pairs are all found, of the others' 2 none."""
    whose = script("fedemb_lfw", "people")
    first, second = np.array([0] * 6 + [0, 1, 2] + [0, 1]), np.array([0] * 6 + [1, 1, 2] + [2, 2])
    pairs = whose.Pairs(first, second, 3)  # six of the first, an impostor, one each of the others, two impostors
    monkeypatch.setattr(whose, "FAR", 0.0)
    assert pairs.recalls(np.ones(3)) == (pytest.approx(6 / 8), pytest.approx(1 / 3))
    assert pairs.recalls(np.array([0.0, 1.0, 1.0])) == (1.0, 1.0)  # without the first its impostors are gone, too
    assert pairs.recalls(np.array([2.0, 1.0, 0.0])) == (pytest.approx(12 / 13), pytest.approx(2 / 3))
    assert whose._concentration(pairs) == "8 genuine pairs of 3 people (75% are one person's, 100% five people's)"


def test_every_curve_has_a_style_of_its_own(script, lfw) -> None:
    page = script("fedemb_lfw", "page")
    drawn = set(lfw.rows()) - page.IN_OTHER_VIEWS
    assert "centralized" in drawn
    assert len(drawn) + 1 <= 24  # with the public backbone


@pytest.mark.shared
def test_lfw_is_read_in_the_order_of_names_and_numbers(lfw, shared) -> None:
    names = sys.modules["faces"].names_of(shared / "lfw_112.parquet")
    assert len(names) == 13_233
    assert (names[:-1] <= names[1:]).all()
    assert len(np.unique(names)) == 5_749


# Synthetic writers: nothing stored, nothing that depends on who else is there, hands that differ.
@pytest.fixture
def drawn(script):
    return script("fedemb_writers", "writers")


@pytest.fixture
def writers(drawn):
    return drawn.writers


@pytest.fixture
def some(writers):
    return writers(300, seed=4)


def test_each_writes_tens_of_characters_of_all_kinds(some, drawn):
    assert some.sizes.min() >= 20
    assert some.sizes.max() <= 60
    counts = np.bincount(np.concatenate([some.examples(user)[1] for user in range(60)]), minlength=62)
    assert counts.min() > 0
    assert some.label_names is not None
    assert "".join(some.label_names) == drawn.CHARACTERS
    assert some.groups == ("digits", "capitals", "small")


def test_a_picture_depends_on_the_seed_the_writer_and_the_place_alone(some, writers):
    more, other = writers(2000, seed=4), writers(300, seed=5)
    for user in (0, 1, 299):
        (pictures, labels), (again, same) = some.examples(user), more.examples(user)
        assert np.array_equal(pictures, again)
        assert np.array_equal(labels, same)
    start = int(some.offsets[7])
    whole = some.inputs[start - 30 : start + 25]
    assert np.array_equal(whole[30:], some.inputs[start : start + 25])
    assert np.array_equal(whole[::3], some.inputs[start - 30 : start + 25 : 3])
    assert not np.array_equal(some.inputs[0:20], other.inputs[0:20])


def test_a_hand_is_nearer_to_itself_than_to_others(some):
    def of(user):
        pictures, labels = some.examples(user)
        return {int(label): picture.astype(float).ravel() for label, picture in zip(labels, pictures)}, pictures, labels

    own, others = [], []
    for user in range(100):
        _, pictures, labels = of(user)
        neighbours, _, _ = of(user + 100)
        for place in range(1, len(labels)):
            twin = np.flatnonzero(labels[:place] == labels[place])
            label = int(labels[place])
            if len(twin) and label in neighbours:
                mine = pictures[place].astype(float).ravel()
                own.append(np.corrcoef(mine, pictures[twin[0]].astype(float).ravel())[0, 1])
                others.append(np.corrcoef(mine, neighbours[label])[0, 1])
    assert len(own) > 200
    assert np.mean(own) > np.mean(others) + 0.1


def test_a_hundred_thousand_writers_take_megabytes_and_split_as_collected_data(writers):
    many = writers(100_000)
    assert many.labels.nbytes + many.offsets.nbytes < 8e6
    split = split_users(many.subset(np.arange(2000)), test=0.25, shared_labels=True)
    train = split.train.select_classes(range(36))
    test = split.test.select_classes(range(36, 62))
    assert train.groups == ("digits", "capitals")
    assert set(train.user_ids).isdisjoint(test.user_ids)
    assert test.examples(0)[0].shape[1:] == (28, 28, 1)


def test_the_digest_reports_populations_separate_without_drawing_them(some, writers):
    found = {data.contents() for data in (some, writers(300, seed=5), writers(301, seed=4))}
    assert len(found) == 3
    assert some.contents() == writers(300, seed=4).contents()


def test_a_population_out_of_range_is_refused(writers):
    for wrong, told in ((0, "population"), (2.5, "population")):
        with pytest.raises(InputError, match=told):
            writers(wrong)


def test_writers_are_no_source_of_commands():
    with pytest.raises(InputError, match="there is nothing at writers:12; give a packed store"):
        open_users("writers:12")


# The recipes of DP-FTRL.

SHAKESPEARE = ROOT / "recipes" / "ftrl_shakespeare" / "run.py"


@pytest.fixture
def ftrl_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import ftrl_recipe

    namespace: dict = {"__name__": "recipe", "__file__": str(SHAKESPEARE)}
    exec(compile(SHAKESPEARE.read_text(), str(SHAKESPEARE), "exec"), namespace)
    return ftrl_recipe, namespace["RECIPE"]


CHOSEN = {"noise", "noise.noise_multiplier", "noise.coefficients", "noise.column_scales", "server.learning_rate"}
CHOSEN |= {"cohort", "cohort.parts", "cohort.min_separation"}


def settings(plan) -> dict:
    """All settings by name; those that its kinds of noise and cohorts do not have are as where nobody sets them."""
    unset = {
        "noise.estimator": "efficient",
        "noise.completion": False,
        "noise.prefix_error": "mean",
        **dict.fromkeys(("noise.restart", "noise.bands", "noise.buffers", "cohort.max_participations")),
        "cohort.availability": 1.0,
        "cohort.drop_out": 0.0,
    }
    return {**unset, **dict(flat(plan.to_json()))}


def test_rows_of_one_budget_differ_in_noise_sampling_and_the_rate_that_follows_from_the_noise(ftrl_recipe):
    shared, table = ftrl_recipe
    noises = [shared.Method(noise=noise, epsilon=8.0) for noise in table.noises]
    plans = [table.planned(method, 250, False) for method in noises]
    common = [{name: value for name, value in settings(plan).items() if name not in CHOSEN} for plan in plans]
    assert all(fields == common[0] for fields in common)
    for plan in plans:
        rounds = plan.private_sum(250)
        spent = guarantee(rounds.event(plan.rounds), rounds.sampler.adjacency).epsilon(0.01 / 250)
        assert 0.999 * 8 < spent <= 8
        error = shared.predicted_error(plan, 250)
        assert plan.server.learning_rate == pytest.approx(min(2.5, 0.16 / error), abs=1e-3)


def test_correlated_noise_is_predicted_to_lose_to_sampling_at_a_small_budget_and_to_win_at_a_large_one(ftrl_recipe):
    shared, table = ftrl_recipe

    def error(noise: str, epsilon: float) -> float:
        return shared.predicted_error(table.planned(shared.Method(noise=noise, epsilon=epsilon), 250, False), 250)

    sampled = "independent, Poisson sampling"
    assert error(sampled, 2.0) < error("banded", 2.0) < error("tree", 2.0) < error("independent", 2.0)
    assert error("banded", 20.0) < error("tree", 20.0) < error(sampled, 20.0) < error("independent", 20.0)


@pytest.mark.shared
def test_no_one_who_is_measured_trains(ftrl_recipe, shared):
    train, test = ftrl_recipe[1].data(False)
    assert (len(train), len(test)) == (250, 49)
    assert not set(train.user_ids) & set(test.user_ids)


@pytest.mark.shared
def test_the_constant_answer_is_as_right_as_blanks_are_frequent(ftrl_recipe, shared):
    test = ftrl_recipe[1].data(True)[1]
    blank = test.label_names.index(" ")
    labels = [label for user in range(len(test)) for label in test.examples(user)[1].ravel() if label]
    assert ftrl_recipe[0].most_frequent(test) == pytest.approx(labels.count(blank) / len(labels))


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_of_shakespeare_at_one_budget_runs_and_states_it(ftrl_recipe, shared, monkeypatch, tmp_path):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in SHAKESPEARE.parent.iterdir())
    recipe = replace(ftrl_recipe[1], epsilons=(8.0,))
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--out", str(tmp_path)])
    ftrl_recipe[0].main(recipe)
    rows = {row["method"]: row for row in json.loads((tmp_path / "quick" / "results.json").read_text())}
    assert 0 < rows.pop("always the most frequent")["mean"] < 1
    assert list(rows) == list(recipe.methods)
    for name, row in rows.items():
        assert 0 <= row["mean"] <= 1 < row["perplexity"]
        if name == "not private":
            assert row["epsilon"] is None
        else:
            budget = float(name.rsplit(" ", 1)[1])
            assert 0.999 * budget < row["epsilon"] <= budget
            assert (row["delta"], row["unit"]) == (0.01 / 250, "user")
    said = "".join(ElementTree.parse(tmp_path / "quick" / "accuracy.svg").getroot().itertext())
    assert all(noise in said for noise in recipe.noises)
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in SHAKESPEARE.parent.iterdir())


# The recipe of writers: rows meet their budgets and share one plan but for the noise; who is missing shows nowhere.
WRITERS = ROOT / "recipes" / "ftrl_writers" / "run.py"


@pytest.fixture
def ftrl(script):
    """The script as a module."""
    return script("ftrl_writers")


@pytest.mark.slow
@pytest.mark.shared
def test_every_row_of_writers_at_one_budget_runs_and_states_it(ftrl, shared, monkeypatch, tmp_path):
    recipe = replace(ftrl.RECIPE, epsilons=(8.0,))
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--out", str(tmp_path)])
    ftrl.main(recipe)
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    assert len(rows) == 9
    for row in rows:
        if row["method"] == "not private":
            assert row["epsilon"] is None
        else:
            budget = float(row["method"].split("ε ")[1].split(",")[0])
            assert 0.999 * budget < row["epsilon"] <= budget
            assert row["delta"] == 0.01 / 539
            assert row["unit"] == "user"
        assert 0 <= row["mean"] <= 1
    assert (tmp_path / "quick" / "accuracy.svg").read_text().count("<svg") == 1


def test_rows_differ_in_noise_sampling_and_the_servers_rate_only(ftrl):
    chosen = {*CHOSEN, "cohort.drop_out", "delta", "population"}
    table = ftrl.RECIPE
    shared = settings(table.plan)
    for title in ("tree, ε 8", "independent, Poisson sampling, ε 2", "banded, cyclic Poisson sampling, ε 8"):
        own = settings(table.planned(table.methods[title], 539, False))
        assert {name for name in own.keys() | shared.keys() if own.get(name) != shared.get(name)} <= chosen


def test_the_row_with_missing_writers_has_the_noise_and_the_rate_of_the_full_one(ftrl):
    full, missing = (ftrl.RECIPE.planned(row, 539, False) for row in (ftrl.FULL, ftrl.MISSING))
    assert missing.cohort.drop_out == 0.3
    assert missing.replace(cohort={"drop_out": 0.0}) == full
    assert ftrl.MISSING.title in ftrl.RECIPE.methods


def test_statements_that_differ_in_one_byte_are_refused(ftrl, tmp_path):
    full, missing = tmp_path / "full", tmp_path / "missing"
    for folder in (full, missing):
        folder.mkdir()
        (folder / "statement.json").write_text('{"epsilon": 8.0}')
    ftrl.refuse_difference(full, missing)
    (missing / "statement.json").write_text('{"epsilon": 8.1}')
    with pytest.raises(SystemExit, match="differ"):
        ftrl.refuse_difference(full, missing)


# The recipes of ratings and likes measure all methods on the same people and records.


def _ratings(table: bool) -> Split:
    rng = np.random.default_rng(0)
    items, people = rng.integers(0, 9, size=(240, 1)), np.repeat(np.arange(24), 10)
    found = data.from_arrays(items, rng.normal(size=240).astype(np.float32), people)
    return split_users(with_user_column(found) if table else found, test=0.25)


def _factors(_: data.UserDataset, seed: int, users: int | None) -> Recommender:
    generator = torch.Generator().manual_seed(seed)
    return recommender("matrix_factorization", 9, factors=4, users=users, generator=generator)


@pytest.mark.parametrize("name", ["table", "one vector", "own"])
def test_people_no_one_trained_on_are_served_by_what_items_have_learned(name, script, tmp_path):
    ratings = script("fedrecon_movielens", "fedrecon_recipe")
    recon = FedRecon(rounds=3, cohort=4, clipping=None, noise=0.0, client={"batch_size": 5, "local": {"steps": 4}})
    fedavg = FedAvg(rounds=3, cohort=4, clipping=None, noise=0.0, client={"loss": "squared", "learning_rate": 0.1})
    method = ratings.Method(
        plan=recon if name == "own" else fedavg, rebuild=recon, table=name == "table", steps=(0, 4), seen=True
    )
    study = ratings.Study(methods={name: method}, people=_ratings, model=_factors, inner=Values())
    study.cell(name, 0, tmp_path, False, None)
    (found,) = ratings.measured(lambda *_: tmp_path, name, 1)
    trained = load_file(tmp_path / "model.safetensors")
    beginning = _factors(_ratings(False).train, 0, None).user_factors.detach()
    if name == "table":  # of people whom no one trained on every row is as all began
        rows = trained["user_factors.weight"]
        assert torch.equal(rows[_ratings(True).test.examples(0)[0][0, 1]], beginning)
    vector = trained["user_factors"] if name == "one vector" else beginning
    split = _ratings(False)
    task = method.task(Values(), 0)
    assert task.client.local.steps == 0
    assert found["unseen"]["0"]["values"] == found["unseen"]["4"]["values"] == 5 * len(split.test)
    single = _factors(split.train, 0, None)
    single.load_state_dict({"item_factors.weight": trained["item_factors.weight"], "user_factors": vector})
    again = task.measure(single, split.test, curve=False, device="cpu")
    assert found["unseen"]["0"]["rmse"] == pytest.approx(again["rmse"])
    assert found["unseen"]["0"]["rmse"] != found["unseen"]["4"]["rmse"]
    assert found["seen"]["values"] == 5 * len(split.train)
    assert found["kilobytes_sent"] == 4 * 4 * (9 if name == "own" else 10) / 1000
    assert [title for title, _ in method.titled(name)] == [name, f"{name}, then rebuilt"]


@pytest.mark.shared
def test_characters_and_words_of_roles_are_measured_with_and_without_an_own_part(shared, tmp_path):
    script = ROOT / "recipes" / "fedrecon_shakespeare" / "run.py"
    command = [sys.executable, str(script), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "results.json").read_text())
    methods = ["FedYogi", "FedYogi + fine-tuning", "FedRecon", "FedRecon, not rebuilt"]
    assert [row["method"] for row in rows] == 2 * methods
    assert [row["dataset"].split()[1] for row in rows] == 4 * ["character"] + 4 * ["word"]
    for row in rows:
        assert 0 <= row["mean"] <= 1 < row["perplexity"]
        assert row["epsilon"] is row["unit"] is None
        assert (row["paper"] is None) == ("word" not in row["dataset"] or "not rebuilt" in row["method"])
