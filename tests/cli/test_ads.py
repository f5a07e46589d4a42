"""`sfumato ads`: the plan that is trained, the measures, settings that are chosen and paid for, and bad logs."""

import errno
import json
import math
import os
import re
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.metrics import log_loss, roc_auc_score

from sfumato import accounting as acc
from sfumato.cli import ads, ads_sweep
from sfumato.cli.parse import read_flags
from sfumato.data import ZipfClicks, open_examples

SMALL = ("--cohort", 20, "--steps", 2, "--seed", 1, "--model-options", "hidden=[4]")
GRID = ("--epsilons", 8, "--clips", 1, "--rates", 0.1, 0.2)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 clicks of 60 users."""
    place = tmp_path_factory.mktemp("logs") / "clicks.store"
    ZipfClicks(vocabulary_sizes=(50, 5), numeric=2, users=60, seed=1).examples(400, store=place)
    return place


def plan_of(sfumato, *words: object) -> dict:
    shown = sfumato("ads", "train", "--dry-run", "--json", "--epsilon", 8, *words)
    assert shown.code == 0, shown.err
    return json.loads(shown.out)


def test_a_click_model_has_the_settings_of_click_models_unless_others_are_given(sfumato, log: Path, tmp_path: Path):
    plan = plan_of(sfumato, "--data", log, "--cohort", 50)["plan"]
    assert (plan["tables"]["kind"], plan["clipping"]["norm"], plan["cohort"]["size"]) == ("deferred", 10.0, 50)
    assert plan["steps"] == math.ceil(5 * plan["population"] / 50)
    plan = plan_of(sfumato, "--data", log, "--tables", "dense", "--clipping", 2, *SMALL)["plan"]
    assert (plan["tables"]["kind"], plan["clipping"]["norm"], plan["steps"]) == ("dense", 2.0, 2)
    (tmp_path / "mine.yaml").write_text("clipping: 3\nsteps: 4\ncohort: 20\nunit: user\nimpressions: 2\n")
    plan = plan_of(sfumato, "--data", log, "--config", tmp_path / "mine.yaml")["plan"]
    assert (plan["clipping"]["norm"], plan["steps"], plan["examples"]["per_user"]) == (3.0, 4, 2)


def test_users_are_the_unit_that_is_sampled_and_counted(sfumato, log: Path):
    told = plan_of(sfumato, "--data", log, "--unit", "user", "--impressions", 3, *SMALL)
    statement, plan = told["statement"], told["plan"]
    assert (statement["unit"], plan["examples"]["per_user"]) == ("user", 3)
    assert statement["population"] < 60  # users, not their 400 rows
    event = acc.Gaussian(plan["noise"]["noise_multiplier"]).poisson(20 / statement["population"]) * 2
    assert acc.guarantee(event).epsilon(statement["delta"]) == pytest.approx(statement["epsilon"], rel=1e-3)
    assert "rows_of_user" in {line["id"] for line in statement["assumptions"]}
    of_rows = plan_of(sfumato, "--data", log, *SMALL)["statement"]["assumptions"]
    assert "examples_of_users" in {line["id"] for line in of_rows}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--unit", "user"), "--unit user needs a public number of rows"),
        (("--unit", "example", "--impressions", 2), "--impressions 2 is for --unit user"),
        (("--impressions", 0), "impressions must be"),
        (("--impressions", 2, "--examples.per-user", 3), "say the same; give one"),
        (("--predict", "pconvs", "--task", "classes"), "--predict pconvs trains by --task counts"),
        (("--predict", "pconvs"), "--task counts needs numbers as targets, got 2 classes"),
        (("--server", "adam"), "tables"),
        (("--model", "lenet5"), "lenet5 has no option hidden"),
        (("--model-options", "hidden=4"), "hidden must be a list of numbers of units, got 4; give [64] for one layer"),
        (("--model", "dlrm", "--model-options", "dense_arch_layer_sizes=8"), "dense_arch_layer_sizes must be a list"),
        (("--predict", "clicks"), "--predict must be one of pconvs, pctr, pcvr, got clicks"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_line(sfumato, log: Path, tmp_path: Path, words, named):
    line = sfumato("ads", "train", "--data", log, "--epsilon", 8, *SMALL, *words, "--out", tmp_path / "run").line
    assert named in line
    assert not (tmp_path / "run").exists()


def test_conversions_are_another_column_of_the_attribution_log():
    words = ["--predict", "pcvr", "--schema", "criteo-attribution:500"]
    assert str(ads.train_options(words).data.schema) == "criteo-attribution-conversions:500"
    assert ads.train_options(["--predict", "pconvs"]).plan.task == "counts"


@pytest.fixture(scope="module")
def trained(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests only read it."""
    out = tmp_path_factory.mktemp("runs") / "clicks"
    words = ["ads", "train", "--data", log, "--epsilon", 8, *SMALL, "--out", out]
    from sfumato.cli.main import main

    assert main([str(word) for word in words]) == 0
    return out


