"""Users behind frozen features, and layers whose statistics are public."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sfumato import DPSGD, data, models
from sfumato._check import InputError
from sfumato.data import UserDataset, from_arrays
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD
from sfumato.models import PublicBatchNorm, use_public_batch
from sfumato.training import Cadence, Callback, RunOptions, Stop

# A run behind a kept prefix is the run on the records: the same values, the same statement, the whole model.

FEDERATED = {"rounds": 3, "cohort.size": 4, "noise.noise_multiplier": 0.5, "seed": 1, "trainable": "last_blocks:2"}
PLANS = {
    "fedemb": FedEmb(cohort={"users_per_client": 2}, client={"epochs": 2, "batch_size": 4}, **FEDERATED),
    "fedemb, clients in a batch": FedEmb(
        cohort={"users_per_client": 2}, client={"epochs": 1, "batch_size": 4, "at_once": 4}, **FEDERATED
    ),
    "fedavg": FedAvg(client={"batch_size": 4}, **FEDERATED),
    "fedsgd": FedSGD(**FEDERATED),
    "centralized": Centralized(rounds=5, cohort=20, seed=1, trainable="last_blocks:2"),
}


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(32, 4),
        )  # fmt: skip


def moved(model: nn.Module, start: nn.Module) -> dict[str, torch.Tensor]:
    before = start.state_dict()
    return {name: value - before[name] for name, value in model.state_dict().items()}


@pytest.mark.parametrize("name", PLANS)
def test_trained_values_are_those_without_a_cache(name, blobs, tmp_path):
    plan, users, start = PLANS[name], blobs(16), network()
    train, test = users.subset(np.arange(12)), users.subset(np.arange(12, 16))
    without = plan.fit(start, train, test=test)
    behind = plan.fit(start, train, test=test, options=RunOptions(prefix_cache=tmp_path / "cache"))
    ours, theirs = moved(behind.model, start), moved(without.model, start)
    assert ours.keys() == theirs.keys()
    for each in ("0.weight", "0.bias"):
        assert not ours[each].any()
    for each in ("3.weight", "3.bias", "6.weight", "6.bias"):
        assert theirs[each].any()
        # convolutions of batches of other sizes round otherwise: 1e-7 of a value, in some 30 steps
        assert (ours[each] - theirs[each]).norm() <= 1e-4 * theirs[each].norm(), each
    assert type(behind.model) is nn.Sequential
    assert not behind.model.training
    for field in ("epsilon", "delta", "unit", "mechanism", "sampling", "assumptions"):
        assert getattr(behind.statement, field) == getattr(without.statement, field)
    for when in ("untrained", "trained"):
        ours_at, theirs_at = (one.evaluation[when] for one in (behind, without))
        assert ours_at["genuine_pairs"] == theirs_at["genuine_pairs"]
        assert ours_at["auc"] == pytest.approx(theirs_at["auc"], abs=0.02)  # of pairs at the edge of a bin


def test_a_shared_head_is_released_beside_the_whole_model(blobs, tmp_path):
    result = PLANS["fedavg"].fit(
        network(), blobs(12), out=tmp_path / "run", options=RunOptions(prefix_cache=tmp_path / "cache")
    )
    released = load_file(tmp_path / "run" / "model.safetensors")
    assert released.keys() == {*network().state_dict(), "head.weight"}
    assert result.head is not None
    assert torch.equal(released["0.weight"], network()[0].weight)


def test_examples_are_trained_behind_a_cache_alike(tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (80, 8, 8, 1), np.uint8), rng.integers(0, 4, 80)
    whole = data.examples_from_arrays(pixels, labels, num_classes=4)
    train, test = whole.subset(np.arange(60)), whole.subset(np.arange(60, 80))
    plan = DPSGD(steps=4, cohort=20, noise=1.0, seed=1, trainable="last_blocks:2", delta=1e-3)
    without = plan.fit(network(), train, test=test)
    behind = plan.fit(network(), train, test=test, options=RunOptions(prefix_cache=tmp_path / "cache"))
    for name, change in moved(without.model, network()).items():
        assert (moved(behind.model, network())[name] - change).norm() <= 1e-4 * change.norm()
    assert behind.statement.epsilon == without.statement.epsilon
    assert behind.evaluation["trained"]["accuracy"] == pytest.approx(without.evaluation["trained"]["accuracy"], abs=0.1)


def test_adapters_and_a_projection_are_trained_behind_what_lies_before_them(blobs, tmp_path):
    def start() -> nn.Module:
        model = network()
        models.add_lora(model, rank=2, layers="3", generator=torch.Generator().manual_seed(0))
        return models.add_projection(model, 4, 3, generator=torch.Generator().manual_seed(1))

    plan = FedEmb(cohort={"users_per_client": 2}, client={"epochs": 1}, **{**FEDERATED, "trainable": "lora|projection"})
    without = plan.fit(start(), blobs(12))
    behind = plan.fit(start(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "cache"))
    for name, change in moved(without.model, start()).items():
        assert bool(change.any()) == ("lora" in name or "projection" in name), name
        assert (moved(behind.model, start())[name] - change).norm() <= 1e-4 * change.norm() + 1e-7, name


class StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds, self.models = rounds, []

    def on_round(self, row):
        if row["round"] == self.rounds:
            raise Stop

    def on_evaluation(self, row, model):
        self.models.append(model)


@pytest.mark.parametrize("seed", [1, None])
def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(seed, blobs, tmp_path):
    """Also where the model that it is given has other frozen layers by now, as one that was drawn at random has."""
    plan = FedEmb(cohort={"users_per_client": 2}, client={"epochs": 1}, **{**FEDERATED, "seed": seed, "rounds": 4})
    users, cache = blobs(12), tmp_path / "cache"
    stopped = plan.fit(
        network(), users, out=tmp_path / "run", options=RunOptions(prefix_cache=cache, callbacks=[StopAfter(2)])
    )
    assert not stopped.finished
    later = plan.fit(network(9), users, out=tmp_path / "run", resume=True, options=RunOptions(prefix_cache=cache))
    assert later.finished
    assert torch.equal(later.model.state_dict()["0.weight"], network()[0].weight)
    if seed is not None:
        whole = plan.fit(network(), users, out=tmp_path / "whole", options=RunOptions(prefix_cache=cache))
        for name, value in whole.model.state_dict().items():
            assert torch.equal(later.model.state_dict()[name], value), name
        model = "model.safetensors"
        assert (tmp_path / "run" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()


@pytest.mark.parametrize("first", [True, False])
def test_a_run_goes_on_as_it_began_with_a_cache_or_without(first, blobs, tmp_path):
    """The sums differ by round-off, and under one noise that difference would leave without any."""
    plan, users = PLANS["fedemb"], blobs(12)
    caches = [tmp_path / "cache", None] if first else [None, tmp_path / "cache"]
    plan.fit(
        network(), users, out=tmp_path / "run", options=RunOptions(prefix_cache=caches[0], callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match="from another plan, model or data set"):
        plan.fit(network(), users, out=tmp_path / "run", resume=True, options=RunOptions(prefix_cache=caches[1]))


def test_other_settings_are_refused_before_a_record_goes_through_the_layers(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match="rounds 3 → 9"):
        replace(plan, rounds=9).fit(
            network(), blobs(12), out=run, resume=True, options=RunOptions(prefix_cache=tmp_path / "other")
        )
    assert not (tmp_path / "other").exists()


def test_a_cache_of_other_records_says_that_a_run_goes_on_with_its_own(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match=r"made of something else .* goes on with the layers and records that it"):
        plan.fit(
            network(), blobs(12, seed=5), out=run, resume=True, options=RunOptions(prefix_cache=tmp_path / "cache")
        )


def test_a_callback_is_told_of_the_whole_model(blobs, tmp_path):
    told = StopAfter(0)
    users = blobs(12)

    PLANS["fedemb"].fit(
        network(),
        users,
        validation=blobs(6, seed=1),
        options=RunOptions(evaluate_every=1, callbacks=[told], prefix_cache=tmp_path / "cache"),
    )
    assert len(told.models) == 4
    assert all(model.state_dict().keys() == network().state_dict().keys() for model in told.models)
    assert not torch.equal(told.models[0][6].weight, told.models[3][6].weight)


def test_a_trial_writes_no_cache(blobs, tmp_path):
    PLANS["fedemb"].try_out(network(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
    with pytest.raises(InputError, match="nothing is frozen"):
        FedEmb(noise=1.0, cohort={"size": 2, "users_per_client": 2}).try_out(
            network(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "cache")
        )


def test_a_trial_refuses_a_place_that_is_a_file(blobs, tmp_path):
    (tmp_path / "faces.csv").write_text("user,file")
    with pytest.raises(InputError, match=r"prefix_cache must be a folder, and .*faces\.csv is a file"):
        PLANS["fedemb"].try_out(network(), blobs(12), options=RunOptions(prefix_cache=tmp_path / "faces.csv"))


def test_what_is_refused_leaves_neither_run_nor_cache(blobs, tmp_path):
    with pytest.raises(InputError, match="nothing is frozen"):
        FedEmb(noise=1.0, cohort={"size": 2, "users_per_client": 2}).fit(
            network(), blobs(12), out=tmp_path / "run", options=RunOptions(prefix_cache=tmp_path / "cache")
        )
    assert list(tmp_path.iterdir()) == []


def test_augmented_pictures_are_refused(tmp_path):
    examples = data.examples_from_arrays(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 4, num_classes=4)
    plan = DPSGD(steps=1, cohort=4, noise=1.0, examples={"augmentation": "flip"}, trainable="last")
    with pytest.raises(InputError, match="augmentation=flip changes pictures before the frozen layers"):
        plan.fit(network(), examples, options=RunOptions(prefix_cache=tmp_path / "cache"))


def test_nothing_that_a_run_writes_holds_a_row(blobs, tmp_path):
    """The run's folder names the cache at most; the plan does not, from Python."""
    PLANS["fedemb"].fit(network(), blobs(12), out=tmp_path / "run", options=RunOptions(prefix_cache=tmp_path / "cache"))
    frozen = load_file(tmp_path / "run" / "checkpoint" / "frozen.safetensors")
    assert frozen.keys() == {"0.weight", "0.bias"}
    assert "cache" not in json.dumps(json.loads((tmp_path / "run" / "plan.json").read_text()))


