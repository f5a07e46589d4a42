"""Attention against a loop over examples, and against torch's own forward pass."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.per_example import Recording, covered


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
