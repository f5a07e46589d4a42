"""`sfumato ehr sample`: any layout, whole or not at all, noted in the run; a mistake is one line."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ehr_records import assert_same
from sfumato.cli.main import main
from sfumato.data import EHRDataset
from sfumato.data.ehr.folders import read_folder
from sfumato.synthesis import Synthesizer
from sfumato.synthesis.history import SAMPLES, digest_of_folder


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
        (("--format", "zip"), "--format must be one of parquet, csv, meds, events, got zip"),
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
def test_a_mistake_is_one_line_and_leaves_nothing(sfumato, learned, tmp_path, monkeypatch, contents, words, said):
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