def test_rows_within_the_folder_of_a_run_are_refused(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    (tmp_path / "link").symlink_to(run)
    for place in (run, run / "cache", tmp_path / "link" / "cache"):
        with pytest.raises(InputError, match="must lie outside of the run's folder"):
            plan.fit(network(), blobs(12), out=run, options=RunOptions(prefix_cache=place))
    assert not run.exists()
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    with pytest.raises(InputError, match="must lie outside of the run's folder"):
        plan.fit(network(), blobs(12), out=run, resume=True, options=RunOptions(prefix_cache=run / "cache"))


def test_a_run_does_not_go_on_with_a_model_of_other_shapes(blobs, tmp_path):
    plan, run = PLANS["fedemb"], tmp_path / "run"
    plan.fit(
        network(), blobs(12), out=run, options=RunOptions(prefix_cache=tmp_path / "cache", callbacks=[StopAfter(1)])
    )
    other = network()
    other[0], other[3] = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 8, 3)
    with pytest.raises(InputError, match="model of other shapes"):
        plan.fit(other, blobs(12), out=run, resume=True, options=RunOptions(prefix_cache=tmp_path / "other"))


# Statistics of public inputs follow the released weights, whoever was trained or measured before.

PLAN = FedAvg(rounds=3, cohort=8, clipping=None, noise=0.0, client={"loss": "squared", "learning_rate": 0.05}, seed=1)


