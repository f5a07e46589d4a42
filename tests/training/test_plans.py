"""One word chooses the noise of a plan: what follows from it, what is refused, and what the cheapest one is."""

import json

import numpy as np
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.accounting.strategies import BandedToeplitz, BufferedToeplitz, InverseBanded
from sfumato.central import DPSGD
from sfumato.federated import FedAvg, FedEmb, FedSGD
from sfumato.training import Server

PLANS = {
    "dpsgd": lambda **more: DPSGD(**{"steps": 40, "cohort.size": 10, **more}),
    "fedavg": lambda **more: FedAvg(**{"rounds": 40, "cohort.size": 10, **more}),
    "fedsgd": lambda **more: FedSGD(**{"rounds": 40, "cohort.size": 10, **more}),
    "fedemb": lambda **more: FedEmb(**{"rounds": 40, "cohort.size": 5, "cohort.users_per_client": 2, **more}),
}
SEPARATED = {"cohort": "min_separation", "cohort.min_separation": 9, "cohort.max_participations": 3}
NOISES = ("gaussian", "tree", "banded", "blt", "bisr")


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", PLANS)
def test_every_plan_meets_a_budget_with_every_noise(name, noise):
    plan = PLANS[name](noise=noise, **SEPARATED).calibrate(epsilon=2.0, delta=1e-5, population=200)
    cost = acc.guarantee(plan.private_sum(200).event(40), adjacency="zero_out")
    assert 1.98 < cost.epsilon(1e-5) <= 2.0


@pytest.mark.parametrize("noise", ["banded", "blt", "bisr"])
def test_what_was_optimised_stands_in_the_plan_and_is_what_runs(noise):
    plan = PLANS["fedavg"](noise=noise, noise_multiplier=3.0, **SEPARATED).for_population(200)
    kept = json.loads(json.dumps(plan.to_json()))
    again = FedAvg(
        **{name: value for name, value in kept.items() if name not in ("plan", "coefficients", "column_scales")}
    )
    assert again.for_population(200) == plan
    given = {name: tuple(kept[name]) for name in ("coefficients", "column_scales") if kept[name] is not None}
    same = PLANS["fedavg"](noise=noise, noise_multiplier=3.0, **SEPARATED, **given)
    assert same.strategy_for(200) == plan.strategy_for(200)
    assert same.private_sum(200).event(40) == plan.private_sum(200).event(40)


