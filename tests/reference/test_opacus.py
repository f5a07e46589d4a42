"""Norms and clipped sums beside those of Opacus, for the kinds of layers that Opacus covers by rules of its own.

Every case runs twice in Opacus: with hooks, which hold every example's gradient, and with ghost clipping, which takes
norms first and sums in a second backward pass. Both clip through Opacus's own optimiser, whose factor is
min(1, C / (norm + 1e-6)). Where the two libraries differ, a loop over the examples by ordinary autograd decides: at
the end of this file are the settings in which Opacus 1.6 computes other gradients than autograd.
"""

import copy
from collections.abc import Callable, Mapping
from itertools import product

import pytest
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sfumato.per_example import Recording, covered

Forward = Callable[[nn.Module], Tensor]
Named = Mapping[str, Tensor]
MODES = ("hooks", "ghost")
EXAMPLES = 4

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def losses_of(model: nn.Module, forward: Forward) -> Tensor:
    """One number for each example, float [B], of which no part is linear in the outputs."""
    torch.manual_seed(7)
    out = forward(model)
    return (out.tanh() * torch.randn(out.shape)).flatten(1).sum(dim=1)


def ours(model: nn.Module, forward: Forward, bound: float | None) -> tuple[Tensor, Named, float]:
    """Norms [B], clipped sums by name, and the bound: the median norm, if none is given."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    with Recording(covered(model)) as recording:
        recording.backward(losses_of(model, forward))
    norms = recording.squared_norms().sqrt()
    bound = norms.median().item() if bound is None else bound
    sums = recording.weighted_sum((bound / (norms + 1e-6)).clamp(max=1.0).float())
    return norms, {names[id(p)]: total for p, total in zip(recording.parameters, sums, strict=True)}, bound


def opacus(
    model: nn.Module, forward: Forward, bound: float, mode: str, *, batch_first: bool = True
) -> tuple[Tensor, Named]:
    """The same from Opacus."""
    named = dict(model.named_parameters())
    options = {"batch_first": batch_first, "loss_reduction": "sum", "strict": False}
    sizes = {"noise_multiplier": 0.0, "max_grad_norm": bound, "expected_batch_size": None, "loss_reduction": "sum"}
    plain = torch.optim.SGD(named.values(), 1.0)
    if mode == "ghost":
        wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=bound, use_ghost_clipping=True, **options)
        clipping = DPOptimizerFastGradientClipping(plain, **sizes)
        DPTensorFastGradientClipping(wrapped, clipping, losses_of(wrapped, forward), "sum").backward()
        norms = wrapped.per_sample_gradient_norms
        clipping.accumulate()
    else:
        wrapped = GradSampleModule(model, **options)
        clipping = DPOptimizer(plain, **sizes)
        losses_of(wrapped, forward).sum().backward()
        norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in named.values()]).norm(dim=0)
        clipping.clip_and_accumulate()
    return norms, {name: parameter.summed_grad for name, parameter in named.items()}


def loop(model: nn.Module, forward: Forward, bound: float) -> tuple[Tensor, Named]:
    """The same by autograd, one example after the other."""
    named = dict(model.named_parameters())
    rows = [torch.autograd.grad(losses_of(model, forward)[index], list(named.values())) for index in range(EXAMPLES)]
    norms = torch.stack([torch.stack([g.norm() for g in row]).norm() for row in rows])
    weights = (bound / (norms + 1e-6)).clamp(max=1.0)
    sums = [sum(w * g for w, g in zip(weights, column, strict=True)) for column in zip(*rows, strict=True)]
    return norms, dict(zip(named, sums, strict=True))


def assert_same(found: tuple[Tensor, Named], expected: tuple[Tensor, Named]) -> None:
    """To 1e-5, relative to the norm, and to the sum's length; a part that vanishes is compared to the whole sum."""
    torch.testing.assert_close(found[0].float(), expected[0].float(), rtol=1e-5, atol=0.0)
    assert found[1].keys() == expected[1].keys()
    whole = torch.stack([total.norm() for total in expected[1].values()]).norm()
    for name, total in expected[1].items():
        difference = (found[1][name].reshape(total.shape) - total).norm()
        assert difference <= 1e-5 * total.norm() + 1e-7 * whole, (name, difference / total.norm())


