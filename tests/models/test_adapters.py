"""Adapters: the function is unchanged at the start, the change is of low rank, and it can be merged."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import DPSGD, data, models
from sfumato._check import InputError
from sfumato.federated import FedAvg

LAYERS = {
    "plain": nn.Conv2d(6, 8, 3, padding=1),
    "strided": nn.Conv2d(6, 8, 5, stride=2, padding=2, bias=False),
    "dilated": nn.Conv2d(6, 8, 3, dilation=2, padding="same"),
    "reflecting": nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect"),
    "oblong": nn.Conv2d(6, 8, (1, 3), padding=(0, 1)),
    "grouped": nn.Conv2d(6, 8, 3, groups=2),
    "dense": nn.Linear(6, 8),
    "dense_without_bias": nn.Linear(6, 8, bias=False),
}


def inputs_of(layer: nn.Module) -> torch.Tensor:
    return (
        torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
        if isinstance(layer, nn.Linear)
        else (torch.randn(3, 6, 9, 9, generator=torch.Generator().manual_seed(0)))
    )


def adapted(name: str, **settings) -> tuple[nn.Sequential, torch.Tensor]:
    """A model of the layer with an adapter of rank 2, and what it gave before."""
    model = nn.Sequential(LAYERS[name])
    with torch.no_grad():
        before = model(inputs_of(LAYERS[name]))
    models.add_lora(model, rank=2, generator=torch.Generator().manual_seed(1), **settings)
    return model, before


def learned(model: nn.Module) -> nn.Module:
    """With other values in the place of B's zeros."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_b" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(2))
    return model


@pytest.mark.parametrize("name", LAYERS)
def test_at_the_start_the_function_is_unchanged_and_a_learned_one_differs(name):
    model, before = adapted(name)
    with torch.no_grad():
        assert torch.equal(model(inputs_of(LAYERS[name])), before)
        assert not torch.allclose(learned(model)(inputs_of(LAYERS[name])), before)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("alpha", [None, 6.0])
def test_a_merged_model_is_plain_and_computes_the_same(name, alpha):
    model, _ = adapted(name, alpha=alpha)
    learned(model)
    merged, x = models.merge_lora(model), inputs_of(LAYERS[name])
    assert type(merged[0]) is type(LAYERS[name])
    assert merged.state_dict().keys() == nn.Sequential(LAYERS[name]).state_dict().keys()
    with torch.no_grad():
        # sums of at most 6·25 products of numbers around one, in single precision
        assert torch.allclose(merged(x), model(x), rtol=1e-5, atol=1e-4)


def test_the_change_that_a_layer_learns_has_the_rank():
    layer = LAYERS["plain"]
    model, _ = adapted("plain")
    change = models.merge_lora(learned(model))[0].weight - layer.weight
    assert torch.linalg.matrix_rank(change.detach().double().flatten(1), rtol=1e-5) == 2


def test_alpha_scales_the_change_by_alpha_over_rank():
    changes = [
        models.merge_lora(learned(adapted("dense", alpha=alpha)[0]))[0].weight - LAYERS["dense"].weight
        for alpha in (None, 6.0)
    ]
    assert torch.allclose(changes[1], 3 * changes[0], rtol=1e-4, atol=1e-5)


def test_weights_keep_their_names_and_are_frozen_and_others_keep_their_flag():
    model = models.squeezenet(4, stem="small")
    names = [name for name, _ in model.named_parameters()]
    found = models.add_lora(model, rank=2, layers=r"features\.12")
    assert found == [f"features.12.{part}" for part in ("squeeze", "expand1x1", "expand3x3")]
    assert set(names) <= dict(model.named_parameters()).keys()
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {f"{layer}.{part}" for layer in found for part in ("weight", "bias")}
    assert {name for name, _ in models.trainable_parameters(model, "lora")} == {
        f"{layer}.lora_{part}.weight" for layer in found for part in "ab"
    }


def test_without_a_pattern_every_layer_that_is_larger_than_the_adapter_has_one():
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1), nn.Flatten(), nn.Linear(8, 2))
    assert models.add_lora(model, rank=4) == ["1"]


