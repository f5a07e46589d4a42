"""What is noted in a run after it: draws and figures, of a run with a guarantee and of one without."""

import json
from pathlib import Path

import pytest
import torch

from sfumato._check import InputError
from sfumato.accounting import Gaussian, NonPrivate
from sfumato.ledger import Ledger, ledger
from sfumato.runs import Run
from sfumato.statement import Facts, Statement
from sfumato.synthesis.history import SAMPLES, digest_of_folder, note_evaluation, note_sample, restate, samples_of

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
    note_sample(run, made, **{"count": 40, "layout": "csv", "given": [], "seeded": False, **changed})


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
    assert "1,040 patients were drawn from the model in 2 draws. Nothing covers them" in told["released"]
    assert "membership inference, accuracy: 0.732 (0.61 to 0.81), ideal 0.5 (above the ideal)." in told["evaluation"]
    assert "40 of them, as they were drawn, were attacked beside 30 real patients" in told["evaluation"]
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
