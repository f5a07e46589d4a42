"""Statistics of public inputs follow the released weights, whoever was trained or measured before."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sfumato.data import UserDataset, from_arrays
from sfumato.federated import FedAvg
from sfumato.models import PublicBatchNorm, use_public_batch
from sfumato.training import Cadence

PLAN = FedAvg(
    rounds=3, clients_per_round=8, clip_norm=None, noise_multiplier=0.0, loss="squared", learning_rate=0.05, seed=1
)


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
    plan, found = dataclasses.replace(PLAN, clients_at_once=at_once), []
    for every in (0, 1):
        cadence = Cadence(evaluate_every=every)
        found.append(plan.fit(normed(), values(), test=values(), validation=values(), cadence=cadence).model)
    torch.testing.assert_close(found[0].state_dict(), found[1].state_dict(), atol=0, rtol=0)


def test_clients_in_a_batch_learn_what_they_learn_one_after_the_other():
    one, many = (dataclasses.replace(PLAN, clients_at_once=each).fit(normed(), values()).model for each in (1, 4))
    torch.testing.assert_close(one.state_dict(), many.state_dict(), atol=1e-5, rtol=1e-4)