def test_evaluation_is_that_of_the_test_part_next_to_a_constant(sfumato, trained: Path, log: Path):
    import torch

    from sfumato import data, models

    told = json.loads(sfumato("ads", "evaluate", trained, "--json").out)
    test = data.split_examples(open_examples(log), test=0.2, seed=0).test
    model = models.classifier("ctr", 2, test.input_shapes, vocabulary_sizes=test.vocabulary_sizes, hidden=[4])
    models.load_weights(model, trained / "model.safetensors")
    inputs, clicks = test.examples(range(len(test)))
    with torch.no_grad():
        chances = model(*map(torch.from_numpy, inputs)).double().softmax(1)[:, 1].numpy()
    assert told["rows"] == len(test)
    found, constant = told["model"], told["constant"]
    assert found["log_loss"] == pytest.approx(log_loss(clicks, chances), rel=1e-5)
    assert found["auc_loss"] == pytest.approx(1 - roc_auc_score(clicks, chances), abs=1e-9)
    assert found["calibration"] == pytest.approx(chances.mean() / clicks.mean(), rel=1e-5)
    share = np.full(len(clicks), clicks.mean())
    assert constant == pytest.approx({"log_loss": log_loss(clicks, share), "auc_loss": 0.5, "calibration": 1.0})
    again = json.loads(sfumato("ads", "evaluate", trained, "--data", log, "--json").out)
    assert again["rows"] == 400


def test_generated_counts_are_trained_on_and_measured(sfumato, tmp_path: Path):
    words = ("--rows", 200, "--vocabularies", 50, 5, "--counts", "--seed", 1)
    assert sfumato("ads", "generate", tmp_path / "log", *words).code == 0
    words = ("--data", tmp_path / "log", "--predict", "pconvs", "--epsilon", 8, *SMALL)
    shown = sfumato("ads", "train", *words, "--out", tmp_path / "run")
    assert shown.code == 0, shown.err
    told = json.loads(sfumato("ads", "evaluate", tmp_path / "run", "--json").out)
    assert set(told["model"]) == {"deviance", "explained", "calibration", "not_finite"}
    assert told["constant"]["deviance"] > 0


def test_counts_are_measured_by_their_deviance():
    import torch

    counts = ZipfClicks(vocabulary_sizes=(20,), numeric=2, counts=True, seed=1).examples(300)

    class Rates(torch.nn.Module):
        def forward(self, numbers, ids):
            return numbers[:, :1]

    found, constant = ads.measured(Rates(), counts)
    y, rates = np.asarray(counts.targets, np.float64), np.exp(counts.inputs[0][:, 0].astype(np.float64))
    logs = np.where(y > 0, y * np.log(np.maximum(y, 1)), 0.0)
    assert found["deviance"] == pytest.approx(2 * (logs - y * np.log(rates) - y + rates).mean(), rel=1e-6)
    assert constant["deviance"] == pytest.approx(2 * (logs - y * np.log(y.mean())).mean(), rel=1e-6)
    assert found["calibration"] == pytest.approx(rates.sum() / y.sum(), rel=1e-6)


def test_other_rows_than_the_model_reads_are_refused(sfumato, trained: Path, tmp_path: Path):
    ZipfClicks(vocabulary_sizes=(51, 5), numeric=2, seed=1).examples(50, store=tmp_path / "other")
    line = sfumato("ads", "evaluate", trained, "--data", tmp_path / "other").line
    assert "vocabulary sizes [51, 5]" in line
    assert "[50, 5]" in line
    ZipfClicks(vocabulary_sizes=(50, 5), numeric=2, counts=True).examples(50, store=tmp_path / "counts")
    assert "no classes, the model of" in sfumato("ads", "evaluate", trained, "--data", tmp_path / "counts").line
    assert "--schema is for --data" in sfumato("ads", "evaluate", trained, "--schema", "x.yaml").line


