"""Recurrent layers against a loop over examples, and against torch's own forward pass."""

import gc

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sfumato.per_example import Recording, covered
from sfumato.per_example.recurrent import Steps

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


def check(model: nn.Module, values: Tensor, lengths: Tensor | None = None) -> None:
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
def test_every_kind(kind: type, bidirectional: bool, layers: int, batch_first: bool) -> None:
    torch.manual_seed(1)
    recurrent = kind(5, 7, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first)
    check(Tagger(recurrent, 14 if bidirectional else 7), torch.randn(4, 6, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_sequences(kind: type) -> None:
    torch.manual_seed(2)
    recurrent = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    check(Tagger(recurrent, 14), torch.randn(4, 6, 5), torch.tensor([3, 6, 1, 4]))


def test_without_biases_and_with_another_nonlinearity() -> None:
    torch.manual_seed(3)
    check(Tagger(nn.RNN(5, 7, nonlinearity="relu", bias=False, batch_first=True), 7), torch.randn(4, 6, 5))
    check(Tagger(nn.GRU(5, 7, bias=False, batch_first=True), 7), torch.randn(4, 6, 5))


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
    check(Continued(), torch.randn(4, 6, 5))


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
