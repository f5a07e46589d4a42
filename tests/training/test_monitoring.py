"""What a run shows while it goes on: its cost so far, its measures, and that it learns nothing."""

import time
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import accounting as acc
from sfumato import data
from sfumato.central import DPSGD
from sfumato.clipping import Flat
from sfumato.federated import FedAvg
from sfumato.mechanisms import Gaussian
from sfumato.sampling import Poisson
from sfumato.training import PrivateSum
from sfumato.training.monitoring import (
    CostSoFar,
    Display,
    Watch,
    before_rounds,
    columns,
    marked,
    trouble,
    who_took_part,
)

# ε while a run goes on: an upper bound by the accountants of the statement, never above that of the whole run.

DELTA = 1e-5


def rounds_of(mechanism, rounds: int) -> PrivateSum:
    return PrivateSum(
        sampler=Poisson(size=10, population=200),
        bound=Flat(norm=1.0),
        mechanism=mechanism,
        rounds=rounds,
    )


@pytest.mark.parametrize("rounds", [5, 300, 2000])
def test_what_is_told_rises_to_what_was_planned_and_covers_each_round(rounds):
    parts = rounds_of(Gaussian(noise_multiplier=1.0), rounds)
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
    parts, before = rounds_of(Gaussian(noise_multiplier=1.0), 20), acc.Gaussian(2.0)
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
    cost = CostSoFar(rounds_of(Gaussian(noise_multiplier=0.0), 6), DELTA)
    assert cost.planned is None
    assert cost.after(3) is None


def test_the_rounds_of_a_calibrated_plan_never_pass_its_budget():
    plan = FedAvg(rounds=30, cohort=8).calibrate(epsilon=8.0, delta=1e-4, population=64)
    cost = CostSoFar(plan.private_sum(64), 1e-4)
    assert cost.planned <= 8.0 + 1e-7
    assert max(cost.after(n) for n in range(1, 31)) <= cost.planned


def test_the_bar_shows_both(capsys):
    with Display(10, 0, visible=True, planned=8.0) as display:
        display.show({"round": 3, "epsilon": 3.1, "not_private": {"loss": 1.0}})
        (task,) = display._progress.tasks
        assert task.description.startswith("ε 3.1 of 8 ")


# What a run shows while it goes on, where no terminal watches.

ROW = {"round": 3, "epsilon": 1.23456, "not_private": {"loss": 0.5}}


def test_a_long_run_tells_round_epsilon_rate_and_time_left_also_within_a_round(capsys: pytest.CaptureFixture[str]):
    with Display(10, 1, visible=True, every=0.05, planned=3.0) as display:
        display.show(ROW)
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("sfumato: round 3 of 10 · ε 1.24 of 3 · loss 0.5 (private) · ") for line in lines)
    assert all("rounds/s · 0 min" in line and line.endswith("left") for line in lines)


def test_before_the_first_round_nothing_is_said_of_the_time(capsys: pytest.CaptureFixture[str]):
    with Display(10, 0, visible=True, every=0.05):
        time.sleep(0.2)
    assert capsys.readouterr().err.splitlines()[0] == "sfumato: round 0 of 10"