def test_a_table_that_was_read_into_a_store_is_measured_and_trained_on_from_there(sfumato, tmp_path: Path):
    log, schema, out = tmp_path / "log.csv", tmp_path / "log.yaml", tmp_path / "run"
    log.write_text("\n".join([HEADER, *[ROW, "2b,4,z,0"] * 40]) + "\n")
    schema.write_text(SCHEMA)
    words = ("--data", log, "--schema", schema, "--store", tmp_path / "store", "--epsilon", 8, *SMALL)
    assert sfumato("ads", "train", *words, "--out", out).code == 0
    shown = sfumato("ads", "evaluate", out, "--json")
    assert shown.code == 0, shown.err
    for more in ((log,), (log, "--schema", schema), (tmp_path / "store",)):
        found = sfumato("ads", "evaluate", out, "--json", "--data", *more)
        assert found.code == 0, found.err
        assert json.loads(found.out)["rows"] == 80
    assert sfumato("ads", "train", "--resume", out).code == 0
    log.unlink()
    assert sfumato("ads", "evaluate", out, "--json").out == shown.out
    # and with a test set of another file, which is still read by the schema
    other = tmp_path / "test.csv"
    other.write_text("\n".join([HEADER, *[ROW, "2b,4,z,0"] * 5]) + "\n")
    measured = tmp_path / "measured"
    words = ("--data", tmp_path / "store", "--schema", schema, "--test", other, "--epsilon", 8, *SMALL)
    assert sfumato("ads", "train", *words, "--out", measured).code == 0
    assert sfumato("ads", "train", "--resume", measured).code == 0
    assert json.loads(sfumato("ads", "evaluate", measured, "--json").out)["rows"] == 10


def test_a_run_that_has_not_ended_is_not_measured(sfumato, log: Path, tmp_path: Path, monkeypatch):
    assert "holds no plan.json" in sfumato("ads", "evaluate", tmp_path).line
    (tmp_path / "file").touch()
    assert "is a file, and no folder of a run" in sfumato("ads", "evaluate", tmp_path / "file").line


# Rows that noisy counts choose before the first step (DP-FEST).

ROWS = ("--frequent-rows", 8)


