"""Networks by name: their shapes, their weights from a generator, and what they refuse."""

import re

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.guard.trial import in_double
from sfumato.models import RECOMMENDERS, linear_head, matrix_factorization, recommender
from sfumato.per_example import Recording, covered
from slow import one_in, slow_but


# What every backbone of the catalogue has in common, and what the papers say of each.
def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # Published: 25,557,032, 11,689,512 and 3,504,872 parameters with a 1,000-class layer.
        (lambda: models.resnet50(128), 25_557_032 - 2049 * 1000 + 2049 * 128),
        (lambda: models.resnet18(128), 11_689_512 - 513 * 1000 + 513 * 128),
        (lambda: models.mobilenet_v2(128), 3_504_872 - 1281 * 1000 + 1281 * 128),
        # 269,722 with ten classes and shortcuts without parameters; two 1x1 shortcuts with norms come on top.
        (lambda: models.resnet20(10), 269_722 + 16 * 32 + 32 * 64 + 2 * (32 + 64)),
    ],
)
def test_the_parameter_counts_are_those_of_the_published_networks(model, expected):
    assert count(model()) == expected


@pytest.mark.parametrize(("name", "shape"), one_in(3, models.BACKBONES, [(28, 28, 1), (33, 20, 3), (64, 72, 3)]))
def test_each_backbone_maps_images_of_any_size_to_embeddings(name, shape):
    model = models.backbone(name, embedding_dim=7, input_shape=shape).eval()
    height, width, channels = shape
    with torch.no_grad():
        assert model(torch.randn(2, channels, height, width)).shape == (2, 7)


@pytest.mark.parametrize(("name", "norm"), one_in(2, models.BACKBONES, ["group", "none"]))
def test_one_examples_gradient_does_not_depend_on_the_others(name, norm):
    model = models.backbone(name, embedding_dim=5, input_shape=(8, 8, 1), normalisation=norm).double().train()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    total = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    alone = [torch.autograd.grad(model(image[None]).square().sum(), list(model.parameters())) for image in images]
    for together, *parts in zip(total, *alone):
        assert torch.allclose(together, sum(parts), rtol=1e-6, atol=1e-8 * float(together.abs().max() + 1))


@pytest.mark.parametrize("name", models.BACKBONES)
def test_backbones_hold_parameters_only_and_every_one_gets_a_gradient(name):
    model = models.backbone(name, embedding_dim=5, input_shape=(16, 16, 3))
    assert list(model.buffers()) == []
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", models.BACKBONES)
def test_a_generator_fixes_every_weight(name):
    def build():
        return models.backbone(
            name, embedding_dim=5, input_shape=(16, 16, 3), generator=torch.Generator().manual_seed(1)
        )

    first, second = build(), build()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


def test_group_norm_is_as_the_papers_set_it():
    def norms(model):
        return {(m.num_groups, m.eps) for m in model.modules() if isinstance(m, nn.GroupNorm)}

    assert norms(models.resnet50()) == norms(models.resnet18()) == {(32, 1e-5)}
    assert norms(models.mobilenet_v2()) == {(2, 1e-3)}
    assert all(m.bias is None for m in models.resnet50().modules() if isinstance(m, nn.Conv2d))


def test_resnet50_strides_in_the_3x3_convolution():
    strided = {
        name: layer.kernel_size
        for name, layer in models.resnet50().named_modules()
        if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)
    }
    assert strided["conv1"] == (7, 7)
    assert {name.split(".")[-1]: size for name, size in strided.items() if "layer" in name} == {
        "conv2": (3, 3),
        "0": (1, 1),
    }


def test_small_images_get_a_stem_that_keeps_their_size():
    small, large = (models.backbone("resnet18", embedding_dim=4, input_shape=(n, n, 3)) for n in (63, 64))
    assert small.get_submodule("conv1").stride == (1, 1)
    assert large.get_submodule("conv1").stride == (2, 2)
    asked = models.backbone("resnet18", embedding_dim=4, input_shape=(63, 63, 3), stem="imagenet")
    assert asked.get_submodule("conv1").kernel_size == (7, 7)


