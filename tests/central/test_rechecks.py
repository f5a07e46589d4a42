"""Looks at real steps while training: the first and the last one, others by chance, and what the statement says."""

import dataclasses
from typing import Any

import pytest

from adversarial.specimens import PLAN, Dense, as_data, numbers
from sfumato._random import RandomSource
from sfumato.guard import due, recheck


def test_the_steps_that_are_due_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    compared = recheck._one
    monkeypatch.setattr(recheck, "_one", lambda losses, step: (looks.append(step), compared(losses, step))[1])
    plan = dataclasses.replace(PLAN, steps=30, batch_size=48, micro_batch=16)  # everybody in each step
    statement = plan.fit(Dense(), as_data(numbers())).statement
    assert plan.seed is not None
    wanted = [step for step in range(30) if due(step, 30, RandomSource.from_seed(plan.seed))]
    assert {0, 29} < set(wanted)
    assert sorted(set(looks)) == wanted
    assert all(2 <= looks.count(step) <= 3 for step in wanted)  # the first micro-batch, the last, and one by chance
    line = next(each for each in statement.sentences if each.id == "examples_tried")
    assert "while training, in the first and the last step and in others" in line


def test_a_step_that_drew_one_example_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compare it with; the sentence says where there were two."""
    looks: list[Any] = []
    monkeypatch.setattr(recheck, "_one", lambda *given: looks.append(given))
    statement = dataclasses.replace(PLAN, micro_batch=1).fit(Dense(), as_data(numbers())).statement
    assert not looks
    assert "examples_tried" in [each.id for each in statement.sentences]
