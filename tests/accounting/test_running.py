"""A run that grows: the same epsilon as for the whole event, without doing the work again."""

import numpy as np
import pytest

from sfumato.accounting import ZCDP, Gaussian, InputError, NonPrivate, TreeAggregation, guarantee
from sfumato.accounting.guarantees import RunningCost, epsilon_curve
from sfumato.accounting.loss import grid as discrete
from sfumato.accounting.pld import PldAccountant

STEP = Gaussian(1.0).poisson(0.01)


@pytest.mark.parametrize("steps", [0, 1, 2, 57, 1000])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_the_bound_is_that_of_the_whole_event(steps, adjacency) -> None:
    run = RunningCost(STEP, 1e-6, adjacency)
    low, high = PldAccountant(STEP * steps, adjacency).epsilon_interval(1e-6)
    assert low <= run.epsilon_after(steps) <= high * (1 + 1e-3)


def test_what_was_spent_before_counts() -> None:
    spent = Gaussian(3.0) * 2
    run = RunningCost(STEP, 1e-6, spent=spent)
    assert run.epsilon_after(0) >= guarantee(spent).epsilon(1e-6) * (1 - 1e-6)
    low, high = PldAccountant(spent + STEP * 100).epsilon_interval(1e-6)
    assert low <= run.epsilon_after(100) <= high * (1 + 1e-3)


def test_the_next_step_needs_no_new_grid() -> None:
    run = RunningCost(STEP, 1e-5)
    first = run.epsilon_after(5000)
    made = discrete._remembered.cache_info().misses
    later = [run.epsilon_after(5000 + more) for more in (1, 2, 3)]
    assert discrete._remembered.cache_info().misses == made
    assert first < later[0] < later[1] < later[2]


def test_the_curve_rises_and_is_that_of_its_points() -> None:
    steps = [1, 10, 100, 1000, 500]
    curve = epsilon_curve(STEP, steps, 1e-5)
    assert curve.shape == (5,)
    assert (np.diff(curve[np.argsort(steps)]) > 0).all()
    for count, epsilon in zip(steps, curve):
        low, high = PldAccountant(STEP * count).epsilon_interval(1e-5)
        assert low <= epsilon <= high * (1 + 1e-3)


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="delta"):
        RunningCost(STEP, 0.0)
    with pytest.raises(InputError, match="step must be"):
        RunningCost("gaussian", 1e-5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="spent must be"):
        RunningCost(STEP, 1e-5, spent="nothing")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="steps"):
        RunningCost(STEP, 1e-5).epsilon_after(-1)


def test_a_stream_costs_what_its_first_rounds_cost_as_one_event() -> None:
    def first(rounds: int) -> TreeAggregation:
        return TreeAggregation(noise_multiplier=5.0, steps=rounds, max_participations=3, min_separation=4)

    run = RunningCost(first, 1e-6, "zero_out")
    assert run.epsilon_after(0) == 0.0
    for rounds in (1, 2, 30):
        assert run.epsilon_after(rounds) == guarantee(first(rounds), "zero_out").epsilon(1e-6)
    assert run.epsilon_after(30) < run.epsilon_after(1) * 30
    with pytest.raises(InputError, match="step must give"):
        RunningCost(lambda rounds: None, 1e-6)  # type: ignore[arg-type, return-value]


def test_what_has_no_pair_is_asked_of_anyone_who_knows_it() -> None:
    run = RunningCost(ZCDP(0.01), 1e-6)
    assert run.epsilon_after(10) == guarantee(ZCDP(0.01) * 10).epsilon(1e-6)
    assert RunningCost(NonPrivate(), 1e-6).epsilon_after(1) == np.inf


@pytest.mark.parametrize("wrong", [3, None, np.array(3)])
def test_one_number_of_steps_is_no_list(wrong) -> None:
    with pytest.raises(InputError, match="list of whole numbers"):
        epsilon_curve(Gaussian(1.0).poisson(0.01), wrong, 1e-5)
