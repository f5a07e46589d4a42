"""An attacker who knows all other records guesses from the released model whether one was there.

With coupled examples or shared draws the guess is right nearly always, at a guarantee that allows little more than a
coin; such a run is refused. What is accepted stays within the statement.
"""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from adversarial.specimens import COUPLED, UNCOUPLED, Loss, as_data, each, extreme
from sfumato._check import InputError
from sfumato.central import DPSGD, examples, gradients
from sfumato.guard import SelfCheck
from sfumato.per_example import covered

Batch = tuple[Tensor, Tensor]
RECORDS = 96
RUNS = 20  # with the record, and as many without
CONFIDENCE = 0.99


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as if nobody looked."""
    monkeypatch.setattr(examples, "first_look", lambda trained, *_: SelfCheck(covered(trained.model), [], 0.0))
    for check in ("at_start", "while_training"):
        monkeypatch.setattr(gradients.Recheck, check, lambda *_: None)


def plan_for(batch: Batch, seed: int, micro_batch: int | None = None) -> DPSGD:
    """One step with all examples, at ε = 1."""
    count = len(batch[1])
    plan = DPSGD(steps=1, batch_size=count, clip_norm=1.0, noise_multiplier=0.0, seed=seed, micro_batch=micro_batch)
    return plan.calibrate(epsilon=1.0, delta=1e-5, population=count)


def moved(plan: DPSGD, build: Callable[[], nn.Module], loss: Loss, batch: Batch) -> tuple[Tensor, float]:
    """Where the released model went, times the public size of the batch, and what an attacker's success may be."""
    model = build()
    before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    result = plan.fit(model, as_data(batch), loss=loss)
    after = torch.cat([parameter.detach().flatten() for parameter in result.model.parameters()])
    grown = math.exp(result.statement.epsilon)
    return (before - after) * len(batch[1]) / plan.learning_rate, (grown + result.statement.delta) / (grown + 1)


def successes(
    guess: Callable[[Tensor], bool],
    build: Callable[[], nn.Module],
    loss: Loss,
    worlds: tuple[Batch, Batch],
    micro_batch: int | None = None,
) -> tuple[int, float]:
    """How often the guess is right, and the statement's bound on the share."""
    right, bound = 0, 0.0
    for there, batch in enumerate(worlds):
        plan = plan_for(batch, 0, micro_batch)
        for seed in range(RUNS):
            released, bound = moved(dataclasses.replace(plan, seed=seed), build, loss, batch)
            right += guess(released) == bool(there)
    return right, bound


def refutes(right: int, bound: float, *, games: int = 2 * RUNS) -> bool:
    return float(stats.binomtest(right, games, bound, alternative="greater").pvalue) < 1 - CONFIDENCE


def without_last(batch: Batch) -> Batch:
    return batch[0][:-1], batch[1][:-1]


def between(build: Callable[[], nn.Module], loss: Loss, worlds: tuple[Batch, Batch]) -> Callable[[Tensor], bool]:
    """The likelier of the two worlds, from what each would release without noise."""
    absent, there = (
        moved(dataclasses.replace(plan_for(batch, 0), noise_multiplier=0.0), build, loss, batch)[0] for batch in worlds
    )
    return lambda released: bool((released - there).norm() < (released - absent).norm())


ATTACKED = ["trimmed to the longest", "trimmed to the longest, recurrent", "a branch on an extreme example"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTACKED)
def test_coupling_gives_an_example_away(kind: str, unchecked: None) -> None:
    build, loss, data = COUPLED[kind]
    there = extreme(data(RECORDS), kind)
    worlds = without_last(there), there
    assert refutes(*successes(between(build, loss, worlds), build, loss, worlds))


@pytest.mark.parametrize("kind", ATTACKED)
def test_so_such_a_run_is_refused(kind: str) -> None:
    build, loss, data = COUPLED[kind]
    for batch in (without_last(data()), extreme(data(), kind)):
        with pytest.raises(InputError, match="coupled"):
            moved(plan_for(batch, 0), build, loss, batch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked mean", "packed", "weights of classes"])
def test_of_what_is_accepted_the_attacker_learns_no_more_than_the_statement_allows(
    kind: str, request: pytest.FixtureRequest
) -> None:
    build, loss, data = UNCOUPLED[kind]
    moved(plan_for(data(), 0), build, loss, data())
    request.getfixturevalue("unchecked")  # once is enough
    worlds = without_last(data()), data()
    assert not refutes(*successes(between(build, loss, worlds), build, loss, worlds))


# Who shares a number. Pairs of examples add nothing while they share one; one more before them parts every pair.

PAIRS, LARGE = 192, 10.0


class Signs(nn.Module):
    """Multiplies what it is given by random signs; at weights of zero, an example's gradient is its sign times C."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.head, self.shared = nn.Linear(2, 3, bias=False), shared
        nn.init.zeros_(self.head.weight)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(values * (2.0 * (torch.rand(1 if self.shared else len(values), 1) < 0.5) - 1))


def pairs(first: bool) -> Batch:
    """Examples of which the second of a pair takes back what the first one adds, in two directions."""
    values, place = torch.zeros(PAIRS, 2, 2), torch.arange(PAIRS)
    direction, sign = place // (PAIRS // 2), 1.0 - 2.0 * (place % 2)
    values[place, 0, direction], values[place, 1, direction] = LARGE * sign, -LARGE * sign
    values = values.view(-1, 2)
    values = torch.cat([values[:1], values]) if first else values
    return values, torch.zeros(len(values), dtype=torch.long)


def far(released: Tensor) -> bool:
    return float(released.norm()) > 10.0


@pytest.mark.slow
def test_a_shared_draw_gives_an_example_away_and_is_refused(unchecked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = pairs(False), pairs(True)
    assert refutes(*successes(far, lambda: Signs(shared=True), each, worlds, micro_batch=2))
    monkeypatch.undo()
    with pytest.raises(InputError, match="shared"):
        moved(plan_for(worlds[1], 0), lambda: Signs(shared=True), each, worlds[1])


@pytest.mark.slow
def test_a_draw_of_each_example_gives_nobody_away(request: pytest.FixtureRequest) -> None:
    worlds = pairs(False), pairs(True)
    moved(plan_for(worlds[1], 0, micro_batch=2), lambda: Signs(shared=False), each, worlds[1])
    request.getfixturevalue("unchecked")  # once is enough
    assert not refutes(*successes(far, lambda: Signs(shared=False), each, worlds, micro_batch=2))
