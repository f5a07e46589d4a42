"""The statement tells of looks while training as they were."""

import dataclasses
from typing import Any

import pytest

from adversarial.specimens import PLAN, Dense, as_data, numbers
from sfumato.per_example import Recheck
from sfumato.per_example.checks import recheck


@pytest.mark.parametrize(("steps", "told"), [(1, ""), (2, "at one step"), (6, "at 3 of the steps")])
def test_the_statement_tells_of_the_looks_that_there_were(steps, told, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    compared = recheck._one
    monkeypatch.setattr(recheck, "_one", lambda losses, step: (looks.append(step), compared(losses, step))[1])
    plan = dataclasses.replace(PLAN, steps=steps, batch_size=48)  # everybody in each step
    statement = plan.fit(Dense(), as_data(numbers())).statement
    line = next(each for each in statement.assumptions if each.startswith("No example changes"))
    assert looks == [step for step in range(steps) if Recheck.due(step)]
    assert ("while training" in line) == bool(looks)
    assert told in line


def test_a_step_that_drew_one_example_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nobody beside it; the sentence says where there were two."""
    looks: list[Any] = []
    monkeypatch.setattr(recheck, "_one", lambda *given: looks.append(given))
    statement = dataclasses.replace(PLAN, micro_batch=1).fit(Dense(), as_data(numbers())).statement
    assert not looks
    assert any("wherever there were two at once" in each for each in statement.assumptions)
