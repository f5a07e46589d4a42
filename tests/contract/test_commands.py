"""Every algorithm has a command, whose options are its plan's fields and whose promise is what the run then states."""

import dataclasses
import json
import re

import pytest

from contract.specimens import NAMES, PRIVATE, SPECIMENS
from sfumato.algorithms import TRAINED, command_of
from sfumato.cli.main import main


@pytest.mark.parametrize("name", NAMES)
def test_help_tells_every_field_of_the_plan_once(name, capsys):
    assert main([*command_of(name).split(), "--help-all"]) == 0
    told = capsys.readouterr().out
    options = re.findall(r"^[│ ] --([a-z0-9-]+)", told, re.MULTILINE)
    for field in dataclasses.fields(TRAINED[name].load()):
        assert options.count(field.name.replace("_", "-")) == 1, field.name
    assert TRAINED[name].about[:40] in told


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run_writes_nothing_and_promises_what_the_run_states(name, tmp_path, monkeypatch, capsys):
    specimen = SPECIMENS[name]
    (tmp_path / "data").mkdir()
    (tmp_path / "here").mkdir()
    words = [
        *command_of(name).split(),
        *specimen.command(tmp_path / "data"),
        f"--{specimen.rounds}",
        2,
        "--seed",
        1,
        "--json",
    ]
    for option, value in specimen.cohort(4).items():
        words += [f"--{option.replace('_', '-')}", value]
    if name in PRIVATE:
        words += ["--epsilon", 20, "--delta", 1e-3]
        if name == "fedrecon":
            (tmp_path / "items.txt").write_text("".join(f"{item}\n" for item in range(100)))
            words += ["--items", tmp_path / "items.txt"]
        else:
            words.append("--public-classes")
    monkeypatch.chdir(tmp_path / "here")
    assert main([str(word) for word in (*words, "--dry-run")]) == 0
    promised = json.loads(capsys.readouterr().out)
    assert list((tmp_path / "here").iterdir()) == []
    assert main([str(word) for word in (*words, "--out", "run")]) == 0
    done = json.loads(capsys.readouterr().out)
    stated = json.loads((tmp_path / "here" / "run" / "statement.json").read_text())
    assert done["statement"] == stated
    assert promised["statement"] == {**stated, "ledger": None}  # nothing is recorded yet
    assert (stated["epsilon"] == "inf") == (name not in PRIVATE)
    kept = json.loads((tmp_path / "here" / "run" / "plan.json").read_text())
    assert promised["plan"] == {key: value for key, value in kept.items() if key != "about"}
