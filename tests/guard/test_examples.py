"""The check of models and losses on placeholder examples, on double precision and on fresh copies."""

import errno
import os

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.guard.examples import self_check
from sfumato.guard.guard import histories
from sfumato.guard.trial import on_processor, other_device

# What the check at the start lets pass, and what it refuses by name.


def network(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), *extra, nn.Linear(6, 3))


def losses_of(model: nn.Module):
    return lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, 4), torch.randint(3, (5,))


def test_a_sound_model_passes(batch) -> None:
    model = network(nn.LayerNorm(6), nn.Dropout(0.5))
    found = self_check(model, losses_of(model), batch)
    assert [layer.name for layer in found.layers] == ["0", "2", "4"]
    assert found.largest_difference < 1e-5
    assert found.unused == []
    assert model.training


def test_one_example_is_enough(batch) -> None:
    model = network()
    self_check(model, losses_of(model), (batch[0][:1], batch[1][:1]))


def test_the_generators_and_the_buffers_are_left_alone(batch) -> None:
    model = network(nn.Dropout(0.5), nn.BatchNorm1d(6).eval().requires_grad_(False))
    state = torch.get_rng_state()
    buffers = [buffer.clone() for buffer in model.buffers()]
    self_check(model, losses_of(model), batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(old, new) for old, new in zip(buffers, model.buffers(), strict=True))


class OverTheBatch(nn.Module):
    """Attention of the examples to each other."""

    def forward(self, values: Tensor) -> Tensor:
        return (values @ values.T).softmax(dim=1) @ values


class Centred(nn.Module):
    """Takes a mean over the batch away, hidden from autograd."""

    def forward(self, values: Tensor) -> Tensor:
        return values - values.mean(dim=0).detach()


@pytest.mark.parametrize("coupling", [OverTheBatch(), Centred()])
def test_coupling_is_refused_by_the_name_of_the_module(coupling: nn.Module, batch) -> None:
    model = nn.Sequential(nn.Linear(4, 4), network(nn.Sequential(nn.Identity(), coupling)))
    with pytest.raises(InputError, match=r"layer '1\.2\.1'.*coupled"):
        self_check(model, losses_of(model), batch)


def test_coupling_is_seen_where_only_one_example_is_given(batch) -> None:
    model = network(OverTheBatch())
    with pytest.raises(InputError, match=r"layer '2'.*coupled"):
        self_check(model, losses_of(model), (batch[0][:1], batch[1][:1]))


def test_coupling_in_the_loss_is_refused(batch) -> None:
    model = network()

    def contrast(batch: tuple[Tensor, Tensor]) -> Tensor:
        outputs = model(batch[0])
        return (outputs @ outputs.T).logsumexp(dim=1)

    with pytest.raises(InputError, match="look at the loss"):
        self_check(model, contrast, batch)


def test_a_parameter_in_the_loss_is_refused(batch) -> None:
    model = network()
    plain = losses_of(model)
    with pytest.raises(InputError, match=r"'2\.weight' is used outside .*weight decay"):
        self_check(model, lambda batch: plain(batch) + 1e-6 * model[2].weight.square().sum(), batch)


class Functional(nn.Module):
    """Uses a layer's weight without its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3, bias=False)
        self.second = nn.Linear(3, 3)

    def forward(self, values: Tensor) -> Tensor:
        return self.second(F.linear(values, self.layer.weight))


def test_a_weight_that_is_used_without_its_layer_is_refused(batch) -> None:
    model = Functional()
    with pytest.raises(InputError, match=r"'layer\.weight' is used outside"):
        self_check(model, losses_of(model), batch)


def test_a_layer_that_a_hook_changes_is_refused(batch) -> None:
    model = network()
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1.0,))
    self_check(model, losses_of(model), batch)
    model[0].weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(InputError, match=r"'0\.weight'.*differs from autograd's"):
        self_check(model, losses_of(model), batch)


class Repeated(nn.Module):
    """A token that cannot be replaced by copies, one for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 2, 4))
        self.layer = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        tokens = self.token.repeat(len(values), 1, 1)
        return self.layer(torch.cat([tokens, values[:, None]], dim=1)).tanh().mean(dim=1)


def test_where_copies_do_not_work_the_module_runs_again(batch) -> None:
    model = Repeated()
    found = self_check(model, losses_of(model), batch)
    assert {type(layer.rule).__name__ for layer in found.layers} == {"AroundFallbackRule", "LinearRule"}
    assert isinstance(model.token, nn.Parameter)


class Noisy(nn.Module):
    """Sampled noise and functional dropout, as in a variational model."""

    def forward(self, values: Tensor) -> Tensor:
        return F.dropout(values + torch.randn_like(values) * 0.3, 0.4, self.training)