@pytest.mark.parametrize(("visible", "every"), [(True, 30.0), (False, 0.01)])
def test_a_short_run_and_one_that_nobody_watches_print_no_line(
    capsys: pytest.CaptureFixture[str], visible: bool, every: float
):
    with Display(10, 0, visible=visible, every=every) as display:
        display.show(ROW)
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_nothing_is_printed_after_ctrl_c(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(KeyboardInterrupt), Display(10, 0, visible=True, every=0.05):
        raise KeyboardInterrupt
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


# People who took part are measured only where a task asks for it, and which of them follows from their number.


class Asks:
    monitors_training_users = True


def people(count: int, value: float = 0.0) -> data.UserDataset:
    return data.from_arrays(np.full((count, 1), value), labels=np.zeros(count, int), users=np.arange(100, 100 + count))


@pytest.mark.parametrize(("took_part", "tested", "count"), [(100, 7, 7), (5, 9, 5), (9, 9, 9), (10, 1, 1)])
def test_at_most_as_many_as_are_tested_at_even_distances(took_part, tested, count):
    chosen = who_took_part(Asks(), people(took_part), people(tested))
    places = [int(name) - 100 for name in chosen.user_ids]
    assert len(places) == count
    assert set(np.diff(places)) <= {took_part // count, -(-took_part // count)}


def test_who_is_chosen_does_not_depend_on_what_they_hold():
    one, other = (who_took_part(Asks(), people(50, value), people(7)) for value in (0.0, 9.0))
    assert list(one.user_ids) == list(other.user_ids)


def test_nobody_is_measured_for_a_task_that_does_not_ask_or_without_a_test():
    assert who_took_part(object(), people(5), people(5)) is None
    assert who_took_part(Asks(), people(5), None) is None


def test_the_row_says_that_it_is_private():
    assert marked({"rmse": 1.0}, people(3)) == {
        "not_private": "measured without noise on people who took part", "users": 3, "rmse": 1.0,
    }  # fmt: skip


# A run that learns nothing says so while it runs and in its result.

FEATURES, CLASSES = 6, 3


def users() -> data.UserDataset:
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    return data.from_arrays(inputs, np.arange(24) % CLASSES, np.arange(24) // 4)


def fit(learning_rate: float, rounds: int = 6):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    fields = {"cohort.size": 4, "client.batch_size": 2, "noise.noise_multiplier": 0.5, "seed": 1}
    plan = FedAvg(rounds=rounds, client={"learning_rate": learning_rate}, **fields)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.fit(model, users())
    return result, [str(each.message) for each in caught if "costs privacy and teaches nothing" in str(each.message)]


def test_a_run_that_diverges_is_told_once_while_it_runs_and_in_its_result():
    result, told = fit(1e30)
    assert len(told) == 1
    assert told[0].startswith("round 3: ")
    assert "\n" not in told[0]
    assert result.trouble.startswith("The model learned nothing: ")


def test_a_run_that_does_not_is_told_nothing():
    result, told = fit(0.01)
    assert told == []
    assert result.trouble == ""


def row(number: int, *, loss: float | None = 1.0, units: int = 4, broken: int = 0):
    return {"round": number, "not_private": {"loss": loss, "units": units, "non_finite": broken}}


def test_each_run_of_broken_rounds_is_told_once():
    watch = Watch()
    broken = [3, 4, 5, 6, 7, 12, 13, 14, 15]
    told = [number for number in range(1, 17) if watch.add(row(number, loss=None if number in broken else 1.0))]
    assert told == [5, 14]


def test_two_broken_rounds_and_rounds_without_anybody_are_no_divergence():
    watch = Watch()
    assert not any(watch.add(row(n, loss=None, units=0)) for n in range(1, 9))
    assert not any(Watch().add(row(n, loss=None if n in (4, 5) else 1.0)) for n in range(1, 9))


def test_contributions_that_count_as_zero_are_told_once():
    watch, broken = Watch(), {3: 1, 4: 1, 9: 1}
    told = {n: line for n in range(1, 12) if (line := watch.add(row(n, units=8, broken=broken.get(n, 0))))}
    assert list(told) == [3]
    assert told[3].startswith("round 3: 1 of 8 contributions were not finite and counted as zero; ")


def test_a_divergence_is_told_in_one_line_with_its_zeros():
    watch = Watch()
    told = [line for n in range(1, 5) if (line := watch.add(row(n, loss=None, broken=4 if n > 2 else 0)))]
    assert len(told) == 1
    assert "teaches nothing" in told[0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["input", "loss"])
def test_a_run_of_dpsgd_tells_of_one_wild_record_while_it_runs(where, wrong):
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    inputs[7, 0] = wrong if where == "input" else 1e3

    def loss(scores, labels):
        found = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        return found * torch.where(scores.detach().abs().amax(dim=1) > 50, wrong, 1.0) if where == "loss" else found

    torch.manual_seed(0)
    plan = DPSGD(steps=4, cohort=24, noise=1.0, server={"learning_rate": 1e-3}, seed=1)
    records = data.examples_from_arrays(inputs, np.arange(24) % CLASSES, num_classes=CLASSES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plan.fit(nn.Linear(FEATURES, CLASSES), records, loss=loss)
    told = [str(each.message) for each in caught if "counted as zero" in str(each.message)]
    assert [line.partition(";")[0] for line in told] == [
        "round 1: 1 of 24 contributions were not finite and counted as zero"
    ]
    assert [each["not_private"]["non_finite"] for each in result.history] == [1] * 4


@pytest.mark.parametrize(("broken", "told"), [(1, False), (2, True), (4, True)])
def test_half_of_the_contributions_are_a_divergence(broken, told):
    watch = Watch()
    found = [watch.add(row(n, broken=broken)) for n in range(1, 5)]
    assert any("teaches nothing" in line for line in found) == told
    assert bool(trouble(columns([row(n, broken=broken) for n in range(1, 5)]), None)) == told
