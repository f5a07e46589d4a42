"""Coupling that begins while training stops the run; round-off does not."""

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
from sfumato.per_example import Recording

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
def batch() -> tuple[Tensor, Tensor]:
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
def test_coupling_that_begins_while_training_stops_the_run(kind: str, dropout: float, batch) -> None:
    model = Model(LATE[kind], dropout)
    recheck, measure, _ = rechecked(model, batch)
    train(recheck, measure, 5)
    recheck.at_start(40, measure)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
    with pytest.raises(InputError, match=r"at step \d+ .*coupled"):
        train(recheck, measure, 1100)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_it_looks_seldom_and_leaves_everything_as_it_was(dropout: float, batch) -> None:
    """What a step had is enough where nothing is drawn; otherwise the micro-batch is computed once more."""
    model = Model(dropout=dropout)
    recheck, measure, sizes = rechecked(model, batch)
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


def test_what_a_step_had_is_what_is_compared(batch) -> None:
    """It was another one than the same examples give afterwards: something was kept between the two."""
    recheck, measure, _ = rechecked(Model(dropout=0.0), batch)
    losses, squares = measure(range(40))
    recheck.while_training(1, (losses, squares), measure)
    with pytest.raises(InputError, match=r"at step 1 the same examples gave something else .*coupled"):
        recheck.while_training(1, (losses, 1.1 * squares), measure)


@pytest.mark.parametrize("part", [nn.LSTM(6, 6, 2, dropout=0.5), nn.MultiheadAttention(6, 2, dropout=0.5)])
def test_dropout_that_shows_in_no_operation_is_not_compared_with_a_step(part: nn.Module, batch) -> None:
    model = Model(dropout=0.0)
    model.inner = part
    recheck, measure, sizes = rechecked(model, batch)
    losses, squares = measure(range(40))
    sizes.clear()
    recheck.while_training(1, (2 * losses, 2 * squares), measure)
    assert sizes == [40, 1]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("double", [True, False])
def test_round_off_is_looked_at_twice_and_stops_nothing(double: bool, dropout: float, batch) -> None:
    """A batch and a single example may be computed in different ways."""
    recheck, measure, sizes = rechecked(Model(dropout=dropout), batch)
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


def test_little_memory_makes_it_look_at_fewer(batch) -> None:
    recheck, measure, sizes = rechecked(Model(), batch)

    def small(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        if len(places) > 12:
            raise RuntimeError("can't allocate memory")
        return measure(places)

    recheck.at_start(40, small)
    assert sizes[0] == 10
    assert sizes[1:5] == [10, 2, 5, 5]
    assert sizes.count(1) == 4


@pytest.mark.parametrize("double", [True, False])
def test_room_for_most_of_a_full_micro_batch_is_too_little(double: bool, batch) -> None:
    """Two of forty go without: few examples by themselves would seldom tell."""
    model = Model(lambda h: h * (torch.arange(len(h)) < 38)[:, None])
    recheck, measure, _ = rechecked(model, batch)
    recheck._check = dataclasses.replace(recheck._check, double=double)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
