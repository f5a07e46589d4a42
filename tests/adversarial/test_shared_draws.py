"""Random numbers that the examples of a micro-batch share, or that are mixed among them, are refused.

Who shares a number changes when an example comes or goes: the sum then moves by more than the clip norm.
"""

import dataclasses
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adversarial.random_specimens import MIXED, OWN, SHARED
from adversarial.specimens import CLASSES, PLAN, WORDS, Dense, as_data, each, largest_move, losses_of, numbers, texts
from sfumato._check import InputError
from sfumato.guard import self_check
from slow import one_in


@pytest.mark.parametrize("kind", ["a gate", "a mask of the units", "a block that the batch skips", "a direction"])
def test_a_shared_draw_moves_the_sum_by_more_than_the_clip_norm(kind: str) -> None:
    assert largest_move(SHARED[kind], each, numbers(), micro_batch=4) > 1.5


@pytest.mark.parametrize("kind", SHARED)
def test_a_shared_draw_is_refused(kind: str) -> None:
    model = SHARED[kind]()
    states = torch.get_rng_state(), random.getstate()
    with pytest.raises(InputError, match=r"shared|Python's random|seeds torch's generator"):
        self_check(model, losses_of(model, each), numbers())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_shared_draw_in_the_loss_is_refused() -> None:
    model = Dense()
    with pytest.raises(InputError, match="own forward or the loss"):
        self_check(model, lambda batch: each(model(batch[0]), batch[1]) * torch.rand(1), numbers())


@pytest.mark.parametrize(("precision", "kind"), one_in(4, ["float32", "bfloat16"], [*SHARED, *MIXED]))
def test_it_is_refused_before_the_first_step(precision: Any, kind: str) -> None:
    plan = dataclasses.replace(PLAN, precision=precision)
    with pytest.raises(InputError, match=r"shared|Python's random|seeds torch's generator|reach others"):
        plan.fit({**SHARED, **MIXED}[kind](), as_data(numbers()))


@pytest.mark.parametrize("kind", MIXED)
def test_mixing_the_draws_of_examples_moves_the_sum_by_more_than_the_clip_norm(kind: str) -> None:
    assert largest_move(MIXED[kind], each, numbers()) > 1.005


@pytest.mark.parametrize(("precision", "kind"), one_in(4, ["float32", "bfloat16"], OWN))
def test_a_draw_for_each_example_trains(precision: Any, kind: str) -> None:
    dataclasses.replace(PLAN, precision=precision).fit(OWN[kind](), as_data(numbers()))


@pytest.mark.parametrize("kind", OWN)
def test_a_draw_for_each_example_is_accepted(kind: str) -> None:
    model = OWN[kind]()
    self_check(model, losses_of(model, each), numbers())


def test_a_transformer_with_dropout_is_accepted() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            mixed = self.layer(self.table(ids), src_key_padding_mask=(ids == 0) & (torch.arange(ids.shape[1]) > 0))
            return self.head(mixed.mean(dim=1))

    torch.manual_seed(0)
    model = Model()
    assert self_check(model, losses_of(model, each), texts()).double
