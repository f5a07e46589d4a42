"""The toy goes through the battery, and its two phases are one run: one ledger, one budget, one statement."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from accounting.dense import patterns
from contract import toy
from contract.battery import (
    SOURCE,
    assert_an_empty_cohort_steps,
    assert_counts_as_zero,
    assert_leaves_no_trace,
    assert_moves_at_most,
    composed,
    event_of,
    ledger_of,
    summed,
)
from contract.specimen import UNITS, vectors
from sfumato._check import InputError
from sfumato.accounting import Gaussian, MatrixMechanism, Participation, guarantee
from sfumato.clipping import Adaptive
from sfumato.ledger import Budget, BudgetExceeded
from sfumato.runs import Run
from slow import by_profile

pytestmark = pytest.mark.fresh

PARTS = toy.private_sum(UNITS)


@settings(deadline=None, max_examples=by_profile(20))
@given(seed=st.integers(0, 10**6), wild=st.sampled_from([0.0, 1.0, 1e3, 1e20, math.inf, math.nan]))
def test_one_unit_moves_the_sum_by_at_most_the_stated_sensitivity(seed, wild):
    mean = toy.Mean(vectors(seed, wild=wild))
    whole, blanked = summed(mean, PARTS), summed(mean, PARTS, np.arange(UNITS - 1))
    assert_moves_at_most(PARTS, PARTS.relative_sensitivity, whole, blanked)
    exchanged = summed(toy.Mean(vectors(seed, wild=2.0, last=1)), PARTS)
    assert_moves_at_most(PARTS, PARTS.grouping.relative_sensitivity("replace"), whole, exchanged)


def test_an_absent_unit_leaves_no_trace():
    others = vectors(wild=50.0, last=1)
    assert_leaves_no_trace(toy.Mean(vectors()), toy.Mean(others), PARTS, UNITS - 1)
    assert_leaves_no_trace(toy.Mean(vectors()), toy.Mean(others[:-1]), PARTS, UNITS - 1)


@pytest.mark.parametrize("wild", [math.nan, math.inf])
def test_a_contribution_that_is_not_finite_counts_as_zero_and_is_counted(wild):
    assert_counts_as_zero(toy.Mean(vectors(wild=wild)), PARTS, UNITS - 1)


def test_an_empty_cohort_releases_the_stated_noise_and_steps(tmp_path):
    assert_an_empty_cohort_steps(toy.Mean(vectors()), toy.private_sum(UNITS), tmp_path / "run", 4.0 * 0.5)


def test_the_noise_is_that_of_the_strategy_that_is_accounted():
    """The released rounds are C⁻¹z, where C is made of the event and z of the run's key."""
    parts = toy.private_sum(UNITS)
    event, size = parts.event(parts.rounds), 3
    strategy = np.zeros((parts.rounds, parts.rounds))
    for below, coefficient in enumerate(event.parameters):
        strategy += coefficient * np.eye(parts.rounds, k=-below)
    fresh = np.stack([SOURCE.stream("noise", round).normal(size) for round in range(parts.rounds)]) * 2.0
    released = [
        parts.mechanism.release(torch.zeros(size, dtype=torch.float64), scale=0.5, round=round, source=SOURCE).clone()
        for round in range(parts.rounds)
    ]
    np.testing.assert_allclose(np.stack(released), np.linalg.solve(strategy, fresh), atol=1e-12)
    limits = event.participation
    brute = max(sum(strategy[:, list(pattern)].sum(axis=1) ** 2) for pattern in patterns(limits) if pattern)
    assert event.squared_sensitivity == pytest.approx(brute)


def test_the_sampler_keeps_its_promise_anyone_who_is_present():
    limits = PARTS.sampler.participation(9)
    for present in (0, 1, UNITS, UNITS + 3):
        rounds = [PARTS.sampler.draw(present, round, SOURCE).tolist() for round in range(9)]
        for unit in range(present):
            assert limits.allows([index for index, units in enumerate(rounds) if unit in units])


def test_both_phases_stand_in_one_ledger_and_one_statement(tmp_path):
    statement = toy.noisy_mean(vectors(), tmp_path / "run", seed=3)
    entries = ledger_of(tmp_path / "run")
    assert [entry["phase"] for entry in entries] == ["histogram", "mean"]
    limits = Participation(rounds=5, max_participations=None, min_separation=1)
    stream = MatrixMechanism.toeplitz(4.0, limits, [1.0, 0.5])
    assert [event_of(entry) for entry in entries] == [Gaussian(4.0), stream]
    cost = guarantee(Gaussian(4.0) + stream, adjacency="zero_out")
    assert statement.epsilon == cost.epsilon(1e-3) == guarantee(composed(entries), adjacency="zero_out").epsilon(1e-3)
    assert statement.epsilon > guarantee(stream, adjacency="zero_out").epsilon(1e-3)
    released = load_file(tmp_path / "run" / "model.safetensors")
    assert released.keys() == {"histogram", "mean"}
    assert torch.equal(
        load_file(tmp_path / "run" / "checkpoint" / "release-histogram.safetensors")["histogram"], released["histogram"]
    )


def test_rounds_that_share_noise_cost_the_whole_stream_from_the_first_one_on():
    assert PARTS.event(1) == PARTS.event(3) == PARTS.event(5) == PARTS.entry(0)
    assert [PARTS.entry(round) for round in range(1, 5)] == [None] * 4
    assert guarantee(PARTS.event(0), adjacency="zero_out").epsilon(1e-3) == 0


@pytest.mark.parametrize("kept", [True, False], ids=["in a folder", "in memory"])
def test_the_budget_holds_for_both_phases_together(kept, tmp_path):
    out = tmp_path / "run" if kept else None
    histogram, both = (
        guarantee(event, adjacency="zero_out").epsilon(1e-3)
        for event in (Gaussian(4.0), Gaussian(4.0) + PARTS.event(5))
    )
    enough = Budget(epsilon=both * 1.001, delta=1e-3, adjacency="zero_out", fixed_plan=True)
    toy.noisy_mean(vectors(), seed=3, budget=enough)
    scarce = Budget(epsilon=(histogram + both) / 2, delta=1e-3, adjacency="zero_out", fixed_plan=True)
    with pytest.raises(BudgetExceeded):
        toy.noisy_mean(vectors(), out, seed=3, budget=scarce)
    if kept:
        assert [entry.get("phase") for entry in ledger_of(out)] == ["histogram"]
        assert not (out / "model.safetensors").exists()


def test_noise_that_is_shared_between_rounds_takes_no_adaptive_norm():
    with pytest.raises(InputError, match="accounted round by round"):
        dataclasses.replace(PARTS, bound=Adaptive(norm=1.0, quantile=0.5))


def test_a_statement_for_other_neighbours_than_those_of_the_rounds_is_refused(monkeypatch):
    made = toy.Facts
    monkeypatch.setattr(toy, "Facts", lambda **facts: made(**{**facts, "adjacency": "replace"}))
    with pytest.raises(InputError, match="one statement cannot cover neighbours by zero_out and by replace"):
        toy.noisy_mean(vectors(), seed=3)


def test_nothing_is_released_before_there_is_a_ledger(tmp_path):
    with Run.open(tmp_path / "run", plan={}, seed=1) as run, pytest.raises(RuntimeError, match="stand in no ledger"):
        run.spend(Gaussian(1.0))
