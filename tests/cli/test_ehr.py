"""`sfumato ehr`: a model of health records, new records, and how good they are."""

import dataclasses
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from ehr_records import assert_same
from made_up_patients import copied, records
from sfumato import data
from sfumato.algorithms import SYNTHETIC
from sfumato.cli.main import main
from sfumato.data import EHRDataset
from sfumato.data.ehr.folders import read_folder, write_folder
from sfumato.data.ehr.write import write_ehr_tables
from sfumato.synthesis import EHRSafe, Synthesizer
from sfumato.synthesis.history import SAMPLES, digest_of_folder
from slow import slow_but

# Made-up patients in a folder, a plan that learns them in a moment, and a run of it.


SMALL = (
    "--epochs", 2, "--gan-steps", 20, "--category-steps", 10, "--hidden", 12, "--latent", 8, "--gan-hidden", 16,
    "--noise", 8, "--embedding", 4, "--static-embedding", 4, "--gan-batch-size", 32, "--calibrated-on", 60,
    "--threads", 1,
)  # fmt: skip


@pytest.fixture(scope="session")
def small() -> tuple[object, ...]:
    """Options of a plan that learns in a moment."""
    return SMALL


@pytest.fixture(scope="session")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 120 patients; tests only read it."""
    folder = tmp_path_factory.mktemp("records") / "patients"
    write_folder(records(120, 1), folder, "csv", synthetic=False)
    return folder


@pytest.fixture(scope="session")
def learned(patients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a seeded run on them; tests only read it, or copy it."""
    folder = tmp_path_factory.mktemp("runs") / "learned"
    words = ["ehr", "fit", "--data", patients, *SMALL, "--seed", 3, "--out", folder, "--holdout-share", 0.4]
    assert main([str(word) for word in words]) == 0
    return folder


# `sfumato ehr fit`: it learns as the library does, stops and goes on, holds patients out, and refuses in one line.


SAVED = ("model.safetensors", "statement.json", "ledger.jsonl", "metrics.jsonl")
SETTINGS: dict[str, Any] = {
    "epochs": 2, "gan_steps": 20, "category_steps": 10, "hidden": 12, "latent": 8, "gan_hidden": 16, "noise": 8,
    "embedding": 4, "static_embedding": 4, "gan_batch_size": 32, "calibrated_on": 60, "seed": 3,
}  # fmt: skip


def test_the_command_learns_as_the_library_does_from_those_who_are_not_held_out(patients, learned, tmp_path):
    kept, held_out = read_folder(patients).split(0.4, seed=0)
    plan = EHRSafe(**SETTINGS)
    ours = plan.fit(kept, out=tmp_path / "run").synthesizer
    assert ours is not None
    (made,) = ours.sample(30, seed=1)
    (theirs,) = Synthesizer.load(learned).sample(30, seed=1)
    assert made.fingerprint() == theirs.fingerprint()
    assert held_out.ids


def test_help_reports_every_field_of_each_plan_once(sfumato):
    for name, algorithm in SYNTHETIC.items():
        told = sfumato("ehr", "fit", "--model", name, "--help-all").out
        options = re.findall(r"^[│ ] --([a-z0-9-]+)", told, re.MULTILINE)
        for field in dataclasses.fields(algorithm.load()):
            assert options.count(field.name.replace("_", "-")) == 1, field.name
        assert sfumato("ehr", "fit", "--model", name, "--help").code == 0


@pytest.mark.parametrize("name", slow_but(SYNTHETIC, "ehr_safe", "rcgan"))
def test_every_plan_learns_makes_records_and_goes_on(sfumato, patients, tmp_path, name):
    known = {field.name for field in dataclasses.fields(SYNTHETIC[name].load())}
    quick = {field: value for field, value in {**SETTINGS, "steps": 5}.items() if field in known}
    words = [word for field, value in quick.items() for word in (f"--{field.replace('_', '-')}", value)]
    out = tmp_path / "run"
    assert sfumato("ehr", "fit", "--model", name, "--data", patients, *words, "--out", out).code == 0
    assert json.loads((out / "plan.json").read_text())["plan"] == name
    for layout in ("parquet", "meds"):
        draw = ("ehr", "sample", "--model", out, "--count", 20, "--conditions", "sex=f", "--format", layout)
        assert sfumato(*draw, "--to", tmp_path / layout).code == 0
        assert len(read_folder(tmp_path / layout)) == 20
    before = (out / "model.safetensors").read_bytes()
    assert json.loads(sfumato("ehr", "fit", "--resume", out, "--json").out)["already"] is True
    assert (out / "model.safetensors").read_bytes() == before


def test_a_dry_run_promises_what_the_run_states_and_writes_nothing(sfumato, patients, learned, small, tmp_path):
    words = ("ehr", "fit", "--data", patients, *small, "--seed", 3, "--holdout-share", 0.4, "--out", tmp_path / "run")
    told = json.loads(sfumato(*words, "--holdout-to", tmp_path / "held", "--dry-run", "--json").out)
    assert told["statement"] == {**json.loads((learned / "statement.json").read_text()), "ledger": None}
    assert told["patients"] == {"learned": 56, "held_out": 64}
    assert "nothing was learned or written" in sfumato(*words, "--dry-run").out
    assert list(tmp_path.iterdir()) == []


