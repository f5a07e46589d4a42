"""ε while a run goes on: an upper bound by the accountants of the statement, never above that of the whole run."""

import pytest

from sfumato import accounting as acc
from sfumato.clipping import ConstantClipNorm
from sfumato.federated import FedAvg
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.sampling import OwnClients, PoissonSampling
from sfumato.training import PrivateSum
from sfumato.training.monitoring import CostSoFar, Display, before_rounds

DELTA = 1e-5


def rounds_of(mechanism, rounds: int) -> PrivateSum:
    return PrivateSum(
        sampler=PoissonSampling(sampling_rate=0.05, population=200),
        grouping=OwnClients(clients=10),
        bound=ConstantClipNorm(clip_norm=1.0),
        mechanism=mechanism,
        rounds=rounds,
    )


@pytest.mark.parametrize("rounds", [5, 300, 2000])
def test_what_is_told_rises_to_what_was_planned_and_covers_each_round(rounds):
    parts = rounds_of(IndependentGaussian(noise_multiplier=1.0), rounds)
    cost = CostSoFar(parts, DELTA)
    told = [cost.after(n) for n in range(1, rounds + 1)]
    assert told == sorted(told)
    assert told[-1] == cost.planned
    whole = acc.guarantee(parts.event(rounds), adjacency="add_remove").epsilon(DELTA)
    assert whole <= cost.planned <= whole * (1 + 1e-6)
    for n in {1, rounds // 3, rounds // 2, rounds - 1} - {0}:
        exact = acc.guarantee(parts.event(n), adjacency="add_remove").epsilon(DELTA)
        assert exact * (1 - 1e-3) <= told[n - 1] <= 1.02 * exact
    assert len(set(told)) <= 128 + 64 * max(0, rounds.bit_length() - 7)


def test_what_was_released_before_counts():
    parts, before = rounds_of(IndependentGaussian(noise_multiplier=1.0), 20), acc.Gaussian(2.0)
    alone, together = CostSoFar(parts, DELTA), CostSoFar(parts, DELTA, before)
    assert together.after(1) > max(alone.after(1), acc.guarantee(before).epsilon(DELTA))
    assert together.planned > alone.planned
    spent = before + parts.event(7)
    assert before_rounds(spent, parts, 7) == before
    assert before_rounds(parts.event(7), parts, 7) is None
    assert before_rounds(before, parts, 0) == before


def test_a_stream_costs_what_all_of_it_costs_from_its_first_round_on(drifting):
    parts = rounds_of(drifting(), 6)
    cost = CostSoFar(parts, DELTA)
    assert cost.after(1) <= cost.after(6) == cost.planned


def test_without_noise_there_is_nothing_to_tell():
    cost = CostSoFar(rounds_of(IndependentGaussian(noise_multiplier=0.0), 6), DELTA)
    assert cost.planned is None
    assert cost.after(3) is None


def test_the_rounds_of_a_calibrated_plan_never_pass_its_budget():
    plan = FedAvg(rounds=30, clients_per_round=8).calibrate(epsilon=8.0, delta=1e-4, population=64)
    cost = CostSoFar(plan.private_sum(64), 1e-4)
    assert cost.planned <= 8.0 + 1e-7
    assert max(cost.after(n) for n in range(1, 31)) <= cost.planned


def test_the_bar_shows_both(capsys):
    with Display(10, 0, visible=True, planned=8.0) as display:
        display.show({"round": 3, "epsilon": 3.1, "not_private": {"loss": 1.0}})
        (task,) = display._progress.tasks
        assert task.description.startswith("ε 3.1 of 8 ")
