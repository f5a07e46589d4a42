"""EHR-Safe is fitted: stages, their files, and the history of losses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from sfumato._check import InputError
from sfumato.accounting import Gaussian, NonPrivate
from sfumato.ledger import Ledger, ledger
from sfumato.runs import Facts, Run
from sfumato.statement import Statement
from sfumato.synthesis import Synthesizer
from sfumato.synthesis.history import SAMPLES, digest_of_folder, note_evaluation, note_sample, restate, samples_of

# A whole run: what it says, how it stops and goes on, and what it refuses.


def test_without_noise_the_statement_says_that_there_is_no_guarantee(patients, small, tmp_path: Path):
    result = small().fit(patients(40), out=tmp_path / "run")
    assert result.finished
    assert result.statement.epsilon == float("inf")
    assert "no differential privacy guarantee" in result.statement.assumptions[0]
    assert json.loads((tmp_path / "run" / "statement.json").read_text())["unit"] == "patient"


@pytest.mark.parametrize(
    ("stage", "settings"), [("sequences", {"learning_rate": 1e30}), ("gan", {"gan_learning_rate": 1e30})]
)
def test_a_stage_that_diverges_says_so_and_keeps_the_checkpoint_before_it(
    patients, small, tmp_path: Path, stage: str, settings: dict
):
    with pytest.raises(InputError, match=f"{stage!r} diverged in step .* lower {next(iter(settings))}") as refusal:
        small(**settings, category_encoder=False).fit(patients(40), out=tmp_path / "run", save_every=0.0)
    assert "\n" not in str(refusal.value)
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_stage_reports_how_far_it_is(patients, small):
    told: dict[str, list[tuple[int, int]]] = {}
    small().fit(patients(40), progress=lambda what, done, of: told.setdefault(what, []).append((done, of)))
    assert list(told) == ["categories", "sequences", "gan", "calibration"]
    for steps in told.values():
        assert [done for done, _ in steps] == list(range(steps[-1][1] + 1))


def test_the_file_of_a_run_draws_the_same_records_as_the_run(patients, small, tmp_path: Path):
    result = small().fit(patients(40), out=tmp_path / "run")
    (ours,) = result.synthesizer.sample(50, seed=3)
    (theirs,) = Synthesizer.load(tmp_path / "run").sample(50, seed=3)
    assert ours.fingerprint() == theirs.fingerprint()


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    save_file({"x": np.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="holds no synthesizer"):
        Synthesizer.load(tmp_path)


def test_other_data_than_health_records_are_refused(small):
    with pytest.raises(InputError, match="EHRDataset"):
        small().fit(np.zeros((3, 3)))


def test_records_that_nothing_can_be_learned_from_are_refused(patients, small, tmp_path: Path):
    data = patients(20)
    numbers = data.numbers.copy()
    numbers[:, 1] = np.nan
    for wrong, told in ((data.take([3]), "there is one patient"), (replace(data, numbers=numbers), "'pulse' has no")):
        with pytest.raises(InputError, match=told):
            small().fit(wrong, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"latent_noise": -1.0}, {"rounding": 0.0}, {"gan_optimizer": "sgd"}])
def test_settings_out_of_range_are_refused(small, wrong: dict):
    with pytest.raises(InputError, match=next(iter(wrong))):
        small(**wrong)


# What is noted in a run after it: draws and figures, of a run with a guarantee and of one without.

ATTACK = {
    "name": "membership inference",
    "above": True,
    "measures": [
        {
            "name": "accuracy",
            "found": {"value": 0.7321, "low": 0.61, "high": 0.81},
            "ideal": {"value": 0.5, "low": 0.5, "high": 0.5},
        }
    ],
}
FOUND = {"sizes": {"synthetic": 40, "holdout": 30}, "attacks": [ATTACK]}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "visits.csv").write_text("x\n1\n")
    return tmp_path / "made"


def ended(folder: Path, *, private: bool) -> Path:
    """A run that has ended, with noise or without."""
    facts = Facts(
        unit="example", adjacency="add_remove", population=100, delta=1e-3, sampling="everyone", mechanism="a sum"
    )
    with Run.open(folder, plan={"plan": "ehr_safe"}) as run:
        run.start("fingerprint")
        run.spend(Gaussian(noise_multiplier=3.0) if private else NonPrivate())
        run.finish({"x": torch.zeros(1)}, facts)
    return folder


def draw(run: Path, made: Path, **changed) -> None:
    note_sample(run, made, **{"count": 40, "layout": "csv", "conditions": [], "seeded": False, **changed})


def answers(run: Path) -> dict[str, str]:
    return json.loads((run / "statement.json").read_text())["disclosure"]


def assert_bound(run: Path, before: Statement) -> None:
    """The ledger still backs the statement, whose promise is what it was."""
    after = Statement.load(run / "statement.json")
    assert after.digest == before.digest
    assert ledger.compare(Ledger.read(run / "ledger.jsonl"), after, run)


def test_draws_from_a_run_with_a_guarantee_cost_nothing_more_and_no_figure_gets_into_its_statement(tmp_path, made):
    run = ended(tmp_path / "run", private=True)
    before = Statement.load(run / "statement.json")
    draw(run, made)
    assert note_evaluation(run, FOUND, folder=made) is True
    told = answers(run)
    assert "40 patients were drawn from the model in 1 draw. They are post-processing" in told["released"]
    assert "they cost nothing more" in told["released"]
    assert told["released"].startswith(before.disclosure["released"])
    assert told["evaluation"].startswith(before.disclosure["evaluation"])
    assert "figures have no noise and are not covered" in told["evaluation"]
    assert not any(character.isdigit() for character in told["evaluation"].partition("The synthetic records")[2])
    assert "0.732" in (run / "evaluation.json").read_text()[:100_000]
    assert (run / "evaluation.json").stat().st_mode & 0o077 == 0
    assert_bound(run, before)


def test_a_run_without_a_guarantee_tells_the_attacks_beside_their_ideals(tmp_path, made):
    run = ended(tmp_path / "run", private=False)
    before = Statement.load(run / "statement.json")
    draw(run, made)
    draw(run, made, count=1000)
    note_evaluation(run, FOUND, folder=made)
    told = answers(run)
    assert "1,040 patients were drawn from the model in 2 draws. They are not covered" in told["released"]
    assert "membership inference, accuracy: 0.732 (0.61 to 0.81), ideal 0.5 (above the ideal)." in told["evaluation"]
    assert "40 of them, as they were drawn, were attacked with 30 real patients" in told["evaluation"]
    assert_bound(run, before)


def test_what_is_told_anew_takes_the_place_of_what_was_told(tmp_path, made):
    run = ended(tmp_path / "run", private=False)
    draw(run, made)
    note_evaluation(run, FOUND, folder=made)
    first = answers(run)
    restate(run)
    assert answers(run) == first
    note_evaluation(run, {**FOUND, "attacks": [{**ATTACK, "above": False}]}, folder=made)
    told = answers(run)["evaluation"]
    assert "(no more than the ideal)" in told
    assert "(above the ideal)" not in told
    draw(run, made)
    assert answers(run)["released"].count("Synthetic records:") == 1


def test_other_records_are_told_from_those_that_were_drawn(tmp_path, made):
    run = ended(tmp_path / "run", private=False)
    assert note_evaluation(run, FOUND, folder=made) is False
    draw(run, made)
    assert note_evaluation(run, FOUND, folder=made) is True
    before = digest_of_folder(made)
    (made / "visits.csv").write_text("x\n2\n")
    assert digest_of_folder(made) != before
    assert note_evaluation(run, FOUND, folder=made) is False
    (made / "visits.csv").write_text("x\n1\n")
    (made / "visits.csv").rename(made / "other.csv")
    assert digest_of_folder(made) != before


def test_a_damaged_file_and_a_folder_that_is_no_run_are_refused(tmp_path, made):
    with pytest.raises(InputError, match="it is not the folder of a run"):
        draw(tmp_path, made)
    run = ended(tmp_path / "run", private=False)
    draw(run, made)
    with open(run / SAMPLES, "a") as file:
        file.write("{\n")
    with pytest.raises(InputError, match=r"samples.jsonl, line 2 is damaged .*; delete the line"):
        samples_of(run)
