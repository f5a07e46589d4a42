"""Layers that mix examples are found by name, and replaced where there is a sound one."""

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.models.check import tried_on
from sfumato.per_example import problems

# Layers that couple examples are found by type, and group norm takes their place.


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.SyncBatchNorm(4),
        nn.LazyBatchNorm2d(),
        nn.InstanceNorm2d(4, track_running_stats=True),
        nn.BatchNorm2d(4).eval(),
    ],
)
def test_layers_that_couple_or_keep_statistics_are_named_with_the_remedy(layer):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), layer))
    with pytest.raises(InputError, match=rf"layer 1\.1 \({type(layer).__name__}\).*fix_model") as error:
        models.refuse_batch_norm(model)
    assert "\n" not in str(error.value)


def test_unknown_layers_with_running_statistics_are_found_by_their_buffers():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running_var", torch.ones(4))

    class FrozenBatchNorm2d(Odd):
        """Constants: nothing is learnt from the examples."""

    assert [found.name for found in models.coupled_layers(nn.Sequential(Odd(), FrozenBatchNorm2d()))] == ["0"]


class Pinned(nn.BatchNorm1d):
    """Keeps itself in evaluation mode."""

    def train(self, mode: bool = True) -> "Pinned":
        return super().train(False)


def test_batch_norm_in_evaluation_mode_is_a_constant_only_where_it_stays_there():
    frozen, pinned = nn.BatchNorm1d(4).eval(), Pinned(4).eval()
    assert [found.layer for found in models.coupled_layers(nn.Sequential(frozen, pinned))] == [frozen]
    assert not models.coupled_layers(nn.Sequential(frozen, pinned), mode_stays=True)
    assert not frozen.training
    assert models.coupled_layers(nn.BatchNorm1d(4, track_running_stats=False).eval(), mode_stays=True)


def test_tables_that_the_examples_rescale_are_found():
    table = nn.Embedding(9, 4, max_norm=1.0).requires_grad_(False)
    with pytest.raises(InputError, match=r"layer 0 \(Embedding\) has a max_norm.*use max_norm=None"):
        models.refuse_batch_norm(nn.Sequential(table, nn.Linear(4, 3)))


@pytest.mark.parametrize("name", models.BACKBONES)
@pytest.mark.parametrize("norm", ["group", "none"])
def test_our_backbones_pass_both_checks(name, norm):
    """By experiment, too, where that takes seconds."""
    model = models.backbone(name, embedding_dim=4, input_shape=(16, 16, 1), normalisation=norm)
    models.refuse_batch_norm(model)
    if name in ("lenet", "resnet20"):
        self_check(model, lambda inputs: model(inputs).square().sum(dim=1), torch.randn(3, 1, 16, 16))


def test_lazy_layers_are_refused_until_they_have_seen_data():
    with pytest.raises(InputError, match="run the model once"):
        models.fix_model(nn.Sequential(nn.LazyBatchNorm2d()))
    with pytest.raises(InputError, match="run the model once"):
        models.refuse_no_values(nn.LazyLinear(3))


def test_a_module_that_was_never_given_values_is_refused():
    with pytest.raises(InputError, match="running_mean is on the device meta"):
        models.refuse_no_values(nn.BatchNorm1d(3, affine=False, device="meta"))
    models.refuse_no_values(nn.BatchNorm1d(3))


def test_inputs_that_a_model_does_not_take_are_refused_by_their_shape():
    model = nn.Linear(3, 2)
    assert tried_on(model, torch.ones(4, 3)).shape == (4, 2)
    assert not tried_on(model, torch.ones(4, 3)).requires_grad
    with pytest.raises(InputError, match=r"fails on inputs of shape \(5,\) \(.*\); fix its forward pass"):
        tried_on(model, torch.ones(4, 5))
    with pytest.raises(InputError, match=r"fails on inputs of shape \(3,\)"):
        tried_on(nn.Embedding(2, 2), torch.full((1, 3), 7))


