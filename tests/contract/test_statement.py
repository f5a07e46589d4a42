"""The statement says all that it must, and nothing else leaves."""

import json
import math

import pytest
import torch
from safetensors import safe_open

from contract.battery import PUBLISHED, published
from contract.specimens import NAMES, PRIVATE, SPECIMENS, fit, network

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
def test_a_seeded_run_says_that_it_is_a_simulation_and_another_does_not(name):
    seeded, released = (fit(name, None, rounds=1, seed=seed).statement for seed in (3, None))
    assert seeded.noise_source == "seeded: simulation only"
    assert any(line.startswith("Seeded: simulation only") for line in seeded.assumptions)
    assert "operating system" in released.noise_source
    assert not any("simulation" in line.lower() for line in released.assumptions)
    assert seeded.epsilon == released.epsilon


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_noise_promises_nothing(name, tmp_path):
    silent = {"noise_multiplier": 0.0} if name in PRIVATE else {}
    folder = fit(name, tmp_path / "run", rounds=1, **silent).folder
    statement = statement_of(folder)
    assert statement.keys() >= FIELDS
    assert statement["epsilon"] == "inf"
    assert statement["alternatives"] == []
    assert statement["assumptions"] == ["No noise was added: there is no differential privacy guarantee."]
    assert "nothing is covered" in statement["disclosure"]["released"]


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


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
@pytest.mark.parametrize("name", PRIVATE)
def test_what_nobody_contributed_to_is_the_same_whatever_the_records_hold(name, clipping, tmp_path):
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