def test_those_who_are_held_out_are_written_for_their_owner_alone(sfumato, patients, small, tmp_path):
    words = ("ehr", "fit", "--data", patients, *small, "--out", tmp_path / "run", "--holdout-to", tmp_path / "held")
    told = sfumato(*words, "--json")
    assert told.code == 0, told.err
    learned, held_out = read_folder(patients).split(0.25, seed=0)
    assert_same(read_folder(tmp_path / "held"), held_out)
    assert (tmp_path / "held").stat().st_mode & 0o077 == 0
    assert json.loads(told.out)["patients"] == {"learned": len(learned), "held_out": len(held_out)}
    assert (tmp_path / "run" / "records.json").stat().st_mode & 0o077 == 0
    for name in held_out.ids:  # nobody's name or value is in what may be published
        assert name not in (tmp_path / "run" / "plan.json").read_text()
    again = sfumato(*words[:-3], tmp_path / "other", "--holdout-to", tmp_path / "held")
    assert "held is there already; name a new folder" in again.line
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(sfumato, process, patients, small, tmp_path, stop):
    words = ("ehr", "fit", "--data", patients, *small, "--gan-steps", 300, "--seed", 5, "--checkpoint-minutes", 0)
    out = tmp_path / "stopped"
    child = process(*words, "--out", out)
    _wait_for(out / "metrics.jsonl", child, '"gan"')
    child.send_signal(stop)
    code = child.wait()
    assert not (out / "records.json").exists(), "the run was not stopped in time"
    if stop == signal.SIGINT:
        assert code == 130
        assert f"stopped; go on with: sfumato ehr fit --resume {out}" in child.errors
        assert "Stopped before it could make records." in sfumato("report", out).out
        assert "the run has not ended" in sfumato("ehr", "sample", "--model", out, "--count", 1, "--to", "x").line
    assert sfumato("ehr", "fit", "--resume", out).code == 0
    assert sfumato(*words, "--out", tmp_path / "undisturbed").code == 0
    for name in SAVED:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name
    again = json.loads(sfumato("ehr", "fit", "--resume", out, "--json").out)
    assert again["already"] is True


def _wait_for(file: Path, child, words: str) -> None:
    for _ in range(6000):
        if file.exists() and words in file.read_text():
            return
        assert child.poll() is None, child.errors
        time.sleep(0.01)
    raise AssertionError(f"{words} did not come")


def test_a_run_does_not_go_on_with_other_records_or_under_another_plan(sfumato, learned, patients, tmp_path, contents):
    before = contents(learned)
    write_folder(read_folder(patients).take(range(100)), tmp_path / "fewer", "csv", synthetic=False)
    told = sfumato("ehr", "fit", "--resume", learned, "--data", tmp_path / "fewer").line
    assert "is from another plan, model or data set" in told
    assert "hidden 12 → 16" in sfumato("ehr", "fit", "--resume", learned, "--hidden", 16).line
    assert contents(learned) == before


def test_a_fit_that_diverges_says_so_and_keeps_its_last_good_checkpoint(sfumato, patients, small, tmp_path):
    words = ("ehr", "fit", "--data", patients, *small, "--learning-rate", 1e30, "--no-category-encoder")
    told = sfumato(*words, "--checkpoint-minutes", 0, "--out", tmp_path / "run").line
    assert "the stage 'sequences' diverged in step" in told
    assert "lower --learning-rate" in told
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_run_goes_on_where_its_relative_paths_begin_and_says_so_elsewhere(
    sfumato, patients, small, tmp_path, monkeypatch
):
    (tmp_path / "there").mkdir()
    shutil.copytree(patients, tmp_path / "there" / "data")
    monkeypatch.chdir(tmp_path / "there")
    assert sfumato("ehr", "fit", "--data", "data", *small, "--out", "run").code == 0
    monkeypatch.chdir(tmp_path)
    told = sfumato("ehr", "fit", "--resume", "there/run").line
    assert "data, which there/run learns from, is not here; go on in the folder in which it began" in told
    monkeypatch.chdir(tmp_path / "there")
    assert sfumato("ehr", "fit", "--resume", "run").code == 0


@pytest.mark.parametrize("share", [-0.1, 1, 2, "nan"])
def test_a_share_out_of_range_is_one_line_about_the_options_of_this_command(sfumato, patients, tmp_path, share):
    told = sfumato("ehr", "fit", "--data", patients, "--holdout-share", share, "--out", tmp_path / "run").line
    assert "--holdout-share" in told
    assert "--test" not in told


@pytest.mark.parametrize("rate", ["learning-rate", "gan-learning-rate"])
def test_a_rate_beyond_single_precision_is_refused_before_anything_is_written(sfumato, patients, tmp_path, rate):
    told = sfumato("ehr", "fit", "--data", patients, f"--{rate}", 1e38, "--out", tmp_path / "run").line
    assert f"--{rate} must be in [0, 1e+37], got 1e+38" in told
    assert not (tmp_path / "run").exists()