def test_two_dimensions_mean_grey():
    assert models.backbone("lenet", embedding_dim=4, input_shape=(28, 28))(torch.zeros(1, 1, 28, 28)).shape == (
        1,
        4,
    )


def test_unknown_names_and_shapes_are_one_clear_line():
    with pytest.raises(InputError, match=r"model must be one of lenet, .*got alexnet") as error:
        models.backbone("alexnet", embedding_dim=4, input_shape=(28, 28, 1))
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"reads images .*input_shape=\(80,\)"):
        models.backbone("lenet", embedding_dim=4, input_shape=(80,))
    with pytest.raises(InputError, match="stem must be one of"):
        models.resnet18(stem="tiny")
    with pytest.raises(InputError, match="normalisation must be one of"):
        models.mobilenet_v2(normalisation="batch")
    with pytest.raises(InputError, match=r"this ResNet reads images \[n, 3, height, width\], got \[2, 1, 8, 8\]"):
        models.resnet20()(torch.zeros(2, 1, 8, 8))


# What every classifier has in common: its shapes, its independence of other examples, and its one-line refusals.
IMAGES = ("lenet5", "lenet300_100", "resnet18", "resnet20", "wrn16_4", "scatternet")
NORMS = {
    "lenet5": ("none", "layer", "group", "public_batch"),
    "lenet300_100": ("none", "layer", "group", "public_batch"),
    "resnet18": ("none", "layer", "group", "public_batch"),
    "resnet20": ("none", "layer", "group", "public_batch"),
    "wrn16_4": (),
    "scatternet": ("none", "group", "public_batch"),
    "bilstm": ("none", "layer"),
    "transformer": (),
    "ctr": (),
    "dlrm": (),
}
SIZES = {
    "bilstm": {"vocabulary_size": 20, "embedding_dim": 6, "hidden": 5},
    "transformer": {"vocabulary_size": 20, "width": 8, "depth": 1, "heads": 2},
    "ctr": {"vocabulary_sizes": [7, 20, 3], "hidden": (8, 8)},
    "dlrm": {
        "vocabulary_sizes": [7, 20, 3],
        "embedding_dim": 4,
        "dense_arch_layer_sizes": (8,),
        "over_arch_layer_sizes": (8, 8),
    },
}
CASES = [(name, norm) for name, norms in NORMS.items() for norm in (norms or (None,))]
SMALL = [case for case in CASES if case[0] not in ("resnet18", "wrn16_4")]
PICTURES = [case for case in CASES if case[0] in IMAGES]


def inputs_of(name: str, rows: int = 3) -> tuple[torch.Tensor, ...]:
    source = torch.Generator().manual_seed(5)
    if name in IMAGES:
        return (torch.rand(rows, 1, 16, 16, generator=source) * 2 - 1,)
    if name in ("ctr", "dlrm"):
        ids = torch.randint(0, 30, (rows, 3), generator=source)
        return (torch.randn(rows, 4, generator=source), ids)
    tokens = torch.randint(1, 20, (rows, 7), generator=source)
    tokens[0, 4:] = 0
    return (tokens,)


def build(name: str, norm: str | None, classes: int = 4, seed: int = 1) -> nn.Module:
    tables = {"ctr": [(4,), (3,)], "dlrm": [(4,), (3,)]}
    shapes = tables.get(name, [(16, 16, 1)] if name in IMAGES else [(7,)])
    options = dict(SIZES.get(name, {}))
    if norm is not None:
        options["normalisation"] = norm
    if norm == "public_batch":
        options["public_inputs"] = torch.rand(8, 1, 16, 16, generator=torch.Generator().manual_seed(9)) * 2 - 1
    return models.classifier(name, classes, shapes, generator=torch.Generator().manual_seed(seed), **options)


