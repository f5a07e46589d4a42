"""One word chooses the noise of a plan: what follows from it, what is refused, and what the cheapest one is."""

import json

import numpy as np
import pytest
import torch

from contract.toy_noise import Echo
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting.strategies import BandedToeplitz, BufferedToeplitz, InverseBanded
from sfumato.central import DPSGD
from sfumato.federated import FedAvg, FedEmb, FedRecon, FedSGD
from sfumato.federated.client import ClientTraining
from sfumato.mechanisms import BLT, Banded, Gaussian
from sfumato.mechanisms import NOISES as NOISE_KINDS
from sfumato.sampling import Poisson
from sfumato.training import Server
from sfumato.training.plan import current
from sfumato.training.server import Optimizer
from sfumato.voting import AEDPFL

PLANS = {
    "dpsgd": lambda **more: DPSGD(**{"steps": 40, "cohort.size": 10, **more}),
    "fedavg": lambda **more: FedAvg(**{"rounds": 40, "cohort.size": 10, **more}),
    "fedsgd": lambda **more: FedSGD(**{"rounds": 40, "cohort.size": 10, **more}),
    "fedemb": lambda **more: FedEmb(**{"rounds": 40, "cohort.size": 5, "cohort.users_per_client": 2, **more}),
}
SEPARATED = {"cohort": "min_separation", "cohort.min_separation": 9, "cohort.max_participations": 3}


def strategy_of(plan):
    """C of a planned run."""
    return plan.private_sum(200).mechanism.strategy


NOISES = ("gaussian", "tree", "banded", "blt", "bisr")


@pytest.mark.parametrize("plan", [*(make(delta=1e-6) for make in PLANS.values()), AEDPFL(delta=1e-6)])
def test_a_calibration_keeps_the_delta_of_the_plan_unless_another_is_asked_for(plan):
    kept = plan.calibrate(epsilon=2.0, population=200)
    assert kept.delta == 1e-6
    assert kept == plan.calibrate(epsilon=2.0, delta=1e-6, population=200)
    assert plan.calibrate(epsilon=2.0, delta=1e-4, population=200).delta == 1e-4
    assert plan.replace(delta=None).calibrate(epsilon=2.0, population=200).delta == 0.01 / 200


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", PLANS)
def test_every_plan_meets_a_budget_with_every_noise(name, noise):
    plan = PLANS[name](noise=noise, **SEPARATED).calibrate(epsilon=2.0, delta=1e-5, population=200)
    cost = acc.guarantee(plan.private_sum(200).event(40), adjacency="zero_out")
    assert 1.98 < cost.epsilon(1e-5) <= 2.0


def test_a_kind_of_noise_is_its_class_and_a_line(monkeypatch):
    monkeypatch.setitem(NOISE_KINDS.kinds, "echo", Echo)
    plan = PLANS["dpsgd"](noise="echo", **SEPARATED).calibrate(epsilon=2.0, delta=1e-5, population=200)
    own = plan.private_sum(200)
    assert 1.98 < acc.guarantee(own.event(40), adjacency="zero_out").epsilon(1e-5) <= 2.0
    assert plan.to_json()["noise"] == {"kind": "echo", "noise_multiplier": plan.noise.noise_multiplier, "share": 0.5}
    assert "echo" in {row.noise for row in plan.compare_noise(epsilon=2.0, population=200)}
    banded = Banded(coefficients=(1.0, 0.5), noise_multiplier=plan.noise.noise_multiplier, rounds=40)
    assert banded.event(1.0, own.sampler, 40) == own.event(40)
    source = RandomSource.from_seed(3)
    for round in (0, 1, 2, 9):
        one, two = (
            each.release(torch.zeros(100, dtype=torch.float64), scale=1.0, round=round, source=source)
            for each in (own.mechanism, banded)
        )
        torch.testing.assert_close(one, two, rtol=0, atol=1e-5)


