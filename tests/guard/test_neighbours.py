"""An example's gradient is the same whoever else is in the batch, or the model is refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.guard import self_check
from sfumato.guard.state import shaken
from sfumato.per_example import covered
from sfumato.per_example.workspace import out_of_memory


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])


class Between(nn.Module):
    """Does something between two layers; the second one starts at zero, as heads and residual blocks do."""

    def __init__(self, step: Callable[[Tensor], Tensor], *, zero: bool = True) -> None:
        super().__init__()
        self.one, self.two, self.step = nn.Linear(6, 8), nn.Linear(8, 3), step
        if zero:
            nn.init.zeros_(self.two.weight)

    def forward(self, values: Tensor) -> Tensor:
        return self.two(self.step(self.one(values).tanh()))


def cross_entropy(model: nn.Module):
    return lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")


MIXING = {
    "mean": lambda h: h - h.mean(dim=0),
    "mean, hidden from autograd": lambda h: h - h.mean(dim=0).detach(),
    "softmax": lambda h: h.softmax(dim=0),
    "running sum": lambda h: h.cumsum(dim=0),
    "einsum": lambda h: torch.einsum("bi,bj,cj->ci", h, h, h),
    "neighbour": lambda h: h + h.roll(1, dims=0),
    "mirror": lambda h: h + h.flip(0),
    "layout": lambda h: h.T.reshape(len(h), -1),
    "order": lambda h: h.sort(dim=0).values,
    "mixture": lambda h: 0.7 * h + 0.3 * h[torch.randint(len(h), (len(h),))],
}


@pytest.mark.parametrize("kind", MIXING)
def test_a_last_layer_that_starts_at_zero_hides_no_coupling(kind: str, batch) -> None:
    model = Between(MIXING[kind])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError, match="coupled"):
        self_check(model, cross_entropy(model), batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("strength", [1.0, 1e-3])
def test_coupling_that_begins_with_three_examples_is_seen(strength: float, batch) -> None:
    model = Between(lambda h: h - strength * h.mean(dim=0).detach() if len(h) > 2 else h, zero=False)
    with pytest.raises(InputError, match="changes with the batch"):
        self_check(model, cross_entropy(model), batch)


def balanced(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores, labels, reduction="none") / torch.bincount(labels, minlength=3)[labels]


def hardest(scores: Tensor, labels: Tensor) -> Tensor:
    found = F.cross_entropy(scores, labels, reduction="none")
    return found * (found.detach() > found.detach().median())


@pytest.mark.parametrize("loss", [balanced, hardest])
def test_a_loss_that_couples_only_some_examples_is_seen(loss, batch) -> None:
    model = Between(torch.tanh, zero=False)
    with pytest.raises(InputError, match="coupled"):
        self_check(model, lambda given: loss(model(given[0]), given[1]), batch)


def test_a_hook_that_rescales_the_gradient_of_the_whole_batch_is_seen(batch) -> None:
    """Nothing of it shows in outputs, nor in the gradients of a single loss."""

    def hooked(hidden: Tensor) -> Tensor:
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient / (1e-6 + gradient.norm()))
        return hidden

    model = Between(hooked, zero=False)
    with pytest.raises(InputError, match="coupled"):
        self_check(model, cross_entropy(model), batch)


def test_a_batch_of_one_is_tried_before_it_comes(batch) -> None:
    """`squeeze` drops the examples' dimension when there is one example, which sampling decides."""
    torch.manual_seed(0)
    one, two = nn.Linear(2, 4), nn.Linear(4, 3)

    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = one, two

        def forward(self, values: Tensor) -> Tensor:
            scores = self.two(self.one(values.unflatten(1, (3, 2))).squeeze())
            return scores.reshape(len(values), 3, 3).mean(dim=1)

    model = Squeezed()
    with pytest.raises(InputError, match="3 rows in dimension 0 for each example, and had 1"):
        self_check(model, cross_entropy(model), batch)


def test_a_weight_that_must_stay_positive_is_checked_as_it_is(batch) -> None:
    class Positive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.root = nn.Linear(6, 3), nn.Parameter(torch.full((1, 3), 1e-6))

        def forward(self, values: Tensor) -> Tensor:
            return self.layer(values) * self.root.sqrt()

    model = Positive()
    self_check(model, cross_entropy(model), batch)
    assert (model.root == 1e-6).all()


def test_shaking_touches_no_generator_and_is_undone_after_an_error() -> None:
    weight = nn.Parameter(torch.randn(2, 3))
    before, state = weight.detach().clone(), torch.get_rng_state()
    with shaken([weight]):
        assert not torch.equal(weight, before)
    assert torch.equal(weight, before)
    with pytest.raises(IndexError), shaken([weight]):
        _ = [][0]
    assert torch.equal(weight, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("most", [2, 4])
def test_little_memory_makes_the_check_smaller(most: int, batch) -> None:
    class Small(Between):
        def forward(self, values: Tensor) -> Tensor:
            sizes.append(len(values))
            if len(values) > most:
                raise RuntimeError("can't allocate memory")
            return super().forward(values)

    sizes: list[int] = []
    model = Small(torch.tanh)
    self_check(model, cross_entropy(model), batch)
    assert out_of_memory(RuntimeError("can't allocate memory"))
    assert most in sizes
    assert 8 in sizes


class Counts(nn.Module):
    """Counts examples, or calls: both tell how many took part."""

    def __init__(self, *, calls: bool) -> None:
        super().__init__()
        self.layer, self.calls = nn.Linear(6, 3), calls
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        self.seen += 1 if self.calls else len(values)
        return self.layer(values)


@pytest.mark.parametrize("calls", [False, True])
def test_a_buffer_that_counts_is_refused_by_its_name(calls: bool, batch) -> None:
    model = Counts(calls=calls)
    with pytest.raises(InputError, match="'seen' changes"):
        self_check(model, cross_entropy(model), batch)
    assert model.seen == 0


def test_a_frozen_table_that_a_function_rescales_is_refused() -> None:
    class Rescaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = nn.Parameter(torch.ones(9, 4), requires_grad=False), nn.Linear(4, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.layer(F.embedding(ids, self.table, max_norm=1.0).mean(dim=1))

    model = Rescaled()
    with pytest.raises(InputError, match="'table' changes"):
        self_check(model, cross_entropy(model), (torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Embedding(9, 4, max_norm=1.0).requires_grad_(False),
        nn.EmbeddingBag(9, 4, max_norm=1.0).requires_grad_(False),
        nn.InstanceNorm1d(4, track_running_stats=True),
    ],
)
def test_frozen_layers_that_examples_change_are_refused_by_their_kind(layer: nn.Module) -> None:
    with pytest.raises(InputError, match="layer '0'"):
        covered(nn.Sequential(layer, nn.Linear(4, 3)))


def test_a_memory_of_the_batch_before_is_seen(batch) -> None:
    class Remembers(Between):
        bank: Tensor | float = 0.0

        def forward(self, values: Tensor) -> Tensor:
            hidden = self.one(values)
            found = self.two(hidden + self.bank)
            self.bank = hidden.mean(dim=0).detach()
            return found

    model = Remembers(torch.tanh)
    with pytest.raises(InputError, match="coupled"):
        self_check(model, cross_entropy(model), batch)


class RunningMean(nn.Module):
    """A home-made layer with statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("level", torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        self.level = 0.9 * self.level + 0.1 * values.mean().detach()
        return values - self.level


def test_statistics_that_move_are_refused_by_their_name(batch) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.ReLU(), RunningMean()), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"'1\.1\.level' changes"):
        self_check(model, cross_entropy(model), batch)