def test_a_fit_says_before_it_learns_that_too_few_are_held_out_to_measure_by(sfumato, patients):
    words = ("ehr", "fit", "--data", patients, "--dry-run", "--holdout-share")
    said = "needs 20; give a larger --holdout-share"
    assert [said in sfumato(*words, share).out for share in (0.05, 0.4, 0)] == [True, False, False]


def test_a_dry_run_reports_what_each_column_is_taken_for(sfumato, tmp_path):
    GOOD.to_csv(tmp_path / "visits.csv", index=False)
    words = ("--data", tmp_path / "visits.csv", "--id", "who", "--time", "day", "--dry-run")
    rows = [line.split() for line in sfumato("ehr", "fit", *words).out.splitlines()]
    assert ["x", "visit", "whole", "number"] in rows
    assert ["ward", "visit", "2", "categories"] in rows
    assert ["died", "patient", "2", "categories"] in rows


def test_the_short_help_shows_how_to_learn_with_a_guarantee(sfumato):
    told = sfumato("ehr", "fit", "--help").out
    assert all(f"\n--{name} " in told for name in ("data", "id", "time", "epsilon", "horizon"))


@pytest.mark.parametrize("layout", ["parquet", "csv", "meds", "events"])
def test_every_layout_that_is_written_is_learned_from(sfumato, patients, small, tmp_path, layout):
    write_folder(read_folder(patients), tmp_path / "again", layout, synthetic=False)
    told = sfumato("ehr", "fit", "--data", tmp_path / "again", *small, "--dry-run", "--json")
    assert told.code == 0, told.err
    assert sum(json.loads(told.out)["patients"].values()) == 120


def test_a_table_of_events_and_one_of_visits_are_learned_from(sfumato, patients, small, tmp_path):
    records = read_folder(patients)
    data.write_ehr_events(records, tmp_path / "events.parquet")
    columns = ("--id", "patient", "--time", "day", "--outcome", "died", "--categorical", "stage")
    told = sfumato("ehr", "fit", "--events", tmp_path / "events.parquet", *columns, *small, "--dry-run", "--json")
    assert told.code == 0, told.err
    assert sum(json.loads(told.out)["patients"].values()) == 120
    visits = ("--data", patients / "visits.csv", "--static", patients / "static.csv")
    told = sfumato("ehr", "fit", *visits, *columns, *small, "--dry-run", "--json")
    assert told.code == 0, told.err


