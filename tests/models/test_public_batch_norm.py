"""Batch norm with public statistics: they follow from public images, and gradients pass through them."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.per_example import Recording, covered

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
