"""What every classifier has in common: its shapes, its independence of other examples, and its one-line refusals."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.per_example import Recording, covered
from slow import slow_but

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
}
SIZES = {
    "bilstm": {"vocabulary_size": 20, "embedding_dim": 6, "hidden": 5},
    "transformer": {"vocabulary_size": 20, "width": 8, "depth": 1, "heads": 2},
    "ctr": {"vocabulary_sizes": [7, 20, 3], "hidden": (8, 8)},
}
CASES = [(name, norm) for name, norms in NORMS.items() for norm in (norms or (None,))]
PICTURES = [case for case in CASES if case[0] in IMAGES]


def inputs_of(name: str, rows: int = 3) -> tuple[torch.Tensor, ...]:
    source = torch.Generator().manual_seed(5)
    if name in IMAGES:
        return (torch.rand(rows, 1, 16, 16, generator=source) * 2 - 1,)
    if name == "ctr":
        ids = torch.randint(0, 30, (rows, 3), generator=source)
        return (torch.randn(rows, 4, generator=source), ids)
    tokens = torch.randint(1, 20, (rows, 7), generator=source)
    tokens[0, 4:] = 0
    return (tokens,)


def build(name: str, norm: str | None, classes: int = 4, seed: int = 1) -> nn.Module:
    shapes = {"ctr": [(4,), (3,)]}.get(name, [(16, 16, 1)] if name in IMAGES else [(7,)])
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


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_logits_have_one_column_a_class_and_every_parameter_matters(name, norm):
    model = build(name, norm)
    logits = model(*inputs_of(name))
    assert logits.shape == (3, 4)
    functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize(("name", "norm"), CASES)
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
def test_a_generator_fixes_every_weight(name, norm):
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
        (lambda: models.classifier("alexnet", 10, [(28, 28)]), "model must be one of lenet5, .*, ctr, got alexnet"),
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
