"""Inputs at which an accountant was wrong or fell over before."""

import json

import numpy as np
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.accounting.accountants.pld import PldAccountant
from sfumato.accounting.accountants.running import RunningPld
from sfumato.accounting.extrapolate import extrapolate
from sfumato.accounting.ledger.chain import ORIGIN, line, seal

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


def test_a_mixture_has_no_lower_bound_above_the_poisson_sample_that_it_is():
    told = acc.MixtureOfGaussians(1.0, (0.0, 1.0), (0.9, 0.1))  # the cost of somebody who is told whether it is drawn
    low, high = acc.guarantee(told, "replace").epsilon_interval(1e-5)
    _, truth = acc.guarantee(STEP, "replace").epsilon_interval(1e-5)  # the same release
    assert low <= truth < high
    assert acc.guarantee(told).epsilon_interval(1e-5)[0] > 0  # adding and removing are attained


@pytest.mark.parametrize(
    ("event", "adjacency"),
    [
        (acc.Gaussian(1.0).truncated_poisson(0.1, 11, 100), "add_remove"),
        (acc.Gaussian(1.0).without_replacement(10, 100), "replace"),
        (acc.ExponentialMechanism(1.0).min_separation(5, 10), "add_remove"),
        (acc.PureDP(1.0).min_separation(5, 10), "replace"),
        (acc.Laplace(1.0) + acc.ExponentialMechanism(1.0), "add_remove"),
    ],
)
@pytest.mark.parametrize("method", ["auto", "pld", "buckets"])
def test_nothing_is_claimed_from_below_where_no_mechanism_attains_the_pairs(event, adjacency, method):
    low, high = acc.guarantee(event, adjacency, method).epsilon_interval(1e-5)
    assert low == 0 < high


def test_a_matrix_with_a_bound_for_its_sensitivity_claims_nothing_from_below():
    loose = acc.MatrixMechanism.toeplitz(
        noise_multiplier=1.0, coefficients=[1.0, -1.0, 1.0], max_participations=2, min_separation=0
    )
    assert not loose.exact
    for method in ("auto", "gaussian", "pld"):
        low, high = acc.guarantee(loose, "zero_out", method).epsilon_interval(1e-5)
        assert low == 0 < high
    tight = acc.TreeAggregation(noise_multiplier=1.0, steps=7)
    assert acc.guarantee(tight, "zero_out").epsilon_interval(1e-5)[0] > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: acc.Laplace(5e-324),  # its loss is no double
        lambda: acc.DiscreteLaplace(1.0, 10**308),
        lambda: acc.DiscreteGaussian(1.0, 10**308),
        lambda: acc.PureDP(1.0, adjacency=np.zeros(2)),  # type: ignore[arg-type]
        lambda: acc.MatrixMechanism.banded(noise_multiplier=1.0, steps=4, bands=None),  # type: ignore[arg-type]
        lambda: acc.MatrixMechanism.toeplitz(noise_multiplier=1.0, coefficients=[10**400]),
        lambda: acc.MatrixMechanism.from_matrix(noise_multiplier=1.0, matrix="eye"),  # type: ignore[arg-type]
        lambda: acc.event_from_json(np.float32(1)),  # type: ignore[arg-type]
        lambda: acc.event_from_json({**(STEP * 2).to_json(), "weight": 9}),
        lambda: acc.event_from_json({**(STEP + acc.Laplace(1.0)).to_json(), "weight": 9}),
        lambda: acc.guarantee(acc.DiscreteGaussian(5e-324), method="pld"),
        lambda: acc.guarantee(acc.DiscreteGaussian(1e308), method="pld"),
        lambda: acc.guarantee(acc.PureDP(1e308), "replace", "pld"),
    ],
)
def test_what_no_accountant_can_hold_is_refused_in_one_line(make):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_an_event_that_is_nested_too_deeply_is_refused_in_one_line():
    nested = acc.Gaussian(1.0).to_json()
    for _ in range(900):
        nested = {"event": "min_separation", "of": nested, "rounds": 1, "separation": 0}
    with pytest.raises(InputError, match="nested"):
        acc.event_from_json(nested)