@pytest.fixture(scope="module")
def frequent(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose budget covers the choice of 8 rows of 55; tests only read it."""
    out = tmp_path_factory.mktemp("runs") / "frequent"
    from sfumato.cli.main import main

    words = ["ads", "train", "--data", log, "--epsilon", 8, *SMALL, *ROWS, "--out", out]
    assert main([str(word) for word in words]) == 0
    return out


def test_the_choice_of_rows_and_the_steps_cost_the_budget_as_one(sfumato, frequent: Path):
    statement, plan = (json.loads((frequent / f"{name}.json").read_text()) for name in ("statement", "plan"))
    choice = acc.Gaussian(plan["about"]["frequent_rows_noise"])
    steps = acc.Gaussian(plan["noise"]["noise_multiplier"]).poisson(20 / statement["population"]) * 2
    delta = statement["delta"]
    assert acc.guarantee(choice).epsilon(delta) == pytest.approx(0.3 * 8, rel=1e-3)
    assert acc.guarantee(choice + steps).epsilon(delta) == pytest.approx(statement["epsilon"], rel=1e-3)
    assert 7.9 < statement["epsilon"] <= 8
    assert acc.guarantee(steps).epsilon(delta) < 7.9
    assert "rows_counted" in {line["id"] for line in statement["assumptions"]}
    ledger = [json.loads(line) for line in (frequent / "ledger.jsonl").read_text().splitlines()]
    assert sum("frequent rows" in json.dumps(line) for line in ledger) == 1


def test_a_dry_run_states_what_the_run_states(sfumato, log: Path, frequent: Path):
    stated = json.loads((frequent / "statement.json").read_text())
    told = plan_of(sfumato, "--data", log, *SMALL, *ROWS)["statement"]
    assert told["epsilon"] == stated["epsilon"]
    found, expected = ({line["id"] for line in each["assumptions"]} for each in (told, stated))
    assert {"rows_counted", "examples_of_users"} <= found
    assert found - expected <= {"no_fresh_processes"}  # of this test alone


def test_evaluation_translates_rows_by_those_that_the_run_chose(sfumato, frequent: Path, log: Path, tmp_path: Path):
    import torch

    from sfumato import data, models

    told = json.loads(sfumato("ads", "evaluate", frequent, "--json").out)["model"]
    test = data.split_examples(open_examples(log), test=0.2, seed=0).test
    kept = json.loads((frequent / "frequent_rows.json").read_text())
    assert sum(map(len, kept)) == 8
    (numbers, ids), clicks = test.examples(range(len(test)))
    mapped = [[1 + kept[at].index(one) if one in kept[at] else 0 for at, one in enumerate(row)] for row in ids.tolist()]
    sizes = [1 + len(each) for each in kept]
    model = models.classifier("ctr", 2, test.input_shapes, vocabulary_sizes=sizes, hidden=[4])
    models.load_weights(model, frequent / "model.safetensors")
    with torch.no_grad():
        chances = model(torch.from_numpy(numbers), torch.tensor(mapped)).double().softmax(1)[:, 1].numpy()
    assert told["log_loss"] == pytest.approx(log_loss(clicks, chances), rel=1e-5)
    shutil.copytree(frequent, tmp_path / "run")
    (tmp_path / "run" / "frequent_rows.json").unlink()
    assert "frequent_rows.json is missing" in sfumato("ads", "evaluate", tmp_path / "run").line
    (tmp_path / "run" / "frequent_rows.json").write_text("[[1]]")
    assert "has 1 tables" in sfumato("ads", "evaluate", tmp_path / "run").line


@pytest.mark.parametrize("more", [(), ROWS], ids=["all rows", "frequent rows"])
def test_a_stopped_run_goes_on_by_the_command_that_it_prints(sfumato, log: Path, request, tmp_path: Path, more):
    from sfumato.runs import Run

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    whole, out = request.getfixturevalue("frequent" if more else "trained"), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "finish", stopped)
        shown = sfumato("ads", "train", "--data", log, "--epsilon", 8, *SMALL, *more, "--out", out)
    assert shown.code == 130
    printed = re.search(r"go on with: sfumato (ads train --resume \S+)", shown.err)
    assert printed is not None, shown.err
    if more:
        assert "was started with --epsilon 8" in sfumato(*printed[1].split(), "--epsilon", 4).line
        assert "began with 8 rows" in sfumato(*printed[1].split(), "--frequent-rows", 9).line
        assert sfumato("dpsgd", "--resume", out).code == 2  # knows of no choice
    assert sfumato(*printed[1].split(), *(("--epsilon", 8) if more else ())).code == 0
    found, expected = (load_file(each / "model.safetensors") for each in (out, whole))
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    found, expected = (json.loads((each / "statement.json").read_text())["epsilon"] for each in (out, whole))
    assert found == expected


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--epsilon", 8, "--frequent-rows", 0), "--frequent-rows must be"),
        (("--epsilon", 8, "--frequent-rows", 55), "rows must be below the 55 rows of all tables"),
        (("--epsilon", 8, *ROWS, "--frequent-rows-noise", 0), "--frequent-rows-noise must be > 0"),
        (("--epsilon", 8, *ROWS, "--frequent-rows-noise", 0.1), "the initial release costs epsilon"),
        (("--epsilon", 8, "--frequent-rows-noise", 5), "--frequent-rows-noise is for --frequent-rows"),
        (("--noise", 1, *ROWS), "needs a --frequent-rows-noise"),
        (("--noise", 0, *ROWS, "--frequent-rows-noise", 5), "--noise 0 hides no one"),
        (("--epsilon", 8, *ROWS, "--noise", "auto"), "--noise auto does not know"),
        (("--epsilon", 8, *ROWS, "--model", "mine.py:Net", "--model-options"), "fixed size"),
    ],
    ids=str,
)
def test_a_choice_of_rows_of_no_use_is_one_line(sfumato, log: Path, tmp_path: Path, words, named):
    line = sfumato("ads", "train", "--data", log, *SMALL, *words, "--out", tmp_path / "run").line
    assert named in line
    assert not (tmp_path / "run").exists()


# Bad logs: one line with the row or the value, exit code 2, and no run.

SCHEMA = (
    "campaign: {kind: category, buckets: 20, hex: true}\nseconds: {kind: numeric, low: 0, high: 9}\n"
    "tags: {kind: category, buckets: 9, most: 3}\nclick: {kind: label, values: [0, 1]}\n"
)
HEADER, ROW = "campaign,seconds,tags,click", "0a1f,3,x|y,1"
COUNTS = SCHEMA.replace("click: {kind: label, values: [0, 1]}", "click: {kind: count}")


@pytest.mark.parametrize(
    ("schema", "header", "row", "named"),
    [
        (SCHEMA, HEADER, "0a1f,3,x", "line 42"),  # ragged
        (SCHEMA, HEADER, "0a1f,3,x,1,7", "line 42"),
        (SCHEMA, "campaign,seconds,click", "0a1f,3,1", "has no column 'tags' of the schema"),
        (SCHEMA, HEADER, "zz,3,x,1", "zz"),  # bad hex
        (SCHEMA, HEADER, "0a1f,3,x,2", "label"),  # no such class
        (SCHEMA, HEADER, "0a1f,3,x,", "label"),
        (COUNTS, HEADER, "0a1f,3,x,-1", "-1"),  # a negative count
        (COUNTS, HEADER, "0a1f,3,x,many", "many"),
        (COUNTS, HEADER, "0a1f,3,x,1000000000000000000", "must be a whole number >= 0 and below 2^53"),
        (SCHEMA.replace("buckets: 20, hex: true", "values: [a], min_count: 5"), HEADER, ROW, "min_count"),
        (SCHEMA.replace("buckets: 20, hex: true", "buckets: 0"), HEADER, ROW, "buckets"),
        (SCHEMA.replace("buckets: 20, hex: true", "vocabulary: private"), HEADER, ROW, "vocabulary"),
    ],
    ids=str,
)
def test_a_bad_log_is_one_line(sfumato, tmp_path: Path, schema: str, header: str, row: str, named: str):
    good = ",".join(value for name, value in zip(HEADER.split(","), ROW.split(",")) if name in header.split(","))
    (tmp_path / "log.csv").write_text("\n".join([header, *[good] * 40, row]) + "\n")
    (tmp_path / "log.yaml").write_text(schema)
    words = ("--data", tmp_path / "log.csv", "--schema", tmp_path / "log.yaml", "--epsilon", 8, *SMALL)
    predict = ("--predict", "pconvs") if schema == COUNTS else ()
    assert named in sfumato("ads", "train", *words, *predict, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_a_row_with_ten_thousand_ids_counts_as_its_first_ones(tmp_path: Path):
    (tmp_path / "log.csv").write_text("\n".join([HEADER, ROW, f"0a1f,3,{'|'.join(map(str, range(10_000)))},0"]) + "\n")
    (tmp_path / "log.yaml").write_text(SCHEMA)
    rows = open_examples(tmp_path / "log.csv", schema=tmp_path / "log.yaml")
    assert rows.input_shapes == ((1,), (4,))
    assert "cut to the declared number of values: tags 1 of 2 rows" in rows.notes[0]


@pytest.mark.slow
def test_a_column_of_a_million_values_is_generated_and_trained_on_in_little_memory(process, tmp_path: Path):
    made = process("ads", "generate", tmp_path / "log", "--rows", 5000, "--vocabularies", "1e6", 20)
    assert made.wait(timeout=300) == 0
    words = ("--data", tmp_path / "log", "--epsilon", 8, *SMALL, "--out", tmp_path / "run")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert process("ads", "train", *words).wait(timeout=600) == 0
    grown = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before
    assert grown < 1.2e6  # KiB; the table takes 0.25e6, so do its copies and the file


@pytest.mark.slow
def test_a_run_that_a_full_disk_stops_goes_on_with_the_tables_that_it_began_with(
    sfumato, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")

    run, other = tmp_path / "run", tmp_path / "other"
    with monkeypatch.context() as patch:
        patch.setattr("sfumato.runs.run.save_file", full)
        refused = sfumato("ads", "train", "--data", log, "--epsilon", 8, *SMALL, "--out", run)
    assert refused.code == 2
    told = refused.err.splitlines()[-1]
    assert "No space left on device" in told
    assert told.endswith(f"go on with --resume {run}")
    ZipfClicks(vocabulary_sizes=(51, 5), numeric=2, users=60, seed=1).examples(400, store=other)
    refused = sfumato("ads", "train", "--resume", run, "--data", other)
    assert refused.code == 2
    assert refused.err.splitlines()[-1].endswith(
        "vocabulary_sizes [50, 5] → [51, 5]); resume with the same ones, or choose another folder"
    ), refused.err
    assert sfumato("ads", "train", "--resume", run).code == 0


# `sfumato ads sweep`


def sweep(sfumato, log: Path, out: Path, *more: object, grid: tuple[object, ...] = GRID):
    return sfumato("ads", "sweep", "--data", log, *SMALL, *grid, *more, "--out", out)


@pytest.fixture(scope="module")
def swept(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished, seeded sweep; tests only read it."""
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    from sfumato.cli.main import main

    assert main([str(word) for word in ("ads", "sweep", "--data", log, *SMALL, *GRID, "--out", out)]) == 0
    return out


def test_a_sweep_leaves_the_chosen_models_their_statements_and_figures(sfumato, swept: Path):
    names = {path.name for path in swept.iterdir()}
    assert names == {"sweep.json", "statement.json", "loss.svg", "noise.svg", "models"}
    (model,) = (swept / "models").iterdir()
    statement = json.loads((model / "statement.json").read_text())
    assert statement["epsilon"] <= 8
    state = json.loads((swept / "sweep.json").read_text())
    tried = {name: row["log_loss"] for name, row in state["results"].items() if name.startswith("choose-epsilon-8")}
    assert len(tried) == 2
    assert min(tried, key=tried.__getitem__).removeprefix("choose") == model.name.removeprefix("final")
    told = json.loads(sfumato("ads", "evaluate", model, "--json").out)["model"]
    assert told["log_loss"] == pytest.approx(state["results"][model.name]["log_loss"])


def test_records_that_settings_are_chosen_by_are_in_no_model(sfumato, log: Path, swept: Path):
    """Who is tried on, who is protected and who is measured on are three."""
    from sfumato import data

    parts = data.split_examples(open_examples(log), test=0.2, validation=0.2, seed=0)
    told = json.loads((swept / "statement.json").read_text())
    assert f"costs the {len(parts.train):,} examples" in told["statement"][0]
    assert f"the {len(parts.validation):,} examples that are set aside has no guarantee" in told["statement"][1]


def test_a_sweep_that_was_stopped_goes_on_to_the_same_numbers(sfumato, log, swept, tmp_path, monkeypatch):
    calls, usual = [], ads_sweep.measured

    def stops(*words, **more):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return usual(*words, **more)

    monkeypatch.setattr(ads_sweep, "measured", stops)
    shown = sweep(sfumato, log, tmp_path / "run")
    assert shown.code == 130
    assert f"go on with: sfumato ads sweep --resume {tmp_path / 'run'}" in shown.err
    assert "leave --rates out" in sfumato("ads", "sweep", "--resume", tmp_path / "run", "--rates", 0.3).line
    ZipfClicks(vocabulary_sizes=(50, 5), numeric=2, users=60, seed=2).examples(400, store=tmp_path / "other")
    other = sfumato("ads", "sweep", "--resume", tmp_path / "run", "--data", tmp_path / "other")
    assert "not those that" in other.line
    assert sfumato("ads", "sweep", "--resume", tmp_path / "run").code == 0
    first, second = (json.loads((path / "sweep.json").read_text()) for path in (swept, tmp_path / "run"))
    assert first["results"] == second["results"]
    weights = [load_file(next((path / "models").iterdir()) / "model.safetensors") for path in (swept, tmp_path / "run")]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert "holds no sweep" in sfumato("ads", "sweep", "--resume", tmp_path / "other").line
    assert "is not empty" in sweep(sfumato, log, tmp_path / "run").line


def test_a_choice_on_the_private_records_is_paid_for_and_leaves_one_model(sfumato, log: Path, tmp_path: Path):
    out = tmp_path / "run"
    shown = sweep(sfumato, log, out, "--choose", "private", "--mean-runs", 2)
    assert shown.code == 0, shown.err
    (model,) = (out / "models").iterdir()
    assert re.fullmatch(r"epsilon-8-batch-20-clip-[\d.]+-rate-[\d.]+", model.name), "which run it is stays secret"
    statement, plan = (json.loads((model / f"{name}.json").read_text()) for name in ("statement", "plan"))
    assert not (out / "work").exists()
    state = json.loads((out / "sweep.json").read_text())
    assert not state.get("drawn"), "the number of runs is secret"
    assert not any(name.startswith("run-epsilon-8") for name in state["results"])
    run = acc.Gaussian(plan["noise"]["noise_multiplier"]).poisson(20 / statement["population"]) * 2
    whole = acc.PrivateSelection.of_mean(run, 2)
    assert acc.guarantee(whole).epsilon(statement["delta"]) == pytest.approx(statement["epsilon"], rel=1e-6)
    assert statement["epsilon"] <= 8
    ids = [line["id"] for line in statement["assumptions"]]
    assert len(ids) == len(set(ids))
    assert {"examples_of_users", "selection_counted", "covers_selected", "divided_by_position"} <= set(ids)
    assert "covers_model" not in ids
    assert acc.guarantee(run).epsilon(statement["delta"]) < 0.9 * statement["epsilon"]
    assert {"model.safetensors", "statement.json", "plan.json"} == {path.name for path in model.iterdir()}


def test_two_processes_do_not_choose_at_once_by_one_statement(sfumato, log, tmp_path, monkeypatch):
    out, usual, others = tmp_path / "run", ads_sweep.measured, []

    def measured(*words, **more):
        if not others:
            others.append(1)
            others[0] = sfumato("ads", "sweep", "--resume", out)
        return usual(*words, **more)

    monkeypatch.setattr(ads_sweep, "measured", measured)
    grid = ("--epsilons", 8, "--clips", 1, "--rates", 0.1, "--choose", "private", "--mean-runs", 2)
    assert sweep(sfumato, log, out, grid=grid).code == 0
    assert "another process is writing to" in others[0].line
    assert len([*(out / "models").iterdir()]) == 1
    assert sfumato("ads", "sweep", "--resume", out).code == 0


def test_the_number_of_runs_is_geometric():
    """Mean and variance of 2,000 draws; either is off by chance in one of 10,000 seeds."""
    options = read_flags(
        ads_sweep.sweep_group(), ["--choose", "private", "--mean-runs", "4"], command="ads sweep", about=""
    )
    sweep = object.__new__(ads_sweep._Sweep)
    sweep.options, sweep.grid, sweep.save = options, options.grid, lambda: None
    counts, points = [], []
    for _ in range(2000):
        sweep.state = {}
        points += sweep.draws(8.0)
        counts.append(len(points) - sum(counts))
    assert np.mean(counts) == pytest.approx(4, abs=4 * math.sqrt(12 / 2000))
    assert np.mean(np.array(counts) == 1) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 2000))
    shares = [points.count(point) / len(points) for point in set(points)]
    assert len(shares) == 4
    assert max(shares) - min(shares) < 8 * math.sqrt(0.25 * 0.75 / len(points))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--epsilons", 0), "epsilons must be > 0"),
        (("--epsilons", 1, 1.0000001), "--epsilons has 1 twice"),
        (("--noise", 1), "--noise is calibrated"),
        (("--rates", -1), "rates must be > 0"),
        (("--held-out-share", 0), "held_out_share"),
        (("--choose", "private", "--batches", 10, 20), "takes one batch size"),
        (("--choose", "private", "--mean-runs", 1), "mean"),
        (("--choose", "private", "--rdp"), "--rdp and --repeats"),
        (("--validation-share", 0.1), "leave --validation-share out"),
        (("--unit", "user"), "--unit user needs a public number"),
        (("--batches", 500), "500"),
    ],
    ids=str,
)
def test_a_sweep_of_no_use_is_one_line_and_leaves_nothing(sfumato, log: Path, tmp_path: Path, words, named):
    assert (
        named in sweep(sfumato, log, tmp_path / "run", *words).line.replace("-", "_")
        or named in sweep(sfumato, log, tmp_path / "run", *words).line
    )
    assert not (tmp_path / "run").exists()


def test_a_dry_sweep_counts_its_trainings(sfumato, log: Path, tmp_path: Path):
    told = json.loads(sweep(sfumato, log, tmp_path / "run", "--rdp", "--dry-run", "--json").out)
    assert told["trainings"] == 2 + 1 + 1 + 2 + 1  # two settings, the model, that of RDP; two rates and the model
    assert not (tmp_path / "run").exists()
