"""Public negatives go through the frozen layers as records do, and are compared with them before."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data
from sfumato._check import InputError
from sfumato.federated import FedAvg, FedEmb
from sfumato.federated.negatives import PublicNegatives
from sfumato.training import Callback, Stop

PLAN = FedEmb(
    rounds=3, clients_per_round=6, users_per_client=1, negatives_per_client=3, noise_multiplier=0.0, seed=1,
    trainable="last", local_epochs=2, learning_rate=0.1,
)  # fmt: skip


def network(seed: int = 0) -> nn.Sequential:
    """The frozen layers give what has the shape and the type of a record."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))


def people() -> data.UserDataset:
    owners = np.repeat(np.arange(12), 3)
    inputs = np.random.default_rng(0).normal(0, 1, (36, 6)).astype(np.float32)
    return data.from_arrays(inputs, owners, [f"u{owner:02d}" for owner in owners])


def public(seed: int = 1, record: np.ndarray | None = None) -> data.UserDataset:
    inputs = np.random.default_rng(seed).normal(0, 1, (24, 6)).astype(np.float32)
    if record is not None:
        inputs[7] = record
    return data.from_arrays(inputs, np.repeat(np.arange(6), 4), ["somebody"] * 24)


class Halt(Callback):
    def on_round(self, row):
        if row["round"] == 2:
            raise Stop


def test_trained_values_are_those_without_a_cache(tmp_path):
    without = PLAN.fit(network(), people(), negatives=public())
    behind = PLAN.fit(network(), people(), negatives=public(), prefix_cache=tmp_path / "cache")
    start = network().state_dict()["2.weight"]
    ours, theirs = (one.model.state_dict()["2.weight"] - start for one in (behind, without))
    assert theirs.any()
    # the rows of a batch round otherwise than a row alone: 1e-7 of a value, in some 20 steps
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm()
    assert (tmp_path / "cache" / "private-negatives").is_dir()


def test_a_training_record_among_the_negatives_is_refused_before_any_row_is_kept(tmp_path):
    inputs, _ = people().examples(4)
    with pytest.raises(InputError, match="1 of the 24 negatives are training records"):
        PLAN.fit(network(), people(), negatives=public(record=inputs[1]), prefix_cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_plan_that_takes_no_negatives_refuses_them_behind_a_cache_too(tmp_path):
    plan = FedAvg(rounds=1, clients_per_round=2, noise_multiplier=1.0, seed=1, trainable="last")
    with pytest.raises(InputError, match="takes no public negatives"):
        plan.fit(network(), people(), negatives=public(), prefix_cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_run_goes_on_with_the_same_negatives_only(tmp_path):
    run = {"model": network(), "data": people(), "out": tmp_path / "run"}
    PLAN.fit(**run, negatives=public(), prefix_cache=tmp_path / "cache", callbacks=[Halt()])
    with pytest.raises(InputError, match="the negatives differ"):
        PLAN.fit(**run, negatives=public(2), prefix_cache=tmp_path / "cache", resume=True)
    with pytest.raises(InputError, match="the negatives differ"):
        PLAN.fit(**run, negatives=public(2), prefix_cache=tmp_path / "other", resume=True)
    assert PLAN.fit(**run, negatives=public(), prefix_cache=tmp_path / "cache", resume=True).finished


def test_the_statement_names_the_public_data_and_not_what_layers_make_of_them(tmp_path):
    plan = replace(PLAN, noise_multiplier=1.0)
    told = plan.fit(network(), people(), negatives=public(), prefix_cache=tmp_path).statement.assumptions
    assert any(public().fingerprint() in line for line in told)
    assert told == plan.fit(network(), people(), negatives=public()).statement.assumptions


def test_a_run_is_told_from_one_with_negatives_that_were_rounded_otherwise():
    known = PublicNegatives(public(), 3)
    rounded = known.through(lambda given: given.with_inputs(given.inputs[:] * np.float32(1 + 1e-6)))
    one, other = (PLAN.contribution(network(), people(), "cpu", 0, each) for each in (known, rounded))
    assert one.fingerprint() != other.fingerprint()
    assert known.assumption() == rounded.assumption()
