"""Inputs at which an accountant was wrong or fell over before."""

import numpy as np
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError

STEP = acc.Gaussian(1.0).poisson(0.1)


@pytest.mark.parametrize("once_first", [True, False])
def test_a_composition_written_by_hand_costs_all_of_its_parts(once_first):
    once, twice = acc.Composition((STEP,)), acc.Composition((STEP, STEP))
    events = (once, twice) if once_first else (twice, once)
    cost = {event: acc.guarantee(event).epsilon(1e-6) for event in events}
    assert once != twice
    assert cost[twice] == pytest.approx(acc.guarantee(STEP * 2).epsilon(1e-6), rel=1e-9)
    assert cost[twice] > cost[once]


def test_a_composition_adds_up_counts_and_refuses_what_is_no_event():
    twice_and_thrice = acc.Composition((acc.Repeated(STEP, 2), acc.Repeated(STEP, 3)))
    assert dict(acc.terms(twice_and_thrice)) == {STEP: 5}
    with pytest.raises(InputError, match="gaussian"):
        acc.Composition(("gaussian",))  # type: ignore[arg-type]


@pytest.mark.parametrize(("z", "q", "steps"), [(1, 0.01, 40_000), (4, 0.01, 10**6), (10, 0.5, 10_000)])
def test_views_of_long_runs_are_bounds_not_crashes(z, q, steps):
    cost = acc.guarantee(acc.Gaussian(z).poisson(q) * steps)
    advantage = cost.advantage()
    assert 0 < advantage <= 1
    assert advantage == cost.delta(0.0)
    false_negatives = cost.tradeoff(np.array([0.01, 0.1, 0.5]))
    assert ((false_negatives >= 0) & (false_negatives <= 1)).all()
    assert (np.diff(false_negatives) <= 0).all()
    assert (1 - false_negatives - np.array([0.01, 0.1, 0.5]) <= advantage + 1e-9).all()


def test_delta_of_a_long_run_of_rare_steps_is_a_bound():
    cost = acc.guarantee(acc.Gaussian(1).poisson(1e-4) * 10**6)
    delta = cost.delta(1.0)
    assert 0 < delta < 1
    assert cost.epsilon(delta) <= 1.0 + 1e-2