def test_a_repetition_written_by_hand_reads_back_as_it_was():
    once = acc.Repeated(STEP, 1)
    assert acc.event_from_json(once.to_json()) == once


ORDERS = np.array([1.0001, 1.5, 2.0, 32.0, 4096.0])


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize(
    "event",
    [
        acc.ExponentialMechanism(1e308),
        acc.Gaussian(1.0).truncated_poisson(5e-324, 1, 100),
        acc.Gaussian(1.0).truncated_poisson(1e-300, 1, 100),
        acc.DiscreteLaplace(1e308, 2**52),
    ],
)
def test_numbers_at_the_ends_of_a_double_give_a_bound_and_no_nan(event, adjacency):
    try:
        values = event.renyi(ORDERS, adjacency)
    except acc.Unknown:
        return
    assert (values >= 0).all()  # false for nan
    assert (values[1:] >= values[:-1] * (1 - 1e-9)).all()


def test_a_sum_beyond_the_largest_double_is_infinite():
    two = acc.PureDP(1e308) + acc.ExponentialMechanism(1e308)
    assert acc.guarantee(two, method="pure").epsilon(0.0) == np.inf
    assert acc.guarantee(acc.ZCDP(1e308) + acc.ZCDP(1.7e308), method="zcdp").epsilon(1e-5) == np.inf


def test_two_likely_failures_add_up_to_more_than_one_half():
    cost = acc.guarantee(acc.ApproximateDP(1.0, 0.7) * 2, method="pld")  # 1 - 0.3^2 = 0.91
    assert cost.epsilon(0.9) == np.inf
    assert cost.epsilon(0.92) <= 2.0
    assert cost.delta(2.0) == pytest.approx(0.91)


def test_delta_of_claims_counts_an_infinite_loss_once_at_the_largest_finite_one():
    cost = acc.guarantee(acc.ApproximateDP(1.0, 0.1) + acc.ApproximateDP(2.0, 0.2), method="pld")
    assert cost.delta(3.0) == pytest.approx(0.28, rel=1e-9)
    assert cost.epsilon(0.28) == pytest.approx(3.0, rel=1e-8)
    low, high = cost.epsilon_interval(0.28)
    assert low <= 3.0 <= high * (1 + 1e-12)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "low", "high"),
    [
        (0.5, 2e-5, 10**6, 1e-10, 4.4205, 4.4244),  # a plain transform says 4.324
        (0.6, 1e-4, 10**5, 1e-11, 3.5820, 3.5832),  # a plain transform says 3.497
    ],
)
def test_small_deltas_do_not_drown_in_round_off(z, q, steps, delta, low, high):
    bounds = acc.guarantee(acc.Gaussian(z).poisson(q) * steps).epsilon_interval(delta)
    assert low <= bounds[0] <= bounds[1] <= high


def test_a_run_of_rare_steps_at_a_tiny_delta_has_both_bounds():
    low, high = acc.guarantee(acc.Gaussian(1.0).poisson(1e-6) * 1000).epsilon_interval(1e-20)
    assert 0.00615 < low <= high < 0.00617


SAID = {
    "unit": "user",
    "adjacency": "add_remove",
    "epsilon": 1.0,
    "delta": 1e-6,
    "sampling": "Poisson",
    "mechanism": "Gaussian",
    "noise_source": "CSPRNG",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 10**400},
        {"sampling": None},
        {"noise_source": b"CSPRNG"},
        {"assumptions": "the loader is right"},  # would be read letter by letter
        {"assumptions": (1,)},
        {"alternatives": None},
        {"alternatives": (1,)},
        {"alternatives": ({"epsilon": -1.0},)},
        {"alternatives": ({"delta": float("nan")},)},
        {"alternatives": ({"name": "x", "cost": float("nan")},)},
        {"population": "many"},
        {"population": -1},
    ],
)
def test_a_statement_refuses_what_it_cannot_say_in_one_line(wrong):
    for make in (lambda: acc.Statement(**{**SAID, **wrong}), lambda: acc.Statement.from_json({**SAID, **wrong})):
        with pytest.raises(InputError) as refusal:
            make()
        assert "\n" not in str(refusal.value)


