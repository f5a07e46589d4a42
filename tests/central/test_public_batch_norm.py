"""DP-SGD with public batch norm: the whole gradient, the statistics of the released weights, no record read."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset

PLAN = DPSGD(steps=2, batch_size=4, clip_norm=0.1, noise_multiplier=1.0, seed=1)


def numbers(count: int, *shape: int, seed: int = 0) -> ExampleDataset:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (count, *shape)).astype(np.float32)
    return ExampleDataset(inputs=(inputs,), targets=rng.integers(0, 3, count), num_classes=3)


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
    values, labels = torch.from_numpy(np.array(data.inputs[0])).double(), torch.from_numpy(np.array(data.targets))

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
        cohort, theta = PLAN.grouping.group(np.arange(16), 0, source), contribution.trained.initial
        contribution.clipped_sum(theta, cohort, 0, PLAN.bound, 0.1, source, None)
        mean = torch.linspace(-1, 1, theta.numel(), dtype=torch.float64)
        before = mean.clone()
        contribution.after_noise(mean, 0, source)
        assert not torch.equal(mean, before)
        steps.append(mean)
    assert torch.equal(*steps)