@pytest.mark.parametrize("noise", ["banded", "blt", "bisr"])
def test_what_was_optimised_stands_in_the_plan_and_is_what_runs(noise):
    plan = PLANS["fedavg"](**{"noise": noise, "noise.noise_multiplier": 3.0, **SEPARATED}).for_population(200)
    kept = json.loads(json.dumps(plan.to_json()))
    left = {name: value for name, value in kept["noise"].items() if name not in ("coefficients", "column_scales")}
    again = FedAvg.from_json({**kept, "noise": left})
    assert again.for_population(200) == plan
    names = [name for name in ("coefficients", "column_scales") if kept["noise"].get(name) is not None]
    given = {f"noise.{name}": tuple(kept["noise"][name]) for name in names}
    same = PLANS["fedavg"](**{"noise": noise, "noise.noise_multiplier": 3.0, **SEPARATED, **given})
    assert strategy_of(same) == strategy_of(plan)
    assert same.private_sum(200).event(40) == plan.private_sum(200).event(40)


def test_coefficients_of_ones_own_are_taken_as_they_are():
    settings = {"noise.noise_multiplier": 3.0, **SEPARATED}
    banded = PLANS["dpsgd"](**{"noise": "banded", "noise.coefficients": (1.0, 0.5, 0.25), **settings})
    assert strategy_of(banded) == BandedToeplitz((1.0, 0.5, 0.25))
    blt = PLANS["dpsgd"](**{"noise": "blt", "noise.coefficients": (0.3, 0.2, 0.9, 0.5), **settings})
    assert strategy_of(blt) == BufferedToeplitz((0.3, 0.2), (0.9, 0.5))
    bisr = PLANS["dpsgd"](**{"noise": "bisr", "noise.coefficients": (1.0, -0.5), **settings})
    assert strategy_of(bisr) == InverseBanded((1.0, -0.5))
    assert banded.for_population(200).noise.coefficients == banded.noise.coefficients


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise": "trees"}, "noise must be one of"),
        ({"cohort": "epochs"}, "cohort must be one of"),
        ({"noise": "tree"}, r"needs a cohort that limits how often a unit takes part, got Poisson"),
        ({"noise": "blt", "cohort": "fixed_size"}, "needs a cohort that limits .* got fixed size"),
        ({"noise": "tree", "noise.bands": 3}, "bands is for noise=banded or bisr, got noise=tree"),
        ({"noise": "gaussian", "noise.restart": 3}, "restart is for noise=tree, got noise=gaussian"),
        ({"cohort.min_separation": 3}, "min_separation is for cohort=min_separation, got cohort=poisson"),
        (
            {"cohort": "shuffled", "cohort.drop_out": 0.1},
            "drop_out is for cohort=min_separation, got cohort=shuffled",
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
        ({**SEPARATED, "noise": "tree", "noise.restart": 40}, "restart=40 comes after the last of 40 rounds"),
        ({**SEPARATED, "noise": "tree", "noise.restart": 2.5}, "restart must be a whole number >= 1, got 2.5"),
        ({**SEPARATED, "noise": "tree", "noise.completion": True}, "completion needs restart"),
        ({**SEPARATED, "noise": "banded", "noise.bands": 11}, r"bands must be <= min_separation \+ 1 = 10"),
        ({**SEPARATED, "noise": "banded", "noise.bands": 0}, "bands must be a whole number >= 1, got 0"),
        ({**SEPARATED, "noise": "banded", "noise.column_scales": (1.0,)}, "column_scales need coefficients"),
        (
            {**SEPARATED, "noise": "banded", "noise.coefficients": (0.0, 1.0)},
            "first of coefficients must be > 0, got 0",
        ),
        ({**SEPARATED, "noise": "banded", "noise.coefficients": (float("nan"),)}, "coefficients"),
        (
            {**SEPARATED, "noise": "blt", "noise.coefficients": (0.3, 0.9, 0.1)},
            "as many output scales as decays, got 3",
        ),
        ({**SEPARATED, "noise": "blt", "noise.coefficients": (0.3, 1.9)}, "buffer_decays must"),
        (
            {"cohort": "cyclic_poisson", "cohort.parts": 4, "noise": "tree"},
            "cyclic Poisson sampling of 4 parts amplifies at most so many bands",
        ),
        (
            {"cohort": "cyclic_poisson", "cohort.parts": 4, "noise": "banded", "noise.bands": 5},
            "at most so many bands.*of 5 bands",
        ),
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
        PLANS["fedavg"](noise="tree", server={"momentum": 1.0}, **SEPARATED)
    with pytest.raises(InputError, match="momentum must be"):
        PLANS["dpsgd"](noise="tree", server={"momentum": 1.0}, **SEPARATED)


def test_auto_takes_the_least_error_at_the_budget():
    plan = PLANS["dpsgd"](noise="auto", **SEPARATED)
    rows = plan.compare_noise(epsilon=2.0, delta=1e-5, population=200)
    assert {row.noise for row in rows} == set(NOISES)
    errors = [row.error for row in rows]
    assert errors == sorted(errors)
    for row in rows:
        rounds = 40
        noise = row.plan.noise.prefix_variance(rounds)
        assert row.error == pytest.approx(row.noise_multiplier * np.sqrt(noise.mean()), rel=1e-12)
        cost = acc.guarantee(row.plan.private_sum(200).event(rounds), adjacency="zero_out")
        assert 1.98 < cost.epsilon(1e-5) <= 2.0
    assert plan.calibrate(epsilon=2.0, delta=1e-5, population=200) == rows[0].plan
    assert errors[-1] > 1.5 * errors[0]


def test_auto_keeps_independent_noise_where_nothing_else_is_known():
    rows = PLANS["dpsgd"](noise="auto").compare_noise(epsilon=2.0, delta=1e-5, population=200)
    assert rows[0].noise == "gaussian"
    assert all("needs a cohort that limits" in row.reason for row in rows[1:])
    assert rows[0].plan == PLANS["dpsgd"]().calibrate(epsilon=2.0, delta=1e-5, population=200)


def test_auto_chooses_the_parts_of_cyclic_sampling():
    rows = PLANS["dpsgd"](noise="auto", cohort="cyclic_poisson", steps=200).compare_noise(
        epsilon=1.0, delta=1e-5, population=2000
    )
    known = [row.plan for row in rows if row.error is not None]
    assert {plan.cohort.parts for plan in known} == {1, 2, 4, 8, 16, 32}
    assert all(plan.cohort.parts == len(plan.noise.coefficients) for plan in known if isinstance(plan.noise, Banded))


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
    everybody = PLANS["fedavg"](**{"noise": "tree", "noise.noise_multiplier": 3.0, **SEPARATED}).private_sum(200)
    some = PLANS["fedavg"](
        **{
            "noise": "tree",
            "noise.noise_multiplier": 3.0,
            "cohort.drop_out": 0.3,
            "cohort.availability": 0.9,
            **SEPARATED,
        }
    )
    assert some.private_sum(200).event(40) == everybody.event(40)
    assert some.private_sum(200).sampler.describe() == everybody.sampler.describe()
    assert some.private_sum(200).grouping.clients == everybody.grouping.clients


def test_people_who_are_missing_leave_the_statement_as_it_is_to_the_byte(blobs, tiny, tmp_path):
    fields = {"rounds": 6, "cohort.size": 4, "noise": "tree", "noise.noise_multiplier": 2.0, "seed": 3}
    limits = {"cohort": "min_separation", "cohort.min_separation": 2, "cohort.max_participations": 2}
    users, took_part = blobs(12), []
    for missing, name in ((0.0, "all"), (0.6, "some")):
        plan = FedAvg(**fields, **limits, **{"cohort.drop_out": missing})
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


# Parts of a plan: what is short for them, and what is refused.


def test_what_a_run_sets_in_a_part_is_not_left_to_the_plan():
    """Noise of the stream from which the count's noise is drawn, or a sampler of another population."""
    plan = DPSGD(
        steps=3, cohort=Poisson(size=4, population=5, rounds=9), noise=Gaussian(noise_multiplier=1.0, label="x")
    )
    parts = plan.private_sum(100)
    assert (parts.mechanism, parts.sampler) == (
        Gaussian(noise_multiplier=1.0),
        Poisson(size=4, population=100, rounds=3),
    )


def test_a_sampler_of_ones_own_is_refused():
    class Biased(Poisson):
        def draw(self, present, round, source):
            return np.arange(present)

    with pytest.raises(InputError, match="cohort must be one of poisson, fixed_size"):
        DPSGD(cohort=Biased(size=4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip_norm": 1.0}, "clip_norm is now clipping=…"),
        ({"head_start": "means"}, 'head_start is now client={"head": {"start": …}}'),
        ({"clipping": "flatt"}, r"clipping must be one of flat, .*, got flatt \(did you mean flat\?\)"),
        (
            {"clipping": {"kind": "flat", "quantile": 0.5}},
            "quantile is for clipping=adaptive, got clipping=flat; leave it out",
        ),
        ({"cohort.sise": 3}, r"cohort has no field sise \(did you mean size\?\)"),
        ({"roundz": 3}, r"FedEmb has no field roundz \(did you mean rounds\?\)"),
        ({"client": {"loss": "softmax", "los": 1}}, "client has no field los"),
        ({"noise": [1.0]}, "noise must be one of gaussian, .*, or a number, got"),
        ({"trainable": None}, "trainable must be a text, got None"),
        ({"server.nesterov": "no"}, "server.nesterov must be True or False, got 'no'"),
        ({"server": Optimizer(nesterov=0)}, "nesterov must be True or False, got 0"),
        ({"clipping": {"kind": "per_layer", "shares": 1.0}}, "clipping.shares must be a list of numbers, got 1.0"),
    ],
    ids=str,
)
def test_a_field_that_is_none_is_one_line_with_its_path(fields, message):
    with pytest.raises(InputError, match=message):
        FedEmb(**fields)


def test_a_plan_holds_numbers_that_nobody_else_can_change():
    """A tensor or an array that is changed after the budget was met would be other noise than was accounted for."""
    noise, shares, size = torch.tensor(2.0), np.array([1.0, 3.0]), np.array(4.0)
    bound = {"kind": "per_layer", "shares": shares}
    plan = DPSGD(steps=np.array(2), noise=Gaussian(noise_multiplier=noise), clipping=bound, cohort=size)  # pyright: ignore
    for each in (noise, shares, size):
        each[...] = 0.0
    assert plan == DPSGD(steps=2, noise=2.0, clipping={"kind": "per_layer", "shares": (1.0, 3.0)}, cohort=4)
    assert json.loads(json.dumps(plan.to_json())) == json.loads(json.dumps(plan.replace(noise=2.0).to_json()))
    given = Gaussian(noise_multiplier=1.0)
    assert DPSGD(noise=given).noise is given  # what holds plain numbers stays the object that it is


def test_a_whole_number_may_be_written_with_a_point():
    client = {"epochs": 1.0, "batch_size": 2.0, "at_once": 2.0, "threads": 1.0}
    plan = FedAvg(rounds=1.0, cohort=2.0, noise=0.0, clipping=None, client=client, seed=1.0)  # pyright: ignore
    assert (type(plan.rounds), type(plan.cohort.size), type(plan.seed)) == (int, int, int)
    assert plan.client == ClientTraining(epochs=1, batch_size=2, at_once=2, threads=1)
    assert {type(getattr(plan.client, name)) for name in client} == {int}


def test_a_word_or_a_number_keeps_what_it_does_not_say():
    plan = FedEmb(cohort=4, noise="blt").replace(noise=0.5)
    assert (plan.cohort.users_per_client, plan.cohort.size) == (8, 4)
    assert plan.noise == BLT(noise_multiplier=0.5)
    assert plan.replace(cohort="shuffled").cohort.users_per_client == 8
    assert FedEmb.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_of_an_earlier_version_loses_what_other_kinds_of_a_loss_have():
    """It wrote the margin and the scale of a softmax next to a loss that has none."""
    flat = {"plan": "fedrecon", "loss": "squared", "loss_margin": 0.3, "loss_scale": 30.0, "local_epochs": 2}
    assert current(flat, FedRecon)["client"] == {"loss": {"kind": "squared"}, "epochs": 2}
    assert FedRecon.from_json(current(flat, FedRecon)) == FedRecon(client={"loss": "squared", "epochs": 2})
    kept = current({"plan": "fedemb", "loss": "arcface", "loss_margin": 0.3, "loss_scale": 30.0}, FedEmb)
    assert kept["client"] == {"loss": {"kind": "arcface", "margin": 0.3, "scale": 30.0}}


@pytest.mark.parametrize("kind", [DPSGD, FedEmb])
def test_a_whole_number_for_a_real_one_is_the_same_plan(kind):
    """A stopped run is compared with the one that goes on by these bytes."""
    whole, real = ({"clipping": n(3), "noise": n(1), "server": {"learning_rate": n(2)}} for n in (int, float))
    assert json.dumps(kind(**whole).to_json()) == json.dumps(kind(**real).to_json())
    assert isinstance(kind(**whole).to_json()["cohort"]["size"], int)