def check(model: nn.Module, inputs: Tensor, mode: str) -> None:
    """One module in both libraries."""
    forward: Forward = lambda module: module(inputs)  # noqa: E731
    norms, sums, bound = ours(model, forward, None)
    assert (norms > bound).any()  # something is clipped
    assert_same((norms, sums), opacus(model, forward, bound, mode))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (1, 6), (5, 6), (40, 6)], ids=str)
def test_linear(mode: str, bias: bool, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(6, 9, bias=bias), nn.Tanh(), nn.Linear(9, 3, bias=bias))
    check(model, torch.randn(EXAMPLES, *shape), mode)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_over_a_grid_of_positions(bias: bool) -> None:
    check(nn.Linear(6, 9, bias=bias), torch.randn(EXAMPLES, 3, 5, 6), "hooks")  # ghost clipping takes up to 3-D


class Twice(nn.Module):
    """One layer at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, values: Tensor) -> Tensor:
        return self.layer(self.layer(values).tanh())


def test_a_layer_that_is_used_twice() -> None:
    check(Twice(), torch.randn(EXAMPLES, 5, 6), "hooks")  # ghost clipping refuses it


CONVOLUTIONS = [
    (dimensions, stride, padding, dilation, groups)
    for dimensions, stride, padding, dilation, groups in product((1, 2, 3), (1, 2), (0, 1, "same"), (1, 2), (1, 2, 4))
    if padding != "same" or stride == 1
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dimensions", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolutions(mode: str, dimensions: int, stride: int, padding: int | str, dilation: int, groups: int) -> None:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    layer = kind(4, 8, 3, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=groups != 2)
    check(layer, torch.randn(EXAMPLES, 4, *(8, 7, 6)[:dimensions]), mode)


@pytest.mark.parametrize("mode", MODES)
def test_convolutions_with_sides_of_their_own(mode: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        nn.ReLU(),
        nn.Conv2d(6, 4, 1, groups=2),
        nn.Flatten(),
        nn.Linear(4 * 5 * 5, 3),
    )
    check(model, torch.randn(EXAMPLES, 3, 9, 7), mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(), (3,), (5, 2)], ids=str)
def test_embedding(mode: str, shape: tuple[int, ...]) -> None:
    check(nn.Embedding(6, 3), torch.randint(6, (EXAMPLES, *shape)), mode)


class Bag(nn.Module):
    """An `nn.EmbeddingBag` in the form that Opacus reads: ids in one row, and where each bag begins."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(9, 3, mode=mode)

    def forward(self, ids: Tensor) -> Tensor:
        return self.bag(ids.flatten(), torch.arange(len(ids)) * ids.shape[1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_embedding_bags_of_different_ids(mode: str, pooling: str) -> None:
    check(Bag(pooling), torch.stack([torch.randperm(9)[:4] for _ in range(EXAMPLES)]), mode)


NORMS = {
    "layer": (lambda: nn.LayerNorm(6), (6,)),
    "layer, positions": (lambda: nn.LayerNorm(6), (5, 6)),
    "layer, two sides": (lambda: nn.LayerNorm((5, 6)), (3, 5, 6)),
    "group": (lambda: nn.GroupNorm(2, 4), (4, 5)),
    "group, picture": (lambda: nn.GroupNorm(4, 4), (4, 5, 6)),
    "group, vector": (lambda: nn.GroupNorm(2, 8), (8,)),
    "instance 1d": (lambda: nn.InstanceNorm1d(4, affine=True), (4, 9)),
    "instance 2d": (lambda: nn.InstanceNorm2d(4, affine=True), (4, 5, 6)),
    "instance 3d": (lambda: nn.InstanceNorm3d(4, affine=True), (4, 3, 5, 2)),
    "rms": (lambda: nn.RMSNorm(6), (5, 6)),
    "rms, two sides": (lambda: nn.RMSNorm((5, 6), eps=1e-3), (3, 5, 6)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NORMS)
def test_normalisation(mode: str, name: str) -> None:
    build, shape = NORMS[name]
    layer = build()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    check(layer, torch.randn(EXAMPLES, *shape), mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("build", "shape"),
    [(lambda: nn.PReLU(4), (4, 5)), (lambda: nn.ConvTranspose2d(4, 2, 3, stride=2), (4, 3, 5))],
    ids=["prelu", "transposed convolution"],
)
def test_kinds_that_both_run_again_for_each_example(
    mode: str, build: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    check(build(), torch.randn(EXAMPLES, *shape), mode)


RECURRENT = {"lstm": (nn.LSTM, DPLSTM), "gru": (nn.GRU, DPGRU), "rnn": (nn.RNN, DPRNN)}


def recurrent_pair(kind: str, **options: object) -> tuple[nn.Module, nn.Module, dict[str, str]]:
    """Ours, theirs with the same weights, and their parameters' names by ours."""
    mine, theirs = (made(5, 7, **options) for made in RECURRENT[kind])
    theirs.load_state_dict(mine.state_dict())
    places = {parameter.data_ptr(): name for name, parameter in theirs.named_parameters()}
    return mine, theirs, {name: places[value.data_ptr()] for name, value in theirs.state_dict().items()}


def check_recurrent(kind: str, mode: str, forward: Forward, **options: object) -> None:
    mine, theirs, names = recurrent_pair(kind, **options)
    norms, sums, bound = ours(mine, forward, None)
    their_norms, their_sums = opacus(theirs, forward, bound, mode)
    assert_same((norms, sums), (their_norms, {name: their_sums[other] for name, other in names.items()}))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers(mode: str, kind: str, layers: int, bidirectional: bool, batch_first: bool) -> None:
    values = torch.randn(EXAMPLES, 6, 5)

    def forward(module: nn.Module) -> Tensor:
        out, _ = module(values if batch_first else values.transpose(0, 1))
        return out if batch_first else out.transpose(0, 1)

    options = {"num_layers": layers, "bidirectional": bidirectional, "batch_first": batch_first}
    check_recurrent(kind, mode, forward, **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_layers_without_biases_and_their_last_states(mode: str, kind: str) -> None:
    values = torch.randn(EXAMPLES, 6, 5)

    def forward(module: nn.Module) -> Tensor:
        states = module(values)[1]
        return torch.cat(states, dim=2)[0] if isinstance(states, tuple) else states[0]

    check_recurrent(kind, mode, forward, bias=False, batch_first=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", RECURRENT)
def test_ragged_sequences(mode: str, kind: str) -> None:
    values, lengths = torch.randn(EXAMPLES, 6, 5), torch.tensor([6, 5, 3, 2])

    def forward(module: nn.Module) -> Tensor:
        out = module(pack_padded_sequence(values, lengths, batch_first=True))[0]
        assert isinstance(out, PackedSequence)
        return pad_packed_sequence(out, batch_first=True)[0]

    check_recurrent(kind, mode, forward, batch_first=True)


def attention_pair(heads: int, **options: object) -> tuple[nn.Module, nn.Module]:
    """Ours, and theirs with the same weights."""
    mine, theirs = nn.MultiheadAttention(8, heads, **options), DPMultiheadAttention(8, heads, **options)
    for parameter in mine.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs.load_state_dict(mine.state_dict())
    return mine, theirs


def as_torch(sums: Named, mine: nn.Module) -> dict[str, Tensor]:
    """The sums of their attention under torch's names."""
    parts = ("q", "k", "v")
    result = {name: total for name, total in sums.items() if name.startswith("out_proj")}
    if "in_proj_weight" in dict(mine.named_parameters()):
        result["in_proj_weight"] = torch.cat([sums[f"{part}linear.weight"] for part in parts])
    else:
        result |= {f"{part}_proj_weight": sums[f"{part}linear.weight"] for part in parts}
    if "qlinear.bias" in sums:
        result["in_proj_bias"] = torch.cat([sums[f"{part}linear.bias"] for part in parts])
    return result | {f"bias_{part}": sums[f"seq_bias_{part}.bias"] for part in "kv" if f"seq_bias_{part}.bias" in sums}


ATTENTION = [
    (heads, batch_first, cross, options)
    for heads, batch_first in ((2, False), (1, False), (1, True))
    for cross in (False, True)
    for options in ({}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6, "vdim": 5})
    if cross or "kdim" not in options  # other sizes than those of the queries
    if not (batch_first and "add_bias_kv" in options)  # theirs raises an error
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("heads", "batch_first", "cross", "options"), ATTENTION, ids=str)
def test_attention(mode: str, heads: int, batch_first: bool, cross: bool, options: dict[str, object]) -> None:
    mine, theirs = attention_pair(heads, batch_first=batch_first, **options)
    query = torch.randn(EXAMPLES, 5, 8)
    key, value = (torch.randn(EXAMPLES, 4, options.get(name, 8)) for name in ("kdim", "vdim"))
    given = (query, key, value) if cross else (query, query, query)

    def forward(module: nn.Module) -> Tensor:
        out = module(*(each if batch_first else each.transpose(0, 1) for each in given))[0]
        return out if batch_first else out.transpose(0, 1)

    norms, sums, bound = ours(mine, forward, None)
    their_norms, their_sums = opacus(theirs, forward, bound, mode, batch_first=batch_first)
    assert_same((norms, sums), (their_norms, as_torch(their_sums, mine)))


DIFFERENT = {
    # the gradient of the row that stays as it is counts, though autograd has none for it
    "embedding with padding_idx": lambda: (nn.Embedding(6, 3, padding_idx=0), torch.randint(2, (EXAMPLES, 5))),
    # the padding is taken for zeros
    "convolution with padding_mode": lambda: (
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
        torch.randn(EXAMPLES, 2, 6, 6),
    ),
    # the pictures are read as if their columns lay side by side
    "convolution of channels_last": lambda: (
        nn.Conv2d(2, 3, 3),
        torch.randn(EXAMPLES, 2, 6, 6).to(memory_format=torch.channels_last),
    ),
    # an id that a bag holds twice counts once
    "embedding bag with an id twice": lambda: (Bag("sum"), torch.tensor([[1, 1, 2]]).repeat(EXAMPLES, 1)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_where_opacus_differs_we_have_the_gradients_of_autograd(name: str) -> None:
    model, inputs = DIFFERENT[name]()
    forward: Forward = lambda module: module(inputs)  # noqa: E731
    norms, sums, bound = ours(model, forward, None)
    truth = loop(model, forward, bound)
    assert_same((norms, sums), truth)
    for mode in MODES:
        their_norms, _ = opacus(copy.deepcopy(model), forward, bound, mode)
        assert ((their_norms / truth[0] - 1).abs() > 1e-3).any()


def test_where_opacus_attends_in_another_way_we_attend_as_torch_does() -> None:
    """With `batch_first` and several heads, its attention puts the heads' results together in another order."""
    mine, theirs = attention_pair(2, batch_first=True)
    values = torch.randn(EXAMPLES, 5, 8)
    forward: Forward = lambda module: module(values, values, values)[0]  # noqa: E731
    assert (forward(theirs) - forward(mine)).abs().max() > 0.1
    norms, sums, bound = ours(mine, forward, None)
    assert_same((norms, sums), loop(mine, forward, bound))
