"""PrivacyFace: what silos release, what it costs an identity, and what the server makes of it."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.data import UserDataset, from_arrays, to_tensor
from sfumato.federated import LocalHead
from sfumato.federated.clustering import DPLC
from sfumato.federated.privacyface import PrivacyFace
from sfumato.federated.sharing import SpreadOut
from sfumato.federated.silos import Federation, Training, open_silos, spread_out
from sfumato.ledger import Budget, Ledger
from sfumato.ledger import ledger as binding
from sfumato.runs import Run
from sfumato.statement import Statement
from slow import slow_but

DIMENSION = 6


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, DIMENSION))


def people(name: str, count: int, seed: int, each: int = 3) -> UserDataset:
    """So many identities with pictures of their own, near a common one."""
    rng = np.random.default_rng(seed)
    base = np.repeat(rng.integers(0, 256, (count, 8, 8, 1)), each, axis=0)
    pictures = np.clip(base + rng.normal(0, 20, base.shape), 0, 255).astype(np.uint8)
    names = [f"{name}{n:03d}" for n in range(count)]
    return from_arrays(pictures, np.repeat(np.arange(count), each), np.repeat(names, each))


SILOS = {"a": people("a", 24, 1), "b": people("b", 16, 2), "c": people("c", 20, 3)}
PUBLIC = people("public", 20, 4)
SIZES = [24, 16, 20]
CLUSTERS = {"kind": "private", "epsilon": 4.0, "threshold": 3, "radius": 1.4, "groups": 3}
COVERED = {"cohort": {"size": 2, "users_per_client": 4}, "noise": 1.5}


def planned(**changes) -> PrivacyFace:
    base = {"rounds": 3, "seed": 1, "sharing": CLUSTERS, "client.batch_size": 8, "client.learning_rate": 0.05}
    return PrivacyFace(**{**base, **changes})


def trained(plan: PrivacyFace, silos=None, **more) -> Federation:
    return plan.fit(network(), SILOS if silos is None else silos, public=PUBLIC, **more)


def weights(result: Federation) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in result.model.parameters()])


def training(plan: PrivacyFace) -> Training:
    return Training(plan, network(), open_silos(plan, SILOS, PUBLIC), PUBLIC, device="cpu")


# What it costs.


def test_an_identity_pays_its_own_silo_for_clusters_and_backbone():
    plan = planned(**COVERED, delta=1e-4)
    smallest = min(SIZES)
    z = 1.5 / 2  # a user of a virtual client moves the sum by two norms
    rounds = acc.Gaussian(z).poisson(8 / smallest)
    dplc = DPLC(epsilon=4.0, delta=1e-4, threshold=3)
    sums = acc.Gaussian(dplc.noise_multiplier(60))
    clusters = acc.ExponentialMechanism(0.4) + acc.joint(sums, acc.Gaussian(5 * dplc.noise_multiplier(60)))
    wanted = acc.guarantee(clusters + rounds * 3, "add_remove").epsilon(1e-4)
    assert plan.statement(SIZES).epsilon == pytest.approx(wanted, rel=1e-6)


def test_the_ledger_holds_what_the_plan_states_and_is_read_back(tmp_path):
    plan = planned(**COVERED, seed=None)
    result = trained(plan, out=tmp_path / "run")
    assert math.isfinite(result.statement.epsilon)
    assert result.statement.epsilon == plan.statement(SIZES).epsilon
    assert result.statement.unit == "identity"
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        releases = [entry for entry in ledger if "event" in entry]
        assert [entry["silos"] for entry in releases] == [3] * 5
        stated = Statement.load(tmp_path / "run" / "statement.json")
        assert binding.compare(ledger.totals, stated, tmp_path / "run")
        cost = acc.guarantee(ledger.totals.event(), "add_remove").epsilon(plan.delta_of(SIZES))
    assert cost == pytest.approx(result.statement.epsilon)


def test_a_person_of_two_silos_pays_twice():
    once, twice = planned(**COVERED), planned(**COVERED, silos=2, sharing="backbone")
    assert twice.event(SIZES) == once.replace(sharing="backbone", rounds=6).event(SIZES)
    clusters, shared = once.dplc(SIZES), planned(**COVERED, silos=2).dplc(SIZES)
    assert clusters is not None
    assert shared is not None
    assert shared.noise_multiplier(60) > clusters.noise_multiplier(60)  # their own epsilon is for both


def test_a_larger_silo_is_sampled_less_often_and_costs_no_more():
    plan = planned(**COVERED, sharing="backbone")
    cost = [acc.guarantee(plan.private_sum(size).event(3), "add_remove").epsilon(1e-4) for size in sorted(SIZES)]
    assert cost == sorted(cost, reverse=True)
    assert plan.event(SIZES) == plan.private_sum(min(SIZES)).event(3)


def test_noise_is_calibrated_to_clusters_and_backbone_together():
    plan = planned(cohort=COVERED["cohort"]).calibrate(epsilon=6.0, sizes=SIZES)
    assert 5.99 < plan.statement(SIZES).epsilon <= 6.0
    with pytest.raises(InputError, match="clusters"):
        planned(cohort=COVERED["cohort"]).calibrate(epsilon=3.0, sizes=SIZES)


def test_without_noise_on_the_backbone_the_statement_covers_the_clusters_alone():
    result = trained(planned())
    assert math.isinf(result.statement.epsilon)
    text = " ".join(result.statement.text().split())
    assert "The backbone was trained without noise" in text
    delta = planned().delta_of(SIZES)
    assert f"(4, {delta:.3g})-differentially private for this identity" in text
    assert "The clusters of the silos are covered by themselves" in text
    assert "Nothing is covered" not in text
    for sharing in ("exact", "naive", "fedface"):
        assert "no guarantee for an identity" in " ".join(planned(sharing=sharing).statement(SIZES).text().split())


# What leaves, and what does not.


def test_a_round_is_in_the_ledger_before_any_silo_trains(monkeypatch):
    plan, spent = planned(**COVERED), []
    update, spend = Training._update, Run.spend
    monkeypatch.setattr(Run, "spend", lambda run, event, **more: (spent.append(event), spend(run, event, **more))[1])

    def watched(self, run, theta, state, silo):
        assert len(spent) == 2 + state.round + 1  # two of the clusters
        return update(self, run, theta, state, silo)

    monkeypatch.setattr(Training, "_update", watched)
    trained(plan)


def updates(plan: PrivacyFace, silos, monkeypatch) -> dict[tuple[int, int], torch.Tensor]:
    """What each silo sent in each round."""
    found, update = {}, Training._update

    def kept(self, run, theta, state, silo):
        sent, loss = update(self, run, theta, state, silo)
        found[state.round, silo] = sent.clone()
        return sent, loss

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_update", kept)
        trained(plan, silos)
    return found


def test_an_identity_who_goes_changes_what_its_own_silo_sends_alone(monkeypatch):
    # The declared sizes are public and stay: identities are blanked, so that cohorts are the same.
    plan = planned(**COVERED, rounds=1)
    inputs = np.array(SILOS["a"].inputs)
    inputs[:3] = np.random.default_rng(9).integers(0, 256, inputs[:3].shape)
    other = {**SILOS, "a": from_arrays(inputs, SILOS["a"].labels, np.repeat(SILOS["a"].user_ids, 3))}
    one, two = (updates(plan.replace(sharing="backbone"), silos, monkeypatch) for silos in (SILOS, other))
    assert torch.equal(one[0, 1], two[0, 1])
    assert torch.equal(one[0, 2], two[0, 2])


def test_silos_draw_noise_of_their_own(monkeypatch):
    silos = {name: people(name, 16, 7) for name in "abc"}
    noise = {
        name: from_arrays(np.array(each.inputs) + (n * 0), each.labels, np.repeat(each.user_ids, 3))
        for n, (name, each) in enumerate(silos.items())
    }
    monkeypatch.setattr("sfumato.federated.silos._refuse_shared", lambda *_: None)  # equal pictures
    found = updates(planned(**COVERED, sharing="backbone", rounds=2), noise, monkeypatch)
    assert len({tuple(each.tolist()) for each in found.values()}) == 6


def test_an_empty_cohort_releases_noise(monkeypatch):
    plan = planned(cohort={"size": 1, "users_per_client": 1}, noise=2.0, sharing="backbone", rounds=4, seed=5)
    empty = []
    original = Training._update

    def watched(self, run, theta, state, silo):
        source = run.source.within(f"silo {silo} after {run.history_word}")
        empty.append(not len(plan.private_sum(self.sizes[silo]).sampler.draw(self.sizes[silo], state.round, source)))
        sent, loss = original(self, run, theta, state, silo)
        if empty[-1]:
            assert sent.std().item() == pytest.approx(2.0, rel=0.2)
        return sent, loss

    monkeypatch.setattr(Training, "_update", watched)
    trained(plan)
    assert any(empty)


def test_clusters_of_one_silo_do_not_depend_on_another():
    rng = np.random.default_rng(0)
    one, two, other = (rng.normal(size=(40, 4)) + np.eye(4)[0] for _ in range(3))
    dplc = DPLC(epsilon=3.0, delta=1e-4, threshold=5, seed=2)

    def released(*silos):
        with Run.open(None, plan={}, seed=2) as run:
            run.begin("same", "add_remove", resume=False, what="clusters")
            found = dplc.release_in_silos(run, silos, np.eye(4), releases=1, name="clusters")
            return found, run.spent()

    (first, cost), (second, _) = released(one, two), released(one, other)
    assert first[0][0].count == second[0][0].count
    assert (first[0][0].direction == second[0][0].direction).all()
    assert first[1][0].count != second[1][0].count
    assert acc.guarantee(cost, "add_remove").epsilon(1e-4) == pytest.approx(3.0, rel=1e-3)  # once, not for each silo


def test_a_centre_that_a_projection_maps_to_zero_is_in_no_cap_of_its_silo():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 4)) * [1, 1, 1, 0] + np.eye(4)[0]
    dplc = DPLC(epsilon=3.0, delta=1e-4, radius=2.0, threshold=5, seed=2)

    def count(*more) -> float:
        with Run.open(None, plan={}, seed=2) as run:
            run.begin("same", "add_remove", resume=False, what="clusters")
            silo = np.concatenate([centres, *more])
            found = dplc.release_in_silos(
                run, [silo, centres], np.eye(4)[:1], releases=1, name="clusters", projection=np.eye(4)[:, :3]
            )
            return found[0][0].count

    assert count() == count(np.eye(4)[3:])


def test_a_silo_takes_the_directions_of_all_others_and_not_its_own():
    run = training(planned())
    state = run._fresh(run.trained.initial)
    state.directions = [np.eye(DIMENSION, dtype=np.float32)[n : n + 1] for n in range(3)]
    loss = run._loss(state, 1)
    assert torch.equal(loss.negatives, torch.eye(DIMENSION)[[0, 2]])
    assert loss.radius == 1.4
    assert run._loss(state, 1) is loss
    run._losses.clear()
    assert run._loss(replace(state, directions=[state.directions[0][:0]] * 3), 1) == run.plan.loss
    plain = training(planned(sharing={**CLUSTERS, "loss_radius": 0.0}))
    assert plain._loss(state, 0).radius == 0.0


@pytest.mark.parametrize("covered", slow_but([False, True], True))
def test_released_directions_change_what_the_others_train(covered):
    more = COVERED if covered else {}
    shared = trained(planned(sharing={**CLUSTERS, "loss_radius": 0.3}, **more))
    assert all(len(each) == 1 for each in shared.directions.values())
    assert not torch.equal(weights(shared), weights(trained(planned(sharing="backbone", **more))))


@pytest.mark.slow
def test_clients_in_one_operation_send_what_they_send_one_by_one(monkeypatch):
    plan = planned(**COVERED, sharing={**CLUSTERS, "loss_radius": 0.3}, rounds=2)
    one, many = (updates(plan.replace(**{"client.at_once": count}), SILOS, monkeypatch) for count in (1, 8))
    for name, sent in one.items():
        torch.testing.assert_close(many[name], sent, atol=1e-4, rtol=1e-3)


# The server.


def test_the_mean_of_single_steps_is_the_step_of_the_mean_gradient():
    step = {"client.batch_size": None, "client.momentum": 0.0, "rounds": 2, "sharing": "backbone"}
    one, other = (trained(planned(**step, scheme=scheme, steps=1)) for scheme in ("fedavg", "fedsgd"))
    torch.testing.assert_close(weights(one), weights(other), atol=1e-6, rtol=1e-4)


def test_a_round_is_what_plain_torch_makes_of_it():
    plan = planned(**{"client.batch_size": None, "client.momentum": 0.0, "rounds": 1, "sharing": "backbone"})
    result, moved = trained(plan), []
    for users in SILOS.values():
        model = network()
        pictures = to_tensor(np.array(users.inputs))
        labels = torch.from_numpy(np.array(users.labels)).long()
        with torch.no_grad():
            vectors = functional.normalize(model(pictures), dim=1)
            head = torch.stack([functional.normalize(vectors[labels == n].mean(0), dim=0) for n in range(len(users))])
        cosines = functional.normalize(model(pictures), dim=1) @ head.T
        logits = 30.0 * (cosines - 0.3 * functional.one_hot(labels, len(users)))
        gradients = torch.autograd.grad(functional.cross_entropy(logits, labels), list(model.parameters()))
        moved.append(torch.cat([each.flatten() for each in gradients]))
    before = torch.cat([each.detach().flatten() for each in network().parameters()])
    torch.testing.assert_close(weights(result), before - 0.05 * torch.stack(moved).mean(0), atol=1e-5, rtol=1e-3)


def test_the_regulariser_of_fedface_is_a_step_along_its_gradient():
    rows = functional.normalize(torch.randn(7, 3, dtype=torch.float64), dim=1).requires_grad_()
    rule = SpreadOut(weight=2.0, margin=1.2, learning_rate=0.01)
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    total = torch.stack([(1.2 - (rows[i] - rows[j]).norm()).clamp(min=0) ** 2 for i, j in pairs]).sum()
    (gradient,) = torch.autograd.grad(total, rows)
    wanted = functional.normalize(rows.detach() - 0.02 * gradient, dim=1)
    assert np.allclose(spread_out(rows.detach().numpy(), rule), wanted.numpy(), atol=1e-5)


def test_equal_centres_are_left_where_they_are():
    moved = spread_out(np.ones((3, 2)), SpreadOut())
    assert np.isfinite(moved).all()


def test_silos_are_offline_by_one_policy_whatever_they_share():
    plans = [planned(drop_out=0.5, rounds=40, sharing=sharing) for sharing in ("backbone", "private", "fedface")]
    policies = [[plan.offline(round, 3) for round in range(40)] for plan in plans]
    assert policies[0] == policies[1] == policies[2]
    assert 8 < sum(map(len, policies[0])) < 32
    assert all(len(each) <= 1 for each in policies[0])
    assert planned(drop_out=0.5, drop_out_seed=1, rounds=40).offline(0, 3) in ([], [0], [1], [2])


@pytest.mark.slow
def test_silos_that_are_offline_send_nothing_and_the_mean_is_of_the_others():
    plan = planned(drop_out=1.0, rounds=2, sharing="backbone")
    result = trained(plan)
    for row in result.history:
        gone = {list(SILOS)[silo] for silo in plan.offline(row["round"] - 1, 3)}
        assert set(row["silos"]) == set(SILOS) - gone
        assert len(gone) == 1


def test_a_round_without_a_silo_takes_no_step_and_costs_nothing(monkeypatch):
    plan = planned(**COVERED, drop_out=0.9, drop_out_silos=3, sharing="backbone", rounds=2, drop_out_seed=0)
    monkeypatch.setattr(PrivacyFace, "offline", lambda self, round, count: [0, 1, 2] if round == 0 else [])
    result = trained(plan)
    assert result.history[0]["silos"] == []
    assert result.history[1]["silos"] == list(SILOS)
    assert result.statement.epsilon == pytest.approx(
        acc.guarantee(plan.private_sum(16).event(1), "add_remove").epsilon(plan.delta_of(SIZES))
    )


@pytest.mark.slow
def test_a_run_without_a_cluster_goes_on_and_reports_it(tmp_path):
    plan = planned(**COVERED, sharing={**CLUSTERS, "radius": 0.1, "threshold": 16, "epsilon": 50.0})
    result = trained(plan, out=tmp_path / "run")
    assert result.finished
    assert [row["clusters"] for row in result.history] == [[0, 0, 0]] * 3
    assert "No cluster could be used in 1 of 1 releases" in " ".join(result.statement.text().split())


def test_a_release_for_which_all_silos_are_offline_is_reported_as_one_without_clusters(monkeypatch):
    monkeypatch.setattr(PrivacyFace, "offline", lambda self, round, count: [0, 1, 2] if round == 0 else [])
    result = trained(planned(**COVERED, drop_out=0.9, drop_out_silos=3, rounds=2))
    assert "No cluster could be used in 1 of 1 releases" in " ".join(result.statement.text().split())


@pytest.mark.slow
def test_what_silos_send_besides_the_backbone_is_counted():
    rows = trained(planned(rounds=1)).history
    assert rows[0]["bytes_besides"] == 3 * 4 * (DIMENSION + 2)
    assert trained(planned(rounds=1, sharing="naive")).history[0]["bytes_besides"] == 60 * 4 * DIMENSION
    assert trained(planned(rounds=1, sharing="fedface")).history[0]["bytes_besides"] == 60 * 4 * DIMENSION
    assert trained(planned(rounds=1, sharing="backbone")).history[0]["bytes_besides"] == 0


@pytest.mark.slow
def test_an_expert_knows_one_silo_and_the_pool_knows_all():
    expert = trained(planned(sharing={"kind": "expert", "silo": 1}))
    assert [row["silos"] for row in expert.history] == [["b"]] * 3
    pooled = training(planned(sharing="pooled"))
    assert len(pooled.records[0]) == sum(SIZES)


@pytest.mark.slow
def test_the_model_is_measured_after_every_round():
    rows = trained(planned(rounds=2), validation=people("other", 8, 6)).history
    assert [row.get("evaluation") for row in rows] == [None, "validation"] * 2
    assert [row["round"] for row in rows] == [1, 1, 2, 2]


def test_a_budget_is_refused_before_anything_is_released(tmp_path):
    for plan in (planned(), planned(**COVERED)):
        with pytest.raises(InputError, match="budget"):
            trained(plan, out=tmp_path / "run", budget=Budget(epsilon=1.0, delta=1e-3))
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_pool_is_never_offline():
    assert [row["silos"] for row in trained(planned(sharing="pooled", drop_out=1.0)).history] == [["pooled"]] * 3


# Runs that are stopped.


class Stopped(Exception):
    pass


@pytest.mark.parametrize(
    ("covered", "sharing"),
    slow_but([(False, CLUSTERS), (True, CLUSTERS), (False, "fedface")], (True, CLUSTERS)),
    ids=["clusters", "all", "fedface"],
)
@pytest.mark.parametrize("updates_before", slow_but([0, 1, 3, 5], 0, 3))
def test_a_run_that_died_goes_on_as_it_would_have(tmp_path, monkeypatch, covered, sharing, updates_before):
    plan = planned(rounds=2, sharing=sharing, **(COVERED if covered else {}))
    whole = trained(plan, out=tmp_path / "whole")
    count, update = [0], Training._update

    def dying(self, run, theta, state, silo):
        if count[0] == updates_before:
            raise Stopped
        count[0] += 1
        return update(self, run, theta, state, silo)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_update", dying)
        with pytest.raises(Stopped):
            trained(plan, out=tmp_path / "run")
    again = trained(plan, out=tmp_path / "run", resume=True)
    assert torch.equal(weights(again), weights(whole))
    assert again.statement.epsilon == whole.statement.epsilon
    events = [
        [json.loads(line).get("event") for line in (tmp_path / run / "ledger.jsonl").read_text().splitlines()]
        for run in ("run", "whole")
    ]
    assert events[0] == events[1]
    rows = [[{**row, "not_private": row["not_private"]["loss"]} for row in each.history] for each in (again, whole)]
    assert rows[0] == rows[1]


def test_a_finished_run_is_read_again_and_nothing_is_released(tmp_path):
    plan = planned(**COVERED)
    whole = trained(plan, out=tmp_path / "run")
    again = trained(plan, out=tmp_path / "run", resume=True)
    assert torch.equal(weights(again), weights(whole))
    assert again.statement.epsilon == whole.statement.epsilon
    tensors = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(value, tensors[name]) for name, value in whole.model.state_dict().items())


def test_a_checkpoint_holds_no_centre(tmp_path):
    trained(planned(rounds=1), out=tmp_path / "run")
    state = load_file(tmp_path / "run" / "checkpoint" / "state.safetensors")
    assert {name.partition(".")[0] for name in state} <= {"theta", "total", "directions", "optimizer"}


def test_a_run_goes_on_with_its_own_records_alone(tmp_path):
    trained(planned(rounds=1), out=tmp_path / "run")
    with pytest.raises(InputError):
        trained(planned(rounds=1), {**SILOS, "c": people("c", 20, 8)}, out=tmp_path / "run", resume=True)


# Bad input.


def with_(**changes):
    return {**SILOS, **changes}


TWO_CLASSES = from_arrays(np.array(SILOS["a"].inputs), np.arange(72) % 5, np.repeat(SILOS["a"].user_ids, 3))
LARGER = from_arrays(
    np.zeros((6, 9, 9, 1), np.uint8) + np.arange(6, dtype=np.uint8)[:, None, None, None],
    np.repeat([0, 1], 3),
    np.repeat(["x", "y"], 3),
)


@pytest.mark.parametrize(
    ("silos", "message"),
    [
        ({"a": SILOS["a"]}, "two silos"),
        ({1: SILOS["a"], "silo 1": SILOS["b"], 2: SILOS["a"]}, "two silos have one name"),
        (with_(d=people("a", 10, 9)), "is in 2 silos"),
        (with_(d=people("z", 24, 1)), "a picture is in 2 silos"),
        (with_(a=TWO_CLASSES), "one class"),
        (with_(d=LARGER), "one size and type"),
        (with_(d=people("d", 2, 5)), "threshold"),
        (with_(d=people("public", 10, 9)), "is public"),
        (with_(d=people("d", 20, 4)), "public pictures"),
    ],
    ids=[
        "one silo",
        "one name",
        "one name twice",
        "one picture twice",
        "classes",
        "shape",
        "few",
        "public name",
        "public picture",
    ],
)
def test_silos_of_no_use_are_refused(silos, message):
    with pytest.raises(InputError, match=message):
        open_silos(planned(), silos, PUBLIC)


@pytest.mark.parametrize("measured", ["validation", "test"])
def test_people_of_a_silo_are_not_measured_on(measured, tmp_path):
    """What a validation shows is not covered by any statement."""
    with pytest.raises(InputError, match=f"'a000' is in the {measured} data and an identity of a"):
        planned().fit(network(), SILOS, public=PUBLIC, out=tmp_path / "run", **{measured: SILOS["a"]})
    assert not (tmp_path / "run").exists()


def test_silos_without_a_name_are_numbered():
    users = [SILOS["a"], SILOS["b"]]
    for silos in (users, dict(enumerate(users, start=1))):
        assert list(open_silos(planned(), silos, PUBLIC)) == ["silo 1", "silo 2"]


def test_identities_of_two_silos_may_be_accounted_for():
    assert len(open_silos(planned(silos=2), with_(d=people("a", 10, 9)), PUBLIC)) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sharing": {**CLUSTERS, "radius": 0.0}}, "radius"),
        ({"sharing": {**CLUSTERS, "radius": math.pi}}, "radius"),
        ({"sharing": {**CLUSTERS, "epsilon": 0.0}}, "epsilon"),
        ({"sharing": {**CLUSTERS, "at": (4,)}}, "at names round 4"),
        ({"sharing": {**CLUSTERS, "at": ()}}, "at must be"),
        ({"sharing": {**CLUSTERS, "at": (2, 1)}}, "at must be"),
        ({"sharing": "exact", **COVERED}, "no guarantee"),
        ({"scheme": "fedsgd", **COVERED}, "fedavg"),
        ({**COVERED, "noise": {"kind": "tree", "noise_multiplier": 1.0}}, "gaussian"),
        ({**COVERED, "clipping": "adaptive"}, "fixed norm"),
        ({"client.loss": "softmax"}, "angles"),
        ({"client.head": "shared"}, "never leave"),
        ({"client.negatives": 2}, "negatives"),
        ({"population": 60}, "population"),
        ({"drop_out": 1.1}, "drop_out"),
    ],
)
def test_plans_of_no_use_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        planned(**changes)


def test_policies_that_leave_no_silo_and_missing_public_people_are_refused():
    with pytest.raises(InputError, match="offline in every round"):
        open_silos(planned(drop_out=1.0, drop_out_silos=3), SILOS, PUBLIC)
    with pytest.raises(InputError, match="public"):
        open_silos(planned(), SILOS, None)
    assert len(open_silos(planned(sharing="backbone"), SILOS, None)) == 3


@pytest.mark.parametrize(
    ("sharing", "message"),
    [
        ({"groups": 21}, "sharing.groups is 21, and 20 public people"),
        ({"dimensions": 7}, "sharing.dimensions is 7, and .* of 6 dimensions"),
        ({"dimensions": 21}, "sharing.dimensions is 21"),
    ],
)
def test_public_people_that_give_no_candidates_are_refused_before_a_round_is_paid_for(sharing, message, tmp_path):
    with pytest.raises(InputError, match=message):
        trained(planned(**COVERED, sharing={**CLUSTERS, "at": (2,), **sharing}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_whose_centres_are_not_finite_is_refused():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(DIMENSION))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.flatten(1)[:, :DIMENSION] * self.scale

    with pytest.raises(InputError, match="zero or not finite"):
        planned().fit(Broken(), SILOS, public=PUBLIC)


def test_the_plan_is_read_back(tmp_path: Path):
    plan = planned(**COVERED)
    assert PrivacyFace.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert isinstance(plan.client.head, LocalHead)
