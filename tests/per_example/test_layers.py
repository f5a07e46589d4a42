"""Gradients of each example in attention, recurrent layers and those of this library."""

import gc

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sfumato._check import InputError
from sfumato.models import PublicBatchNorm, WSConv2d, use_public_batch
from sfumato.per_example import Recording, covered
from sfumato.per_example.recurrent import Steps

# Attention against a loop over examples, and against torch's own forward pass.


class Attending(nn.Module):
    """An embedding of the queries, attention, and a head; the keys may come from somewhere else."""

    def __init__(self, attention: nn.MultiheadAttention, kind: str, need_weights: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.attention = attention
        self.kind = kind
        self.need_weights = need_weights

    def forward(self, values: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        values = self.first(values)
        if not self.attention.batch_first:
            values, memory = values.transpose(0, 1), memory.transpose(0, 1)
        key, value = {"self": (values, values), "cross": (memory, memory), "three": (memory, memory * 2)}[self.kind]
        out, weights = self.attention(
            values, key, value, attn_mask=mask, key_padding_mask=padding, need_weights=self.need_weights
        )
        if not self.attention.batch_first:
            out = out.transpose(0, 1)
        extra = 0 if weights is None else weights.square().sum(dim=(1, 2))
        return out.tanh().sum(dim=(1, 2)) + extra


def check(against_loop, model: nn.Module, inputs: tuple) -> None:
    plain = model(*inputs)
    with Recording(covered(model)):
        torch.testing.assert_close(model(*inputs), plain, rtol=1e-5, atol=1e-6)
    against_loop(model, model, inputs)
    assert "forward" not in vars(model.attention)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["self", "cross", "three"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 6, "add_bias_kv": True}],
)
def test_every_kind(against_loop, batch_first: bool, kind: str, options: dict) -> None:
    if "kdim" in options and kind == "self":
        pytest.skip("keys and values of other sizes than the queries")
    attention = nn.MultiheadAttention(8, 2, batch_first=batch_first, **options)
    memory = torch.randn(3, 4, 6 if "kdim" in options else 8)
    check(against_loop, Attending(attention, kind), (torch.randn(3, 5, 8), memory, None, None))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
@pytest.mark.parametrize("padding", [True, False])
def test_masks(against_loop, need_weights: bool, options: dict, mask: str, padding: bool) -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    causal = torch.ones(5, 5).triu(1).bool()
    masks = {"none": None, "bool": causal, "float": torch.zeros(5, 5).masked_fill(causal, -2.5)}
    ends = torch.tensor([5, 3, 4])
    hidden = torch.arange(5) >= ends[:, None]
    model = Attending(attention, "self", need_weights)
    # the mask belongs to nobody: hidden in a closure, so that the loop does not cut it
    model_inputs = (torch.randn(3, 5, 8), torch.zeros(3, 1, 8), None, hidden if padding else None)
    chosen = masks[mask]
    plain = model.forward
    model.forward = lambda values, memory, _, padding: plain(values, memory, chosen, padding)  # type: ignore[method-assign]
    check(against_loop, model, model_inputs)


def test_a_mask_for_each_example_and_head(against_loop) -> None:
    model = Attending(nn.MultiheadAttention(8, 2, batch_first=True), "self")
    masks = torch.randn(3, 2, 5, 5)
    plain = model.forward
    model.forward = lambda values, masks: plain(values, values, masks.flatten(0, 1), None)  # type: ignore[method-assign]
    check(against_loop, model, (torch.randn(3, 5, 8), masks))


def test_frozen_projections_take_no_part(against_loop) -> None:
    model = Attending(nn.MultiheadAttention(8, 2, batch_first=True), "cross")
    model.attention.out_proj.requires_grad_(False)
    model.attention.in_proj_bias.requires_grad_(False)
    check(against_loop, model, (torch.randn(3, 5, 8), torch.randn(3, 4, 8), None, None))


class Translator(nn.Module):
    """Torch's encoder and decoder with tied word embeddings."""

    def __init__(self, *, norm_first: bool) -> None:
        super().__init__()
        sizes = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        self.words = nn.Embedding(20, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **sizes), 2)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **sizes), 2)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.words.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.words(source), src_key_padding_mask=source == 0)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        states = self.decoder(self.words(target), memory, tgt_mask=causal, memory_key_padding_mask=source == 0)
        return F.cross_entropy(self.out(states).mT, target, reduction="none").sum(dim=1)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_encoder_and_decoder(against_loop, norm_first: bool, training: bool) -> None:
    torch.manual_seed(0)
    model = Translator(norm_first=norm_first).train(training)
    source = torch.randint(1, 20, (3, 6))
    source[1, 4:] = 0
    # in evaluation mode the loop would take torch's nested tensors
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        against_loop(model, model, (source, torch.randint(1, 20, (3, 5))))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_the_fast_path_is_left_as_it_was() -> None:
    with Recording(covered(nn.Linear(2, 2))):
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


def test_examples_in_dimension_one_are_refused_by_the_layer_s_name() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    with (
        pytest.raises(InputError, match=r"layer 'norm2' has 5 rows .* 3 examples; .*batch_first=True"),
        Recording(covered(model)) as recording,
    ):
        recording.backward(model(torch.randn(5, 3, 8)).sum(dim=(0, 2)))


# Public batch norm and standardised convolutions against autograd, and the refusal of joint statistics.


def model(statistics: str = "public") -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(
        WSConv2d(3, 6, 3, stride=2, groups=3), PublicBatchNorm(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 4)
    )
    use_public_batch(layers, torch.randn(16, 3, 7, 7), statistics=statistics)  # type: ignore[arg-type]
    return layers.double()