def test_a_cost_of_the_votes_enters_no_statement_by_any_name():
    votes = np.tile([250] + [0] * 9, (10, 1))
    private = acc.vote_cost(votes, acc.NoisyVote(noise_std=40.0), adjacency="replace").epsilon(1e-5)
    for alternative in (
        {"name": "as cast", "cost": private},
        {"name": "as cast", "costs": [private]},
        {"name": "as cast", "of": {"epsilon": private}},
    ):
        with pytest.raises(InputError, match="NotPrivate"):
            acc.Statement(**SAID, alternatives=(alternative,))


def test_numbers_of_an_alternative_may_be_numpys():
    said = acc.Statement(**SAID, alternatives=({"name": "x", "epsilon": np.float32(0.5), "queries": np.int64(3)},))
    assert json.loads(json.dumps(said.to_json()))["alternatives"] == [{"name": "x", "epsilon": 0.5, "queries": 3}]


@pytest.mark.parametrize("delta", ["1e-5", np.nan, 2])
def test_every_question_about_a_gaussian_needs_a_delta(delta):
    promise = acc.guarantee(acc.Gaussian(1.0))
    for ask in (promise.tightest, promise.accountants[0].epsilon):
        with pytest.raises(InputError):
            ask(delta)


def test_hardly_any_noise_hides_nothing_and_is_no_nan():
    promise = acc.guarantee(acc.Gaussian(5e-324))
    assert promise.tpr(np.array([1e-300, 0.5, 1.0])).tolist() == [1.0, 1.0, 1.0]
    assert promise.bayes_risk() == 0.0


def test_ledgers_and_running_costs_refuse_what_they_cannot_read(tmp_path):
    with acc.Ledger.open(tmp_path / "a.jsonl") as ledger:
        ledger.append(STEP)
        with pytest.raises(InputError, match="budget"):
            ledger.replace_budget(1.0, reason="more")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="phase"):
            ledger.event(["train"])  # type: ignore[arg-type]
    entry = seal({"event": STEP.to_json(), "origin": "elsewhere"}, index=0, previous=ORIGIN)
    (tmp_path / "b.jsonl").write_bytes(line(entry))
    with pytest.raises(InputError, match=r"b\.jsonl, line 1"):
        acc.Ledger.merge([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "c.jsonl", unrelated=True)
    with pytest.raises(InputError, match="list of paths"):
        acc.Ledger.merge(tmp_path / "a.jsonl", tmp_path / "c.jsonl")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="spent"):
        RunningPld(STEP, 1e-5, spent="nothing")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"populations": 1000}, {"methods": "rdp"}, {"multipliers": None}, {"clients_per_round": 10**308}]
)
def test_an_extrapolation_refuses_what_is_no_list_or_out_of_range(wrong):
    right = {
        "noise_multiplier": 0.6,
        "rounds": 5,
        "clients_per_round": 4,
        "users_per_client": 2,
        "populations": [1000],
        "multipliers": [1.0],
    }
    with pytest.raises(InputError):
        extrapolate(**{**right, **wrong})


def test_delta_beyond_all_finite_losses_is_the_infinite_mass() -> None:
    claims = acc.ApproximateDP(0.0, 0.3) * 2
    assert acc.guarantee(claims).delta(1e300) == pytest.approx(1 - 0.7**2)
    assert PldAccountant(claims).delta_interval(float("inf"))[1] == pytest.approx(1 - 0.7**2)
