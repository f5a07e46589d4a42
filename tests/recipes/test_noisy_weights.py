"""The experiment with noisy weights draws what it says, and runs for every model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from sfumato import models

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "recipes" / "normalisation_mnist" / "noisy_weights.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import noisy_weights

    return noisy_weights


@pytest.mark.slow
@pytest.mark.shared
def test_every_model_and_norm_has_a_figure_for_each_noise(shared, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--jobs", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "quick" / "noisy_weights.json").read_text())
    assert len({row["method"] for row in rows}) == 14  # five models, three norms, but no batch norm for the BiLSTM
    assert len(rows) == 14 * 2 * 2  # two values of sigma under --quick, two ways of testing
    assert all(0 <= row["mean"] <= 1 and row["epsilon"] is None for row in rows)


@pytest.mark.parametrize("norm", ["none", "layer", "public_batch"])
def test_weights_are_drawn_afresh_around_means_that_stay(script, norm):
    model = script.with_batch_norm(models.lenet300_100(normalisation=norm))
    exact = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    draws = []
    noise = torch.Generator().manual_seed(0)
    for _ in range(2):
        with script.drawn(script.noisy_parameters(model), 0.5, noise):
            draws.append({name: parameter.detach() - exact[name] for name, parameter in model.named_parameters()})
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, exact[name])
        if "norm" in name:
            assert not draws[0][name].any()
        else:
            assert not torch.equal(draws[0][name], draws[1][name])
    # 235,200 draws: their standard deviation is 0.5 to 0.15 %, so a bound of 1 % fails once in 10^10 seeds
    assert float(draws[0]["dense1.weight"].std()) == pytest.approx(0.5, rel=0.01)


def test_the_gradient_at_the_drawn_weights_updates_the_means(script):
    layer = nn.Linear(1, 1, bias=False)
    noise = torch.Generator().manual_seed(3)
    expected = layer.weight.item() + 2.0 * torch.randn(1, 1, generator=torch.Generator().manual_seed(3)).item()
    before = layer.weight.item()
    with script.drawn(script.noisy_parameters(layer), 2.0, noise):
        (layer(torch.ones(1, 1)) ** 2).sum().backward()
    assert layer.weight.grad.item() == pytest.approx(2 * expected)
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    assert layer.weight.item() == pytest.approx(before - expected)


def test_batch_norm_is_torchs_own_in_training(script):
    inputs = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    ours = script.with_batch_norm(nn.Sequential(models.PublicBatchNorm(3)))
    assert torch.equal(ours.eval()(inputs), nn.BatchNorm2d(3).train()(inputs))