# What is refused is replaced by what works on each example by itself, and told.


def test_replacing_carries_the_affine_and_leaves_the_original():
    model = nn.Sequential(nn.Conv2d(3, 48, 1), nn.BatchNorm2d(48, eps=1e-3), nn.Flatten(), nn.LazyLinear(6))
    model.append(nn.BatchNorm1d(6))
    model(torch.randn(4, 3, 2, 2))
    nn.init.uniform_(model[1].weight)
    copy, changes = models.fix_model(model, groups=32)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert (copy[1].num_groups, copy[1].eps) == (24, 1e-3)  # 24 is the largest divisor of 48 up to 32
    assert copy[4].num_groups == 1
    assert torch.equal(copy[1].weight, model[1].weight)
    assert copy[1].weight is not model[1].weight
    models.refuse_batch_norm(copy)
    assert list(copy.buffers()) == []
    assert [(change.name, change.before, change.after) for change in changes] == [
        ("1", "BatchNorm2d", "GroupNorm(24, 48)"),
        ("4", "BatchNorm1d", "GroupNorm(1, 6)"),
    ]


def test_a_shared_batch_norm_becomes_one_shared_group_norm():
    norm = nn.BatchNorm2d(8)
    copy, changes = models.fix_model(nn.Sequential(norm, nn.ReLU(), norm), groups=4)
    assert copy[0] is copy[2]
    assert isinstance(copy[0], nn.GroupNorm)
    assert len(changes) == 1


def test_a_lone_layer_and_instance_norm_are_replaced_too():
    assert isinstance(models.fix_model(nn.BatchNorm2d(8), groups=4)[0], nn.GroupNorm)
    before = nn.Sequential(nn.InstanceNorm2d(8, affine=True, track_running_stats=True))
    norm, changes = models.fix_model(before)
    models.refuse_batch_norm(norm)
    x = torch.randn(2, 8, 4, 4)
    assert torch.allclose(norm.eval()(x), nn.InstanceNorm2d(8)(x), atol=1e-6)
    assert before[0].track_running_stats
    assert before[0].running_mean is not None
    assert [str(change) for change in changes] == [
        "layer '0': InstanceNorm2d keeps running statistics of the examples → InstanceNorm2d without running statistics"
    ]


@pytest.mark.parametrize(
    "table",
    [
        nn.Embedding(9, 4, max_norm=1.0),
        nn.Embedding(9, 4, scale_grad_by_freq=True),
        nn.EmbeddingBag(9, 4, mode="max"),
        nn.EmbeddingBag(9, 4, max_norm=1.0, scale_grad_by_freq=True),
    ],
)
def test_tables_keep_their_rows_and_can_be_trained(table):
    model = nn.Sequential(table)
    assert problems(model)
    fixed, changes = models.fix_model(model)
    assert len(changes) == 1
    assert problems(model), "the original was changed"
    assert torch.equal(fixed[0].weight, table.weight)
    self_check(fixed, lambda ids: fixed(ids).flatten(1).sum(dim=1), torch.randint(9, (6, 3)))


def test_tied_tables_stay_tied():
    model = nn.ModuleDict({"table": nn.Embedding(9, 4, max_norm=1.0), "out": nn.Linear(4, 9, bias=False)})
    model["out"].weight = model["table"].weight
    fixed, _ = models.fix_model(model)
    assert fixed["out"].weight is fixed["table"].weight


def test_what_is_taken_stays_and_nothing_is_told():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Embedding(3, 3))
    fixed, changes = models.fix_model(model)
    assert changes == []
    assert [type(layer) for layer in fixed] == [type(layer) for layer in model]


def test_a_batch_norm_with_a_forward_of_its_own_is_left_and_refused():
    class WithReLU(nn.BatchNorm2d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input).relu()

    fixed, changes = models.fix_model(nn.Sequential(WithReLU(8)))
    assert changes == []
    with pytest.raises(InputError, match="WithReLU"):
        models.refuse_batch_norm(fixed)