class Normed(nn.Module):
    """A layer, a norm with public statistics, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), PublicBatchNorm(4), nn.Tanh(), nn.Linear(4, 1))
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)[:, 0]


def normed() -> nn.Module:
    model = Normed()
    use_public_batch(model, torch.randn(16, 3, generator=torch.Generator().manual_seed(5)))
    return model


def values() -> UserDataset:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(96, 3)).astype(np.float32)
    return from_arrays(inputs, inputs.sum(1), np.arange(96) // 4)


@pytest.mark.parametrize("at_once", [1, 4])
def test_what_is_measured_on_the_way_does_not_change_what_is_learned(at_once):
    plan, found = PLAN.replace(client={"at_once": at_once}), []
    for every in (0, 1):
        cadence = Cadence(evaluate_every=every)
        found.append(
            plan.fit(normed(), values(), test=values(), validation=values(), options=RunOptions(**vars(cadence))).model
        )
    torch.testing.assert_close(found[0].state_dict(), found[1].state_dict(), atol=0, rtol=0)


def test_clients_in_a_batch_learn_what_they_learn_one_after_the_other():
    one, many = (PLAN.replace(client={"at_once": each}).fit(normed(), values()).model for each in (1, 4))
    torch.testing.assert_close(one.state_dict(), many.state_dict(), atol=1e-5, rtol=1e-4)
