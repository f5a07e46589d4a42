"""Every run leaves a statement, and every algorithm has a command whose promise is what the run states."""

import json
import math
import re
from dataclasses import replace
from typing import get_args

import pytest
import torch
from safetensors import safe_open

from contract.battery import PUBLISHED, published
from contract.pipelines import PIPELINES, patients
from contract.specimen import network
from contract.specimens import CORRELATED, NAMES, PRIVATE, SPECIMENS, fit
from sfumato import accounting as acc
from sfumato._parts import flat, to_json
from sfumato._types import Unit
from sfumato.accounting import Laplace, NonPrivate
from sfumato.algorithms import ALGORITHMS, TRAINED, command_of
from sfumato.cli.main import main
from sfumato.report import page
from sfumato.runs import Facts
from sfumato.statement import Statement, make_statement
from sfumato.statement.facts import prepared_alone
from sfumato.statement.sentences import render
from sfumato.synthesis import EHRSafe
from sfumato.voting import AEDPFL, KNNDPFL
from slow import one_in

pytestmark = pytest.mark.fresh

# The statement says all that it must, and nothing else leaves.

FIELDS = {
    "unit",
    "adjacency",
    "epsilon",
    "delta",
    "epsilon_lower",
    "rho",
    "sampling",
    "mechanism",
    "noise_source",
    "assumptions",
    "alternatives",
}
"""DESIGN, public shape: what every statement.json has."""

NOT_PUBLISHED = {"metrics.jsonl", "evaluation.json", "checkpoint"}
PUBLIC_METRICS = {"round", "epsilon", "clip_norm", "learning_rate", "cohort_planned"}


def statement_of(folder) -> dict:
    return json.loads((folder / "statement.json").read_text())


@pytest.mark.parametrize("name", PRIVATE)
def test_the_statement_is_complete(name, folder_of):
    statement = statement_of(folder_of(name))
    assert statement.keys() >= FIELDS
    assert statement["unit"] in ("example", "user", "identity", "agent", "label")
    assert statement["adjacency"] in ("add_remove", "replace", "zero_out")
    assert 0 < (statement["epsilon_lower"] or statement["epsilon"]) <= statement["epsilon"] < math.inf
    assert 0 < statement["delta"] < 1
    assert all(statement[text] for text in ("sampling", "mechanism", "noise_source", "assumptions"))
    assert statement["alternatives"]
    for other in statement["alternatives"]:
        assert other["name"]
        assert {"unit", "adjacency", "epsilon", "delta"} <= other.keys()
        assert other["delta"] == statement["delta"]
    assert all(answer for answer in statement["disclosure"].values())


@pytest.mark.parametrize("name", PRIVATE)
def test_a_seeded_run_says_that_it_is_a_simulation_and_another_does_not(name, fitted):
    seeded, released = fitted(name).statement, fit(name, None, seed=None).statement
    assert seeded.noise_source == "seeded: simulation only"
    assert "seeded_run" in [line.id for line in seeded.sentences]
    assert "operating system" in released.noise_source
    assert not any("simulation" in line.lower() for line in released.assumptions)
    assert seeded.epsilon == released.epsilon


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_noise_promises_nothing(name, tmp_path):
    silent = {"noise.noise_multiplier": 0.0} if name in PRIVATE else {}
    folder = fit(name, tmp_path / "run", rounds=1, **silent).folder
    statement = statement_of(folder)
    assert statement.keys() >= FIELDS
    assert statement["epsilon"] == "inf"
    assert statement["alternatives"] == []
    assert [sentence["id"] for sentence in statement["assumptions"]] == ["no_noise"]
    assert "Nothing is covered" in statement["disclosure"]["released"]


@pytest.mark.parametrize("name", NAMES)
def test_the_model_of_the_user_is_not_changed(name):
    model = network().eval()
    model[0].bias.requires_grad_(False)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = fit(name, None, model=model, rounds=2)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(part.training for part in model.modules())
    assert [p.requires_grad for p in model.parameters()] == [True, False, True, True]
    assert all(p.grad is None for p in model.parameters())
    assert any(not torch.equal(value, before[key]) for key, value in result.model.state_dict().items())


@pytest.mark.parametrize(("name", "clipping"), one_in(2, PRIVATE, ["flat", "adaptive"]))
def test_what_no_one_contributed_to_is_the_same_whatever_the_records_hold(name, clipping, tmp_path):
    """Records reach what is published through the sums alone: with empty cohorts, not a byte of it depends on them."""
    bundles, metrics = [], []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        records = SPECIMENS[name].records(seed, wild=10.0**seed)
        fit(name, folder, records=records, rounds=3, population=10**6, clipping=clipping, **SPECIMENS[name].bare)
        bundles.append(published(folder))
        metrics.append([json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()])
        assert {path.name for path in folder.iterdir()} <= {*PUBLISHED, *NOT_PUBLISHED}
    assert bundles[0] == bundles[1]
    for row, other in zip(*metrics, strict=True):
        assert row["not_private"]["units"] == other["not_private"]["units"] == 0
        assert row.pop("not_private").keys() == other.pop("not_private").keys()
        assert row == other
        assert row.keys() == PUBLIC_METRICS


