"""Which parameters are trained, frozen or kept by clients, and the stages of a network."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from sfumato import models
from sfumato._check import InputError
from sfumato.models import Part, Stage, language_model, lstm, stages_of

# Which parameters a spec names, and that only `freeze` touches the module.


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
        (models.lenet, "", "'' names nothing; for every parameter write all"),
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


def test_last_blocks_without_a_number_is_reported_so():
    with pytest.raises(
        InputError, match="last_blocks takes a number of blocks, such as last_blocks:2, got 'last_blocks:x'"
    ):
        names(models.lenet(), "last_blocks:x+last")


# Stages of a network: in turn they compute what it computes, and they tell all of it.

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


def test_a_network_that_does_not_report_its_stages_is_refused_with_the_remedy():
    class Own(nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(InputError, match=r"Own does not list its stages.*stages\(\)"):
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

    with pytest.raises(InputError, match="Twice does not list its stages"):
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


# Parts of the LSTM that are a user's own: vectors of words outside of the vocabulary, and of the user.

SMALL = {"vocabulary_size": 10, "embedding_dim": 4, "hidden": 6, "layers": 1, "projection": 0}


def _build(**options: int) -> torch.nn.Module:
    return lstm(**SMALL, **options, generator=torch.Generator().manual_seed(0))


def _local(model: torch.nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters() if re.fullmatch(model.local_parameters, name)}


def test_without_a_local_part_weights_are_those_of_the_model_as_it_was():
    model = _build()
    assert _local(model) == set()
    assert [name for name, _ in model.named_parameters()] == [
        "embedding.weight",
        "lstm.weight_ih_l0",
        "lstm.weight_hh_l0",
        "lstm.bias_ih_l0",
        "lstm.bias_hh_l0",
        "output.weight",
        "output.bias",
    ]
    generator = torch.Generator().manual_seed(0)
    dense = torch.empty(10, 6)
    torch.nn.init.xavier_uniform_(dense, generator=generator)
    table = torch.empty(10, 4).normal_(std=0.5, generator=generator)
    assert torch.equal(model.output.weight, dense)
    assert torch.equal(model.embedding.weight, table)


def test_what_is_local_is_named():
    assert _local(_build(oov_buckets=3)) == {"oov_embedding.weight"}
    assert _local(_build(user_features=2)) == {"user_vector"}
    assert _local(_build(oov_buckets=3, user_features=2)) == {"oov_embedding.weight", "user_vector"}
    assert _local(language_model("lstm", 10, 5, oov_buckets=3)) == {"oov_embedding.weight"}


def test_words_of_the_vocabulary_are_read_without_the_local_table():
    model = _build(oov_buckets=3)
    known, other = torch.tensor([[8, 1, 2]]), torch.tensor([[8, 11, 2]])
    before = model(known).detach(), model(other).detach()
    with torch.no_grad():
        model.oov_embedding.weight[1] += 1
    assert torch.equal(model(known), before[0])
    assert torch.equal(model(other)[:, :1], before[1][:, :1])
    assert not torch.allclose(model(other)[:, 1:], before[1][:, 1:])
    assert model(other).shape == (1, 3, 10)


def test_only_the_rows_of_the_buckets_that_are_read_get_a_gradient():
    model = _build(oov_buckets=4)
    model(torch.tensor([[8, 10, 12]]))[:, :, 3].sum().backward()
    assert model.oov_embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [0, 2]
    assert model.embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [8]


def test_a_users_vector_is_read_at_every_step():
    model = _build(user_features=2)
    tokens = torch.tensor([[8, 1, 2]])
    before = model(tokens)
    after = functional_call(model, {"user_vector": torch.tensor([1.0, -2.0])}, (tokens,))
    assert ((before - after).abs().sum(2) > 0).all()


def test_many_users_at_once_are_each_user_alone():
    model = _build(oov_buckets=3, user_features=2)
    own = {"oov_embedding.weight": torch.randn(4, 3, 4), "user_vector": torch.randn(4, 2)}
    tokens = torch.randint(13, (4, 2, 5), generator=torch.Generator().manual_seed(1))
    together = vmap(lambda local, rows: functional_call(model, local, (rows,)))(own, tokens)
    for user in range(4):
        alone = functional_call(model, {name: rows[user] for name, rows in own.items()}, (tokens[user],))
        torch.testing.assert_close(together[user], alone)


@pytest.mark.parametrize("name", ["oov_buckets", "user_features"])
def test_a_size_below_zero_is_refused(name: str):
    with pytest.raises(InputError, match=f"{name} must be a whole number >= 0"):
        lstm(vocabulary_size=10, **{name: -1})


@pytest.mark.parametrize(("buckets", "wrong"), [(0, 10), (3, 13), (3, -1)])
def test_ids_that_the_model_does_not_know_are_refused_in_words(buckets: int, wrong: int):
    model = lstm(vocabulary_size=10, hidden=4, layers=1, oov_buckets=buckets)
    with pytest.raises(InputError, match=f"knows the ids 0 to {9 + buckets}, got {wrong}"):
        model(torch.tensor([[1, wrong]]))