def test_gradients_are_those_of_each_example_alone() -> None:
    network = model()
    inputs, labels = torch.randn(5, 3, 7, 7, dtype=torch.float64), torch.randint(4, (5,))
    layers = covered(network)
    assert {type(layer.rule).__name__ for layer in layers} == {
        "StandardisedConvolutionRule",
        "PublicBatchNormRule",
        "LinearRule",
    }
    with Recording(layers) as recording:
        recording.backward(F.cross_entropy(network(inputs), labels, reduction="none"))
    totals = recording.weighted_sum(torch.ones(5, dtype=torch.float64))
    norms = []
    sums = [torch.zeros_like(total) for total in totals]
    for index in range(5):
        alone = F.cross_entropy(network(inputs[index : index + 1]), labels[index : index + 1])
        found = torch.autograd.grad(alone, recording.parameters)
        norms.append(sum(g.square().sum() for g in found))
        sums = [a + g for a, g in zip(sums, found, strict=True)]
    torch.testing.assert_close(recording.squared_norms(), torch.stack(norms), rtol=1e-10, atol=1e-14)
    for total, expected in zip(totals, sums, strict=True):
        torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-12)


def test_joint_statistics_are_refused() -> None:
    with pytest.raises(InputError, match="statistics='public'"):
        covered(model("joint"))


# Recurrent layers against a loop over examples, and against torch's own forward pass.

KINDS = [nn.LSTM, nn.GRU, nn.RNN]


class Tagger(nn.Module):
    """A recurrent layer and a linear one on its outputs and last state; sequences may be ragged."""

    def __init__(self, recurrent: nn.Module, width: int) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.out = nn.Linear(width, 3)

    def forward(self, values: Tensor, lengths: Tensor | None = None) -> Tensor:
        if lengths is not None:
            packed = pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
            states, last = self.recurrent(packed)
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=values.shape[1])
        elif self.recurrent.batch_first:
            states, last = self.recurrent(values)
        else:
            states, last = self.recurrent(values.transpose(0, 1))
            states = states.transpose(0, 1)
        hidden = last[0] if isinstance(last, tuple) else last
        return self.out(states).sum(dim=(1, 2)) + hidden.sum(dim=(0, 2)) * 0.3


def check_lengths(model: nn.Module, values: Tensor, lengths: Tensor | None = None) -> None:
    plain = model(values, lengths)
    with Recording(covered(model)) as recording:
        losses = model(values, lengths)
        recording.backward(losses)
    torch.testing.assert_close(losses, plain, rtol=1e-5, atol=1e-6)
    parameters = recording.parameters
    norms, totals = [], [torch.zeros_like(p) for p in parameters]
    weights = torch.rand(len(values))
    for index in range(len(values)):
        own = None if lengths is None else lengths[index : index + 1]
        found = torch.autograd.grad(model(values[index : index + 1], own).sum(), parameters)
        norms.append(sum(g.double().square().sum() for g in found))
        totals = [total + weights[index] * g for total, g in zip(totals, found, strict=True)]
    torch.testing.assert_close(recording.squared_norms(), torch.stack(norms), rtol=1e-5, atol=1e-9)
    for total, expected in zip(recording.weighted_sum(weights), totals, strict=True):
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-6)
    assert "forward" not in vars(model.recurrent)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_recurrent_kind(kind: type, bidirectional: bool, layers: int, batch_first: bool) -> None:
    torch.manual_seed(1)
    recurrent = kind(5, 7, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first)
    check_lengths(Tagger(recurrent, 14 if bidirectional else 7), torch.randn(4, 6, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_sequences(kind: type) -> None:
    torch.manual_seed(2)
    recurrent = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    check_lengths(Tagger(recurrent, 14), torch.randn(4, 6, 5), torch.tensor([3, 6, 1, 4]))


def test_without_biases_and_with_another_nonlinearity() -> None:
    torch.manual_seed(3)
    check_lengths(Tagger(nn.RNN(5, 7, nonlinearity="relu", bias=False, batch_first=True), 7), torch.randn(4, 6, 5))
    check_lengths(Tagger(nn.GRU(5, 7, bias=False, batch_first=True), 7), torch.randn(4, 6, 5))


class Continued(nn.Module):
    """A decoder whose first states come from an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(5, 7, batch_first=True)
        self.recurrent = nn.LSTM(5, 7, batch_first=True)

    def forward(self, values: Tensor, _: Tensor | None = None) -> Tensor:
        _, states = self.encoder(values)
        outputs, (hidden, cell) = self.recurrent(values.flip(1), states)
        return outputs.sin().sum(dim=(1, 2)) + hidden[0].sum(dim=1) * cell[0].sum(dim=1)


def test_states_that_are_handed_on() -> None:
    torch.manual_seed(4)
    check_lengths(Continued(), torch.randn(4, 6, 5))


def test_the_steps_of_an_lstm_have_the_derivatives_of_autograd() -> None:
    torch.manual_seed(5)
    weight = torch.randn(12, 3, dtype=torch.float64)
    shapes = [(5, 2, 12), (2, 3), (2, 3)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *given: Steps.apply(*given, weight), inputs)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recording_leaves_nothing_behind(kind):
    """What a graph's own closures hold of it is a circle through C++, which nobody would free."""
    model = kind(3, 4, batch_first=True)
    layers = covered(model)

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    def record() -> None:
        with Recording(layers) as recording:
            recording.backward(model(torch.randn(5, 6, 3))[0].sum((1, 2)))
        recording.squared_norms()

    record()
    before = alive()
    for _ in range(3):
        record()
    assert alive() == before