@pytest.mark.slow
@pytest.mark.shared
def test_the_challenge_of_2012_and_mimic_iv_are_learned_from(sfumato, shared, small):
    challenge = ("--physionet2012", shared / "physionet2012_set_a.parquet")
    outcomes = ("--outcomes", shared / "physionet2012_outcomes_a.txt")
    told = json.loads(sfumato("ehr", "fit", *challenge, *outcomes, *small, "--dry-run", "--json").out)
    assert sum(told["patients"].values()) == 3997
    mimic = ("--mimic-iv", shared / "mimic_iv_demo", "--items", 50809, 50912, "--hours", 48)
    told = json.loads(sfumato("ehr", "fit", *mimic, *small, "--dry-run", "--json").out)
    assert sum(told["patients"].values()) > 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which records? give one of --data, --events, --physionet2012, --mimic-iv, got none of them"),
        (("--data", "x", "--events", "y"), "got --data and --events"),
        (("--data", "nowhere"), "nowhere"),
        (("--physionet2012", "x"), "--physionet2012 needs the file of outcomes"),
        (("--data", "{data}", "--hours", 3), "--hours is for --mimic-iv, not for a folder of tables; leave it out"),
        (("--data", "{data}", "--holdout-share", 1), "--holdout-share must be in [0, 1), got 1.0; 0 holds out none"),
        (("--data", "{data}", "--holdout-share", 0, "--holdout-to", "x"), "--holdout-share 0 holds out none"),
        (("--data", "{data}", "--holdout-share", 1e-9), "cannot be split with share=1e-09"),
        (("--data", "{data}", "--id", "patient"), "which columns are the patient and the time? give --id and --time"),
        (("--data", "{data}", "--epochs", 0), "epochs must be a whole number >= 1"),
        (("--data", "{data}", "--model", "ehr_saef"), "--model must be one of ehr_safe"),
        (("--data", "{data}", "--checkpoint-minutes", -1), "--checkpoint-minutes must be"),
        (("--events", "x", "--codes", "a", "--most", 3), "--most chooses by number; give it or --codes, not both"),
        (("--resume", "nowhere"), "nowhere holds no plan.json"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(sfumato, patients, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    outcome = sfumato("ehr", "fit", *(str(word).format(data=patients) for word in words))
    assert said in outcome.line
    assert os.listdir(tmp_path) == []


GOOD = pd.DataFrame(
    {
        "who": [f"p{i // 3}" for i in range(60)],
        "day": [i % 3 for i in range(60)],
        "x": [i * 7 % 11 for i in range(60)],
        "ward": [("east", "west")[i * 5 % 3 % 2] for i in range(60)],
        "died": [("no", "yes")[i // 3 % 2] for i in range(60)],
    }
).astype(object)


def _with(row: int, column: str, value: object) -> pd.DataFrame:
    frame = GOOD.copy()
    frame.loc[row, column] = value
    return frame


BAD = {
    "a time twice": (_with(1, "day", 0), "two visits at one time"),
    "times that go back": (_with(1, "day", 5), "--unsorted sort"),
    "a negative time": (_with(0, "day", -1), "-1"),
    "one value": (GOOD.assign(x=3), "'x' is '3' in all 60 rows"),
    "nothing but missing values": (GOOD.assign(x=None), "'x' has no value in 60 rows; name it in --drop"),
    "ten thousand categories": (
        pd.concat([GOOD.assign(who=GOOD.who + str(i), ward=[f"w{i}-{j}" for j in range(60)]) for i in range(167)]),
        "'ward' has more than 1,000 different texts",
    ),
    "commas as decimal points": (GOOD.assign(x=[f"{i},5" for i in range(60)]), "'x' is '0,5' at"),
    "some commas as decimal points": (_with(3, "x", "1,5"), "a number with a comma; write numbers with a point"),
    "mixed kinds": (_with(4, "x", "high"), "'x' is 'high' at"),
    "one patient": (GOOD[:3].drop(columns=["died"]), "there is one patient, 'p0'"),
    "before 1900": (GOOD.assign(day=["1899-12-30", "1899-12-31", "1900-01-01"] * 20), "before 1900"),
    "dates with and without a zone": (
        GOOD.assign(day=["2020-01-01T00:00:00Z", "2020-01-02", "2020-01-03"] * 20),
        "or with a zone",
    ),
    "one class": (GOOD.assign(died="no"), "the outcome 'died'"),
}


@pytest.mark.parametrize("what", BAD)
def test_records_from_which_nothing_can_be_learned_are_one_line_and_leave_nothing(sfumato, small, tmp_path, what):
    frame, said = BAD[what]
    frame.to_csv(tmp_path / "visits.csv", index=False)
    words = ("--data", tmp_path / "visits.csv", "--id", "who", "--time", "day", *small)
    words += ("--outcome", "died") if "died" in frame else ()
    outcome = sfumato("ehr", "fit", *words, "--out", tmp_path / "run")
    assert said in outcome.line
    assert os.listdir(tmp_path) == ["visits.csv"]


def test_a_patient_without_visits_is_one_line(sfumato, small, tmp_path):
    GOOD[["who", "day", "x"]].to_csv(tmp_path / "visits.csv", index=False)
    people = [*dict.fromkeys(GOOD.who), "nobody"]
    pd.DataFrame({"who": people, "died": ["no", "yes", *["no"] * 19]}).to_csv(tmp_path / "static.csv", index=False)
    words = ("--data", tmp_path, "--id", "who", "--time", "day", "--outcome", "died", *small)
    assert "patient 'nobody'" in sfumato("ehr", "fit", *words, "--out", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_nan_and_an_empty_cell_are_one_missing_value(sfumato, small, tmp_path):
    fits = []
    for missing in ("NaN", ""):
        frame = GOOD.copy()
        frame.loc[[4, 9, 30], "x"] = missing
        frame.to_csv(tmp_path / "visits.csv", index=False)
        words = ("--data", tmp_path / "visits.csv", "--id", "who", "--time", "day", *small, "--seed", 1)
        out = tmp_path / f"run {len(fits)}"
        assert sfumato("ehr", "fit", *words, "--out", out).code == 0
        fits.append((out / "model.safetensors").read_bytes())
    assert fits[0] == fits[1]


def test_the_columns_that_were_found_are_written_down_for_a_person_and_nothing_is_learned(sfumato, tmp_path: Path):
    rows = [f"p{i},{t},{1 + (i + t) % 5}.5,{'ab'[(i + t) % 2]}" for i in range(24) for t in (0, 3)]
    (tmp_path / "visits.csv").write_text("\n".join(["id,day,bili,kind", *rows]) + "\n")
    file = tmp_path / "schema.yaml"
    words = ("ehr", "fit", "--data", tmp_path / "visits.csv", "--id", "id", "--time", "day")
    shown = sfumato(*words, "--write-schema", file)
    assert (shown.code, shown.err) == (0, "")
    assert f"then give --schema {file}" in shown.out
    assert "TO REVIEW" in file.read_text()
    assert "is there already" in sfumato(*words, "--write-schema", file).line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["schema.yaml", "visits.csv"]
    private = ("--epsilon", 8, "--horizon", 10, "--dry-run", "--batch-size", 4, "--gan-batch-size", 4)
    assert "columns must be declared" in sfumato(*words, *private).line
    file.write_text(file.read_text().replace("name: bili, kind: numeric", "name: bili, kind: numeric, range: [0, 9]"))
    told = sfumato(*words[:4], "--schema", file, *private)
    assert told.code == 0, told.err


def test_the_plan_of_a_private_run_is_read_for_going_on_and_as_settings(sfumato, tmp_path):
    rows = [(f"p{row // 3:03}", row % 3, float(row * 37 % 11)) for row in range(180)]
    pd.DataFrame(rows, columns=["who", "when", "level"]).to_csv(tmp_path / "visits.csv", index=False)
    columns = "- {name: level, kind: numeric, whole: false, range: [0, 10]}"
    (tmp_path / "schema.yaml").write_text(
        f"id: who\nunit: patient\ntime: when\ntime_unit: days\noutcome: null\nstatic: []\ntemporal:\n{columns}\n"
    )
    out = tmp_path / "run"
    small = {**SETTINGS, "gan_batch_size": 8, "batch_size": 8, "epsilon": 8, "horizon": 10, "max_visits": 3}
    options = [word for name, value in small.items() for word in (f"--{name.replace('_', '-')}", value)]
    words = ("--data", tmp_path / "visits.csv", "--schema", tmp_path / "schema.yaml", *options)
    first = sfumato("ehr", "fit", *words, "--out", out)
    assert first.code == 0, first.err
    again = sfumato("ehr", "fit", "--resume", out, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["already"] is True
    assert sfumato("ehr", "fit", "--config", out / "plan.json", "--dry-run").code == 0


# `sfumato ehr sample`: any layout, whole or not at all, noted in the run; a mistake is one line.


@pytest.fixture
def run(learned: Path, tmp_path: Path) -> Path:
    """A run of its own, which a test may change."""
    return Path(shutil.copytree(learned, tmp_path / "run"))


@pytest.mark.parametrize("layout", ["parquet", "csv", "meds", "events"])
def test_every_layout_holds_what_the_library_draws(sfumato, run, tmp_path, layout):
    words = ("ehr", "sample", "--model", run, "--count", 40, "--seed", 7, "--format", layout)
    outcome = sfumato(*words, "--to", tmp_path / "made", "--json")
    assert json.loads(outcome.out)["patients"] == 40
    synthesizer = Synthesizer.load(run)
    (ours,) = synthesizer.sample(40, seed=7)
    theirs = read_folder(tmp_path / "made", synthesizer.schema)
    if layout == "meds":  # single precision, new ids
        assert theirs.ids == tuple(str(number) for number in range(1, 41))
        np.testing.assert_allclose(theirs.numbers, ours.numbers, rtol=1e-6)
        np.testing.assert_array_equal(theirs.codes, ours.codes)
    else:
        assert_same(theirs, ours)
    assert read_folder(tmp_path / "made").schema == ours.schema


def test_a_data_set_of_meds_passes_the_standard_s_own_check_and_says_that_it_is_synthetic(sfumato, run, tmp_path):
    meds = pytest.importorskip("meds")
    made = tmp_path / "made"
    assert sfumato("ehr", "sample", "--model", run, "--count", 30, "--format", "meds", "--to", made).code == 0
    files = sorted((made / meds.data_subdirectory).rglob("*.parquet"))
    for file in files:
        table = pq.read_table(file)
        meds.DataSchema.validate(table)
        assert table["synthetic"].unique().to_pylist() == [True]
    assert files
    meds.CodeMetadataSchema.validate(pq.read_table(made / meds.code_metadata_filepath))
    meds.SubjectSplitSchema.validate(pq.read_table(made / meds.subject_splits_filepath))
    facts = json.loads((made / meds.dataset_metadata_filepath).read_text())
    meds.DatasetMetadataSchema.validate(facts)
    assert facts["dataset_name"] == "made (synthetic)"


def test_conditions_hold_for_every_patient(sfumato, run, tmp_path):
    words = ("ehr", "sample", "--model", run, "--count", 25, "--to", tmp_path / "made")
    assert sfumato(*words, "--conditions", "sex=f", "--conditions", "age=40..60").code == 0
    made = read_folder(tmp_path / "made")
    assert len(made) == 25
    sex = [column.name for column in made.schema.static_categorical].index("sex")
    assert (made.static_codes[:, sex] == 0).all()
    assert ((made.static_numbers[:, 0] >= 40) & (made.static_numbers[:, 0] <= 60)).all()


def test_a_draw_is_noted_and_the_ledger_still_backs_the_statement(sfumato, run, tmp_path):
    before = json.loads((run / "statement.json").read_text())
    for name, seed in (("one", ()), ("two", ("--seed", 12345))):
        words = ("ehr", "sample", "--model", run, "--count", 20, *seed, "--conditions", "sex=f")
        assert sfumato(*words, "--to", tmp_path / name).code == 0
    rows = [json.loads(line) for line in (run / SAMPLES).read_text().splitlines()]
    assert [(row["count"], row["seeded"], row["given"]) for row in rows] == [
        (20, False, ["sex=f"]),
        (20, True, ["sex=f"]),
    ]
    assert [row["digest"] for row in rows] == [digest_of_folder(tmp_path / name) for name in ("one", "two")]
    assert "12345" not in (run / SAMPLES).read_text(), "the seed is not kept"
    after = json.loads((run / "statement.json").read_text())
    assert "Synthetic records: 40 patients were drawn from the model in 2 draws." in after["disclosure"]["released"]
    assert {**after, "disclosure": None} == {**before, "disclosure": None}
    assert sfumato("ledger", "verify", run).code == 0
    assert sfumato("report", run).code == 0
    assert sfumato("ehr", "fit", "--resume", run).code == 0  # which writes the statement anew
    assert json.loads((run / "statement.json").read_text()) == after


def test_a_run_that_cannot_be_written_is_drawn_from_all_the_same(sfumato, run, tmp_path):
    (run / SAMPLES).mkdir()
    outcome = sfumato("ehr", "sample", "--model", run, "--count", 5, "--to", tmp_path / "made")
    assert outcome.code == 0
    assert "does not know of it" in outcome.err
    assert len(read_folder(tmp_path / "made")) == 5


def test_the_file_of_a_model_alone_is_enough(sfumato, learned, tmp_path):
    words = ("ehr", "sample", "--model", learned / "model.safetensors", "--count", 5, "--to", tmp_path / "made")
    assert sfumato(*words).code == 0
    assert len(read_folder(tmp_path / "made")) == 5
    assert not (learned / SAMPLES).exists()


@pytest.mark.parametrize("layout", ["parquet", "meds"])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (MemoryError, 2), (OSError(28, "full"), 2)])
def test_what_is_stopped_on_the_way_leaves_no_folder(run, tmp_path, monkeypatch, capsys, layout, error, code):
    whole = Synthesizer.sample

    def stopping(self, count, **given):
        yield from whole(self, count, block=10, **given)
        raise error

    monkeypatch.setattr(Synthesizer, "sample", stopping)
    words = ["ehr", "sample", "--model", run, "--count", 20, "--to", tmp_path / "made", "--format", layout]
    assert main([str(word) for word in words]) == code
    capsys.readouterr()
    assert sorted(os.listdir(tmp_path)) == ["run"]
    assert not (run / SAMPLES).exists()


def test_blocks_are_written_one_after_the_other(run, tmp_path, monkeypatch, capsys):
    """No more than one block is made before the one in front of it is on the disk."""
    made: list[int] = []

    def counting(self, count, **given) -> object:
        (block,) = list(whole(self, 1, seed=1))
        for number in range(6):
            partial = next(iter(tmp_path.glob("made.*.partial")), None)
            found = 0 if partial is None else len(list((partial / "data").glob("*.parquet")))
            made.append(number - found)
            yield EHRDataset(**{**vars_of(block), "ids": (f"p{number}",)})

    def vars_of(block: EHRDataset) -> dict:
        return {name: getattr(block, name) for name in block.__dataclass_fields__}

    whole = Synthesizer.sample
    monkeypatch.setattr(Synthesizer, "sample", counting)
    words = ["ehr", "sample", "--model", run, "--count", 6, "--to", tmp_path / "made", "--format", "meds"]
    assert main([str(word) for word in words]) == 0
    capsys.readouterr()
    assert max(made) <= 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--count", 0), "count must be a whole number >= 1, got 0"),
        (("--seed", -1), "seed must be a whole number >= 0, got -1"),
        (("--format", "zip"), "--format must be one of csv, events, meds, parquet, got zip"),
        (("--conditions", "sex=x"), "condition sex must be one of f, m, got x"),
        (
            ("--conditions", "six=f"),
            "conditions must name static columns (sex, died, clinic, age), got six (did you mean sex?)",
        ),
        (("--conditions", "bili=1"), "conditions must name static columns"),
        (("--conditions", "sex"), "--conditions must be NAME=CATEGORY or NAME=LOWEST..HIGHEST, got 'sex'"),
        (
            ("--conditions", "age=80..60"),
            "--conditions age must be a number or LOWEST..HIGHEST, the lowest first, got '80..60'",
        ),
        (("--conditions", "age=old"), "got 'old'"),
        (("--given", "sex=f"), "--given is now --conditions"),
        (("--conditions", "sex=f", "sex=m"), "--conditions sex is there twice"),
        (("--conditions", "age=1e6..2e6"), "ask for something more common, or drop a condition"),
        (("--to", "."), ". is there already; name a new folder, or delete it first"),
        (("--to", "nowhere/made"), "there is no folder nowhere"),
        (("--model", "nowhere"), "there is no nowhere; give the folder of a run of sfumato ehr fit"),
        (("--model", "."), "holds no plan.json"),
        (("--threads", 0), "threads must be a whole number >= 1"),
    ],
)
def test_a_mistake_in_sampling_is_one_line_and_leaves_nothing(
    sfumato, learned, tmp_path, monkeypatch, contents, words, said
):
    monkeypatch.chdir(tmp_path)
    before = contents(learned)
    assert said in sfumato("ehr", "sample", "--model", learned, "--count", 10, "--to", "made", *words).line
    assert os.listdir(tmp_path) == []
    assert contents(learned) == before


def test_a_run_of_another_kind_and_a_damaged_one_are_refused(sfumato, run, tmp_path):
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**plan, "plan": "dpsgd"}))
    words = ("ehr", "sample", "--model", run, "--count", 1, "--to", tmp_path / "made")
    assert "did not learn from health records" in sfumato(*words).line
    (run / "plan.json").write_text(json.dumps(plan))
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "model.safetensors" in sfumato(*words).line
    assert not (tmp_path / "made").exists()


