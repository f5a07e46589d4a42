"""What a model computes once for all examples, and examples that are joined with the dimension behind them."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.per_example import Recording, covered

_WORDS, _LENGTH, _WIDTH, _HEADS = 12, 5, 6, 2


class Positions(nn.Module):
    """Positions [T] are looked up once; a layer norm and a linear layer work on them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(_WORDS, _WIDTH), nn.Embedding(9, _WIDTH)
        self.norm, self.shift, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)

    def forward(self, words: Tensor) -> Tensor:
        places = self.shift(self.norm(self.places(torch.arange(words.shape[1]))).tanh())
        return self.head((self.words(words) + places).tanh()).sum(dim=(1, 2))


class RelativePlaces(nn.Module):
    """Attention with a bias [T, T, H] that is looked up once, in T5's way."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bias = nn.Embedding(_WORDS, _WIDTH), nn.Embedding(2 * _LENGTH, _HEADS)
        self.project, self.head = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, 1)

    def forward(self, words: Tensor) -> Tensor:
        steps = torch.arange(words.shape[1])
        bias = self.bias(steps[:, None] - steps[None, :] + _LENGTH).permute(2, 0, 1).unsqueeze(0)
        parts = self.project(self.words(words)).chunk(3, dim=2)
        query, key, value = (part.unflatten(2, (_HEADS, -1)).transpose(1, 2) for part in parts)
        scores = query @ key.mT
        scores += bias
        return self.head((scores.softmax(-1) @ value).transpose(1, 2).flatten(2)).sum(dim=(1, 2))


class Scales(nn.Module):
    """Parameters of several shapes beside layers: a scale [D], a table that is indexed, a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(_WORDS, _WIDTH), nn.Linear(_WIDTH, 1)
        self.scale = nn.Parameter(torch.rand(_WIDTH))
        self.table = nn.Parameter(torch.randn(7, _WIDTH))
        self.matrix = nn.Parameter(torch.randn(_WIDTH, _WIDTH))

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.words(words) * self.scale + self.table[torch.arange(words.shape[1]) + 1]
        return self.head((hidden @ self.matrix).tanh()).sum(dim=(1, 2))


class Joined(nn.Module):
    """Layers between which examples and words are one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bias = nn.Embedding(_WORDS, _WIDTH), nn.Parameter(torch.randn(1, _WIDTH))
        self.norm, self.one, self.two = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.norm(self.words(words).flatten(0, 1)) + self.bias
        return self.two(self.one(hidden).tanh()).view(words.shape).square().sum(dim=1)


class Turned(Joined):
    """The same, but words come before examples."""

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.norm(self.words(words).transpose(0, 1).flatten(0, 1)) + self.bias
        return self.two(self.one(hidden).tanh()).view(words.T.shape).square().sum(dim=0)


@pytest.mark.parametrize("kind", [Positions, RelativePlaces, Scales, Joined])
def test_what_examples_share_counts_for_each(against_loop, kind) -> None:
    model = kind()
    for examples in (1, 4):
        against_loop(model, model, (torch.randint(_WORDS, (examples, _LENGTH)),))


@pytest.mark.parametrize("kind", [Positions, RelativePlaces, Scales, Joined])
def test_as_many_places_as_examples_change_nothing_once_the_layers_were_seen(kind) -> None:
    torch.manual_seed(0)
    model = kind()
    words = torch.randint(_WORDS, (_LENGTH, _LENGTH))
    layers = self_check(model, model, words).layers
    with Recording(layers, examples=_LENGTH) as recording:
        recording.backward(model(words))
    together = recording.per_example()
    for index in range(_LENGTH):
        expected = torch.autograd.grad(model(words[index : index + 1]).sum(), recording.parameters)
        for found, wanted in zip(together, expected, strict=True):
            torch.testing.assert_close(found[index].view_as(wanted), wanted, rtol=1e-4, atol=1e-5)


def test_rows_in_another_order_than_the_examples_are_refused() -> None:
    torch.manual_seed(0)
    model = Turned()
    with pytest.raises(InputError, match=r"examples of a batch are coupled|differs from autograd"):
        self_check(model, model, torch.randint(_WORDS, (8, _LENGTH)))


def test_another_number_of_rows_than_before_is_refused() -> None:
    model = Joined()
    layers = covered(model)
    for length in (_LENGTH, _LENGTH + 1):
        words = torch.randint(_WORDS, (2, length))
        with Recording(layers, examples=2) as recording:
            if length == _LENGTH:
                recording.backward(model(words))
                continue
            with pytest.raises(InputError, match=r"6 rows in dimension 0 for each example, and 5"):
                model(words)


class Constant(nn.Module):
    """Waves [T, D], which no example has a part in, beside a scale [D]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(_WORDS, _WIDTH), nn.Linear(_WIDTH, 1)
        self.scale = nn.Parameter(torch.rand(_WIDTH))

    def forward(self, words: Tensor) -> Tensor:
        waves = torch.linspace(0, 3, words.shape[1] * _WIDTH).sin().view(-1, _WIDTH)
        return self.head(self.words(words) + waves * self.scale).square().sum(dim=(1, 2))


def test_a_constant_with_as_many_rows_as_examples_is_never_taken_for_them(against_loop) -> None:
    model, length = Constant(), 11  # the self-check tries no batch of eleven
    layers = self_check(model, model, torch.randint(_WORDS, (8, length))).layers
    words = torch.randint(_WORDS, (length, length))
    with (
        pytest.raises(InputError, match=f"a constant of the model has {length} rows"),
        Recording(layers, examples=length) as recording,
    ):
        recording.backward(model(words))
    against_loop(model, model, (words[:-1],))


class Tied(nn.Module):
    """A layer's bias has a second name in the module around it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.bias = self.head.bias

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(values), labels, reduction="none")


def test_a_parameter_with_a_second_name_counts_once(against_loop) -> None:
    model = Tied()
    against_loop(model, model, (torch.randn(4, 4), torch.randint(3, (4,))))


def test_a_layers_parameter_that_the_module_around_it_uses_too_is_refused() -> None:
    class Twice(Tied):
        def forward(self, values: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(self.head(values) + self.bias, labels, reduction="none")

    model = Twice()
    with pytest.raises(InputError, match="used outside its layer's forward pass"):
        self_check(model, lambda batch: model(*batch), (torch.randn(4, 4), torch.randint(3, (4,))))
