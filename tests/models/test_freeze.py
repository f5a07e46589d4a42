"""Which parameters a spec names, and that only `freeze` touches the module."""

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError


def names(model, spec):
    return [name for name, _ in models.trainable_parameters(model, spec)]


def test_all_is_everything_that_requires_a_gradient():
    model = models.lenet()
    model.conv1.bias.requires_grad_(False)
    assert names(model, "all") == [n for n, _ in model.named_parameters() if n != "conv1.bias"]


def test_norm_is_every_scale_and_offset_and_nothing_else():
    model = models.resnet18()
    expected = [
        f"{name}.{part}"
        for name, layer in model.named_modules()
        if isinstance(layer, nn.GroupNorm)
        for part in ("weight", "bias")
    ]
    assert sorted(names(model, "norm")) == sorted(expected)


def test_norm_knows_the_norms_of_other_modules():
    class ScaleNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

    model = nn.Sequential(nn.LayerNorm(3), nn.RMSNorm(3), nn.BatchNorm1d(3), ScaleNorm(), nn.Linear(3, 3))
    assert names(model, "norm") == ["0.weight", "0.bias", "1.weight", "2.weight", "2.bias", "3.scale"]


def test_words_join_to_a_union_in_the_order_of_the_module():
    model = models.mobilenet_v2()
    joined = names(model, "norm+first+last")
    assert set(joined) == {*names(model, "norm"), *names(model, "first"), *names(model, "last")}
    assert joined == [name for name, _ in model.named_parameters() if name in set(joined)]
    assert names(model, "first") == ["first.weight"]
    assert names(model, "last") == ["embedding.weight", "embedding.bias"]
    assert "first.weight" in names(model, "norm+first")


def test_anything_else_is_a_regular_expression_over_names():
    assert names(models.lenet(), r"conv\d\.weight|embedding") == [
        "conv1.weight",
        "conv2.weight",
        "embedding.weight",
        "embedding.bias",
    ]
    assert names(models.lenet(), "conv+") == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"]


def test_looking_changes_nothing_and_freezing_keeps_exactly_the_named_ones():
    model = models.resnet20()
    names(model, "norm")
    assert all(parameter.requires_grad for parameter in model.parameters())
    kept = models.freeze(model, "norm")
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {name for name, _ in kept}
    model(torch.randn(1, 3, 8, 8)).sum().backward()
    assert model.conv1.weight.grad is None
    assert model.norm1.weight.grad is not None


def test_a_shared_parameter_is_listed_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert names(model, "all") == ["0.weight", "0.bias", "1.bias"]


@pytest.mark.parametrize(
    ("build", "spec", "message"),
    [
        (models.lenet, "norm", r"'norm' names no parameter.*has 6, for example conv1.weight"),
        (models.lenet, "head", "'head' names no parameter"),
        (models.lenet, "norm+last", r"'norm' in 'norm\+last' names no parameter of this model; leave it out"),
        (models.lenet, "last+lora", r"'lora' in 'last\+lora' names no parameter of this model; leave it out"),
        (models.lenet, "conv(", "'conv\\(' is neither all, norm, first, last"),
        (models.lenet, "", "'' says nothing; for every parameter write all"),
        (nn.ReLU, "all", "no parameter of the model requires a gradient"),
        (nn.ReLU, "first", "no parameter of the model requires a gradient"),
    ],
)
def test_a_spec_that_names_nothing_is_refused_with_some_names(build, spec, message):
    model = build()
    with pytest.raises(InputError, match=message) as error:
        models.freeze(model, spec)
    assert "\n" not in str(error.value)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_last_blocks_without_a_number_is_told_so():
    with pytest.raises(
        InputError, match="last_blocks takes a number of blocks, such as last_blocks:2, got 'last_blocks:x'"
    ):
        names(models.lenet(), "last_blocks:x+last")
