"""Ordinary models and losses in which one example changes another one's gradient: each moves the sum by more than C.

Every case comes with a sibling that does the same for each example by itself, and that must be accepted.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adversarial.specimens import (
    COUPLED,
    PLAN,
    PUT_BACK,
    UNCOUPLED,
    UNMEASURED,
    Dense,
    as_data,
    branch,
    each,
    extreme,
    largest_move,
    losses_of,
    numbers,
)
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.guard import self_check
from slow import one_in


@pytest.mark.parametrize("kind", [kind for kind in COUPLED if kind not in UNMEASURED])
def test_one_example_moves_the_sum_by_more_than_the_clip_norm(kind: str) -> None:
    """So these are not false alarms."""
    build, loss, data = COUPLED[kind]
    assert largest_move(build, loss, extreme(data(), kind)) > 1.005


@pytest.mark.parametrize("kind", UNCOUPLED)
def test_without_coupling_it_moves_by_no_more(kind: str) -> None:
    build, loss, data = UNCOUPLED[kind]
    assert largest_move(build, loss, data()) <= 1 + 1e-4


@pytest.mark.parametrize("kind", COUPLED)
def test_coupling_is_refused(kind: str) -> None:
    build, loss, data = COUPLED[kind]
    model = build()
    with pytest.raises(InputError, match="coupled"):
        self_check(model, losses_of(model, loss), data())


@pytest.mark.parametrize(
    ("precision", "kind"), one_in(4, ["float32", "bfloat16"], [kind for kind in COUPLED if kind not in PUT_BACK])
)
def test_coupling_is_refused_before_the_first_step(precision: Any, kind: str) -> None:
    build, loss, data = COUPLED[kind]
    with pytest.raises(InputError, match="coupled"):
        dataclasses.replace(PLAN, precision=precision).fit(build(), as_data(data()), loss=loss)


@pytest.mark.parametrize(("precision", "kind"), one_in(4, ["float32", "bfloat16"], UNCOUPLED))
def test_its_sibling_trains(precision: Any, kind: str) -> None:
    build, loss, data = UNCOUPLED[kind]
    dataclasses.replace(PLAN, precision=precision).fit(build(), as_data(data()), loss=loss)


def test_a_branch_on_a_full_micro_batch_is_refused() -> None:
    """The self-check's own batches are smaller."""
    plan = dataclasses.replace(PLAN, micro_batch=128)
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        plan.fit(Dense(branch(lambda h: len(h) > 100)), as_data(numbers(200)))


def test_what_begins_at_a_later_step_stops_the_run() -> None:
    class Late(Dense):
        calls = 0

        def forward(self, values: Tensor) -> Tensor:
            Late.calls += 1
            hidden = self.one(values).tanh()
            return self.two(hidden - hidden.mean(dim=0).detach() if Late.calls > 3000 else hidden)

    plan = dataclasses.replace(PLAN, steps=100, micro_batch=8)
    contribution = plan.contribution(Late(), as_data(numbers()), "cpu", 0)
    source, theta = RandomSource.from_seed(0), contribution.trained.initial
    cohort = plan.grouping.group(np.arange(48), 0, source)
    contribution.clipped_sum(theta, cohort, 8, plan.bound, 1.0, source, None)
    Late.calls = 3001
    contribution.clipped_sum(theta, cohort, 9, plan.bound, 1.0, source, None)  # nobody looks
    with pytest.raises(InputError, match=r"at step 16 .*coupled"):
        contribution.clipped_sum(theta, cohort, 16, plan.bound, 1.0, source, None)


@pytest.mark.parametrize("kind", UNCOUPLED)
def test_its_sibling_is_accepted(kind: str) -> None:
    build, loss, data = UNCOUPLED[kind]
    model = build()
    assert self_check(model, losses_of(model, loss), data()).double


@pytest.mark.parametrize("share", [0.05, 1e-3])
def test_half_precision_hides_no_coupling(share: float) -> None:
    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(batch[0])
        return each(scores.float(), batch[1])

    model = Dense(lambda h: h - share * h.mean(dim=0).detach())
    with pytest.raises(InputError, match="coupled"):
        self_check(model, losses, numbers())
    model = Dense()
    found = self_check(model, losses, numbers())
    assert found.half
    assert found.double
