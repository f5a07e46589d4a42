"""Without a learning rate of its own the server does not drown the model in noise."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data, models
from sfumato.federated import FedAvg, FedEmb, FedSGD
from sfumato.federated.fedavg import MOST_MOVED
from sfumato.training.monitoring import columns, diverged

SIZE = 20_000


def moved(plan) -> float:
    """How far the noise of all rounds alone takes the model, as the plan's own server goes."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Parameter(torch.zeros(SIZE))
    server = plan.server([model])
    for _ in range(plan.rounds):
        std = plan.noise_multiplier * plan.clip_norm / plan.clients_per_round
        model.grad = std * torch.randn(SIZE, generator=generator)
        server.step()
    return float(model.detach().norm())


@pytest.mark.parametrize("server_optimizer", ["sgd", "adam", "adagrad", "rmsprop", "yogi"])
@pytest.mark.parametrize("kind", [FedEmb, FedAvg, FedSGD])
@pytest.mark.parametrize(("clients", "noise", "clip_norm"), [(4, 7.2, 1.0), (1, 40.0, 10.0), (32, 0.6, 100.0)])
def test_the_noise_of_all_rounds_moves_the_model_a_little(kind, server_optimizer, clients, noise, clip_norm):
    plan = kind(
        rounds=100,
        clients_per_round=clients,
        noise_multiplier=noise,
        clip_norm=clip_norm,
        server_optimizer=server_optimizer,
    )
    assert moved(plan) <= 1.1 * MOST_MOVED
    assert moved(dataclasses.replace(plan, server_learning_rate=1.0)) > 2 * MOST_MOVED


@pytest.mark.parametrize(("kind", "usual"), [(FedEmb, 0.02), (FedAvg, 1.0), (FedSGD, 1.0)])
def test_without_noise_or_with_a_little_the_rate_is_the_usual_one(kind, usual):
    for noise in (0.0, 1e-3):
        assert kind(noise_multiplier=noise).server([nn.Parameter(torch.zeros(100))]).defaults["lr"] == usual
    given = kind(noise_multiplier=100.0, server_learning_rate=3.0)
    assert given.server([nn.Parameter(torch.zeros(SIZE))]).defaults["lr"] == 3.0


@pytest.fixture
def orl(shared) -> data.UserDataset:
    """40 people, 10 pictures each, a quarter as high and as wide."""
    arrays = np.load(shared / "orl_faces.npz")
    people = arrays["person"].astype(np.int64)
    return data.from_arrays(np.ascontiguousarray(arrays["images"][:, ::4, ::4, None]), people, people.astype(str))


def fit(users: data.UserDataset, **fields):
    torch.manual_seed(0)
    height, width, _ = users.input_shape
    plan = FedEmb(clients_per_round=4, users_per_client=4, seed=0).calibrate(epsilon=8.0, population=len(users))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = dataclasses.replace(plan, **fields).fit(models.lenet(image_size=(height, width)), users)
    return result, [str(each.message) for each in caught if "teaches nothing" in str(each.message)]


@pytest.mark.slow
@pytest.mark.shared
def test_forty_faces_do_not_diverge_where_nobody_chose_a_rate(orl):
    """As much noise as the rate lets through, in a few rounds."""
    result, told = fit(orl, rounds=10)
    assert told == []
    private = columns(result.history)
    assert diverged(private) == []
    assert all(loss < 3.0 for loss in private["loss"] if loss is not None)
    assert not any(private["non_finite"])
    assert result.trouble == ""


@pytest.mark.slow
@pytest.mark.shared
def test_at_the_rate_of_a_large_cohort_they_do(orl):
    result, _ = fit(orl, rounds=6, server_learning_rate=0.02)
    assert any(loss is None or loss > 1e3 for loss in columns(result.history)["loss"][-3:])