# `sfumato ehr evaluate`: a page and numbers from three folders; a mistake is one line.


def write(folder: Path, data) -> Path:
    folder.mkdir()
    write_ehr_tables(data, folder / "visits.parquet", folder / "static.csv")
    data.schema.save(folder / "schema.yaml")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("records")
    train = records(50, 1)
    sides = {"real": train, "holdout": records(40, 2), "synthetic": copied(train, 50, 3)}
    return {name: write(root / name, data) for name, data in sides.items()}


def words(folders, out: Path, **changed: object) -> list[str]:
    given = {**folders, "out": out, **changed}
    return ["ehr", "evaluate", *(str(word) for name, value in given.items() for word in (f"--{name}", value))]


@pytest.mark.slow
def test_three_folders_give_a_page_and_the_same_numbers_in_json(folders, tmp_path, capsys):
    assert main(words(folders, tmp_path / "a.html")) == 0
    text = capsys.readouterr().out
    assert "membership inference: accuracy" in text
    assert "(above the ideal)" in text
    assert "no differential privacy guarantee follows: the attacks are examples, not a bound" in text
    assert main([*words(folders, tmp_path / "b.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [attack["above"] for attack in told["attacks"]] == [True, True, True]
    assert told["sizes"] == {"holdout": 40, "most": 5000, "real": 50, "synthetic": 50}
    assert told["report"] == str(tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"real": "nowhere"}, "there is no folder nowhere"),
        ({"out": "."}, "is a folder; give a file name"),
        ({"out": "nowhere/a.html"}, "there is no folder nowhere for the page"),
        ({"most": 3}, "most must be a whole number >= 20"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
        ({"sensitive": "bili"}, "there is no static column 'bili'; sensitive ones may be"),
    ],
)
def test_a_mistake_is_one_line(folders, tmp_path, capsys, changed, said):
    assert main(words(folders, **{"out": tmp_path / "a.html", **changed})) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_folder_that_holds_no_records_is_refused(folders, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main(words(folders, tmp_path / "a.html", real=tmp_path / "empty")) == 2
    assert "has neither visits.parquet nor visits.csv" in capsys.readouterr().err
    bare = write(tmp_path / "bare", records(30, 4))
    (bare / "schema.yaml").unlink()
    assert main(words(folders, tmp_path / "a.html", real=bare)) == 2
    assert "has no schema.yaml; give a schema" in capsys.readouterr().err
    (bare / "visits.csv").write_text("x\n")
    assert main(words(folders, tmp_path / "a.html", real=bare)) == 2
    assert "has visits.parquet and visits.csv; keep one" in capsys.readouterr().err


def test_patients_in_both_real_folders_are_refused(folders, tmp_path, capsys):
    assert main(words(folders, tmp_path / "a.html", holdout=folders["real"])) == 2
    assert "50 patients are in the real and in the held-out records" in capsys.readouterr().err


@pytest.fixture(scope="module")
def evaluated(learned, tmp_path_factory):
    """A run, what was drawn from it, and its evaluation: fit, sample, evaluate."""
    root = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(learned, root / "run")
    assert main(["ehr", "sample", "--model", str(root / "run"), "--count", "60", "--to", str(root / "made")]) == 0
    assert main(["ehr", "evaluate", "--model", str(root / "run"), "--synthetic", str(root / "made")]) == 0
    return root


@pytest.mark.page
def test_a_run_is_measured_with_its_own_records_and_its_statement_reports_the_attacks(sfumato, evaluated):
    run = evaluated / "run"
    found = json.loads((run / "evaluation.json").read_text())["synthetic"]
    assert found["drawn"] is True
    assert found["sizes"] == {"holdout": 64, "most": 5000, "real": 56, "synthetic": 60}
    stated = json.loads((run / "statement.json").read_text())
    told = stated["disclosure"]["evaluation"]
    for attack in found["attacks"]:
        first = attack["measures"][0]
        assert f"{attack['name']}, {first['name']}: {first['found']['value']:.3g}" in told
        assert f"ideal {first['ideal']['value']:.3g}" in told
    assert len(found["attacks"]) == 3
    assert "60 of them, as they were drawn, were attacked with 64 real patients" in told
    assert "examples, not a bound" in told
    assert stated["epsilon"] == "inf"
    assert sfumato("ledger", "verify", run).code == 0
    for private in ("evaluation.json", "records.html"):
        assert (run / private).stat().st_mode & 0o077 == 0
    page = (run / "report.html").read_text()
    assert "membership inference, accuracy" in page
    assert f"{sum(attack['above'] for attack in found['attacks'])} of 3" in page
    assert "Attacks on the synthetic records" in page
    assert sfumato("report", run, "--public", "--out", evaluated / "public.html").code == 0
    public = (evaluated / "public.html").read_text()
    assert "Attacks on the synthetic records" not in public
    assert "were measured against real ones that were held out" in public
    for attack in found["attacks"]:
        for secret in (f"{attack['name']}, {attack['measures'][0]['name']}:", "were attacked with"):
            assert secret in page
            assert secret not in public
    assert json.loads((run / "statement.json").read_text()) == stated


@pytest.mark.slow
def test_the_same_measures_come_from_folders(sfumato, patients, evaluated, tmp_path):
    kept, held_out = read_folder(patients).split(0.4, seed=0)
    sides = {"real": write(tmp_path / "real", kept), "holdout": write(tmp_path / "holdout", held_out)}
    sides["synthetic"] = evaluated / "made"
    told = json.loads(sfumato(*words(sides, tmp_path / "a.html"), "--json").out)
    found = json.loads((evaluated / "run" / "evaluation.json").read_text())["synthetic"]
    assert {name: found[name] for name in told if name != "report"} == {
        name: value for name, value in told.items() if name != "report"
    }


@pytest.mark.slow
def test_records_that_were_not_drawn_or_were_changed_are_measured_and_reported_so(sfumato, evaluated, tmp_path):
    run = shutil.copytree(evaluated / "run", tmp_path / "run")
    made = shutil.copytree(evaluated / "made", tmp_path / "made")
    (made / "more.txt").write_text("changed")
    outcome = sfumato("ehr", "evaluate", "--model", run, "--synthetic", made, "--out", tmp_path / "a.html", "--json")
    assert outcome.code == 0
    assert "is not what sfumato ehr sample drew" in outcome.err
    told = json.loads((run / "statement.json").read_text())["disclosure"]["evaluation"]
    assert "which are not those that were drawn, or were changed" in told
    assert told.count("The synthetic records:") == 1


def test_records_of_a_run_that_have_changed_since_are_refused(sfumato, patients, small, tmp_path):
    data = shutil.copytree(patients, tmp_path / "data")
    assert sfumato("ehr", "fit", "--data", data, *small, "--out", tmp_path / "run").code == 0
    assert sfumato("ehr", "sample", "--model", tmp_path / "run", "--count", 30, "--to", tmp_path / "made").code == 0
    measure = ("ehr", "evaluate", "--model", tmp_path / "run", "--synthetic", tmp_path / "made")
    table = (data / "static.csv").read_text()
    (data / "static.csv").write_text(table.replace('"f"', '"m"', 1))
    assert table != (data / "static.csv").read_text()
    assert "were changed since it learned from them; give --real and --holdout" in sfumato(*measure).line
    (data / "visits.csv").unlink()
    assert "the records of" in sfumato(*measure).line
    assert not (tmp_path / "run" / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--synthetic", "x"), "missing: --real, --holdout, --out; or give --model, the run that made the records"),
        (("--model", "{run}", "--synthetic", "x", "--real", "y"), "give both --real and --holdout, or leave both"),
        (("--model", "{run}", "--synthetic", "x", "--schema", "y"), "--model has the schema of its records"),
        (("--model", ".", "--synthetic", "x"), "holds no plan.json"),
        (("--model", "{run}", "--synthetic", "nowhere"), "there is no folder nowhere"),
    ],
)
def test_a_mistake_about_the_run_is_one_line(sfumato, learned, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    assert said in sfumato("ehr", "evaluate", *(word.format(run=learned) for word in given)).line


def test_a_run_that_held_out_no_one_says_so(sfumato, patients, small, tmp_path):
    words = ("ehr", "fit", "--data", patients, *small, "--holdout-share", 0, "--out", tmp_path / "run")
    assert sfumato(*words).code == 0
    told = sfumato("ehr", "evaluate", "--model", tmp_path / "run", "--synthetic", patients).line
    assert "held out no patients to measure by; give --holdout, and --real" in told


@pytest.mark.slow
def test_a_run_on_relative_paths_is_measured_from_any_folder(sfumato, patients, small, tmp_path, monkeypatch):
    shutil.copytree(patients, tmp_path / "there" / "data")
    monkeypatch.chdir(tmp_path / "there")
    assert sfumato("ehr", "fit", "--data", "data", *small, "--holdout-share", 0.4, "--out", "run").code == 0
    assert sfumato("ehr", "sample", "--model", "run", "--count", 30, "--to", "made").code == 0
    assert str(tmp_path) not in Path("run/plan.json").read_text()  # which is public
    assert Path("run/records.json").stat().st_mode & 0o077 == 0
    monkeypatch.chdir(patients)
    run, made = tmp_path / "there" / "run", tmp_path / "there" / "made"
    assert sfumato("ehr", "evaluate", "--model", run, "--synthetic", made).code == 0
    moved = shutil.move(tmp_path / "there", tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    assert sfumato("ehr", "evaluate", "--model", "run", "--synthetic", "made").code == 0


def test_too_few_patients_are_one_line_with_a_remedy(folders, tmp_path, capsys):
    for name, remedy in (("holdout", "--holdout-share"), ("synthetic", "--count"), ("real", "give more")):
        few = write(tmp_path / name, records(19, 9))
        assert main(words(folders, tmp_path / "a.html", **{name: few})) == 2
        complaint = capsys.readouterr().err
        assert "an evaluation needs 20 patients on each side, got 19" in complaint
        assert remedy in complaint


@pytest.mark.slow
def test_records_that_were_drawn_under_conditions_are_measured_and_reported_so(sfumato, learned, tmp_path):
    run = shutil.copytree(learned, tmp_path / "run")
    words = ("--model", run, "--count", 30, "--to", tmp_path / "made", "--conditions", "sex=f")
    assert sfumato("ehr", "sample", *words).code == 0
    outcome = sfumato("ehr", "evaluate", "--model", run, "--synthetic", tmp_path / "made")
    assert outcome.code == 0
    assert "was drawn with --conditions sex=f, and is measured against patients of all kinds" in outcome.err
