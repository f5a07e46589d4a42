"""An attacker who knows all other records guesses from what is released whether one was there."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from adversarial.specimens import COUPLED, UNCOUPLED, Loss, Seen, Watched, as_data, each, extreme
from fitting import fit_plan
from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD, examples, gradients
from sfumato.central import examples as first_batch_check
from sfumato.central.examples import ExampleContribution
from sfumato.federated import FedAvg
from sfumato.federated.contribution import LocalContribution
from sfumato.guard import SelfCheck
from sfumato.per_example import covered
from sfumato.runs import run as runs
from sfumato.runs.processes import Team
from sfumato.training import loop

# An attacker who knows all other records guesses from the released model whether one was there.
#
# With coupled examples or shared draws the guess is right nearly always, at a guarantee that allows little more than
# a coin; such a run is refused. What is accepted stays within the statement.

Batch = tuple[Tensor, Tensor]
RECORDS = 96
RUNS = 20  # with the record, and as many without
CONFIDENCE = 0.99


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs as if nobody looked."""
    monkeypatch.setattr(examples, "first_batch_check", lambda trained, *_: SelfCheck(covered(trained.model), [], 0.0))
    for check in ("at_start", "while_training"):
        monkeypatch.setattr(gradients.Recheck, check, lambda *_: None)


def plan_for(batch: Batch, seed: int, micro_batch: int | None = None) -> DPSGD:
    """One step with all examples, at ε = 1."""
    count = len(batch[1])
    plan = DPSGD(steps=1, cohort=count, clipping=1.0, noise=0.0, seed=seed, examples={"micro_batch": micro_batch})
    return plan.calibrate(epsilon=1.0, delta=1e-5, population=count)


def moved(plan: DPSGD, build: Callable[[], nn.Module], loss: Loss, batch: Batch) -> tuple[Tensor, float]:
    """Where the released model went, times the public size of the batch, and what an attacker's success may be."""
    model = build()
    before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    result = plan.fit(model, as_data(batch), loss=loss)
    after = torch.cat([parameter.detach().flatten() for parameter in result.model.parameters()])
    grown = math.exp(result.statement.epsilon)
    return (before - after) * len(batch[1]) / plan.server.learning_rate, (grown + result.statement.delta) / (grown + 1)


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
    absent, there = (moved(plan_for(batch, 0).replace(noise=0.0), build, loss, batch)[0] for batch in worlds)
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


# An attacker who makes a run go on as another one subtracts what it releases from what was released before.
#
# The first process dies in its first round, after its noisy mean was seen; the second one goes on from the
# checkpoint. Everybody but the target adds nothing, so under one noise the two means differ only if the target is
# there. Without the checks the attacker is always right; with them the second process is refused, and the attacker
# tosses a coin.

COUNT, FEATURES, CLASSES = 12, 16, 3
EPSILON, DELTA = 1.0, 1e-5
BOUND = (math.exp(EPSILON) + DELTA) / (math.exp(EPSILON) + 1)
GAMES = 8  # with the target, and as many without


class Second(Team):
    """As one of two processes meets the examples: in another order; a stand-in, for the other one has none left."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    part = slice(None, None, -1)  # pyright: ignore[reportAssignmentType]

    def all_reduce(self, values: Tensor) -> Tensor:
        return values

    def from_leader(self, value: Any) -> Any:
        return value

    def broadcast(self, values: Tensor) -> Tensor:
        return values


def scaled(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda scores, labels: factor * functional.cross_entropy(scores, labels, reduction="none")


@dataclass(frozen=True)
class Setting:
    """What a process is started with."""

    loss: float = 1.0
    between: Callable[[], nn.Module] = nn.Tanh
    sign: float = 1.0
    team: type[Team] = Team


CHANGES = {
    "another lambda": (Setting(), Setting(loss=-1.0)),
    "another activation": (Setting(), Setting(between=lambda: nn.ELU(0.1))),
    "dropout, another number of processes": (
        Setting(between=lambda: nn.Dropout(0.5)),
        Setting(between=lambda: nn.Dropout(0.5), team=Second),
    ),
    "other pictures": (Setting(), Setting(sign=-1.0)),
}


def inputs(there: bool, sign: float, count: int = COUNT) -> np.ndarray:
    """Everybody has one number more, which the model does not look at."""
    values = np.zeros((count, FEATURES + 1), np.float32)
    values[-1, :-1] = sign * np.linspace(0.5, 2.0, FEATURES)
    values[:, -1] = sign
    return values if there else values[:-1]


class Part(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return values[:, :FEATURES]


def network(setting: Setting, outputs: int) -> nn.Module:
    torch.manual_seed(0)
    layers = Part(), nn.Linear(FEATURES, 16, bias=False), setting.between(), nn.Linear(16, outputs, bias=False)
    return nn.Sequential(*layers)


@cache
def calibrated(plan: DPSGD | FedAvg) -> Any:
    return plan.calibrate(epsilon=EPSILON, delta=DELTA, population=COUNT)


def example_run(setting: Setting, there: bool, seed: int) -> Callable[..., Any]:
    """DP-SGD with all examples in each step."""
    values = inputs(there, setting.sign)
    records = data.examples_from_arrays(values, np.arange(len(values)) % CLASSES, num_classes=CLASSES)
    plan = calibrated(DPSGD(steps=2, cohort=COUNT, clipping=1.0, noise=0.0))
    plan = replace(plan, seed=seed)
    return lambda **options: fit_plan(plan, network(setting, CLASSES), records, loss=scaled(setting.loss), **options)


def users(setting: Setting, there: bool, seed: int) -> Callable[..., Any]:
    """DP-FedAvg with all users in each round."""
    values = inputs(there, setting.sign)
    records = data.from_arrays(values, np.arange(len(values)) % CLASSES, np.arange(len(values)))
    plan = FedAvg(rounds=2, cohort=COUNT, clipping=1.0, noise=0.0, client={"learning_rate": 0.5})
    plan = replace(calibrated(plan), seed=seed)
    return lambda **options: fit_plan(plan, network(setting, 8), records, **options)


REFUSALS = ("resume with the same", "computes something else", "divide the model's random numbers")
KINDS = {"examples": example_run, "users": users}
CASES = [*(("examples", change) for change in CHANGES), ("users", "another activation"), ("users", "other pictures")]


CHECKED: dict[tuple[Setting, bool], SelfCheck] = {}
"""What the self-check found in the first game of a setting; it looks at records and model, which are those of all."""


def checked_once(setting: Setting, there: bool) -> Callable[..., SelfCheck]:
    """The self-check, whose answer is kept for the games that follow; the layers are the model's own."""
    real = first_batch_check.self_check

    def check(model: nn.Module, losses: Any, batch: Any, **options: Any) -> SelfCheck:
        found = CHECKED.get((setting, there))
        if found is None:
            found = CHECKED[setting, there] = real(model, losses, batch, **options)
        return replace(found, layers=covered(model))

    return check