def test_weights_can_be_loaded_after_the_adapters():
    plain, later = models.squeezenet(None, stem="small"), models.squeezenet(None, stem="small")
    models.add_lora(later, rank=2)
    later.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(later(x), plain(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank must be a whole number >= 1"),
        ({"rank": 2, "alpha": 0.0}, "alpha must be > 0"),
        ({"rank": 2, "layers": "nothing"}, "names none to give an adapter of rank 2"),
        ({"rank": 2, "layers": "("}, "is not a regular expression"),
        (
            {"rank": 32, "layers": "conv1"},
            "rank 32 must be below 25, that of layer conv1; .*by layers: conv2",
        ),
        ({"rank": 999}, "no convolution or dense layer to give an adapter of rank 999"),
    ],
)
def test_adapters_of_no_use_are_refused_and_the_model_stays(settings, message):
    model = models.lenet()
    with pytest.raises(InputError, match=message):
        models.add_lora(model, **settings)
    assert not any("lora" in name for name, _ in model.named_modules())


def test_a_second_adapter_on_a_layer_is_refused():
    model = models.lenet()
    models.add_lora(model, rank=2, layers="conv2")
    with pytest.raises(InputError, match="has an adapter already"):
        models.add_lora(model, rank=2, layers="conv2$")
    with pytest.raises(InputError, match="no adapters to merge"):
        models.merge_lora(models.lenet())


def test_a_seeded_adapter_is_repeatable():
    def first(seed: int) -> torch.Tensor:
        model = models.lenet(generator=torch.Generator().manual_seed(0))
        models.add_lora(model, rank=2, generator=torch.Generator().manual_seed(seed))
        return model.conv2.lora_a.weight

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_a_projection_is_behind_features_that_stay():
    model = models.add_projection(models.squeezenet(None, stem="small"), 512, 8, hidden=16)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 8)
    assert [name for name, _ in models.trainable_parameters(model, "projection")] == [
        f"projection.{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")
    ]
    with pytest.raises(InputError, match="hidden must be"):
        models.add_projection(models.lenet(), 128, 8, hidden=0)


def test_clients_of_a_batch_train_adapters_as_one_by_one(blobs):
    def trained(at_once: int) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
        models.add_lora(model, rank=1, layers="0", generator=torch.Generator().manual_seed(0))
        plan = FedAvg(rounds=2, cohort=4, client={"at_once": at_once}, trainable="lora", noise=0.0, seed=1)
        return torch.cat([p.flatten() for p in plan.fit(model, blobs(8)).model.parameters()])

    one, four = trained(1), trained(4)
    assert torch.allclose(one, four, rtol=1e-4, atol=1e-6)


def test_per_example_clipping_bounds_the_gradient_of_each_example_through_the_adapters():
    """One step of rate 1 without noise moves the adapters by the mean of clipped gradients, each computed alone."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 1, 6, 6)).astype(np.float32), rng.integers(0, 3, 12)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    models.add_lora(model, rank=1, generator=torch.Generator().manual_seed(0))
    learned(model)
    clip, names = 0.5, [name for name, p in model.named_parameters() if p.requires_grad]
    wanted = {name: torch.zeros_like(model.get_parameter(name)) for name in names}
    for row, label in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(model(torch.from_numpy(row[None])), torch.tensor([label]))
        gradients = torch.autograd.grad(loss, [model.get_parameter(name) for name in names])
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        for name, gradient in zip(names, gradients, strict=True):
            wanted[name] += gradient * min(1.0, clip / float(norm)) / len(x)
    plan = DPSGD(steps=1, cohort=12, clipping=clip, noise=0.0, server={"learning_rate": 1.0}, seed=0, trainable="lora")
    examples = data.examples_from_arrays(x, y, num_classes=3)
    after = plan.fit(model, examples).model
    for name in names:
        moved = model.get_parameter(name) - after.get_parameter(name)
        assert torch.allclose(moved, wanted[name], rtol=1e-3, atol=1e-6), name