def test_coefficients_of_ones_own_are_taken_as_they_are():
    settings = {"noise.noise_multiplier": 3.0, **SEPARATED}
    banded = PLANS["dpsgd"](noise="banded", coefficients=(1.0, 0.5, 0.25), **settings)
    assert banded.strategy_for(200) == BandedToeplitz((1.0, 0.5, 0.25))
    blt = PLANS["dpsgd"](noise="blt", coefficients=(0.3, 0.2, 0.9, 0.5), **settings)
    assert blt.strategy_for(200) == BufferedToeplitz((0.3, 0.2), (0.9, 0.5))
    bisr = PLANS["dpsgd"](noise="bisr", coefficients=(1.0, -0.5), **settings)
    assert bisr.strategy_for(200) == InverseBanded((1.0, -0.5))
    assert banded.for_population(200) == banded


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise": "trees"}, "noise must be one of"),
        ({"cohort": "epochs"}, "sampling must be one of"),
        ({"noise": "tree"}, "noise=tree needs sampling that limits how often a unit takes part, got sampling=poisson"),
        ({"noise": "blt", "sampling": "fixed"}, "noise=blt needs sampling that limits .* got sampling=fixed"),
        ({"noise": "tree", "bands": 3}, "bands is for noise=banded or bisr, got noise=tree"),
        ({"noise": "gaussian", "tree_restart": 3}, "tree_restart is for noise=tree, got noise=gaussian"),
        ({"cohort.min_separation": 3}, "min_separation is for sampling=min_separation, got sampling=poisson"),
        (
            {"cohort": "shuffled", "cohort.drop_out": 0.1},
            "drop_out is for sampling=min_separation, got sampling=shuffled",
        ),
        ({**SEPARATED, "cohort.drop_out": 1.0}, r"drop_out must be .*\[0, 1\), got 1"),
        ({**SEPARATED, "cohort.availability": 0.0}, r"availability must be .*\(0, 1\], got 0"),
        ({**SEPARATED, "cohort.min_separation": -1}, "min_separation must be a whole number >= 0, got -1"),
        ({**SEPARATED, "cohort.max_participations": 0}, "max_participations must be a whole number >= 1, got 0"),
        (
            {**SEPARATED, "cohort.max_participations": 5},
            "max_participations must be <= 4, got 5: no more fit into 40 rounds",
        ),
        ({"cohort": "min_separation", "cohort.min_separation": 25}, "cohorts of 10 cannot be kept full"),
        ({**SEPARATED, "noise": "tree", "tree_restart": 40}, "tree_restart=40 comes after the last of 40 rounds"),
        ({**SEPARATED, "noise": "tree", "tree_restart": 2.5}, "tree_restart must be a whole number >= 1, got 2.5"),
        ({**SEPARATED, "noise": "tree", "tree_completion": True}, "tree_completion needs tree_restart"),
        ({**SEPARATED, "noise": "banded", "bands": 11}, r"bands must be <= min_separation \+ 1 = 10"),
        ({**SEPARATED, "noise": "banded", "bands": 0}, "bands must be a whole number >= 1, got 0"),
        ({**SEPARATED, "noise": "banded", "column_scales": (1.0,)}, "column_scales need coefficients"),
        ({**SEPARATED, "noise": "banded", "coefficients": (0.0, 1.0)}, "first of coefficients must be > 0, got 0"),
        ({**SEPARATED, "noise": "banded", "coefficients": (float("nan"),)}, "coefficients"),
        ({**SEPARATED, "noise": "blt", "coefficients": (0.3, 0.9, 0.1)}, "as many output scales as decays, got 3"),
        ({**SEPARATED, "noise": "blt", "coefficients": (0.3, 1.9)}, "buffer_decays must"),
        (
            {"sampling": "cyclic", "parts": 4, "noise": "tree"},
            "cyclic Poisson sampling of 4 parts amplifies banded noise",
        ),
        ({"sampling": "cyclic", "parts": 4, "noise": "banded", "bands": 5}, "of at most so many bands.*of 5 bands"),
        ({"noise": "auto", **SEPARATED}, "noise=auto is decided by calibrate"),
        ({"noise": "tree", "clipping": "adaptive", **SEPARATED}, "adaptive clipping is accounted round by round"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_by_name(fields, message):
    with pytest.raises(InputError, match=message):
        PLANS["fedavg"](**{"noise.noise_multiplier": 3.0, **fields}).private_sum(200)


def test_momentum_of_one_is_refused():
    with pytest.raises(InputError, match="momentum must be"):
        PLANS["fedavg"](noise="tree", server_momentum=1.0, **SEPARATED)
    with pytest.raises(InputError, match="momentum must be"):
        PLANS["dpsgd"](noise="tree", momentum=1.0, **SEPARATED)


def test_auto_takes_the_least_error_at_the_budget():
    plan = PLANS["dpsgd"](noise="auto", **SEPARATED)
    rows = plan.compare_noise(epsilon=2.0, delta=1e-5, population=200)
    assert {row.noise for row in rows} == set(NOISES)
    errors = [row.error for row in rows]
    assert errors == sorted(errors)
    for row in rows:
        strategy, rounds = row.plan.strategy_for(200), 40
        noise = np.arange(1, rounds + 1) if strategy is None else strategy.prefix_variance(rounds)
        assert row.error == pytest.approx(row.noise_multiplier * np.sqrt(noise.mean()), rel=1e-12)
        cost = acc.guarantee(row.plan.private_sum(200).event(rounds), adjacency="zero_out")
        assert 1.98 < cost.epsilon(1e-5) <= 2.0
    assert plan.calibrate(epsilon=2.0, delta=1e-5, population=200) == rows[0].plan
    assert errors[-1] > 1.5 * errors[0]


def test_auto_keeps_independent_noise_where_nothing_else_is_known():
    rows = PLANS["dpsgd"](noise="auto").compare_noise(epsilon=2.0, delta=1e-5, population=200)
    assert rows[0].noise == "gaussian"
    assert all("needs sampling that limits" in row.reason for row in rows[1:])
    assert rows[0].plan == PLANS["dpsgd"]().calibrate(epsilon=2.0, delta=1e-5, population=200)


def test_auto_chooses_the_parts_of_cyclic_sampling():
    rows = PLANS["dpsgd"](noise="auto", sampling="cyclic", steps=200).compare_noise(
        epsilon=1.0, delta=1e-5, population=2000
    )
    known = [row.plan for row in rows if row.error is not None]
    assert {plan.parts for plan in known} == {1, 2, 4, 8, 16, 32}
    assert all(plan.parts == len(plan.coefficients) for plan in known if plan.noise == "banded")


def test_the_production_run_of_the_announcement():
    """McMahan and Thakurta 2022: z = 7, 2,000 rounds, at most 6 of them with one user, 313 or more between two."""
    plan = FedAvg(
        rounds=2000,
        cohort={"size": 6500, "kind": "min_separation", "min_separation": 313, "max_participations": 6},
        noise={"kind": "tree", "noise_multiplier": 7.0},
    )
    cost = acc.guarantee(plan.private_sum(4_000_000).event(2000), adjacency="zero_out")
    assert round(cost.rho(), 2) == 0.81
    assert cost.epsilon(1e-10) == pytest.approx(8.526, abs=5e-4)


def test_people_who_are_missing_change_no_cost():
    everybody = PLANS["fedavg"](noise="tree", noise_multiplier=3.0, **SEPARATED).private_sum(200)
    some = PLANS["fedavg"](noise="tree", noise_multiplier=3.0, drop_out=0.3, availability=0.9, **SEPARATED)
    assert some.private_sum(200).event(40) == everybody.event(40)
    assert some.private_sum(200).sampler.describe() == everybody.sampler.describe()
    assert some.private_sum(200).grouping.clients == everybody.grouping.clients


def test_people_who_are_missing_leave_the_statement_as_it_is_to_the_byte(blobs, tiny, tmp_path):
    fields = {"rounds": 6, "cohort.size": 4, "noise": "tree", "noise.noise_multiplier": 2.0, "seed": 3}
    limits = {"cohort": "min_separation", "cohort.min_separation": 2, "cohort.max_participations": 2}
    users, took_part = blobs(12), []
    for missing, name in ((None, "all"), (0.6, "some")):
        plan = FedAvg(cohort={"drop_out": missing}, **fields, **limits)
        result = plan.fit(tiny(), users, out=tmp_path / name)
        took_part.append([row["not_private"]["units"] for row in result.history])
    assert sum(took_part[1]) < sum(took_part[0]) == 24
    one, other = ((tmp_path / name / "statement.json").read_bytes() for name in ("all", "some"))
    assert one == other


def test_the_server_forgets_its_momentum_when_a_new_tree_begins(blobs, tiny, monkeypatch):
    forgotten = []
    monkeypatch.setattr(Server, "restart", lambda server: forgotten.append(server))
    plan = FedAvg(
        rounds=5, cohort={"size": 4, "kind": "shuffled"}, noise={"kind": "tree", "restart": 2, "noise_multiplier": 1.0}
    )
    plan.fit(tiny(), blobs(12))
    assert len(forgotten) == 2