def test_random_models_meet_the_same_numbers(batch) -> None:
    model = network(Noisy())
    assert self_check(model, losses_of(model), batch).largest_difference < 1e-5


def test_transformers_and_recurrent_layers_pass_with_dropout() -> None:
    torch.manual_seed(0)
    words = nn.Embedding(20, 8)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    recurrent = nn.LSTM(8, 5, num_layers=2, dropout=0.3, batch_first=True, bidirectional=True)
    model = nn.ModuleList([words, layer, recurrent])

    def losses(batch: Tensor) -> Tensor:
        return recurrent(layer(words(batch)))[0].sum(dim=(1, 2))

    self_check(model, losses, torch.randint(20, (3, 6)))
    assert (layer.self_attn.dropout, recurrent.dropout) == (0.2, 0.3)


def test_unused_parameters_are_told(batch) -> None:
    model = network()
    model.idle = nn.Linear(2, 2)
    model.forward = lambda values: model[2](model[1](model[0](values)))  # type: ignore[method-assign]
    assert self_check(model, losses_of(model), batch).unused == ["idle.bias", "idle.weight"]


def test_a_mean_loss_an_empty_batch_and_nan_are_refused(batch) -> None:
    model = network()
    with pytest.raises(InputError, match="reduction='none'"):
        self_check(model, lambda batch: F.cross_entropy(model(batch[0]), batch[1]), batch)
    with pytest.raises(InputError, match="empty batch"):
        self_check(model, losses_of(model), (batch[0][:0], batch[1][:0]))
    with pytest.raises(InputError, match="not finite"):
        self_check(model, losses_of(model), (batch[0] * float("nan"), batch[1]))


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_forward_of_this_instance_is_the_one_that_is_trained_and_stays(kind: type, batch) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = kind(4, 4, batch_first=True), nn.Linear(4, 3)
            own = self.rnn.forward
            self.rnn.forward = lambda values, initial=None: own(3 * values, initial)

        def forward(self, values: Tensor) -> Tensor:
            return self.head(self.rnn(values[:, None])[0][:, 0])

    model = Model()
    own = model.rnn.forward
    plain = model(batch[0])
    if kind is nn.LSTM:
        self_check(model, losses_of(model), batch)
    else:  # torch cannot run it for each example by itself
        with pytest.raises(InputError, match="layer 'rnn'"):
            self_check(model, losses_of(model), batch)
    assert model.rnn.forward is own
    assert torch.equal(model(batch[0]), plain)


def test_targets_that_are_numbers_are_widened_with_the_model(batch) -> None:
    model = network()
    targets = torch.randn(5, 3)
    check = self_check(
        model, lambda rows: F.mse_loss(model(rows[0]), rows[1], reduction="none").sum(dim=1), (batch[0], targets)
    )
    assert check.double


# Fresh processes: what becomes of a trial where none can be had.


@pytest.mark.parametrize("left", [0, 1])
def test_no_more_processes_is_no_trial_and_no_traceback(monkeypatch: pytest.MonkeyPatch, left: int):
    fork, begun = os.fork, []

    def limited() -> int:
        begun.append(1)
        if len(begun) > left:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    before = len(os.listdir("/proc/self/fd"))
    assert histories([lambda: 1, lambda: 2]) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_trial_that_raises_is_none():
    assert histories([lambda: 1, lambda: 1 / 0]) is None
    assert histories([lambda: 1, lambda: 2]) == [1, 2]


# Rows that nobody gave go through a model on the processor before they meet a GPU.

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Clicks(nn.Module):
    """Places of a table in a column of real numbers, of which a made-up row holds some that are outside."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 3)
        self.head = nn.Linear(4, 1)

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([columns[:, :1], self.table(columns[:, 1].long())], dim=1)).squeeze(1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_model_that_reads_places_from_real_numbers_is_checked(device: str) -> None:
    torch.manual_seed(0)
    model = Clicks().to(device)
    rows = torch.stack([torch.randn(16), torch.arange(16) % 7], dim=1).to(device)
    self_check(model, lambda batch: F.softplus(model(batch)), rows)
    assert model(rows).isfinite().all()


def test_the_tensors_are_those_that_they_were() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = [(tensor, tensor.data_ptr()) for tensor in (*model.parameters(), *model.buffers())]
    with pytest.raises(ValueError, match="a test"), on_processor(model):
        raise ValueError("a test")
    assert all(tensor.data_ptr() == place for tensor, place in before)


def test_a_place_outside_a_table_is_no_matter_of_devices() -> None:
    with pytest.raises(IndexError) as raised:
        Clicks()(torch.tensor([[0.0, 9.0]]))
    assert not other_device(raised.value)
    assert other_device(RuntimeError("Expected all tensors to be on the same device, but got cpu and cuda:0"))