def means(kind: str, change: str, there: bool, seed: int, folder: Path, patched: pytest.MonkeyPatch) -> list[Tensor]:
    """What both processes show, the second only if it was not refused."""
    seen = []
    for resume, setting in enumerate(CHANGES[change]):
        with patched.context() as patch:
            patch.setattr(runs, "Team", setting.team)
            patch.setattr(first_batch_check, "self_check", checked_once(setting, there))
            fit = KINDS[kind](setting, there, seed)
            try:
                fit(out=folder, resume=bool(resume), optimizer=lambda parameters: Watched(parameters, lr=0.1))
            except Seen as shown:
                seen.append(shown.mean)
    return seen


def guess(*given: Any) -> bool | None:
    """The attacker's, from both means; None if the second process was refused."""
    try:
        one, other = means(*given)
    except InputError as refusal:
        if not any(told in str(refusal) for told in REFUSALS):
            raise
        return None
    return bool((one - other).abs().max() > 1e-6)


def right_guesses(kind: str, change: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often the attacker is right, and how often refused."""
    coins, right, refused = np.random.default_rng(0).random(2 * GAMES) < 0.5, 0, 0
    for number in range(2 * GAMES):
        there = number % 2 == 1
        guessed = guess(kind, change, there, number, folder / str(number), monkeypatch)
        refused += guessed is None
        right += bool(coins[number] if guessed is None else guessed) == there
    return right, refused


@pytest.fixture
def unbound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that go on as whatever they are given."""
    monkeypatch.setattr(loop, "refuse_other", lambda *_, **__: None)
    for contribution in (ExampleContribution, LocalContribution):
        monkeypatch.setattr(contribution, "fingerprint", lambda _: "the same")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_a_run_that_goes_on_as_another_gives_its_target_away(kind, change, tmp_path, monkeypatch, unbound):
    right, refused = right_guesses(kind, change, tmp_path, monkeypatch)
    assert refused == 0
    assert refutes(right, BOUND, games=2 * GAMES)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_so_it_is_refused_and_the_attacker_stays_within_the_bound(kind, change, tmp_path, monkeypatch):
    right, refused = right_guesses(kind, change, tmp_path, monkeypatch)
    assert refused == 2 * GAMES
    assert not refutes(right, BOUND, games=2 * GAMES)


def test_a_single_other_picture_of_many_users_is_seen(tmp_path):
    """Also where there are so many that looking at a sample of them would be tempting."""
    count = 20_050
    plan = FedAvg(rounds=2, cohort=4, clipping=1.0, noise=1.0, seed=0)

    def go(place: int | None, **options: Any) -> None:
        values = inputs(True, 1.0, count)
        if place is not None:
            values[place] += 1.0
        records = data.from_arrays(values, np.arange(count) % CLASSES, np.arange(count))
        fit_plan(plan, network(Setting(), 8), records, out=tmp_path / "run", **options)

    with pytest.raises(Seen):
        go(None, optimizer=lambda parameters: Watched(parameters, lr=0.1))
    for place in (0, 777, count // 2, count - 3):
        with pytest.raises(InputError, match="from another plan, model or data set"):
            go(place, optimizer=lambda parameters: Watched(parameters, lr=0.1), resume=True)
