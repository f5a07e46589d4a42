"""Layers that mix examples are found, replaced where there is a sound one, or given public statistics; adapters."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato import DPSGD, models
from sfumato._check import InputError
from sfumato.data import examples_from_arrays
from sfumato.federated import FedAvg
from sfumato.guard import self_check
from sfumato.models.check import tried_on
from sfumato.per_example import Recording, covered, problems

# Layers that mix examples are found by name, and replaced where there is a sound one.


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


def test_what_is_taken_stays_and_nothing_is_reported():
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


# Batch norm with public statistics: they follow from public images, and gradients pass through them.


# Public batch norm: whose numbers enter the statistics, when they are refreshed, and what is refused.
def network(generator_seed: int = 0) -> nn.Sequential:
    torch.manual_seed(generator_seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        models.PublicBatchNorm(4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, stride=2, bias=False),
        models.PublicBatchNorm(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12, 5),
    )


@pytest.fixture
def public() -> torch.Tensor:
    return torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(7))


@pytest.fixture
def private() -> torch.Tensor:
    return 3 * torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(8)) + 1


def torchs(model: nn.Sequential) -> nn.Sequential:
    """The same network with torch's own batch norm, in training mode."""
    layers = []
    for layer in copy.deepcopy(model):
        if isinstance(layer, models.PublicBatchNorm):
            norm = nn.BatchNorm2d(layer.channels, eps=layer.eps, momentum=None)
            norm.weight, norm.bias = layer.weight, layer.bias
            layers.append(norm)
        else:
            layers.append(layer)
    return nn.Sequential(*layers).train()


def test_the_public_batch_sees_what_batch_norm_makes_of_it(public):
    model = network()
    models.use_public_batch(model, public)
    assert torch.allclose(model(public), torchs(model)(public), atol=1e-5)


def test_an_example_is_normalised_as_by_batch_norm_in_evaluation_after_the_public_batch(public, private):
    model = network()
    models.use_public_batch(model, public)
    reference = torchs(model)
    reference(public)
    for norm in (reference[1], reference[4]):  # torch's running variance is the unbiased one
        rows = 16 * (36 if norm is reference[1] else 4)
        norm.running_var *= (rows - 1) / rows
    assert torch.allclose(model(private), reference.eval()(private), atol=1e-5)


def test_one_example_never_changes_the_output_or_the_gradient_of_another(public, private):
    model = network().double()
    models.use_public_batch(model, public)
    together = model(private.double())
    alone = torch.cat([model(image[None].double()) for image in private])
    assert torch.allclose(together, alone, atol=1e-12)
    parameters = list(model.parameters())
    total = torch.autograd.grad(together.square().sum(), parameters)
    parts = [torch.autograd.grad(model(image[None].double()).square().sum(), parameters) for image in private]
    for whole, *each in zip(total, *parts):
        assert torch.allclose(whole, sum(each), rtol=1e-9, atol=1e-12)
    models.refuse_batch_norm(model)


def test_private_examples_leave_no_trace_in_the_statistics(public, private):
    model = network()
    models.use_public_batch(model, public)
    before = {name: value.clone() for name, value in model.named_buffers()}
    for mode in (True, False):
        model.train(mode)(private).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_the_statistics_follow_the_weights(public, private):
    model = network()
    models.use_public_batch(model, public)
    model(private).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    fresh = network()
    fresh.load_state_dict(model.state_dict())
    fresh[1].mean.fill_(9.0)
    models.refresh_statistics(fresh, public)
    assert torch.allclose(model(private), fresh(private))


def test_the_statistics_are_constants_of_the_backward_pass(public):
    rows = public.flatten(1)[:, :3]
    model = nn.Sequential(nn.Linear(3, 2, bias=False), models.PublicBatchNorm(2, eps=0.0))
    models.use_public_batch(model, rows)
    private, weight = torch.randn(4, 3), model[0].weight
    (found,) = torch.autograd.grad(model(private).pow(3).sum(), weight)

    def by_hand(constant: bool) -> torch.Tensor:
        variance, mean = torch.var_mean(rows @ weight.T, dim=0, correction=0)
        if constant:
            mean, variance = mean.detach(), variance.detach()
        return torch.autograd.grad(((private @ weight.T - mean) / variance.sqrt()).pow(3).sum(), weight)[0]

    assert torch.allclose(found, by_hand(constant=True), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, by_hand(constant=False), rtol=1e-1)


def test_saved_weights_carry_the_statistics(public, private, tmp_path):
    model = network()
    models.use_public_batch(model, public)
    models.save_weights(model, tmp_path / "model.safetensors")
    other = network(1)
    models.load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(other(private), model(private))


