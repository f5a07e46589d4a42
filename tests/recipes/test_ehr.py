"""The recipes of health records: their scripts, the baselines, and the comparison with other libraries."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ehr_baselines import CRNNGAN, RCGAN, BaselinePlan, Copies, TimeGAN, load_baseline
from ehr_baselines.frames import Frames
from ehr_baselines.turns import Turns
from scipy import stats

from made_up_patients import records
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.audit.ehr import evaluate
from sfumato.cli.main import main
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema, numeric
from sfumato.synthesis import EHRSafe, IndependentColumns, Synthesizer
from sfumato.synthesis.training import Diverged
from slow import one_in

pytestmark = pytest.mark.slow

# The recipes of health records, and the comparison with other libraries.

# The recipes of health records: every cell runs and is kept, and the rows are means of the cells.

ROOT = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def recipe(monkeypatch):
    """What the recipes share, as a module."""
    monkeypatch.syspath_prepend(str(ROOT))
    import ehr_recipe  # pyright: ignore[reportMissingImports]

    return ehr_recipe


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


def test_more_patients_come_behind_the_method_whose_run_they_take(recipe, tmp_path):
    made = recipe.Recipe(
        folder=tmp_path, dataset="toy", parts=lambda: None, methods={"A": None, "B": None}, more={"A, twice": ("A", 2)}
    )
    assert made.names == ["A", "A, twice", "B"]


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


@pytest.mark.parametrize("name", ["ehr_pbcseq", "ehr_physionet2012", "ehr_private"])
def test_results_are_the_rows_of_the_kept_cells(recipe, script, name: str):
    made = script(name).RECIPE
    assert json.loads((ROOT / name / "results.json").read_text()) == recipe.rows(made, ROOT / name)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["ehr_pbcseq", "ehr_physionet2012", "ehr_private"])
def test_no_one_who_is_held_out_is_learned_from(script, shared, name: str):
    train, holdout = script(name).RECIPE.parts()
    assert not set(train.ids) & set(holdout.ids)
    assert train.schema == holdout.schema
    for side in (train, holdout):
        assert 0 < side.outcome().sum() < len(side)


@pytest.mark.shared
def test_divisions_hold_out_others_than_the_table(script, shared):
    divisions = script("ehr_physionet2012", "divisions")
    held = [set(divisions.intensive_care(seed)[1].ids) for seed in (0, 1)]  # the table's, and the first of these
    assert len(held[0] & held[1]) < len(held[1]) / 2


def test_rows_of_divisions_are_means_over_them(script, tmp_path):
    divisions = script("ehr_physionet2012", "divisions")
    for seed, found in ((0, 0.7), (1, 0.8)):
        (tmp_path / str(seed)).mkdir()
        made = {part: {"a": {"found": found, "ideal": 0.9}} for part in divisions.PARTS}
        told = {divisions.METHOD: made, divisions.MORE: {"utility": made["utility"]}}
        (tmp_path / str(seed) / "measured.json").write_text(json.dumps(told))
    rows = divisions.table(lambda _, seed: tmp_path / str(seed), 2, True)
    assert {(row["method"], row["mean"]) for row in rows} == {
        (divisions.REAL, 0.9), (divisions.HELD_OUT, 0.9), (divisions.METHOD, 0.75), (divisions.MORE, 0.75)
    }  # fmt: skip


def test_private_rows_are_within_the_budget(script):
    private = script("ehr_private")
    found = json.loads((ROOT / "ehr_private" / "results.json").read_text())
    rows = [row for row in found if row["method"].startswith(private.PRIVATE)]
    assert {row["method"] for row in rows} == {private.PRIVATE, *private.RECIPE.more}
    assert all(0.999 * private.EPSILON < row["epsilon"] <= private.EPSILON for row in rows)
    assert {row["unit"] for row in rows} == {"stay"}


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
            "reported": {"fit_seconds": 10 * value, "sample_seconds": value, "peak_bytes": 1e8, "patients": 7},
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


# The baselines of EHR-Safe: TimeGAN, RCGAN and C-RNN-GAN.

# A whole run of each recurrent GAN: what it says, how it stops and goes on, and what it refuses.

SAVED = ("model.safetensors", "statement.json", "metrics.jsonl")


class StopAt:
    """Progress that presses Ctrl-C once."""

    def __init__(self, stage: str, step: int) -> None:
        self._at = (stage, step)

    def __call__(self, what: str, done: int, of: int) -> None:
        if (what, done) == self._at:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("kind", ["timegan", "rcgan", "crnngan"])
def test_the_statement_says_that_there_is_no_guarantee(patients, quick, kind: str, tmp_path: Path):
    result = quick(kind).fit(patients(40), out=tmp_path / "run")
    assert result.finished
    assert result.statement.epsilon == float("inf")
    assert "no differential privacy guarantee" in result.statement.assumptions[0]
    assert result.statement.mechanism.startswith(quick(kind).title)


@pytest.mark.parametrize(
    ("kind", "stage", "step"),
    [
        ("timegan", "embedding", 0),
        ("timegan", "supervised", 2),
        ("timegan", "joint", 3),
        ("rcgan", "gan", 5),
        ("crnngan", "pretraining", 4),
        ("crnngan", "gan", 0),
        ("crnngan", "gan", 4),
    ],
)
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    patients, quick, tmp_path: Path, sigint, kind: str, stage: str, step: int
):
    data, plan = patients(40), quick(kind)
    plan.fit(data, out=tmp_path / "whole")
    stopped = plan.fit(data, out=tmp_path / "stopped", progress=StopAt(stage, step))
    assert not stopped.finished
    assert stopped.synthesizer is None
    assert plan.fit(data, out=tmp_path / "stopped", resume=True).finished
    for name in SAVED:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["timegan", "rcgan", "crnngan"])
def test_a_run_that_has_ended_learns_nothing_again_and_its_file_draws_the_same(
    patients, quick, tmp_path: Path, kind: str
):
    data, plan = patients(30), quick(kind)
    result = plan.fit(data, out=tmp_path / "run")

    def refuse(what: str, done: int, of: int) -> None:
        raise AssertionError(what)

    again = plan.fit(data, out=tmp_path / "run", resume=True, progress=refuse)
    found = [
        next(each.sample(50, seed=3)).fingerprint()
        for each in (result.synthesizer, again.synthesizer, load_baseline(tmp_path / "run"))
    ]
    assert len(set(found)) == 1


def test_other_records_do_not_go_on_with_a_run(patients, quick, tmp_path: Path):
    quick("rcgan").fit(patients(30), out=tmp_path / "run")
    with pytest.raises(InputError, match="another plan, model or data set"):
        quick("rcgan").fit(patients(30, seed=1), out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(("kind", "stage"), [("timegan", "joint"), ("rcgan", "gan"), ("crnngan", "gan")])
def test_a_stage_that_diverges_says_so_and_keeps_the_checkpoint_before_it(
    patients, quick, tmp_path: Path, kind: str, stage: str
):
    plan = quick(kind, learning_rate=1e37)
    with pytest.raises(InputError, match=f"{stage!r} diverged in step .* lower learning_rate"):
        plan.fit(patients(40), out=tmp_path / "run", save_every=0.0)
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_loss_of_a_side_that_waits_may_diverge_too():
    """No gradient of it is taken, which would be refused."""
    losses = {"loss": 1.0, "fooled": float("inf")}
    turns = Turns("gan", 1, {}, lambda index, random: losses, RandomSource.from_seed(0))
    with pytest.raises(Diverged):
        turns.step(0)


def test_the_metrics_say_how_many_visits_were_cut(patients, quick):
    data = patients(60)
    row = quick("rcgan", longest=0.5).fit(data).history[0]["not_private"]
    steps = int(np.quantile(data.lengths, 0.5, method="higher"))
    assert row["longest"] == steps
    assert row["visits_cut"] == pytest.approx(np.maximum(data.lengths - steps, 0).sum() / data.lengths.sum())


def test_a_run_of_something_else_is_refused(patients, tmp_path: Path):
    few: dict[str, Any] = {"hidden": 8, "latent": 4, "gan_hidden": 8, "category_steps": 2, "epochs": 1, "gan_steps": 2}
    EHRSafe(**few, batch_size=16, calibrated_on=50, seed=1).fit(patients(30), out=tmp_path / "run")
    with pytest.raises(InputError, match="holds no baseline; take the folder of a run of TimeGAN, RC-GAN, C-RNN-GAN"):
        load_baseline(tmp_path / "run")
    quick = RCGAN(steps=1, hidden=4, noise=2, batch_size=4, seed=1)
    quick.fit(patients(30), out=tmp_path / "other")
    with pytest.raises(InputError, match="holds no synthesizer"):
        Synthesizer.load(tmp_path / "other")


def test_other_data_than_health_records_are_refused():
    with pytest.raises(InputError, match="EHRDataset"):
        TimeGAN().fit(np.zeros((3, 3)))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (TimeGAN, {"gamma": -1.0}),
        (TimeGAN, {"embedding_steps": 0}),
        (RCGAN, {"longest": 0.0}),
        (RCGAN, {"learning_rate": 0.0}),
        (RCGAN, {"learning_rate": 3e38}),
        (CRNNGAN, {"frozen_below": 1.5}),
        (CRNNGAN, {"pretraining_steps": 0}),
    ],
)
def test_settings_out_of_range_are_refused(kind: type[BaselinePlan], wrong: dict):
    with pytest.raises(InputError, match=next(iter(wrong))):
        kind(**wrong)


# Copies of patients give everything away, and what measures records finds them.


def test_everybody_is_copied_once_before_anybody_is_copied_again(patients):
    data = patients(30)
    (found,) = Copies(data).sample(75, seed=0)
    rows = [tuple(np.nan_to_num(one.numbers, nan=-1.0).ravel()) for one in (found.take([i]) for i in range(75))]
    real = {tuple(np.nan_to_num(data.take([i]).numbers, nan=-1.0).ravel()) for i in range(30)}
    assert set(rows[:30]) == set(rows[30:60]) == real
    assert set(rows[60:]) <= real
    assert found.ids == tuple(f"synthetic-{place + 1:06}" for place in range(75))


def test_the_attacks_find_copies_and_not_independent_columns_and_the_detector_these():
    real, holdout = records(150, 1), records(150, 2)
    copies, apart = (
        evaluate(real, holdout, next(each.sample(150, seed=0)), seed=0)
        for each in (Copies(real), IndependentColumns(real))
    )
    membership = [found.attacks[0].measures[0] for found in (copies, apart)]
    assert membership[0].above
    assert membership[0].found.value > 0.9 > 0.65 > membership[1].found.value
    gaps = [found.fidelity.synthetic.correlation.mean or 0.0 for found in (copies, apart)]
    assert gaps[1] > 0.1 > gaps[0]
    detector = apart.fidelity.synthetic.detector
    assert detector is not None
    assert detector.value > 0.7


def test_the_same_seed_draws_the_same_records_and_another_one_others(patients):
    data = patients(40)
    first, again, other = (next(Copies(data).sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other


# Folders of runs of baselines, as commands of earlier versions wrote them: what reads them, what names the recipe.


@pytest.fixture(params=["timegan", "rcgan", "crnngan"])
def run(request: pytest.FixtureRequest, patients, quick, tmp_path: Path) -> Path:
    """A run that has ended."""
    quick(request.param).fit(patients(30), out=tmp_path / "run")
    return tmp_path / "run"


def test_the_ledger_and_the_report_read_a_run_that_has_ended(run: Path, capsys):
    for words in (["ledger", "verify"], ["ledger", "show"], ["report"]):
        assert main([*words, str(run)]) == 0, words
        told = capsys.readouterr()
        assert told.err == ""
        assert "Stopped" not in told.out
    assert "no differential privacy guarantee" in (run / "report.html").read_text()


def test_the_report_of_a_run_that_was_stopped_says_that_it_made_no_records(patients, quick, tmp_path, sigint, capsys):
    def stop(what: str, done: int, of: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    assert not quick("rcgan").fit(patients(30), out=tmp_path / "run", progress=stop).finished
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "Stopped before it could make records" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["ehr", "sample", "--count", "3", "--to", "made", "--model", "{run}"],
        ["ehr", "sample", "--count", "3", "--to", "made", "--model", "{run}/model.safetensors"],
        ["ehr", "fit", "--resume", "{run}"],
    ],
)
def test_what_needs_the_model_names_the_recipe_in_one_line(run: Path, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert main([word.format(run=run) for word in words]) == 2
    complaint = capsys.readouterr().err
    assert "recipes/ehr_baselines" in complaint
    assert complaint.count("\n") == 1
    assert not (tmp_path / "made").exists()


def test_a_baseline_is_no_model_of_the_command(tmp_path: Path, capsys):
    assert main(["ehr", "fit", "--model", "timegan", "--data", str(tmp_path), "--out", str(tmp_path / "other")]) == 2
    assert "--model must be one of ehr_safe, got timegan" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


# Frames of records, there and back.


def test_records_come_back_from_their_own_frames(patients):
    """Exact frames leave nothing to draw."""
    data = patients(50)
    frames = Frames.fit(data, longest=1.0)
    found = frames.records(frames.of(data), None, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(found.lengths, data.lengths)
    np.testing.assert_allclose(found.times, data.times, rtol=1e-5, atol=1e-3)
    for name in ("codes", "static_codes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name))
    for name in ("numbers", "static_numbers"):
        np.testing.assert_allclose(getattr(found, name), getattr(data, name), rtol=1e-5, atol=1e-5)


def test_what_is_behind_the_longest_record_is_cut(patients):
    data = patients(50)
    frames = Frames.fit(data, longest=0.5)
    found = frames.records(frames.of(data), None, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(found.lengths, np.minimum(data.lengths, frames.steps))
    assert frames.lost(data) == pytest.approx(1 - found.lengths.sum() / data.lengths.sum())
    assert frames.lost(data) > 0


def test_frames_are_zero_behind_a_record_but_for_its_static_columns(patients):
    data = patients(50)
    frames = Frames.fit(data, longest=1.0)
    x = frames.of(data).numpy()
    short = int(data.lengths.argmin())
    behind = x[short, data.lengths[short] :]
    assert (behind.any(axis=0) <= (x[short, 0] == behind[0])).all()
    assert ((x >= 0) & (x <= 1)).all()


def test_a_state_holds_all_of_it(patients):
    data = patients(30)
    frames = Frames.fit(data, longest=0.9)
    again = Frames.from_state(*frames.state())
    assert torch.equal(frames.of(data), again.of(data))
    assert (again.steps, again.width) == (frames.steps, frames.width)
    np.testing.assert_array_equal(again.outcomes, frames.outcomes)


def test_a_missing_outcome_is_drawn_as_often_as_it_is_missing(patients):
    """Three shares of 4,000 draws, each within five standard deviations."""
    data = patients(100)
    codes = data.static_codes.copy()
    codes[:30, 1] = -1
    frames = Frames.fit(replace(data, static_codes=codes), longest=1.0)
    drawn = frames.outcome_drawn(4_000, torch.Generator().manual_seed(0))
    shares = np.array([*drawn.mean(0).tolist(), float((drawn.sum(1) == 0).float().mean())])
    np.testing.assert_allclose(shares, frames.outcomes, atol=5 * 0.5 / np.sqrt(4_000))
    assert frames.outcomes[-1] == pytest.approx(0.3)


# What the recurrent GANs generate: valid records, and something of what they have learned from.

KINDS = ("timegan", "rcgan", "crnngan")


@pytest.mark.parametrize("kind", KINDS)
def test_every_gan_generates_valid_records(patients, quick, kind: str):
    """Times that ascend, codes of the schema and whole numbers are what an EHRDataset refuses otherwise."""
    data = patients(60)
    plan = quick(kind)
    made = plan.fit(data).synthesizer
    blocks = list(made.sample(25, seed=1, block=10))
    assert [len(block) for block in blocks] == [10, 10, 5]
    assert blocks[-1].ids[-1] == "synthetic-000025"
    (found,) = made.sample(200, seed=0)
    assert found.schema == data.schema
    assert found.lengths.max() <= np.quantile(data.lengths, plan.longest, method="higher")
    assert found.times.max() <= data.times.max()
    low, high = np.nanmin(data.numbers, axis=0), np.nanmax(data.numbers, axis=0)
    observed = ~np.isnan(found.numbers)
    assert ((found.numbers >= low) & (found.numbers <= high))[observed].all()
    assert not observed.all()
    assert (found.codes < 0).any()
    assert np.isnan(found.static_numbers).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_samples_the_same_records_and_another_one_others(patients, quick, kind: str):
    made = quick(kind).fit(patients(40)).synthesizer
    first, again, other = (next(made.sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_learns_the_same_and_another_one_something_else(patients, quick, kind: str):
    data = patients(40)
    found = [quick(kind, seed=seed).fit(data).synthesizer.state()[0] for seed in (1, 1, 2)]
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
    assert not all(torch.equal(value, found[2][name]) for name, value in found[0].items())


@pytest.mark.parametrize("given", [{"died": "yes"}, {"sex": "f", "age": (45, 65)}])
def test_what_is_given_holds_for_every_record(patients, quick, given: dict):
    (found,) = quick("rcgan").fit(patients(60)).synthesizer.sample(30, conditions=given, seed=1)
    assert len(found) == 30
    for place, column in enumerate(found.schema.static_categorical):
        if column.name in given:
            assert (found.static_codes[:, place] == column.code(given[column.name])).all()
    if "age" in given:
        assert ((found.static_numbers >= 45) & (found.static_numbers <= 65)).all()


def test_a_condition_that_names_nothing_is_refused_before_anything_is_drawn(patients, quick):
    with pytest.raises(InputError, match="conditions must name static columns"):
        quick("timegan").fit(patients(30)).synthesizer.sample(10, conditions={"bili": (1, 2)})


def test_outcomes_of_an_rcgan_follow_those_of_real_patients(patients, quick):
    """They are drawn by their shares, however little was learned: false alarms one in 10,000."""
    data = patients(300)
    (found,) = quick("rcgan").fit(data).synthesizer.sample(2_000, seed=0)
    counts = [np.bincount(each.outcome(), minlength=2) for each in (data, found)]
    share = counts[0][1] / len(data)
    assert stats.binomtest(int(counts[1][1]), 2_000, share).pvalue > 1e-4


@pytest.mark.parametrize(("kind", "kept"), one_in(2, KINDS, [{"bili"}, {"stage"}]))
def test_a_kind_of_column_that_there_is_not_is_no_matter(patients, quick, kind: str, kept: set[str], tmp_path: Path):
    """Without static columns and outcome, and with numbers alone or categories alone."""
    data = patients(30)
    temporal = tuple(column for column in data.schema.temporal if column.name in kept)
    bare = replace(
        data,
        schema=replace(data.schema, static=(), temporal=temporal, outcome=None),
        static_numbers=np.empty((30, 0)),
        static_codes=np.empty((30, 0)),
        numbers=data.numbers[:, :1] if "bili" in kept else np.empty((len(data.times), 0)),
        codes=data.codes if "stage" in kept else np.empty((len(data.times), 0)),
    )
    quick(kind).fit(bare, out=tmp_path / "run")
    (found,) = load_baseline(tmp_path / "run").sample(50, seed=1)
    assert len(found) == 50


@pytest.mark.parametrize("kind", KINDS)
def test_one_patient_with_one_visit_can_be_learned_from(patients, quick, kind: str):
    data = patients(20)
    one = data.take([int(data.lengths.argmin())])
    (found,) = quick(kind, batch_size=4).fit(one).synthesizer.sample(5, seed=1)
    assert (found.lengths <= one.lengths[0]).all()


def two_kinds(count: int, seed: int) -> EHRDataset:
    """Patients of two kinds, half each: both numbers of both visits are low, or all are high."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(rng.integers(0, 2, count), 2)
    return EHRDataset(
        schema=Schema(id="id", time="day", time_unit="days", static=(), temporal=(numeric("a"), numeric("b"))),
        ids=tuple(f"{seed}-{place}" for place in range(count)),
        static_numbers=np.empty((count, 0)),
        static_codes=np.empty((count, 0)),
        offsets=2 * np.arange(count + 1),
        times=np.tile([0.0, 30.0], count),
        numbers=(2.0 + 6.0 * kind.reshape(-1, 1)) + 0.3 * rng.standard_normal((2 * count, 2)),
        codes=np.empty((2 * count, 0)),
    )


