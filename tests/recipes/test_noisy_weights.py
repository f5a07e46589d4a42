"""The experiment with noisy weights draws what it says, and runs for every model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato.per_example import Recording, covered

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


def test_the_stages_of_vgg_in_turn_give_what_it_gives_and_hold_all_its_parameters(script):
    assert sum(parameter.numel() for parameter in script.vgg().parameters()) == 550_570
    network, inputs = script.vgg(8).eval(), torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    stages = models.stages_of(network)
    part = models.Part(network, stages)
    with torch.no_grad():
        assert torch.equal(part(inputs), network(inputs))
        for cut in (1, len(stages) // 2, len(stages) - 1):
            between = models.Part(network, stages[:cut])(inputs)
            assert torch.equal(models.Part(network, stages[cut:])(between), network(inputs))
    assert part.state_dict().keys() == network.state_dict().keys()


@pytest.mark.parametrize(
    ("norm", "kind"), [("layer", nn.GroupNorm), ("group", nn.GroupNorm), ("public_batch", models.PublicBatchNorm)]
)
def test_a_norm_follows_every_trained_layer_of_vgg_but_the_last(script, norm, kind):
    layers = [layer for layer in script.vgg(normalisation=norm).modules() if list(layer.parameters(recurse=False))]
    assert [isinstance(layer, kind) for layer in layers] == [False, True] * 7 + [False]
    assert all((layer.bias is None) == (norm == "public_batch") for layer in layers[:-1:2])


@pytest.mark.parametrize("norm", ["none", "layer", "group", "public_batch"])
def test_one_pass_gives_the_norm_of_each_examples_gradient_of_vgg(script, norm):
    source = torch.Generator().manual_seed(5)
    public = torch.rand(8, 1, 16, 16, generator=source) if norm == "public_batch" else None
    model = script.vgg(4, 1, 16, normalisation=norm, public_inputs=public, generator=source).double()
    inputs, targets = torch.rand(3, 1, 16, 16, generator=source).double(), torch.tensor([0, 1, 2])
    with Recording(covered(model)) as recording:
        recording.backward(functional.cross_entropy(model(inputs), targets, reduction="none"))
    expected = []
    for row in range(3):
        loss = functional.cross_entropy(model(inputs[row : row + 1]), targets[row : row + 1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        expected.append(sum(gradient.square().sum() for gradient in gradients))
    torch.testing.assert_close(recording.squared_norms(), torch.stack(expected), rtol=1e-8, atol=1e-12)