def test_a_copy_refreshes_by_itself_and_a_removed_batch_stays_as_it_was(public, private):
    model = network()
    handle = models.use_public_batch(model, public)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.add_(torch.randn_like(other[0].weight))
    handle.remove()
    kept = model[1].mean.clone()
    with torch.no_grad():
        model[0].weight.copy_(other[0].weight)
    other(private), model(private)
    assert torch.equal(model[1].mean, kept)
    assert not torch.allclose(other[1].mean, kept)


def test_function_transforms_use_the_statistics_as_they_are(public, private):
    model = network()
    models.use_public_batch(model, public)

    def loss(weights, image):
        return torch.func.functional_call(model, weights, (image[None],)).square().sum()

    weights = {name: value.detach() for name, value in model.named_parameters()}
    found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, private)
    model(private).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(found[name].sum(0), parameter.grad, rtol=1e-4, atol=1e-4)


def test_joint_statistics_in_training_are_those_of_both_batches(public, private):
    model = network()
    models.use_public_batch(model, public, statistics="joint")
    expected = torchs(model)(torch.cat([private, public]))[: len(private)]
    assert torch.allclose(model.train()(private), expected, atol=1e-4)


def test_joint_statistics_in_evaluation_are_those_of_one_example_and_the_public_batch(public, private):
    model = network()
    models.use_public_batch(model, public, statistics="joint")
    reference = torchs(model)
    expected = torch.cat([reference(torch.cat([image[None], public]))[:1] for image in private])
    assert torch.allclose(model.eval()(private), expected, atol=1e-4)


def test_joint_statistics_are_refused_by_type_and_by_experiment(public, private):
    model = network()
    models.use_public_batch(model, public, statistics="joint")
    assert model[1].couples_examples
    with pytest.raises(InputError, match=r"layer 1 \(PublicBatchNorm\) couples the examples"):
        models.refuse_batch_norm(model)
    models.use_public_batch(model, public)  # back to the sound kind
    self_check(model, lambda inputs: model(inputs).square().sum(dim=1), private)


def test_the_normalised_input_is_what_a_rule_for_the_scale_needs(public, private):
    model = nn.Sequential(models.PublicBatchNorm(1))
    models.use_public_batch(model, public)
    per_example = [torch.autograd.grad(model(image[None]).square().sum(), model[0].weight)[0] for image in private]
    output_gradient = 2 * model(private)
    by_rule = (model[0].normalised(private) * output_gradient).flatten(2).sum(2)
    assert torch.allclose(by_rule, torch.stack(per_example), rtol=1e-4)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: network()(torch.zeros(2, 1, 8, 8)), "no statistics yet.*use_public_batch"),
        (lambda: models.use_public_batch(network(), torch.zeros(1, 1, 8, 8)), "at least 2 rows"),
        (lambda: models.use_public_batch(network()), "at least 2 rows.*got none"),
        (lambda: models.use_public_batch(nn.Linear(2, 2), torch.zeros(4, 2)), "has no PublicBatchNorm"),
        (lambda: models.use_public_batch(network(), torch.zeros(4, 1, 8, 8), statistics="own"), "one of public, joint"),
        (lambda: models.PublicBatchNorm(0), "channels must be a whole number"),
        (lambda: models.PublicBatchNorm(3)(torch.zeros(2, 4)), r"reads \[n, 3, ...\], got \[2, 4\]"),
    ],
)
def test_mistakes_are_one_line(mistake, words):
    with pytest.raises(InputError, match=words) as error:
        mistake()
    assert "\n" not in str(error.value)


def test_a_removed_joint_batch_leaves_plain_batch_norm(public, private):
    model = network()
    models.use_public_batch(model, public, statistics="joint").remove()
    assert torch.allclose(model(private), torchs(model)(private), atol=1e-4)


# The gradient through public statistics: exact, from the released gradient alone, refused where not known.
def followed() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 4, 3),
        models.PublicBatchNorm(4),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, stride=2),
        models.PublicBatchNorm(3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 6),
        models.PublicBatchNorm(6),
        nn.Tanh(),
        nn.Linear(6, 5),
    ]
    model = nn.Sequential(*layers).double()
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, models.PublicBatchNorm):
                layer.weight.uniform_(-1.5, 1.5)
                layer.bias.normal_()
    return model


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    public = torch.randn(16, 1, 8, 8, generator=source, dtype=torch.float64)
    private = 2 * torch.randn(5, 1, 8, 8, generator=source, dtype=torch.float64) + 1
    return public, private, torch.tensor([0, 1, 2, 3, 4])


