"""A row is a function of one record alone, whatever the layers do with many of them at once or one after the other."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data, models
from sfumato._check import InputError
from sfumato.training.frozen_features import PrefixCache, cut_for


class LargestOfAll(nn.Module):
    """Adds how far the largest value of a batch lies above what records hold; of most records nothing."""

    def forward(self, x):
        return x + (x.amax() - 50).clamp(min=0)


class Late(nn.Module):
    """Begins to use what it saw when more was seen than is tried; it keeps that itself, or where it is told."""

    keeper: Any

    def __init__(self, keeper: nn.Module | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "keeper", keeper or self)
        self.keeper.bank = []

    def forward(self, x):
        self.keeper.bank.append(x.sum().item())
        # after eleven calls of a trial and five of records
        return x + 1e-7 * self.keeper.bank[15] if len(self.keeper.bank) > 20 else x


def network(kind: str) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(6, 6), nn.Identity(), nn.Linear(6, 3))
    made[1] = LargestOfAll() if kind == "a batch" else Late(made if kind == "the network" else None)
    return made


def rows(folder, inputs, owners, model) -> np.ndarray:
    users = data.from_arrays(inputs, owners, [f"u{owner:03d}" for owner in owners])
    behind = PrefixCache(folder, cut_for(model, "last", users, "cpu"), device="cpu").through(users, "data")
    return np.asarray(behind.inputs[0 : len(inputs)])


@pytest.mark.parametrize("kind", ["a batch", "the layer", "the network"])
def test_nobodys_rows_change_with_what_somebody_else_holds(kind, tmp_path):
    owners = np.repeat(np.arange(180), 3)
    ours = np.random.default_rng(0).normal(0, 1, (540, 6)).astype(np.float32)
    other = ours.copy()
    other[151] = 1000.0
    before, after = (
        rows(tmp_path / str(place), each, owners, network(kind)) for place, each in enumerate((ours, other))
    )
    changed = np.flatnonzero((before != after).any(1))
    assert changed.tolist() == [151]


def test_nobodys_rows_change_to_the_last_bit_when_somebody_leaves(tmp_path):
    owners = np.repeat(np.arange(30), 3)
    pixels = np.random.default_rng(0).integers(0, 256, (90, 28, 28, 1), np.uint8)
    kept = owners != 5
    network = models.lenet(generator=torch.Generator().manual_seed(0))
    there = rows(tmp_path / "there", pixels, owners, network)
    gone = rows(tmp_path / "gone", pixels[kept], owners[kept], network)
    assert np.array_equal(there[kept], gone)


class Threshold(nn.Module):
    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def forward(self, x):
        return x.clamp(max=self.at)


def test_layers_with_another_setting_that_only_rare_records_meet_are_other_layers(tmp_path):
    owners = np.repeat(np.arange(20), 3)
    inputs = np.random.default_rng(0).normal(0, 1, (60, 6)).astype(np.float32)
    inputs[31] = 1000.0
    for at in (100.0, 200.0):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 6), Threshold(at), nn.Linear(6, 3))
        if at == 100.0:
            rows(tmp_path, inputs, owners, model)
    with pytest.raises(InputError, match=r"made of something else \(layers"):
        rows(tmp_path, inputs, owners, model)