@pytest.mark.parametrize("name", NAMES)
def test_the_released_file_holds_the_model_and_nothing_else(name, folder_of):
    with safe_open(folder_of(name) / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) - {"head.weight"} == set(network().state_dict())
        assert file.metadata() == {"sfumato": "{}"}
    assert not (folder_of(name) / "checkpoint" / "key").exists()


WITHOUT_NOISE = {"centralized"}


def test_every_plan_of_the_registry_is_asked():
    assert {*PRIVATE, *WITHOUT_NOISE} | (PIPELINES.keys() & ALGORITHMS.keys()) == set(ALGORITHMS)


@pytest.mark.parametrize("name", PRIVATE)
def test_records_that_others_changed_before_are_a_condition_of_every_statement(name, fitted):
    """Standardised by the private mean, a record moves the sum by more than any bound: no check of a run sees that."""
    statement = fitted(name).statement
    assert statement.assumptions.count(render(prepared_alone(statement.unit))) == 1
    assert "No epsilon" in render(prepared_alone(statement.unit))


def _units() -> list[str]:
    return [unit for literal in get_args(Unit) for unit in get_args(literal)]


@pytest.mark.parametrize("unit", _units())
def test_a_statement_of_any_unit_has_that_condition_and_none_without_noise(unit):
    facts = Facts(unit=unit, adjacency="replace", population=9, delta=1e-3, sampling="all", mechanism="a count")
    events = Laplace(scale=1.0), NonPrivate()
    statement, silent = (make_statement(event, facts, noise_source="os") for event in events)
    assert statement.assumptions.count(render(prepared_alone(unit))) == 1
    assert render(prepared_alone(unit)) not in silent.assumptions


# Amplification by sampling needs a draw that no one knows; the statement says so where it counts on it, and only there.

SECRET = {"poisson": True, "fixed_size": True, "cyclic_poisson": True, "shuffled": False, "min_separation": False}


def _secret(statement: Statement) -> int:
    return [sentence.id for sentence in statement.sentences].count("draw_secret")


@pytest.mark.parametrize("name", [*PRIVATE, *CORRELATED])
def test_a_secret_draw_is_a_condition_where_the_sampler_amplifies(name, folder_of):
    folder = folder_of(name)
    cohort = json.loads((folder / "plan.json").read_text())["cohort"]["kind"]
    drawn = name != "dpsgd+cyclic"  # a specimen so small that all units of a part take part in its rounds
    assert _secret(Statement.load(folder / "statement.json")) == (SECRET[cohort] and drawn)


_MIXED = acc.MixtureOfGaussians(noise_std=1.0, sensitivities=(0.0, 1.0), probabilities=(0.9, 0.1))
_NOISE = acc.Gaussian(1.0)


@pytest.mark.parametrize(
    ("event", "secret"),
    [
        (_NOISE.poisson(0.1) * 3, True),
        (_NOISE + acc.Laplace(9.0).poisson(0.1), True),
        (_NOISE.without_replacement(2, 20), True),
        (_NOISE.truncated_poisson(0.1, 4, 20), True),
        (acc.cyclic_poisson(noise_multiplier=1.0, steps=6, parts=2, sampling_rate=0.1), True),
        (acc.PrivateSelection(_NOISE.poisson(0.1), 0.5), True),
        (_MIXED, True),
        (_NOISE.poisson(1.0) * 3, False),
        (_NOISE.min_separation(3, 1), False),
        (_NOISE + acc.Laplace(9.0), False),
        (acc.PrivateSelection(acc.Laplace(9.0), 0.5), False),
        (AEDPFL(queries=3, noise_std=1.5).event(), False),
        (KNNDPFL(queries=3, noise_std=1.5, neighbours=3).event(), False),
        (acc.PureDP(1.0), False),
        (NonPrivate() + _NOISE.poisson(0.1), False),
    ],
)
def test_a_secret_draw_is_a_condition_of_what_sampling_amplifies_and_of_nothing_else(event, secret):
    facts = Facts(unit="user", adjacency="add_remove", population=20, delta=1e-3, sampling="all", mechanism="a count")
    assert _secret(make_statement(event, facts, noise_source="os")) == secret


def test_a_secret_draw_is_a_condition_of_private_health_records():
    ehr = EHRSafe(epsilon=8.0, delta=1e-3, cells=8, max_visits=6, horizon=1500.0, batch_size=8, gan_batch_size=8)
    assert _secret(ehr.try_out(patients(40))) == 1
    silent = replace(ehr, epsilon=None, delta=None, horizon=None)
    assert _secret(silent.try_out(patients(40))) == 0


# Every algorithm has a command, whose options are its plan's fields and whose promise is what the run then states.


@pytest.mark.parametrize("name", NAMES)
def test_help_reports_every_field_of_the_plan_once(name, capsys):
    assert main([*command_of(name).split(), "--help-all"]) == 0
    told = capsys.readouterr().out
    options = re.findall(r"^[│ ] --([a-z0-9.-]+)", told, re.MULTILINE)
    for option, _ in flat(to_json(TRAINED[name].load()())):
        assert options.count(option.replace("_", "-")) == 1, option
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
    monkeypatch.setattr(page, "render", lambda *_, **__: "<!doctype html>\n")  # which takes half of the time
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