def double(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(each.double() if each.is_floating_point() else each for each in inputs)


def test_every_name_is_tested():
    assert set(NORMS) == set(models.CLASSIFIERS)


@pytest.mark.parametrize(("name", "norm"), slow_but(CASES, *SMALL))
def test_logits_have_one_column_a_class_and_every_parameter_matters(name, norm):
    model = build(name, norm)
    logits = model(*inputs_of(name))
    assert logits.shape == (3, 4)
    functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize(("name", "norm"), slow_but(CASES, *SMALL))
def test_one_backward_pass_gives_the_norm_of_each_examples_gradient(name, norm):
    model = build(name, norm).double()
    inputs, targets = double(inputs_of(name)), torch.tensor([0, 1, 2])
    with Recording(covered(model)) as recording:
        recording.backward(functional.cross_entropy(model(*inputs), targets, reduction="none"))
    expected = []
    for row in range(3):
        logits = model(*(each[row : row + 1] for each in inputs))
        loss = functional.cross_entropy(logits, targets[row : row + 1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        expected.append(sum(gradient.square().sum() for gradient in gradients))
    torch.testing.assert_close(recording.squared_norms(), torch.stack(expected), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_a_generator_fixes_every_weight_of_a_classifier(name, norm):
    first = build(name, norm).state_dict()
    torch.rand(3)
    second, other = build(name, norm).state_dict(), build(name, norm, seed=2).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    ("name", "norm"), slow_but(PICTURES, *(case for case in PICTURES if case[0] not in ("resnet18", "wrn16_4")))
)
def test_no_layer_couples_examples(name, norm):
    model = build(name, norm)
    models.refuse_batch_norm(model)
    self_check(model, lambda inputs: model(*inputs).square().sum(dim=1), inputs_of(name))


def lstm_in_half() -> bool:
    """Whether torch can run one under autocast here."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(8, 8, bidirectional=True)(torch.zeros(2, 3, 8))
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("name", ["lenet5", "lenet300_100", "resnet20", "scatternet", "bilstm", "transformer", "ctr"])
def test_half_precision_is_not_taken_for_coupling(name):
    model = build(name, None)
    if name == "bilstm" and not lstm_in_half():
        pytest.skip("torch has no LSTM in half precision for this processor")

    def losses(inputs):
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(*inputs)
        return outputs.float().square().sum(dim=1)

    assert self_check(model, losses, inputs_of(name)).half


@pytest.mark.parametrize("name", ["bilstm", "transformer"])
def test_a_text_does_not_depend_on_how_far_its_batch_is_padded(name):
    model = build(name, None).double()
    (tokens,) = inputs_of(name)
    assert torch.allclose(model(tokens)[:1], model(tokens[:1, :4]), atol=1e-10)


@pytest.mark.parametrize("name", ["bilstm", "transformer"])
def test_a_text_of_padding_only_has_finite_logits_and_gradients(name):
    model = build(name, None)
    model(torch.zeros(2, 7, dtype=torch.int64)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_the_bilstm_is_two_lstms_that_read_in_opposite_directions():
    model = build("bilstm", "layer").double()
    (tokens,) = inputs_of("bilstm")
    text = tokens[:1, :4]
    words = model.norm1(model.embedding(text))
    forward, backward = nn.LSTM(6, 5, batch_first=True).double(), nn.LSTM(6, 5, batch_first=True).double()
    with torch.no_grad():
        for name, parameter in model.lstm.named_parameters():
            target = backward if name.endswith("_reverse") else forward
            target.get_parameter(name.removesuffix("_reverse")).copy_(parameter)
    outputs = torch.cat([forward(words)[0], backward(words.flip(1))[0].flip(1)], dim=2)
    assert torch.allclose(model(text), model.classifier(model.norm2(outputs).mean(1)), atol=1e-10)


def test_the_encoder_is_torchs_encoder():
    model = build("transformer", None).double()
    (block,) = model.blocks
    reference = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).double().eval()
    names = {
        "self_attn.in_proj_": block.queries_keys_values,
        "self_attn.out_proj.": block.output,
        "linear1.": block.wide,
        "linear2.": block.narrow,
        "norm1.": block.norm1,
        "norm2.": block.norm2,
    }
    with torch.no_grad():
        for prefix, layer in names.items():
            for kind in ("weight", "bias"):
                reference.get_parameter(prefix + kind).copy_(getattr(layer, kind))
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    seen = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected = reference(x, src_key_padding_mask=~seen)
    assert torch.allclose(block(x, seen[:, None, None, :])[seen], expected[seen], atol=1e-10)


def test_an_id_beyond_a_table_shares_a_row_and_no_table_grows():
    model = build("ctr", None)
    numbers, _ = inputs_of("ctr", 2)
    assert torch.equal(model(numbers, torch.tensor([[0, 1, 2]] * 2)), model(numbers, torch.tensor([[7, 21, 5]] * 2)))
    assert [table.weight.shape for table in model.tables] == [(7, 3), (20, 4), (3, 2)]


def test_the_logarithm_of_numbers_keeps_signs_and_zero():
    plain = models.ctr_model(vocabulary_sizes=5, numeric=2, columns=1, hidden=(4,))
    logged = models.ctr_model(vocabulary_sizes=5, numeric=2, columns=1, hidden=(4,), log_numeric=True)
    logged.load_state_dict(plain.state_dict())
    ids = torch.zeros(1, 1, dtype=torch.int64)
    numbers = torch.tensor([[-(torch.e - 1), torch.e**2 - 1]])
    assert torch.allclose(logged(numbers, ids), plain(torch.tensor([[-1.0, 2.0]]), ids), atol=1e-6)


def test_wrn_has_the_published_size_with_and_without_standardised_weights():
    for choice in (True, False):
        model = models.wrn16_4(weight_standardisation=choice)
        assert sum(parameter.numel() for parameter in model.parameters()) == 2_748_890
        kinds = {type(layer) for layer in model.modules() if isinstance(layer, nn.Conv2d)}
        assert kinds == {models.WSConv2d if choice else nn.Conv2d}


def test_lenet5_is_the_classic_one():
    model = models.lenet5()
    shapes = [tuple(parameter.shape) for name, parameter in model.named_parameters() if name.endswith("weight")]
    assert shapes == [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]


def test_a_norm_follows_every_trained_layer_but_the_last():
    for norm, kind in (("layer", nn.GroupNorm), ("group", nn.GroupNorm), ("public_batch", models.PublicBatchNorm)):
        for build_model, norms in ((models.lenet5, 4), (models.lenet300_100, 2)):
            layers = [
                layer for layer in build_model(normalisation=norm).modules() if list(layer.parameters(recurse=False))
            ]
            assert [isinstance(layer, kind) for layer in layers] == [False, True] * norms + [False]
            assert all((layer.bias is None) == (norm == "public_batch") for layer in layers[:-1:2])


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (
            lambda: models.classifier("alexnet", 10, [(28, 28)]),
            "model must be one of lenet5, .*, ctr, dlrm, got alexnet",
        ),
        (lambda: models.classifier("lenet5", 10, [(128,)]), r"reads images .* got input shapes \(128,\); for texts"),
        (lambda: models.classifier("bilstm", 4, [(28, 28, 1)], vocabulary_size=9), "for images take lenet5"),
        (lambda: models.classifier("lenet5", 4, [(3,), (4,)]), "for tables take ctr"),
        (lambda: models.classifier("ctr", 2, [(3,), (4,)]), "ctr needs vocabulary_sizes=.*public"),
        (lambda: models.classifier("bilstm", 2, [(9,)]), "bilstm needs vocabulary_size=.*public"),
        (lambda: models.classifier("ctr", 2, [(3,), (4,)], vocabulary_sizes=[5, 6]), "each of the 4 .* got 2"),
        (lambda: models.classifier("lenet5", 10, [(28, 28)], norm="layer"), "no option norm; it has normalisation"),
        (lambda: models.classifier("lenet5", 10, [(8, 8)]), ">= 12, got 8; bring the pictures to that size"),
        (lambda: models.classifier("lenet5", 10, [(28, 0)]), "input_shapes must be a whole number >= 1, got 0"),
        (lambda: models.classifier("lenet5", 0, [(28, 28)]), "num_classes must be a whole number >= 1"),
        (lambda: models.classifier("lenet5", 10, [(28, 28)], normalisation="batch"), "none, layer, group, public_b"),
        (lambda: models.classifier("bilstm", 2, [(9,)], vocabulary_size=9, normalisation="group"), "of none, layer"),
        (lambda: models.lenet5(public_inputs=torch.zeros(2, 1, 28, 28)), "public_inputs go with normalisation='publ"),
        (lambda: models.lenet5()(torch.zeros(2, 3, 28, 28)), r"reads \[n, 1, 28, 28\], got \[2, 3, 28, 28\]"),
        (lambda: models.lenet300_100()(torch.zeros(2, 5)), "reads 784 numbers an example"),
        (lambda: models.transformer_classifier(2, vocabulary_size=9, width=10), "width must be even and a multiple"),
        (
            lambda: models.transformer_classifier(2, vocabulary_size=9, max_length=3)(torch.ones(1, 4).long()),
            "up to 3 tokens, got 4",
        ),
        (lambda: models.bilstm_classifier(2, vocabulary_size=9)(torch.ones(2, 3)), "token ids.*got float32"),
        (lambda: models.bilstm_classifier(2, vocabulary_size=1), "vocabulary_size must be a whole number >= 2"),
        (lambda: models.ctr_model(vocabulary_sizes=[]), "at least one categorical column"),
        (lambda: models.ctr_model(vocabulary_sizes=5)(torch.zeros(2, 3), torch.zeros(2, 26).long()), "reads .n, 13."),
        (lambda: models.scatternet_linear(groups=4), "groups must divide the 81 channels"),
        (lambda: models.scatternet_linear(image_size=7), "height must be a whole number >= 8"),
        (lambda: models.scatternet_linear(public_inputs=torch.zeros(2, 1, 28, 28)), "public_inputs go with"),
    ],
)
def test_mistakes_are_one_line(mistake, words):
    with pytest.raises(InputError, match=words) as error:
        mistake()
    assert "\n" not in str(error.value)


# The LeNet of the reference code: its size, its shape, its independence of other examples.
def test_lenet_has_the_papers_parameter_count():
    count = {name: p.numel() for name, p in models.lenet().named_parameters()}
    assert sum(count.values()) == 453_632
    assert sum(n for name, n in count.items() if name.startswith("conv")) == (25 + 1) * 32 + (25 * 32 + 1) * 64


@pytest.mark.parametrize("size", [28, 29, 30, 31, (17, 40), 1])
def test_any_image_size_gives_one_embedding_an_image(size):
    height, width = size if isinstance(size, tuple) else (size, size)
    out = models.lenet(16, 3, size)(torch.randn(2, 3, height, width))
    assert out.shape == (2, 16)


def test_an_embedding_does_not_depend_on_the_other_images():
    model = models.lenet()
    images = torch.randn(5, 1, 28, 28)
    with torch.no_grad():
        alone = torch.cat([model(image[None]) for image in images])
        assert torch.allclose(model(images), alone, atol=1e-5)


def test_pooling_before_the_activation_is_the_reference_order():
    model = models.lenet()
    x = torch.randn(3, 1, 28, 28)
    pool, relu = torch.nn.MaxPool2d(2, ceil_mode=True), torch.relu
    reference = model.embedding(pool(relu(model.conv2(pool(relu(model.conv1(x)))))).flatten(1))
    assert torch.equal(model(x), reference)


def test_a_generator_fixes_the_weights_and_the_global_state_does_not_matter():
    first = models.lenet(generator=torch.Generator().manual_seed(3)).state_dict()
    torch.rand(7)
    second = models.lenet(generator=torch.Generator().manual_seed(3)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = models.lenet(generator=torch.Generator().manual_seed(4)).state_dict()
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_images_of_another_shape_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"reads images \[n, 1, 28, 28\].*got \[2, 3, 28, 28\]") as error:
        models.lenet()(torch.zeros(2, 3, 28, 28))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("arguments", [{"embedding_dim": 0}, {"in_channels": 0}, {"image_size": 0}])
def test_sizes_below_one_are_refused(arguments):
    with pytest.raises(InputError, match="whole number >= 1"):
        models.lenet(**arguments)


# Weight standardisation: what the kernel looks like, and the way back for gradients of single examples.
def test_each_kernel_has_mean_zero_and_length_one():
    layer = models.WSConv2d(4, 6, 3, eps=0.0)
    kernels = layer.standardised().flatten(1)
    assert torch.allclose(kernels.mean(1), torch.zeros(6), atol=1e-6)
    assert torch.allclose(kernels.norm(dim=1), torch.ones(6), atol=1e-5)


def test_the_output_is_a_convolution_with_the_standardised_kernel():
    layer = models.WSConv2d(4, 6, 3, stride=2, padding=1, groups=2)
    images = torch.randn(2, 4, 7, 7)
    plain = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
    plain.weight.data, plain.bias.data = layer.standardised(), layer.bias
    assert torch.allclose(layer(images), plain(images))


@pytest.mark.parametrize("groups", [1, 2])
def test_pulling_back_gives_the_gradient_of_the_raw_weight_for_each_example(groups):
    layer = models.WSConv2d(4, 6, 3, groups=groups, bias=False).double()
    images = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    raw, standardised = [], []
    for image in images:
        raw += torch.autograd.grad(layer(image[None]).square().sum(), layer.weight)
        weight = layer.standardised().detach().requires_grad_()
        output = torch.nn.functional.conv2d(image[None], weight, groups=groups)
        standardised += torch.autograd.grad(output.square().sum(), weight)
    assert torch.allclose(layer.pull_back(torch.stack(standardised)), torch.stack(raw), rtol=1e-10, atol=1e-12)


def test_a_constant_added_to_a_kernel_changes_nothing():
    layer = models.WSConv2d(3, 2, 3).double()  # in single precision, round-off of the mean exceeds 1e-5 at times
    images = torch.randn(1, 3, 5, 5, dtype=torch.float64)
    before = layer(images)
    with torch.no_grad():
        layer.weight += 5.0
    assert torch.allclose(layer(images), before, rtol=1e-10, atol=1e-12)


def test_a_kernel_of_one_number_and_a_negative_eps_are_refused():
    with pytest.raises(InputError, match=r"use nn\.Conv2d"):
        models.WSConv2d(1, 8, 1)
    with pytest.raises(InputError, match="eps must be >= 0"):
        models.WSConv2d(1, 8, 3, eps=-1.0)


# Recommenders and language models.

# What every recommender does: values of items, a part that is a user's own, rows that an example alone touches.
ITEMS, USERS = 12, 5
OPTIONS = {
    "matrix_factorization": (
        {"factors": 4},
        {"factors": 4, "biases": True, "offset": 3.5},
        {"factors": 4, "biases": True, "classes": 3},
    ),
    "neural": (
        {"factors": 4, "hidden": (6, 3)},
        {"factors": 3, "hidden": (5,), "offset": 3.5},
        {"factors": 3, "hidden": (5,), "classes": 3},
    ),
}
EVERY = [(name, options) for name in RECOMMENDERS for options in OPTIONS[name]]


def _build(name: str, options: dict, users: int | None = None, seed: int = 0) -> torch.nn.Module:
    return recommender(name, ITEMS, users=users, generator=torch.Generator().manual_seed(seed), **options)


def _local(model: torch.nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters() if re.fullmatch(model.local_parameters, name)]


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_the_baseline_on_a_server_computes_what_each_user_computes_alone(name: str, options: dict) -> None:
    alone, server = _build(name, options), _build(name, options, USERS)
    items = torch.tensor([[3], [11], [0], [3]])
    for user in range(USERS):
        inputs = torch.cat([items, torch.full((4, 1), user)], 1)
        torch.testing.assert_close(server(inputs), alone(items))  # every user begins in the same place
    own = {key: torch.randn(USERS, *alone.get_parameter(key).shape) for key in _local(alone)}
    with torch.no_grad():
        for key, rows in own.items():
            server.get_parameter(f"{key}.weight").copy_(rows)
    for user in range(USERS):
        told = functional_call(alone, {key: rows[user] for key, rows in own.items()}, (items,))
        torch.testing.assert_close(server(torch.cat([items, torch.full((4, 1), user)], 1)), told)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_what_is_local_is_the_users_and_a_server_has_nothing_local(name: str, options: dict) -> None:
    model = _build(name, options)
    names = {key for key, _ in model.named_parameters()}
    assert set(_local(model)) == {key for key in names if key.startswith("user_")}
    assert 0 < len(_local(model)) < len(names)
    assert _local(_build(name, options, USERS)) == []
    assert all(value.ndim == 1 for key, value in model.named_parameters() if key in _local(model))


@pytest.mark.parametrize("users", [None, USERS])
@pytest.mark.parametrize(("name", "options"), EVERY)
def test_an_example_touches_only_the_row_that_its_column_names(name: str, options: dict, users: int | None) -> None:
    model = _build(name, options, users)
    inputs = torch.tensor([[7, 2]])[:, : 1 if users is None else 2]
    model(inputs).sum().backward()
    tables = {key for key, value in model.named_parameters() if value.ndim == 2 and len(value) in (ITEMS, USERS)}
    assert {key for key in tables if re.match("item|user", key)} == set(model.row_tables)
    for key, column in model.row_tables.items():
        gradient = model.get_parameter(key).grad
        touched = gradient.abs().sum(1).nonzero()[:, 0].tolist()
        assert set(touched) <= {int(inputs[0, column])}
    assert model.get_parameter("item_factors.weight").grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_many_users_at_once_are_each_user_alone(name: str, options: dict) -> None:
    model = _build(name, options)
    parameters = dict(model.named_parameters())
    own = {key: torch.randn(3, *parameters[key].shape) for key in _local(model)}
    shared = {key: value.detach() for key, value in parameters.items() if key not in own}
    inputs = torch.randint(ITEMS, (3, 6, 1), generator=torch.Generator().manual_seed(1))

    def loss(local: dict, rest: dict, rows: torch.Tensor) -> torch.Tensor:
        return (functional_call(model, {**rest, **local}, (rows,)) ** 2).mean()

    together = vmap(grad(loss, argnums=(0, 1)), in_dims=(0, None, 0))(own, shared, inputs)
    for user in range(3):
        alone = grad(loss, argnums=(0, 1))({key: rows[user] for key, rows in own.items()}, shared, inputs[user])
        for ours, theirs in zip(together, alone, strict=True):
            for key in theirs:
                torch.testing.assert_close(ours[key][user], theirs[key])


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_the_same_generator_gives_the_same_weights(name: str, options: dict) -> None:
    one, same, other = _build(name, options), _build(name, options), _build(name, options, seed=1)
    for key, value in one.named_parameters():
        assert torch.equal(value, same.get_parameter(key))
    assert not torch.equal(one.item_factors.weight, other.item_factors.weight)
    assert one.user_factors.abs().max() > 0


def test_a_value_is_the_product_of_two_vectors_and_three_biases() -> None:
    model = matrix_factorization(2, factors=3, biases=True, offset=3.5)
    with torch.no_grad():
        model.item_factors.weight.copy_(torch.tensor([[1.0, 2, 3], [0, 1, 0]]))
        model.user_factors.copy_(torch.tensor([1.0, 0.5, -1]))
        model.item_bias.weight.copy_(torch.tensor([[0.25], [1.0]]))
        model.user_bias.fill_(-2.0)
    assert model(torch.tensor([[0], [1]])).tolist() == [3.5 - 1 + 0.25 - 2, 3.5 + 0.5 + 1 - 2]


@pytest.mark.parametrize(("name", "options"), EVERY)
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.tensor([[12]]), "must be 0 … 11, got 12"),
        (torch.tensor([[0], [-1]]), "got -1"),
        (torch.tensor([3]), r"got int64 \[1\]"),
        (torch.tensor([[3, 0]]), r"with users=… it reads \[n, 2\]"),
        (torch.tensor([[3.0]]), "got float32"),
    ],
)
def test_numbers_of_no_item_are_refused_in_one_line(
    name: str, options: dict, inputs: torch.Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        _build(name, options)(inputs)
    assert "\n" not in str(refusal.value)


def test_a_user_that_the_server_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="users must be 0 … 4, got 5"):
        _build("neural", {}, USERS)(torch.tensor([[0, 5]]))


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_a_model_reports_a_value_or_a_logit_of_each_class_and_nothing_of_nothing(name: str, options: dict) -> None:
    each = (options["classes"],) if "classes" in options else ()
    for rows in (0, 2):
        assert _build(name, options)(torch.zeros(rows, 1, dtype=torch.int64)).shape == (rows, *each)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: recommender("svd", 3), "model must be one of matrix_factorization, neural"),
        (lambda: recommender("neural", 3, biases=True), "neural has no option biases"),
        (lambda: recommender("neural", 3, hidden=()), "at least one dense layer"),
        (lambda: matrix_factorization(0), "items must be a whole number >= 1"),
        (lambda: matrix_factorization(3, factors=0), "factors must be"),
        (lambda: matrix_factorization(3, users=0), "users must be"),
        (lambda: matrix_factorization(3, offset=float("nan")), "offset must be a finite number"),
        (lambda: matrix_factorization(3, classes=1), "classes must be"),
        (lambda: matrix_factorization(3, classes=5, offset=3.5), "offset=3.5 is for values"),
        (lambda: linear_head(0, 2), "features must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_the_bias_of_a_linear_head_is_the_users_own() -> None:
    model = linear_head(4, 3, generator=torch.Generator().manual_seed(0))
    assert _local(model) == ["head.bias"]
    assert model.row_tables == {}
    features = torch.randn(2, 4)
    told = functional_call(model, {"head.bias": torch.ones(3)}, (features,))
    torch.testing.assert_close(told, features @ model.head.weight.T + 1)


# Properties of every language model: causal, padding without influence, seeded weights, mapped over clients.
SMALL = {
    "lstm": {"embedding_dim": 4, "hidden": 6, "layers": 2, "projection": 5},
    "transformer": {"width": 8, "depth": 2, "heads": 2},
}


def built(name: str, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return models.language_model(name, 11, 7, generator=generator, **SMALL[name])


def tokens(rows: int = 3, seed: int = 1) -> torch.Tensor:
    return torch.randint(1, 11, (rows, 7), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_logits_stand_at_every_place_and_depend_on_nothing_behind_it(name: str):
    model, inputs = built(name), tokens()
    logits = model(inputs)
    assert logits.shape == (3, 7, 11)
    for place in range(7):
        other = inputs.clone()
        other[:, place:] = 11 - other[:, place:]
        changed = model(other)
        torch.testing.assert_close(changed[:, :place], logits[:, :place])
        assert not torch.allclose(changed[:, place], logits[:, place])


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_how_far_a_sequence_is_padded_does_not_matter(name: str):
    model, inputs = built(name), tokens()
    inputs[:, 4:] = 0
    torch.testing.assert_close(model(inputs)[:, :4], model(inputs[:, :4]))


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_no_sequence_changes_anothers_logits(name: str):
    model, inputs = built(name), tokens()
    torch.testing.assert_close(model(inputs)[1:2], model(inputs[1:2]))


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_weights_come_from_the_generator_alone(name: str):
    one, same, other = (built(name, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
def test_mapped_over_clients_it_computes_the_same(name: str):
    model, inputs = built(name).double(), torch.stack([tokens(seed=2), tokens(seed=3)])
    stacked = {key: torch.stack([value, 1.5 * value]) for key, value in model.named_parameters()}
    with in_double(model):
        mapped = vmap(lambda weights, rows: functional_call(model, weights, (rows,)))(stacked, inputs)
        for client, rows in enumerate(inputs):
            own = {key: value[client] for key, value in stacked.items()}
            torch.testing.assert_close(mapped[client], functional_call(model, own, (rows,)), rtol=1e-9, atol=1e-12)


def test_what_no_one_says_is_as_in_the_federated_tasks():
    words, characters = models.lstm(vocabulary_size=10_004), models.lstm(vocabulary_size=100)
    assert (words.lstm.hidden_size, words.lstm.num_layers, words.output.in_features) == (670, 1, 96)
    assert (characters.lstm.hidden_size, characters.lstm.num_layers, characters.output.in_features) == (256, 2, 256)


def test_what_a_model_does_not_have_is_refused():
    with pytest.raises(InputError, match="lstm has no option depth; it has embedding_dim, hidden, layers, oov_buckets"):
        models.language_model("lstm", 11, 7, depth=2)
    with pytest.raises(InputError, match="width must be a multiple of heads=4, got 6"):
        models.language_model("transformer", 11, 7, width=6)
    with pytest.raises(InputError, match=r"reads up to 7 tokens, got 8"):
        built("transformer")(torch.ones(1, 8, dtype=torch.int64))
    with pytest.raises(InputError, match="hidden must be a whole number >= 1, got 0"):
        models.lstm(vocabulary_size=11, hidden=0)