LEARNS = {
    "timegan": {"steps": 150, "embedding_steps": 150, "supervised_steps": 20},
    "rcgan": {"steps": 600},
    "crnngan": {"steps": 500, "pretraining_steps": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_kinds_of_patients_are_learned_better_than_by_independent_noise(quick, kind: str):
    """Both numbers go together, which those of noise never do; where more than means is matched, there are two modes.

    C-RNN-GAN's features are matched in the mean only, and records of one mode between the two have the same.
    """
    data = two_kinds(300, 0)
    plan = quick(kind, hidden=24, noise=8, batch_size=64, learning_rate=3e-3, **LEARNS[kind])
    (found,) = plan.fit(data).synthesizer.sample(500, seed=1)
    there = ~np.isnan(found.numbers).any(axis=1)
    assert there.mean() > 0.9
    assert abs(found.lengths.mean() - 2) < 0.1
    noise = np.random.default_rng(0).uniform(data.numbers.min(), data.numbers.max(), (2_000, 2))
    together, apart = (float(np.asarray(np.corrcoef(each.T))[0, 1]) for each in (found.numbers[there], noise))
    assert together > 0.8 > 0.1 > abs(apart)
    if kind != "crnngan":
        for place in range(2):
            real, made = data.numbers[:, place], found.numbers[there, place]
            assert stats.wasserstein_distance(made, real) < stats.wasserstein_distance(noise[:, place], real)
