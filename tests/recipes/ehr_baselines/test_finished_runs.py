"""Folders of runs of baselines, as commands of earlier versions wrote them: what reads them, what names the recipe."""

import os
import signal
from pathlib import Path

import pytest

from sfumato.cli.main import main


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
