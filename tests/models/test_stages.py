"""Stages of a network: in turn they compute what it computes, and they tell all of it."""

import copy

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.models import Part, Stage, stages_of

STAGED = {
    **{
        name: lambda name=name: models.backbone(name, embedding_dim=8, input_shape=(32, 32, 3))
        for name in models.BACKBONES
    },
    "resnet20_classifier": lambda: models.resnet20_classifier(8),
    "projected": lambda: models.add_projection(models.squeezenet(None, stem="small"), 512, 8, hidden=16),
    "sequence": lambda: nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Flatten(), nn.Linear(3600, 8)),
}


@pytest.mark.parametrize("name", STAGED)
def test_stages_in_turn_give_what_the_network_gives(name):
    network, inputs = STAGED[name]().eval(), torch.randn(2, 3, 32, 32)
    stages = stages_of(network)
    with torch.no_grad():
        assert torch.equal(Part(network, stages)(inputs), network(inputs))
        for cut in {1, len(stages) // 2, len(stages) - 1}:
            between = Part(network, stages[:cut])(inputs)
            assert torch.equal(Part(network, stages[cut:])(between), network(inputs))


@pytest.mark.parametrize("name", STAGED)
def test_no_parameter_lies_outside_of_the_stages_and_names_stay(name):
    network = STAGED[name]()
    part = Part(network, stages_of(network))
    whole, told = dict(network.named_parameters()), dict(part.named_parameters())
    assert told.keys() == whole.keys()
    assert all(told[each] is whole[each] for each in whole)
    assert part.state_dict().keys() == network.state_dict().keys()


def test_a_copy_of_a_part_is_independent():
    network = models.lenet()
    part = copy.deepcopy(Part(network, stages_of(network)[1:]))
    before = network.conv2.weight.clone()
    with torch.no_grad():
        part.get_submodule("conv2").weight.zero_()
        assert not part(torch.randn(1, 32, 14, 14)).any()
    assert torch.equal(network.conv2.weight, before)


@pytest.mark.parametrize(
    ("network", "blocks"),
    [
        (models.squeezenet(4, stem="small"), {1: "features.12", 2: "features.10|features.12"}),
        (models.resnet20(4), {1: r"layer3\.2", 3: r"layer3"}),
        (models.mobilefacenet(4, image_size=(32, 32)), {2: r"blocks\.1[34]\."}),
        (models.lenet(4), {1: "conv2", 2: "conv"}),
    ],
)
def test_the_last_blocks_are_whole_blocks_without_the_embedding(network, blocks):
    for count, pattern in blocks.items():
        assert models.trainable_parameters(network, f"last_blocks:{count}") == models.trainable_parameters(
            network, pattern
        )
    some = min(blocks)
    joined = models.trainable_parameters(network, f"last_blocks:{some}+embedding")
    assert joined == models.trainable_parameters(network, f"{blocks[some]}|embedding")
    assert joined == models.trainable_parameters(network, f"last_blocks:{some}+last")


@pytest.mark.parametrize("count", [0, 3])
def test_more_blocks_than_there_are_are_refused(count):
    with pytest.raises(InputError, match=f"from 1 to 2, the blocks of this LeNet, got {count}"):
        models.trainable_parameters(models.lenet(), f"last_blocks:{count}")


def test_a_network_that_does_not_tell_its_stages_is_refused_with_the_remedy():
    class Own(nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(InputError, match=r"Own does not tell its stages.*stages\(\)"):
        stages_of(Own())


def test_stages_of_another_kind_are_refused():
    class Own(nn.Linear):
        def stages(self):
            return ["weight"]

    with pytest.raises(InputError, match="must give a list"):
        stages_of(Own(2, 2))


def test_a_sequence_with_a_forward_of_its_own_is_no_sequence():
    class Twice(nn.Sequential):
        def forward(self, x):
            return super().forward(super().forward(x))

    with pytest.raises(InputError, match="Twice does not tell its stages"):
        stages_of(Twice(nn.Linear(2, 2)))


def test_a_module_that_runs_twice_is_two_stages_over_the_same_weights():
    layer = nn.Linear(2, 2)
    network = nn.Sequential(layer, nn.ReLU(), layer)
    part = Part(network, stages_of(network))
    assert [stage.name for stage in part.stages()] == ["0", "1", "2"]
    assert part.get_submodule("0") is part.get_submodule("2")


def test_a_stage_touches_its_parts_only():
    stage = Stage("scale", ("a",), lambda x, a: 2 * a(x))
    network = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    assert stage.modules(network) == [network["a"]]
    assert Part(network, [stage]).state_dict().keys() == {"a.weight", "a.bias"}
