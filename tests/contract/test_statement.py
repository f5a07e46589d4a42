"""The statement says all that it must, and nothing else leaves."""

import json
import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import made_up_patients
import small_vote
from contract.battery import PUBLISHED, published
from contract.specimens import NAMES, PRIVATE, SPECIMENS, fit, network
from sfumato._types import Unit
from sfumato.accounting import Laplace, NonPrivate
from sfumato.algorithms import ALGORITHMS
from sfumato.data import examples_from_arrays
from sfumato.labels import LPMST, RROnBins
from sfumato.statement import Facts, Statement
from sfumato.statement.facts import make_statement, prepared_alone
from sfumato.statement.sentences import say
from sfumato.synthesis import EHRSafe
from sfumato.voting import AEDPFL, KNNDPFL

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
    assert "seeded_run" in [line.id for line in seeded.sentences]
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
    assert [sentence["id"] for sentence in statement["assumptions"]] == ["no_noise"]
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


def labels_alone(plan) -> Statement:
    """Of a plan of private labels, on labels in a random order."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(80, 2)).astype(np.float32), rng.integers(0, 2, 80)
    if plan.of_classes:
        return plan.try_out(nn.Linear(2, 2), examples_from_arrays(inputs, labels, num_classes=2))
    return plan.try_out(nn.Linear(2, 1), examples_from_arrays(inputs, labels.astype(np.float32)))


def vote(plan) -> Statement:
    """Of a vote by a plan's class."""
    small = plan(queries=10, noise_std=1.5, student_epochs=1)
    return small.fit(small_vote.agents(), small_vote.pool(), small_vote.model()).statement


def patients() -> Statement:
    """Of health records under privacy."""
    data = made_up_patients.records(40, 1)
    ranged = {"age": (0.0, 110.0), "bili": (0.0, 30.0), "albumin": (1.0, 6.0), "weight": (30.0, 150.0)}
    static, temporal = (
        tuple(replace(column, range=ranged.get(column.name)) for column in columns)
        for columns in (data.schema.static, data.schema.temporal)
    )
    data = replace(data, schema=replace(data.schema, static=static, temporal=temporal))
    return EHRSafe(epsilon=8.0, delta=1e-3, batch_size=8, gan_batch_size=8, max_visits=6, horizon=1500.0).try_out(data)


OTHERS = {
    "ae_dpfl": lambda: vote(AEDPFL),
    "knn_dpfl": lambda: vote(KNNDPFL),
    "lp_mst": lambda: labels_alone(LPMST(epsilon=1.0)),
    "rr_on_bins": lambda: labels_alone(RROnBins(epsilon=1.0, low=0.0, high=1.0, values=2)),
    "ehr_safe": patients,
}
"""Statements of plans without rounds of this battery; those that never add noise promise nothing."""
WITHOUT_NOISE = {"centralized"}


def test_every_plan_of_the_registry_is_asked():
    assert {*PRIVATE, *OTHERS, *WITHOUT_NOISE} == set(ALGORITHMS)


@pytest.mark.parametrize("name", [*PRIVATE, *OTHERS])
def test_records_that_others_changed_before_are_a_condition_of_every_statement(name):
    """Standardised by the private mean, a record moves the sum by more than any bound: no check of a run sees that."""
    statement = OTHERS[name]() if name in OTHERS else fit(name, None, rounds=1).statement
    assert statement.assumptions.count(say(prepared_alone(statement.unit))) == 1
    assert "No epsilon" in say(prepared_alone(statement.unit))


def _units() -> list[str]:
    return [unit for literal in get_args(Unit) for unit in get_args(literal)]


@pytest.mark.parametrize("unit", _units())
def test_a_statement_of_any_unit_has_that_condition_and_none_without_noise(unit):
    facts = Facts(unit=unit, adjacency="replace", population=9, delta=1e-3, sampling="all", mechanism="a count")
    events = Laplace(scale=1.0), NonPrivate()
    statement, silent = (make_statement(event, facts, noise_source="os") for event in events)
    assert statement.assumptions.count(say(prepared_alone(unit))) == 1
    assert say(prepared_alone(unit)) not in silent.assumptions
