"""Models with layers of the user's own: trained within the bound, or refused before the first step."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset

PLAN = DPSGD(steps=2, batch_size=4, clip_norm=0.1, noise_multiplier=1.0, seed=1)


def numbers(count: int, *shape: int, seed: int = 0) -> ExampleDataset:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, *shape)).astype(np.float32)
    return ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 3, count), num_classes=3)


class OwnStatistics(nn.BatchNorm1d):
    """Frozen batch norm: it stays in evaluation mode."""

    def train(self, mode: bool = True) -> "OwnStatistics":
        return super().train(False)


RUN_AGAIN = {
    "prelu": lambda: nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Linear(8, 3)),
    "weight_norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.Linear(8, 3)),
    "transposed": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 3)), nn.ConvTranspose1d(2, 2, 2), nn.Flatten(), nn.Linear(8, 3)
    ),
    "frozen statistics": lambda: nn.Sequential(nn.Linear(6, 8), OwnStatistics(8), nn.Tanh(), nn.Linear(8, 3)),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", RUN_AGAIN)
def test_layers_without_a_rule_train_and_move_the_sum_by_no_more_than_the_clip_norm(kind: str, precision: str) -> None:
    torch.manual_seed(0)
    plan = dataclasses.replace(PLAN, precision=precision, micro_batch=16)
    contribution = plan.contribution(RUN_AGAIN[kind](), numbers(16, 6), "cpu", 0)
    source = RandomSource.from_seed(0)
    theta = 2 * contribution.trained.initial

    def total(present: np.ndarray) -> torch.Tensor:
        cohort = plan.grouping.group(present, 0, source)
        return contribution.clipped_sum(theta, cohort, 0, plan.bound, 0.1, source, None).total

    whole = total(np.arange(16))
    for absent in (0, 7, 15):
        without = total(np.delete(np.arange(16), absent))
        assert 0.01 < float((whole - without).norm()) <= 0.1
    plan.fit(RUN_AGAIN[kind](), numbers(16, 6))


class Zeroed(nn.Module):
    """Subtracts the mean of the batch before a last layer that starts at zero: at the start nothing shows."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)
        nn.init.zeros_(self.two.weight)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.one(values).tanh()
        return self.two(hidden - hidden.mean(dim=0).detach())


def test_coupling_behind_a_layer_of_zeros_is_refused_before_the_first_step() -> None:
    with pytest.raises(InputError, match="coupled"):
        PLAN.fit(Zeroed(), numbers(16, 6))


def test_examples_for_the_check_are_looked_for_in_all_of_the_data() -> None:
    """Were the first ones all there is to see, coupling among equal examples would have to be seen."""
    data = numbers(200, 6)
    inputs = np.asarray(data.inputs[0]).copy()
    inputs[:100] = inputs[0]
    from sfumato.central.examples import spread

    places = spread(dataclasses.replace(data, inputs=(inputs,)), 8)
    assert len(places) == 8
    assert len(np.unique(inputs[places], axis=0)) == 5


def test_a_frozen_table_cannot_tell_which_words_were_seen() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4, max_norm=0.5).requires_grad_(False)
            self.head = nn.Linear(4, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids).mean(dim=1))

    ids = np.random.default_rng(0).integers(0, 50, (16, 5))
    data = ExampleDataset(inputs=(ids,), targets=np.arange(16) % 3, num_classes=3)
    with pytest.raises(InputError, match=r"'table'.*max_norm"):
        PLAN.fit(Words(), data)


def test_a_count_of_examples_is_not_released() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)
            self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            self.seen += len(values)
            return self.layer(values)

    with pytest.raises(InputError, match="'seen' changes"):
        PLAN.fit(Counts(), numbers(16, 6))
