"""Odd models and odd runs of DP-SGD, each of which went wrong without a word, or for no reason, before."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset

PLAN = DPSGD(steps=2, batch_size=4, clip_norm=0.1, noise_multiplier=1.0, seed=1)


def numbers(count: int, *shape: int, seed: int = 0) -> ExampleDataset:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, *shape)).astype(np.float32)
    return ExampleDataset(inputs=(inputs,), labels=rng.integers(0, 3, count), num_classes=3)


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
    groups = plan.grouping.group(np.arange(16), source, 0)
    theta = 2 * contribution.initial
    whole = contribution.clipped_sum(theta, groups, 0, 0.1, source).clipped.total
    for absent in (0, 7, 15):
        rest = [group for group in groups if group.slot != absent]
        without = contribution.clipped_sum(theta, rest, 0, 0.1, source).clipped.total
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
    from sfumato.central.gradients import _two_that_differ

    first, second = _two_that_differ(dataclasses.replace(data, inputs=(inputs,)))
    assert (inputs[first] != inputs[second]).any()


def test_a_frozen_table_cannot_tell_which_words_were_seen() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4, max_norm=0.5).requires_grad_(False)
            self.head = nn.Linear(4, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids).mean(dim=1))

    ids = np.random.default_rng(0).integers(0, 50, (16, 5))
    data = ExampleDataset(inputs=(ids,), labels=np.arange(16) % 3, num_classes=3)
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


# Public batch norm.


def normalised() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), models.PublicBatchNorm(5), nn.Tanh(), nn.Linear(5, 3)).double()
    public = torch.randn(12, 6, dtype=torch.float64)
    models.use_public_batch(model, public)
    return model, public


class Doubled(nn.Module):
    """Public batch norm within a model of the user's."""

    def __init__(self, inner: nn.Sequential) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.inner(values.double()).float()


def test_a_step_with_public_batch_norm_follows_the_whole_gradient() -> None:
    """Through the statistics too: by differences of the loss, whose statistics follow the weights."""
    data = numbers(10, 6)
    inner, _ = normalised()
    plan = DPSGD(steps=1, batch_size=10, learning_rate=1.0, clip_norm=None, noise_multiplier=0.0, seed=0)
    moved = plan.fit(Doubled(inner), data).model.get_parameter("inner.0.weight").detach()
    model, public = normalised()
    values, labels = torch.from_numpy(np.array(data.inputs[0])).double(), torch.from_numpy(np.array(data.labels))

    def loss() -> float:
        models.refresh_statistics(model, public)
        with torch.no_grad():
            return float(functional.cross_entropy(model(values), labels))

    weight = model.get_parameter("0.weight").detach()
    for place in ((0, 0), (2, 3), (4, 5)):
        slopes = []
        for step in (1e-5, -1e-5):
            weight[place] += step
            slopes.append(loss())
            weight[place] -= step
        slope = (slopes[0] - slopes[1]) / 2e-5
        assert float(weight[place] - moved[place]) == pytest.approx(slope, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_released_statistics_are_those_of_the_released_weights(ema: float | None, tmp_path) -> None:
    model, public = normalised()
    plan = dataclasses.replace(PLAN, ema_decay=ema, learning_rate=2.0)
    plan.fit(Doubled(model), numbers(16, 6), out=tmp_path / "run")
    released = load_file(tmp_path / "run" / "model.safetensors")
    found = Doubled(normalised()[0])
    found.load_state_dict(released)
    models.refresh_statistics(found.inner, public)
    torch.testing.assert_close(found.get_buffer("inner.1.mean"), released["inner.1.mean"])
    torch.testing.assert_close(found.get_buffer("inner.1.variance"), released["inner.1.variance"])


def test_what_is_added_to_the_noisy_mean_reads_no_record() -> None:
    """The same noisy mean gives the same step, whoever is in the data."""
    steps = []
    for seed in (1, 2):
        contribution = PLAN.contribution(Doubled(normalised()[0]), numbers(16, 6, seed=seed), "cpu", 0)
        source = RandomSource.from_seed(0)
        groups = PLAN.grouping.group(np.arange(16), source, 0)
        contribution.clipped_sum(contribution.initial, groups, 0, 0.1, source)
        mean = torch.linspace(-1, 1, contribution.initial.numel(), dtype=torch.float64)
        before = mean.clone()
        contribution.complete(mean, 0, source)
        assert not torch.equal(mean, before)
        steps.append(mean)
    assert torch.equal(*steps)
