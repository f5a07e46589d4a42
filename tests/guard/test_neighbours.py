"""What one example does to its neighbours in a batch, in a trial and in real steps."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.guard import Recheck, due, self_check
from sfumato.guard.recheck import Measure
from sfumato.guard.trial import shaken
from sfumato.per_example import Recording, covered
from sfumato.per_example.workspace import out_of_memory

# An example's gradient is the same whoever else is in the batch, or the model is refused.


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
    with pytest.raises(InputError, match="3 rows in dimension 0 for each example, and 1"):
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


# Coupling that begins while training stops the run; round-off does not.

SOURCE = RandomSource.from_seed(3)


class Model(nn.Module):
    """Two layers; from some call on, something happens between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.tanh, dropout: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.between, self.late = nn.Linear(6, 8), nn.Linear(8, 3), between, False
        self.dropout = dropout

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.one(values).tanh()
        hidden = F.dropout(hidden, self.dropout) if self.dropout else hidden
        return self.two(self.between(hidden) if self.late else hidden)


@pytest.fixture
def forty() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(40, 6), torch.arange(40) % 3


def rechecked(model: Model, batch: tuple[Tensor, Tensor]):
    """A `Recheck` of the model after the self-check, and the measure of the batch."""

    def losses(some: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(some[0]), some[1], reduction="none")

    check = self_check(model, losses, batch)
    sizes: list[int] = []

    def measure(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        sizes.append(len(places))
        at = torch.tensor(list(places))
        with Recording(check.layers, examples=len(at)) as recording:
            found = losses((batch[0][at], batch[1][at]))
            recording.backward(found)
        return found.detach(), recording.squared_norms()

    return Recheck(model, check), measure, sizes


LATE = {
    "a mean": lambda h: h - 0.1 * h.mean(dim=0).detach(),
    "the hardest": lambda h: h * (h.norm(dim=1) >= h.norm(dim=1).topk(min(30, len(h))).values[-1])[:, None],
    "a hook": lambda h: h if not h.requires_grad else _hooked(h),
}


def _hooked(hidden: Tensor) -> Tensor:
    hidden.register_hook(lambda gradient: gradient / gradient.norm())
    return hidden


def train(recheck: Recheck, measure: Measure, steps: int) -> None:
    for step in range(steps):
        if due(step, steps, SOURCE):
            recheck.while_training(step, measure(range(40)), measure)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", LATE)
def test_coupling_that_begins_while_training_stops_the_run(kind: str, dropout: float, forty) -> None:
    model = Model(LATE[kind], dropout)
    recheck, measure, _ = rechecked(model, forty)
    train(recheck, measure, 5)
    recheck.at_start(40, measure)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
    with pytest.raises(InputError, match=r"at step \d+ .*coupled"):
        train(recheck, measure, 1100)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_it_looks_seldom_and_leaves_everything_as_it_was(dropout: float, forty) -> None:
    """What a step had is enough where nothing is drawn; otherwise the micro-batch is computed once more."""
    model = Model(dropout=dropout)
    recheck, measure, sizes = rechecked(model, forty)
    had, before, state = measure(range(40)), [p.clone() for p in model.parameters()], torch.get_rng_state()
    sizes.clear()
    looks = [step for step in range(1000) if due(step, 1000, SOURCE)]
    for step in looks:
        recheck.while_training(step, had, measure)
    assert sizes.count(1) == len(looks)
    assert sizes.count(40) == (len(looks) if dropout else 0)
    looked = len(sizes)
    recheck.while_training(1, (had[0][:1], had[1][:1]), measure)
    recheck.at_start(1, measure)
    assert len(sizes) == looked
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_looks_are_seldom_come_by_chance_and_never_leave_out_the_ends() -> None:
    """Of 1,000 steps some 38 are looked at, half of them by fresh processes; each later step has a chance of 1/64."""
    runs = [[step for step in range(1000) if due(step, 1000, RandomSource.from_seed(seed))] for seed in range(40)]
    assert all({0, 999} <= set(looks) for looks in runs)
    assert 33 < sum(map(len, runs)) / len(runs) < 43
    assert len({step for looks in runs for step in looks if step > 500}) > 200
    seldom = [
        sum(due(step, 1000, RandomSource.from_seed(seed), seldom=True) for step in range(1000)) for seed in range(40)
    ]
    assert 16 < sum(seldom) / len(seldom) < 23


def test_what_a_step_had_is_what_is_compared(forty) -> None:
    """It was another one than the same examples give afterwards: something was kept between the two."""
    recheck, measure, _ = rechecked(Model(dropout=0.0), forty)
    losses, squares = measure(range(40))
    recheck.while_training(1, (losses, squares), measure)
    with pytest.raises(InputError, match=r"at step 1 the same examples gave something else .*coupled"):
        recheck.while_training(1, (losses, 1.1 * squares), measure)


@pytest.mark.parametrize("part", [nn.LSTM(6, 6, 2, dropout=0.5), nn.MultiheadAttention(6, 2, dropout=0.5)])
def test_dropout_that_shows_in_no_operation_is_not_compared_with_a_step(part: nn.Module, forty) -> None:
    model = Model(dropout=0.0)
    model.inner = part
    recheck, measure, sizes = rechecked(model, forty)
    losses, squares = measure(range(40))
    sizes.clear()
    recheck.while_training(1, (2 * losses, 2 * squares), measure)
    assert sizes == [40, 1]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("double", [True, False])
def test_round_off_is_looked_at_twice_and_stops_nothing(double: bool, dropout: float, forty) -> None:
    """A batch and a single example may be computed in different ways."""
    recheck, measure, sizes = rechecked(Model(dropout=dropout), forty)
    recheck._check = dataclasses.replace(recheck._check, double=double)

    def rough(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        losses, squares = measure(places)
        single = losses.dtype == torch.float32
        return losses, squares * (1.1 if single and len(places) == 1 else 1.0)

    recheck.while_training(1, measure(range(40)), rough)
    assert sizes[:1] == [40]  # the step
    looked = sizes[1:] if dropout else sizes[2:]  # without draws, one example is enough to begin with
    assert looked[:2] == [40, 1]
    assert looked[2:] == ([40, 1] if double else [40])


def test_little_memory_makes_it_look_at_fewer(forty) -> None:
    recheck, measure, sizes = rechecked(Model(), forty)

    def small(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        if len(places) > 12:
            raise RuntimeError("can't allocate memory")
        return measure(places)

    recheck.at_start(40, small)
    assert sizes[0] == 10
    assert sizes[1:5] == [10, 2, 5, 5]
    assert sizes.count(1) == 4


@pytest.mark.parametrize("double", [True, False])
def test_room_for_most_of_a_full_micro_batch_is_too_little(double: bool, forty) -> None:
    """Two of forty go without: few examples by themselves would seldom tell."""
    model = Model(lambda h: h * (torch.arange(len(h)) < 38)[:, None])
    recheck, measure, _ = rechecked(model, forty)
    recheck._check = dataclasses.replace(recheck._check, double=double)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
