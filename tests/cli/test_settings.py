"""Settings files and flags: one set of rules, and the flags win."""

import json
from pathlib import Path

import pytest

from sfumato._parts import flat


def test_a_settings_file_and_flags_combine_and_the_flags_win(sfumato, tmp_path: Path):
    for file, text in (
        ("a.yaml", "noise-multiplier: 3\nsteps: 7\n"),
        ("a.json", '{"noise_multiplier": 3, "steps": 7}'),
    ):
        (tmp_path / file).write_text(text)
        told = json.loads(sfumato("account", "--config", tmp_path / file, "--steps", 5, "--json").out)
        assert told["event"] == {"event": "repeated", "count": 5, "of": {"event": "gaussian", "noise_multiplier": 3.0}}


def test_yaml_s_numbers_lists_and_none_arrive(sfumato, tmp_path: Path):
    file = tmp_path / "plan.yaml"
    file.write_text(
        "rounds: 4\nclipping: 0.5\nnoise: 1e-1\nclient: {batch_size: null, loss: arcface}\nfar: [1e-2, 0.5]\n"
        "population: 5000\ndry_run: true\njson: yes\n"
    )
    plan = dict(flat(json.loads(sfumato("fedemb", "--config", file).out)["plan"]))
    expected = {"rounds": 4, "clipping.norm": 0.5, "noise.noise_multiplier": 0.1, "client.batch_size": None}
    assert {name: plan[name] for name in expected} == expected
    assert plan["client.loss"] == "arcface"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("round: 3", "there is no option round (did you mean rounds?)"),
        ("rounds: many", "rounds must be int, got 'many'"),
        ("rounds: 3.5", "rounds must be int, got 3.5"),
        ("rounds: {a: 1}", "rounds must be one value"),
        ("rounds: true", "rounds must be int, got True"),
        ("client: {loss: hinge}", "loss must be one of"),
        ("- a\n- b", "must hold names with values"),
        ("a: [1", "cannot be read"),
    ],
)
def test_a_mistake_in_a_settings_file_is_one_line_with_its_name(sfumato, tmp_path: Path, text, named):
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    line = sfumato("fedemb", "--config", file).line
    assert line.startswith(str(file))
    assert named in line


def test_a_settings_file_that_is_not_there_is_one_line(sfumato, tmp_path: Path):
    assert "No such file" in sfumato("account", "--config", tmp_path / "none.yaml").line
    assert "yaml" in sfumato("account", "--config", tmp_path / "none.txt").line


def test_the_flag_decides_between_noise_and_budget(sfumato, tmp_path: Path):
    file = tmp_path / "plan.json"
    common = ("fedemb", "--config", file, "--population", 100000, "--dry-run", "--json")
    file.write_text('{"noise": 3.0}')
    calibrated = json.loads(sfumato(*common, "--epsilon", 8).out)
    assert calibrated["statement"]["epsilon"] == pytest.approx(8, rel=1e-4)
    file.write_text('{"epsilon": 8}')
    assert json.loads(sfumato(*common, "--noise", 2).out)["plan"]["noise"]["noise_multiplier"] == 2
    file.write_text('{"epsilon": 8, "noise": 3.0}')
    assert "not both" in sfumato(*common).line


@pytest.mark.parametrize(
    ("name", "text"),
    [("plan.yaml", "steps: 3\nnoise_multiplier: 1\nsteps: 4\n"), ("plan.json", '{"steps": 3, "steps": 4}')],
)
def test_a_setting_that_is_there_twice_is_refused(sfumato, tmp_path, name: str, text: str):
    file = tmp_path / name
    file.write_text(text)
    assert "'steps' is there twice; leave one out" in sfumato("account", "--config", file).line
