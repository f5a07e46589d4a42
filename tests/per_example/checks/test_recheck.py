"""Coupling that begins while training stops the run; round-off does not."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato._check import InputError
from sfumato.per_example import Recheck, Recording, self_check
from sfumato.per_example.checks.recheck import Measure


class Model(nn.Module):
    """Two layers; from some call on, something happens between them."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.between, self.late = nn.Linear(6, 8), nn.Linear(8, 3), between, False

    def forward(self, values: Tensor) -> Tensor:
        hidden = F.dropout(self.one(values).tanh(), 0.3)
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
        recheck.while_training(step, 40, measure)


@pytest.mark.parametrize("kind", LATE)
def test_coupling_that_begins_while_training_stops_the_run(kind: str, batch) -> None:
    model = Model(LATE[kind])
    recheck, measure, _ = rechecked(model, batch)
    train(recheck, measure, 5)
    recheck.at_start(40, measure)
    model.late = True
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        recheck.at_start(40, measure)
    with pytest.raises(InputError, match=r"at step \d+ .*coupled"):
        train(recheck, measure, 1100)


def test_it_looks_seldom_and_leaves_everything_as_it_was(batch) -> None:
    model = Model()
    recheck, measure, sizes = rechecked(model, batch)
    before, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    train(recheck, measure, 1000)
    assert sizes.count(40) == sizes.count(1) == 11
    assert sum(sizes) <= 0.02 * 40 * 1000
    recheck.while_training(1, 1, measure)
    recheck.at_start(1, measure)
    assert len(sizes) == 22
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("double", [True, False])
def test_round_off_is_looked_at_twice_and_stops_nothing(double: bool, batch) -> None:
    """A batch and a single example may be computed in different ways."""
    recheck, measure, sizes = rechecked(Model(), batch)
    recheck._check = dataclasses.replace(recheck._check, double=double)

    def rough(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        losses, squares = measure(places)
        single = losses.dtype == torch.float32
        return losses, squares * (1.1 if single and len(places) == 1 else 1.0)

    recheck.while_training(1, 40, rough)
    assert sizes[:2] == [40, 1]
    assert sizes[2:] == ([40, 1] if double else [40])


def test_little_memory_makes_it_look_at_fewer(batch) -> None:
    recheck, measure, sizes = rechecked(Model(), batch)

    def small(places: Sequence[int]) -> tuple[Tensor, Tensor]:
        if len(places) > 12:
            raise RuntimeError("can't allocate memory")
        return measure(places)

    recheck.at_start(40, small)
    assert sizes[0] == 10
    assert sizes[1:4] == [10, 5, 5]
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