def with_statistics_in_the_graph(model: nn.Sequential, public: torch.Tensor, private: torch.Tensor) -> torch.Tensor:
    """Both batches side by side through plain operations: the statistics are functions of the weights."""
    for layer in model:
        if isinstance(layer, models.PublicBatchNorm):
            over = [0, *range(2, public.ndim)]
            shape = (1, -1, *[1] * (public.ndim - 2))
            variance, mean = torch.var_mean(public, over, correction=0, keepdim=True)
            scale, shift = layer.weight.view(shape), layer.bias.view(shape)
            public, private = (
                scale * (each - mean) / torch.sqrt(variance + layer.eps) + shift for each in (public, private)
            )
        else:
            public, private = layer(public), layer(private)
    return private


def test_clip_weighted_sums_become_those_of_the_exact_gradients():
    model, (public, private, targets) = followed(), data()
    models.use_public_batch(model, public)
    weights = torch.tensor([0.1, 0.9, 0.0, 1.0, 0.4], dtype=torch.float64)
    with Recording(covered(model)) as recording:
        recording.backward(functional.cross_entropy(model(private), targets, reduction="none"))
    for parameter, total in zip(recording.parameters, recording.weighted_sum(weights), strict=True):
        parameter.grad = total
    direct = model[0].weight.grad.clone()
    models.add_statistics_gradient(model)
    logits = with_statistics_in_the_graph(model, public, private)
    loss = (weights * functional.cross_entropy(logits, targets, reduction="none")).sum()
    for parameter, exact in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
        assert torch.allclose(parameter.grad, exact, rtol=1e-8, atol=1e-10)
    assert (model[0].weight.grad - direct).norm() > 0.1 * direct.norm()


def test_the_exact_gradient_leaves_scaled_kernels_and_shifted_biases_alone():
    model, (public, private, targets) = followed(), data()
    for layer in model:
        if isinstance(layer, models.PublicBatchNorm):
            layer.eps = 0.0
    models.use_public_batch(model, public)
    functional.cross_entropy(model(private), targets).backward()
    models.add_statistics_gradient(model)
    for layer in (model[0], model[3], model[7]):
        along = (layer.weight.grad * layer.weight).flatten(1).sum(1)
        assert along.abs().max() < 1e-12 * layer.weight.grad.norm() * layer.weight.norm() + 1e-14
        assert layer.bias.grad.abs().max() < 1e-12


def test_noise_is_mapped_as_the_gradient_is():
    """The step is linear, so it commutes with noise: what is added depends on the released gradient alone."""
    model, (public, _, _) = followed(), data()
    models.use_public_batch(model, public)

    def added(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        models.add_statistics_gradient(model)
        return [parameter.grad - gradient for parameter, gradient in zip(model.parameters(), gradients, strict=True)]

    one, two = ([torch.randn_like(parameter) for parameter in model.parameters()] for _ in range(2))
    both = added([a + 2 * b for a, b in zip(one, two)])
    for total, a, b in zip(both, added(one), added(two), strict=True):
        assert torch.allclose(total, a + 2 * b, atol=1e-10)


def test_models_without_public_statistics_and_without_gradients_are_left_alone():
    plain = models.lenet5(normalisation="layer")
    plain(torch.randn(2, 1, 28, 28)).sum().backward()
    before = [parameter.grad.clone() for parameter in plain.parameters()]
    models.add_statistics_gradient(plain)
    assert all(torch.equal(parameter.grad, kept) for parameter, kept in zip(plain.parameters(), before, strict=True))
    untouched, (public, _, _) = followed(), data()
    models.use_public_batch(untouched, public)
    models.add_statistics_gradient(untouched)
    assert all(parameter.grad is None for parameter in untouched.parameters())


def test_frozen_layers_get_no_gradient():
    model, (public, private, targets) = followed(), data()
    models.use_public_batch(model, public)
    model[0].requires_grad_(False)
    functional.cross_entropy(model(private), targets).backward()
    models.add_statistics_gradient(model)
    assert model[0].weight.grad is None
    assert model[3].weight.grad is not None


def test_a_missing_public_batch_and_joint_statistics_are_refused():
    model, (public, private, targets) = followed(), data()
    models.use_public_batch(model, public).remove()
    functional.cross_entropy(model(private), targets).backward()
    with pytest.raises(InputError, match="no public batch; give it"):
        models.add_statistics_gradient(model)
    models.use_public_batch(model, public, statistics="joint")
    with pytest.raises(InputError, match="joint statistics"):
        models.add_statistics_gradient(model)


# Adapters: the function is unchanged at the start, the change is of low rank, and it can be merged.

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
    examples = examples_from_arrays(x, y, num_classes=3)
    after = plan.fit(model, examples).model
    for name in names:
        moved = model.get_parameter(name) - after.get_parameter(name)
        assert torch.allclose(moved, wanted[name], rtol=1e-3, atol=1e-6), name
